//! Reads `onDisconnect` of Workloads, ClusterQueues and MultiKueueClusters. Pure. The dispatcher
//! decides which of them applies.

use kube::ResourceExt as _;
use switchyard_api::names;
use switchyard_api::v1beta2::{
    ClusterQueue, DisconnectPolicy, MultiKueueCluster, OnDisconnect, Workload,
};
use switchyard_dispatcher::LossPolicy;

/// Default wait of the policy `Duplicate`, in milliseconds.
const DUPLICATE_AFTER: i64 = 60_000;

/// The policy of a MultiKueueCluster. By default an agent's cluster is `Hold`. A kubeconfig worker
/// is given up after `multiKueue.workerLostTimeout`, as in Kueue.
pub(crate) fn of_cluster(cluster: &MultiKueueCluster) -> LossPolicy {
    let agent = cluster.spec.cluster_source.agent.is_some();
    match cluster.spec.on_disconnect.as_ref().map(loss) {
        None => {
            if agent {
                LossPolicy::Hold
            } else {
                LossPolicy::GiveUp
            }
        }
        // The API rejects a fence without an agent. A stored one is treated as `Hold`, because
        // without an agent nothing stops the jobs.
        Some(LossPolicy::Fence { .. }) if !agent => LossPolicy::Hold,
        Some(loss) => loss,
    }
}

/// The policy of the Workload's annotation, or else of its ClusterQueue. An unreadable annotation
/// is ignored.
pub(crate) fn of_workload(workload: &Workload, queue: Option<&ClusterQueue>) -> Option<LossPolicy> {
    let own = workload
        .annotations()
        .get(names::ON_DISCONNECT)
        .and_then(|text| text.parse::<OnDisconnect>().ok());
    own.as_ref().or_else(|| queue?.spec.on_disconnect.as_ref()).map(loss)
}

fn loss(rule: &OnDisconnect) -> LossPolicy {
    let after = rule.wait().map(|after| i64::try_from(after.as_millis()).unwrap_or(i64::MAX));
    match rule.policy {
        DisconnectPolicy::Hold => LossPolicy::Hold,
        DisconnectPolicy::Fence => LossPolicy::Fence { after: after.unwrap_or(0) },
        DisconnectPolicy::Duplicate => {
            LossPolicy::Duplicate { after: after.unwrap_or(DUPLICATE_AFTER) }
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    #[rstest]
    #[case::no_policy(json!({}), Value::Null, None)]
    #[case::queue_policy(json!({}), json!({"policy": "Duplicate"}), Some(LossPolicy::Duplicate { after: 60_000 }))]
    #[case::own_policy_goes_first(json!({"switchyard.dev/on-disconnect": "Fence/5s"}), json!({"policy": "Duplicate"}), Some(LossPolicy::Fence { after: 5_000 }))]
    #[case::unreadable_is_ignored(json!({"switchyard.dev/on-disconnect": "fence"}), json!({"policy": "Hold"}), Some(LossPolicy::Hold))]
    fn workload_policy_overrides_its_queue(
        #[case] annotations: Value,
        #[case] queue: Value,
        #[case] want: Option<LossPolicy>,
    ) {
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
    #[case::an_agent(json!({"agent": {}}), Value::Null, LossPolicy::Hold)]
    #[case::a_fenced_agent(json!({"agent": {}}), json!({"policy": "Fence"}), LossPolicy::Fence { after: 0 })]
    #[case::a_kubeconfig(json!({"kubeConfig": {"location": "s"}}), Value::Null, LossPolicy::GiveUp)]
    #[case::kubeconfig_without_fence(json!({"kubeConfig": {"location": "s"}}), json!({"policy": "Fence"}), LossPolicy::Hold)]
    #[case::duplicate(json!({"kubeConfig": {"location": "s"}}), json!({"policy": "Duplicate", "after": "5s"}), LossPolicy::Duplicate { after: 5_000 })]
    fn cluster_policy_depends_on_its_source(
        #[case] source: Value,
        #[case] rule: Value,
        #[case] want: LossPolicy,
    ) {
        let cluster = json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "MultiKueueCluster", "metadata": {"name": "c"},
            "spec": {"clusterSource": source, "onDisconnect": rule},
        });
        assert_eq!(of_cluster(&serde_json::from_value(cluster).unwrap()), want);
    }
}
