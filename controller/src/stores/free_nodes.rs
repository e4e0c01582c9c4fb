//! Free amounts of nodes, by the requests of their pods, as kube-scheduler compares them.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Taint};
use switchyard_api::quantity::amount_of;

use super::{Stores, nodes};

/// A node, and what it has free.
#[derive(Debug, Clone)]
pub struct FreeNode {
    node: Arc<Node>,
    /// Allocatable without the requests of its pods: milli-units for cpu, base units for all others,
    /// and the number of pods. Negative where pods request more than there is.
    pub free: BTreeMap<String, i64>,
}

impl FreeNode {
    fn new(node: Arc<Node>) -> Self {
        let allocatable = node.status.iter().flat_map(|status| status.allocatable.iter().flatten());
        let free = allocatable.map(|(name, amount)| (name.clone(), amount_of(name, amount)));
        Self { free: free.collect(), node }
    }

    /// Whether it is ready and not cordoned.
    #[must_use]
    pub fn takes_pods(&self) -> bool {
        nodes::takes_pods(&self.node)
    }

    /// Whether it has these labels.
    #[must_use]
    pub fn has_labels(&self, labels: &BTreeMap<String, String>) -> bool {
        let own = self.node.metadata.labels.as_ref();
        labels.iter().all(|(key, value)| own.and_then(|own| own.get(key)) == Some(value))
    }

    #[must_use]
    pub fn taints(&self) -> &[Taint] {
        nodes::taints(&self.node)
    }
}

impl Stores {
    /// All nodes, also those that take no pods.
    #[must_use]
    pub fn free_nodes(&self) -> Vec<FreeNode> {
        let mut found: Vec<FreeNode> = self.nodes.all().into_iter().map(FreeNode::new).collect();
        let names = found
            .iter()
            .enumerate()
            .filter_map(|(index, free)| Some((free.node.metadata.name.clone()?, index)));
        let names: HashMap<String, usize> = names.collect();
        for pod in self.pods.all() {
            let Some((node, requests)) = pod.usage() else { continue };
            let Some(node) = names.get(node).and_then(|index| found.get_mut(*index)) else {
                continue;
            };
            let own = requests.iter().map(|(name, amount)| (&**name, amount.get()));
            for (name, amount) in own.chain([("pods", 1)]) {
                if let Some(free) = node.free.get_mut(name) {
                    *free = free.saturating_sub(amount);
                }
            }
        }
        found
    }

    /// Calls `handler` when [`Self::free_nodes`] may have changed.
    pub fn on_free_nodes_change(&self, handler: impl Fn() + Clone + Send + Sync + 'static) {
        let call = handler.clone();
        self.nodes.subscribe(move |_| call());
        self.pods.subscribe(move |change| {
            let [old, new] = [&change.old, &change.new].map(|pod| pod.as_deref()?.usage());
            if old != new {
                handler();
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::stores::pods::{InternedRequests, PodRecord};

    fn node(name: &str, spec: &Value, ready: &str) -> Node {
        serde_json::from_value(json!({
            "metadata": {"name": name, "labels": {"tier": "spot"}}, "spec": spec,
            "status": {
                "allocatable": {"cpu": "4", "memory": "1Ki", "pods": "10"},
                "conditions": [{"type": "Ready", "status": ready}],
            },
        }))
        .unwrap()
    }

    fn pod(name: &str, node: &Value, phase: &str, annotations: &Value) -> PodRecord {
        let resources = json!({"requests": {"cpu": "1500m", "x/gpu": "1"}});
        let pod = json!({
            "metadata": {"name": name, "namespace": "ns", "annotations": annotations},
            "spec": {"nodeName": node, "containers": [{"name": "c", "resources": resources}]},
            "status": {"phase": phase},
        });
        let pod = serde_json::from_value(pod).unwrap();
        PodRecord::of(pod, &InternedRequests::default()).unwrap()
    }

    #[test]
    fn free_is_what_pods_of_all_owners_leave() {
        let stores = Stores::default();
        stores.nodes.insert(node("n1", &json!({}), "True"));
        let topology = json!({"kueue.x-k8s.io/podset-required-topology": "rack"});
        stores.pods.insert(pod("plain", &json!("n1"), "Running", &json!({})));
        stores.pods.insert(pod("elsewhere", &json!("gone"), "Running", &json!({})));
        stores.pods.insert(pod("placed", &json!("n1"), "Running", &topology));
        stores.pods.insert(pod("ended", &json!("n1"), "Succeeded", &topology));
        stores.pods.insert(pod("unbound", &json!(null), "Pending", &topology));
        let nodes = stores.free_nodes();
        let free = nodes[0].free.iter().map(|(name, free)| format!("{name}={free}"));
        assert_eq!(free.collect::<Vec<_>>(), ["cpu=1000", "memory=1024", "pods=8"]);
    }

    #[rstest::rstest]
    #[case::open(json!({}), "True", true)]
    #[case::cordoned(json!({"unschedulable": true}), "True", false)]
    #[case::not_ready(json!({}), "False", false)]
    #[case::unknown(json!({}), "Unknown", false)]
    #[case::tainted(json!({"taints": [{"key": "k", "effect": "NoSchedule"}]}), "True", true)]
    fn node_takes_pods_while_open(#[case] spec: Value, #[case] ready: &str, #[case] takes: bool) {
        let stores = Stores::default();
        stores.nodes.insert(node("n", &spec, ready));
        let nodes = stores.free_nodes();
        let labels = |value: &str| BTreeMap::from([("tier".to_owned(), value.to_owned())]);
        assert_eq!(nodes[0].takes_pods(), takes);
        assert!(nodes[0].has_labels(&labels("spot")) && !nodes[0].has_labels(&labels("other")));
    }
}
