//! Usage of nodes by pods that topology-aware scheduling did not place.

use switchyard_platform::store::Key;
use switchyard_scheduler::{Event, Name, NonTasPod};

use crate::stores::{Stores, pods::NonTasUsage};

/// The engine's event for a pod outside of workloads' assignments: its usage, or that it has none.
pub(crate) fn event(stores: &Stores, key: &Key) -> Event {
    let name = Name::from(key.to_string());
    let topologies = stores.topologies.all();
    let levels = || topologies.iter().flat_map(|topology| &topology.spec.levels);
    let is_level = |key: &str| levels().any(|level| level.node_label == key);
    let record = stores.pods.by_key(key);
    match record.as_ref().and_then(|record| record.outside(is_level)) {
        None => Event::NonTasPodDeleted { key: name },
        Some(NonTasUsage { node, requests }) => {
            let pod = NonTasPod { key: name, leaf: node, requests: (*requests).clone() };
            Event::NonTasPod(Box::new(pod))
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};
    use switchyard_api::names;

    use super::*;
    use crate::stores::pods::{InternedRequests, PodRecord, tests::pod};

    fn event_text(change: &Value) -> String {
        let stores = Stores::default();
        let Some(record) = PodRecord::of(pod(change), &InternedRequests::default()) else {
            return "nothing".into();
        };
        let levels = json!({"levels": [{"nodeLabel": "rack"}]});
        let topology = json!({"metadata": {"name": "t"}, "spec": levels});
        stores.topologies.insert(serde_json::from_value(topology).unwrap());
        stores.pods.insert(record);
        match event(&stores, &Key::new("ns", "a")) {
            Event::NonTasPod(pod) => {
                let requests = pod.requests.iter().map(|(name, amount)| format!("{name}={amount}"));
                format!("{} on {}: {}", pod.key, pod.leaf, requests.collect::<Vec<_>>().join(" "))
            }
            event => format!("{event:?}"),
        }
    }

    #[rstest]
    #[case::running(json!({}), "ns/a on n1: cpu=500")]
    #[case::overhead(json!({"spec": {"overhead": {"cpu": "100m"}}}), "ns/a on n1: cpu=600")]
    #[case::terminating(json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}), "ns/a on n1: cpu=500")]
    #[case::ended(json!({"status": {"phase": "Succeeded"}}), "nothing")]
    #[case::no_node(json!({"spec": {"nodeName": null}}), "nothing")]
    #[case::placed_with_selector(
        json!({"metadata": {"annotations": {names::POD_SET_UNCONSTRAINED_TOPOLOGY: "false"}}, "spec": {"nodeSelector": {"rack": "r"}}}),
        "NonTasPodDeleted { key: \"ns/a\" }")]
    #[case::topology_without_level_selector(
        json!({"metadata": {"annotations": {names::POD_SET_REQUIRED_TOPOLOGY: "rack"}}, "spec": {"nodeSelector": {"pool": "a"}}}),
        "ns/a on n1: cpu=500")]
    fn usage_of_a_pod_outside_assignments(#[case] change: Value, #[case] expected: &str) {
        assert_eq!(event_text(&change), expected);
    }
}
