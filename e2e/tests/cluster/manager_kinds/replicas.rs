//! A LeaderWorkerSet of two replicas, each a leader and a worker. Its operator does not run here: the
//! test makes its pods on the worker.

use anyhow::ensure;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{DeleteParams, DynamicObject, ListParams};
use serde_json::{Value, json};
use switchyard_e2e::Cluster;
use switchyard_e2e::job::RUN_FOR;
use switchyard_e2e::wait::eventually;

use super::{SOON, template};
use crate::serving::{LWS, make_pod};

pub(super) const REPLICAS: (&str, &str, &str) = (LWS, "LeaderWorkerSet", "llm");
const ROLES: [&str; 2] = ["leader", "worker"];
const NUMBER: u32 = 2;
/// The number of its pods.
pub(super) const PODS: usize = ROLES.len() * NUMBER as usize;

pub(super) fn leader_worker_set() -> DynamicObject {
    let (api, kind, name) = REPLICAS;
    let mut of: Value = json!({"size": ROLES.len()});
    for role in ROLES {
        let metadata = json!({"annotations": {RUN_FOR: "forever"}});
        of[format!("{role}Template")] = json!({"metadata": metadata, "spec": template()});
    }
    let set = json!({
        "apiVersion": api, "kind": kind,
        "metadata": {"name": name, "labels": {"kueue.x-k8s.io/queue-name": "main"}},
        "spec": {
            "replicas": NUMBER, "leaderWorkerTemplate": of,
            "rolloutStrategy": {"type": "RollingUpdate"}, "startupPolicy": "LeaderCreated",
        },
    });
    serde_json::from_value(set).unwrap()
}

/// Makes the pods of the copy, once it is there.
pub(super) async fn make_pods(worker: &Cluster, namespace: &str) -> anyhow::Result<()> {
    let (api, kind, name) = REPLICAS;
    let sets = worker.dynamic(api, kind, namespace).await?;
    let copy = async || Ok(sets.get(name).await?);
    let copy = eventually(SOON, "the LeaderWorkerSet's copy", copy).await?;
    let pods: Api<Pod> = Api::namespaced(worker.admin.clone(), namespace);
    for index in 0..NUMBER {
        for role in ROLES {
            make_pod(&pods, &copy, role, index).await;
        }
    }
    Ok(())
}

/// Deletes the pods, once the copy is gone. Kubernetes' garbage collector learns of a new kind up to half
/// a minute late.
pub(super) async fn delete_pods(worker: &Cluster, namespace: &str) -> anyhow::Result<()> {
    let (api, kind, name) = REPLICAS;
    let sets = worker.dynamic(api, kind, namespace).await?;
    let gone = async || {
        ensure!(sets.get_opt(name).await?.is_none(), "it is still there");
        Ok(())
    };
    eventually(SOON, "the LeaderWorkerSet's copy to be gone", gone).await?;
    let pods: Api<Pod> = Api::namespaced(worker.admin.clone(), namespace);
    let own = ListParams::default().labels(&format!("leaderworkerset.sigs.k8s.io/name={name}"));
    pods.delete_collection(&DeleteParams::default(), &own).await?;
    Ok(())
}
