//! What the loss of a cluster means, as people wrote it: on the Workload, its ClusterQueue, and the MultiKueueCluster. Pure,
//! given what the stores hold. Which of them counts is the dispatcher's business.

use kube::ResourceExt as _;
use switchyard_api::names;
use switchyard_api::v1beta2::{
    ClusterQueue, DisconnectPolicy, MultiKueueCluster, OnDisconnect, Workload,
};

use crate::dispatch::Loss;

/// How long a cluster is away before jobs under `Duplicate` go elsewhere, where nothing is said. Milliseconds.
const DUPLICATE_AFTER: i64 = 60_000;

/// An agent keeps what runs, unless told otherwise; a kubeconfig worker is given up after a while, as Kueue does.
pub(crate) fn of_cluster(cluster: &MultiKueueCluster) -> Loss {
    let agent = cluster.spec.cluster_source.agent.is_some();
    match cluster.spec.on_disconnect.as_ref().map(loss) {
        None => {
            if agent {
                Loss::Hold
            } else {
                Loss::GiveUp
            }
        }
        // The API refuses a fence where there is no agent: should one come through, nothing stops the jobs.
        Some(Loss::Fence { .. }) if !agent => Loss::Hold,
        Some(loss) => loss,
    }
}

/// The workload's own word, or else its queue's. What cannot be read is as if it were not there.
pub(crate) fn of_workload(workload: &Workload, queue: Option<&ClusterQueue>) -> Option<Loss> {
    let own = workload
        .annotations()
        .get(names::ON_DISCONNECT)
        .and_then(|text| text.parse::<OnDisconnect>().ok());
    own.as_ref().or_else(|| queue?.spec.on_disconnect.as_ref()).map(loss)
}

fn loss(rule: &OnDisconnect) -> Loss {
    let after = rule.wait().map(|after| i64::try_from(after.as_millis()).unwrap_or(i64::MAX));
    match rule.policy {
        DisconnectPolicy::Hold => Loss::Hold,
        DisconnectPolicy::Fence => Loss::Fence { after: after.unwrap_or(0) },
        DisconnectPolicy::Duplicate => Loss::Duplicate { after: after.unwrap_or(DUPLICATE_AFTER) },
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    #[rstest]
    #[case::nobody_says_anything(json!({}), Value::Null, None)]
    #[case::its_queue_does(json!({}), json!({"policy": "Duplicate"}), Some(Loss::Duplicate { after: 60_000 }))]
    #[case::its_own_word_goes_before(json!({"switchyard.dev/on-disconnect": "Fence/5s"}), json!({"policy": "Duplicate"}), Some(Loss::Fence { after: 5_000 }))]
    #[case::what_cannot_be_read_is_not_there(json!({"switchyard.dev/on-disconnect": "fence"}), json!({"policy": "Hold"}), Some(Loss::Hold))]
    fn of_workloads(#[case] annotations: Value, #[case] queue: Value, #[case] want: Option<Loss>) {
        let workload = json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
            "metadata": {"name": "w", "annotations": annotations}, "spec": {"podSets": []},
        });
        let queue = json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {"name": "q"},
            "spec": {"onDisconnect": queue},
        });
        let (workload, queue) =
            (serde_json::from_value(workload).unwrap(), serde_json::from_value(queue).unwrap());
        assert_eq!(of_workload(&workload, Some(&queue)), want);
    }

    #[rstest]
    #[case::an_agent(json!({"agent": {}}), Value::Null, Loss::Hold)]
    #[case::a_fenced_agent(json!({"agent": {}}), json!({"policy": "Fence"}), Loss::Fence { after: 0 })]
    #[case::a_kubeconfig(json!({"kubeConfig": {"location": "s"}}), Value::Null, Loss::GiveUp)]
    #[case::a_kubeconfig_has_no_fence(json!({"kubeConfig": {"location": "s"}}), json!({"policy": "Fence"}), Loss::Hold)]
    #[case::it_may_run_twice(json!({"kubeConfig": {"location": "s"}}), json!({"policy": "Duplicate", "after": "5s"}), Loss::Duplicate { after: 5_000 })]
    fn of_clusters(#[case] source: Value, #[case] rule: Value, #[case] want: Loss) {
        let cluster = json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "MultiKueueCluster", "metadata": {"name": "c"},
            "spec": {"clusterSource": source, "onDisconnect": rule},
        });
        assert_eq!(of_cluster(&serde_json::from_value(cluster).unwrap()), want);
    }
}
