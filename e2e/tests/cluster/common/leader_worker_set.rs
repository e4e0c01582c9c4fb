//! LeaderWorkerSets where their operator does not run.

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DynamicObject, PostParams, ResourceExt as _};
use serde_json::{Value, json};
use switchyard_e2e::Cluster;

use super::install_crds_of;

pub(crate) const API_VERSION: &str = "leaderworkerset.x-k8s.io/v1";
/// The label with the name of a pod's LeaderWorkerSet.
pub(crate) const SET_NAME: &str = "leaderworkerset.sigs.k8s.io/name";
/// The label with the number of a pod's replica.
pub(crate) const GROUP_INDEX: &str = "leaderworkerset.sigs.k8s.io/group-index";
/// The annotation with the name of a worker's leader.
pub(crate) const LEADER_NAME: &str = "leaderworkerset.sigs.k8s.io/leader-name";

/// Installs the CRD of LeaderWorkerSet.
pub(crate) async fn install(cluster: &Cluster) {
    install_crds_of(cluster, "sigs.k8s.io/lws", "config/crd/bases").await;
}

/// Creates a pod of a replica, with the labels that the operator gives it. The LeaderWorkerSet controls
/// the pod; the operator has a StatefulSet between them. Only for clusters without stock Kueue: Kueue
/// ungates such a pod (`shouldUngatePod` in its `pkg/util/statefulset`).
pub(crate) async fn make_pod(pods: &Api<Pod>, set: &DynamicObject, role: &str, index: u32) {
    let mut pod =
        set.data.pointer(&format!("/spec/leaderWorkerTemplate/{role}Template")).unwrap().clone();
    let leader = format!("{}-{index}", set.name_any());
    let name = if role == "leader" { leader.clone() } else { format!("{leader}-1") };
    let mut metadata = json!({
        "name": name, "ownerReferences": [controlled_by(API_VERSION, "LeaderWorkerSet", set)],
        "labels": {SET_NAME: set.name_any(), GROUP_INDEX: index.to_string()},
    });
    if role == "worker" {
        metadata["annotations"] = json!({LEADER_NAME: leader});
    }
    switchyard_jobs::apply_merge(&mut pod, &json!({ "metadata": metadata }));
    pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
}

/// The reference to the controller of an object.
pub(crate) fn controlled_by(
    api_version: &str,
    kind: &str,
    controller: &impl kube::ResourceExt,
) -> Value {
    json!({
        "apiVersion": api_version, "kind": kind, "name": controller.name_any(),
        "uid": controller.uid(), "controller": true,
    })
}
