//! Reads `onStuck` of Workloads and ClusterQueues, and the earlier moves. Pure.

use kube::ResourceExt as _;
use switchyard_api::conditions::reasons::evicted::PODS_READY_TIMEOUT;
use switchyard_api::names;
use switchyard_api::v1beta2::{ClusterQueue, OnStuck, OnStuckAnnotation, Workload};
use switchyard_dispatcher::{STUCK, StuckFacts, StuckPolicy};

/// The policy of the Workload's annotation, or else of its ClusterQueue. An unreadable annotation
/// is ignored.
fn policy(workload: &Workload, queue: Option<&ClusterQueue>) -> Option<StuckPolicy> {
    let of = |rule: &OnStuck| {
        let after = i64::try_from(rule.wait()?.as_millis()).unwrap_or(i64::MAX);
        Some(StuckPolicy { after, times: u32::try_from(rule.times).unwrap_or(0) })
    };
    let own = workload.annotations().get(names::ON_STUCK).and_then(|text| text.parse().ok());
    match own {
        Some(OnStuckAnnotation::Stay) => None,
        Some(OnStuckAnnotation::Move(rule)) => of(&rule),
        None => queue?.spec.on_stuck.as_ref().and_then(of),
    }
}

/// The policy, and what the Workload's status remembers of clusters without ready pods.
pub(crate) fn stuck_facts(workload: &Workload, queue: Option<&ClusterQueue>) -> StuckFacts {
    let dispatch = workload.status.as_ref().and_then(|status| status.dispatch.as_ref());
    let was_stuck = |reason: &str| matches!(reason, STUCK | PODS_READY_TIMEOUT);
    let history = dispatch.map(|dispatch| dispatch.history.as_slice()).unwrap_or_default();
    let clusters = history
        .iter()
        .filter(|past| was_stuck(&past.reason))
        .map(|past| past.cluster_name.as_str().into())
        .collect();
    let counted = dispatch.and_then(|it| u32::try_from(it.stuck_moves).ok()).unwrap_or(0);
    // A CRD of an older version drops the count.
    let seen = history.iter().filter(|past| past.reason == STUCK).count();
    let moves = counted.max(u32::try_from(seen).unwrap_or(u32::MAX));
    StuckFacts { policy: policy(workload, queue), moves, clusters }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    fn facts(annotations: &Value, queue: &Value, dispatch: &Value) -> StuckFacts {
        let workload = json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
            "metadata": {"name": "w", "annotations": annotations}, "spec": {"podSets": []},
            "status": {"dispatch": dispatch},
        });
        let queue = json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {"name": "q"},
            "spec": {"onStuck": queue},
        });
        let (workload, queue) =
            (serde_json::from_value(workload).unwrap(), serde_json::from_value(queue).unwrap());
        stuck_facts(&workload, Some(&queue))
    }

    #[rstest]
    #[case::off_by_default(json!({}), Value::Null, None)]
    #[case::queue_policy(json!({}), json!({"after": "10m"}), Some((600_000, 3)))]
    #[case::own_policy_goes_first(json!({"switchyard.dev/on-stuck": "1m/1"}), json!({"after": "10m"}), Some((60_000, 1)))]
    #[case::own_policy_turns_it_off(json!({"switchyard.dev/on-stuck": "Stay"}), json!({"after": "10m"}), None)]
    #[case::unreadable_is_ignored(json!({"switchyard.dev/on-stuck": "soon"}), json!({"after": "10m", "times": 1}), Some((600_000, 1)))]
    #[case::too_short_is_off(json!({}), json!({"after": "1s"}), None)]
    fn workload_policy_overrides_its_queue(
        #[case] annotations: Value,
        #[case] queue: Value,
        #[case] want: Option<(i64, u32)>,
    ) {
        let policy = facts(&annotations, &queue, &Value::Null).policy;
        assert_eq!(policy.map(|policy| (policy.after, policy.times)), want);
    }

    #[test]
    fn history_names_clusters_without_ready_pods() {
        let past = |attempt: i64, cluster: &str, reason: &str| json!({"attempt": attempt, "clusterName": cluster, "reason": reason, "at": "2026-01-01T00:00:00Z"});
        let history = [
            past(1, "west", "Stuck"),
            past(2, "south", "ClusterLost"),
            past(3, "east", "PodsReadyTimeout"),
        ];
        let dispatch = json!({"attempt": 4, "stuckMoves": 5, "history": history});
        let facts = facts(&json!({}), &Value::Null, &dispatch);
        assert_eq!((facts.moves, facts.clusters), (5, vec!["west".into(), "east".into()]));
    }
}
