//! A LeaderWorkerSet of two replicas, each a leader and a worker. Its operator does not run here: the
//! test makes its StatefulSets on the worker.

use anyhow::ensure;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use switchyard_e2e::Cluster;
use switchyard_e2e::job::RUN_FOR;
use switchyard_e2e::wait::eventually;

use super::{SOON, template};
use crate::common::leader_worker_set::{
    API_VERSION, GROUP_INDEX, LEADER_NAME, SET_NAME, controlled_by,
};

const KIND: &str = "LeaderWorkerSet";
const NAME: &str = "llm";
pub(super) const REPLICAS: (&str, &str, &str) = (API_VERSION, KIND, NAME);
const ROLES: [&str; 2] = ["leader", "worker"];
const NUMBER: u32 = 2;
/// The number of its pods.
pub(super) const PODS: usize = ROLES.len() * NUMBER as usize;

pub(super) fn leader_worker_set() -> DynamicObject {
    let mut of: Value = json!({"size": ROLES.len()});
    for role in ROLES {
        let metadata = json!({"annotations": {RUN_FOR: "forever"}});
        of[format!("{role}Template")] = json!({"metadata": metadata, "spec": template()});
    }
    let set = json!({
        "apiVersion": API_VERSION, "kind": KIND,
        "metadata": {"name": NAME, "labels": {"kueue.x-k8s.io/queue-name": "main"}},
        "spec": {
            "replicas": NUMBER, "leaderWorkerTemplate": of,
            "rolloutStrategy": {"type": "RollingUpdate"}, "startupPolicy": "LeaderCreated",
        },
    });
    serde_json::from_value(set).unwrap()
}

/// Makes the StatefulSets of the copy, as the operator does: one of all leaders, and one that each leader
/// controls, of its workers.
pub(super) async fn make_stateful_sets(worker: &Cluster, namespace: &str) -> anyhow::Result<()> {
    let sets = worker.dynamic(API_VERSION, KIND, namespace).await?;
    let copy = async || Ok(sets.get(NAME).await?);
    let copy = eventually(SOON, "the LeaderWorkerSet's copy", copy).await?;
    let leaders = json!({
        "metadata": {"ownerReferences": [controlled_by(API_VERSION, KIND, &copy)]},
        "spec": {"replicas": NUMBER},
    });
    worker.apply([stateful_set(&copy, "leader", NAME, &leaders)]).await?;
    let pods: Api<Pod> = Api::namespaced(worker.admin.clone(), namespace);
    for index in 0..NUMBER {
        let name = format!("{NAME}-{index}");
        // Kueue waits for this label, which the operator's webhook sets.
        let labels = json!({"labels": {GROUP_INDEX: index.to_string()}});
        let labelled = Patch::Merge(json!({"metadata": labels}));
        let label = async || Ok(pods.patch(&name, &PatchParams::default(), &labelled).await?);
        let leader = eventually(SOON, format!("the leader {name}"), label).await?;
        let template = json!({
            "metadata": {"labels": labels["labels"], "annotations": {LEADER_NAME: name}},
        });
        let workers = json!({
            "metadata": {"ownerReferences": [controlled_by("v1", "Pod", &leader)]},
            "spec": {"replicas": 1, "ordinals": {"start": 1}, "template": template},
        });
        worker.apply([stateful_set(&copy, "worker", &name, &workers)]).await?;
    }
    Ok(())
}

/// A StatefulSet whose pods have the template of this role in the copy. `overrides` are merged into it.
fn stateful_set(copy: &DynamicObject, role: &str, name: &str, overrides: &Value) -> Value {
    let selected = json!({"e2e.switchyard.dev/stateful-set": name});
    let mut template = copy.data["spec"]["leaderWorkerTemplate"][format!("{role}Template")].clone();
    let mut labels = selected.clone();
    labels[SET_NAME] = NAME.into();
    switchyard_jobs::apply_merge(&mut template, &json!({"metadata": {"labels": labels}}));
    let mut set = json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet",
        "metadata": {
            "name": name, "namespace": copy.namespace(), "labels": {SET_NAME: NAME},
        },
        "spec": {
            "serviceName": NAME, "selector": {"matchLabels": selected}, "template": template,
            "podManagementPolicy": "Parallel",
        },
    });
    switchyard_jobs::apply_merge(&mut set, overrides);
    set
}

/// Deletes the StatefulSets once the copy is gone; the garbage collector then deletes their pods. It
/// would delete the StatefulSets too, but learns of a new kind up to half a minute late.
pub(super) async fn delete_stateful_sets(worker: &Cluster, namespace: &str) -> anyhow::Result<()> {
    let copies = worker.dynamic(API_VERSION, KIND, namespace).await?;
    let gone = async || {
        ensure!(copies.get_opt(NAME).await?.is_none(), "it is still there");
        Ok(())
    };
    eventually(SOON, "the LeaderWorkerSet's copy to be gone", gone).await?;
    let sets: Api<StatefulSet> = Api::namespaced(worker.admin.clone(), namespace);
    let of_copy = ListParams::default().labels(&format!("{SET_NAME}={NAME}"));
    sets.delete_collection(&DeleteParams::background(), &of_copy).await?;
    Ok(())
}
