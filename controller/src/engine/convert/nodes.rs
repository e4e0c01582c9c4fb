//! Nodes as capacity leaves of a topology.

use std::{collections::BTreeMap, fmt, sync::Arc};

use k8s_openapi::api::core::v1::{Node, Taint};
use switchyard_api::quantity::amount_of;
use switchyard_api::v1beta2::ResourceFlavor;
use switchyard_platform::store::Key;
use switchyard_scheduler::{Amount, CapacityLeaf, Event, Name};

use super::selector;
use crate::stores::{
    Stores,
    nodes::{is_cordoned, is_ready, taints, takes_pods},
};

/// The engine's event for a node. A missing, cordoned or not ready node has no capacity.
pub(crate) fn event(stores: &Stores, key: &Key) -> Event {
    let node = stores.nodes.by_key(key).filter(|node| takes_pods(node));
    match node {
        Some(node) => Event::CapacityLeaf(Box::new(leaf(&node))),
        None => Event::CapacityLeafDeleted { name: Name::from(&*key.name) },
    }
}

/// The taints of a node for which pods of the flavor need a toleration of their own.
#[must_use]
pub fn taints_beyond<'a>(taints: &'a [Taint], flavor: &ResourceFlavor) -> Vec<&'a Taint> {
    let spec = &flavor.spec;
    let tolerations: Vec<_> = spec.tolerations.iter().map(selector::toleration).collect();
    let value = |taint: &Taint| taint.value.clone().unwrap_or_default();
    let is_named = |taint: &Taint| {
        spec.node_taints
            .iter()
            .any(|it| it.key == taint.key && it.effect == taint.effect && value(it) == value(taint))
    };
    let repels =
        |taint: &Taint| selector::taint(taint).is_none_or(|taint| taint.repels(&tolerations));
    taints.iter().filter(|taint| !is_named(taint) && repels(taint)).collect()
}

/// Why a node of a flavor does not count for the flavor's topology.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeExclusion {
    NotReady,
    Cordoned,
    /// It lacks the label of this level.
    LabelMissing(String),
}

impl fmt::Display for NodeExclusion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotReady => f.write_str("the node is not ready"),
            Self::Cordoned => f.write_str("the node is cordoned"),
            Self::LabelMissing(label) => write!(f, "the node has no label {label}"),
        }
    }
}

/// The nodes with a flavor's labels that do not count for its topology, by name.
#[must_use]
pub fn excluded_nodes(stores: &Stores, flavor: &str) -> BTreeMap<String, NodeExclusion> {
    let Some(flavor) = stores.resource_flavors.get("", flavor) else { return BTreeMap::new() };
    let topology = flavor.spec.topology_name.as_deref();
    let Some(topology) = topology.and_then(|name| stores.topologies.get("", name)) else {
        return BTreeMap::new();
    };
    let of_flavor = |labels: &BTreeMap<String, String>| {
        flavor.spec.node_labels.iter().all(|(key, value)| labels.get(key) == Some(value))
    };
    let none = BTreeMap::new();
    let exclusion = |node: &Node| {
        let labels = node.metadata.labels.as_ref().unwrap_or(&none);
        let missing = topology.spec.levels.iter().find(|it| !labels.contains_key(&it.node_label));
        match missing {
            _ if !of_flavor(labels) => None,
            Some(level) => Some(NodeExclusion::LabelMissing(level.node_label.clone())),
            None if !is_ready(node) => Some(NodeExclusion::NotReady),
            None if is_cordoned(node) => Some(NodeExclusion::Cordoned),
            None => None,
        }
    };
    let named = |node: &Arc<Node>| Some((node.metadata.name.clone()?, exclusion(node)?));
    stores.nodes.all().iter().filter_map(named).collect()
}

fn leaf(node: &Node) -> CapacityLeaf {
    let allocatable = node.status.iter().flat_map(|status| status.allocatable.iter().flatten());
    CapacityLeaf {
        name: Name::from(node.metadata.name.as_deref().unwrap_or_default()),
        labels: node.metadata.labels.clone().unwrap_or_default(),
        taints: taints(node).iter().filter_map(selector::taint).collect(),
        capacity: allocatable
            .map(|(resource, quantity)| {
                (Name::from(resource.as_str()), Amount::new(amount_of(resource, quantity)))
            })
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use switchyard_jobs::apply_merge;

    use super::*;
    use crate::stores::nodes::strip_unused_fields;

    fn event_text(change: &Value) -> String {
        let mut node = json!({
            "metadata": {"name": "n1", "labels": {"rack": "r1"}, "annotations": {"a": "b"}},
            "spec": {"taints": [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]},
            "status": {
                "allocatable": {"cpu": "1500m", "memory": "1Gi", "pods": "110"},
                "conditions": [{"type": "Ready", "status": "True"}, {"type": "DiskPressure", "status": "False"}],
                "images": [{"names": ["a"]}],
            },
        });
        apply_merge(&mut node, change);
        let mut node: Node = serde_json::from_value(node).unwrap();
        strip_unused_fields(&mut node);
        assert!(node.metadata.annotations.is_none());
        assert!(node.status.as_ref().is_none_or(|status| status.images.is_none()));
        let stores = Stores::default();
        stores.nodes.insert(node);
        match event(&stores, &Key::new("", "n1")) {
            Event::CapacityLeaf(leaf) => {
                let capacity =
                    leaf.capacity.iter().map(|(name, amount)| format!("{name}={amount}"));
                format!("{} taints={}", capacity.collect::<Vec<_>>().join(" "), leaf.taints.len())
            }
            event => format!("{event:?}"),
        }
    }

    #[rstest]
    #[case::ready(json!({}), "cpu=1500 memory=1073741824 pods=110 taints=1")]
    #[case::unknown_taint_effect(
        json!({"spec": {"taints": [{"key": "a", "effect": "Later"}]}}), "cpu=1500 memory=1073741824 pods=110 taints=0")]
    #[case::invalid_quantities(
        json!({"status": {"allocatable": {"cpu": "-2", "memory": null}}}), "cpu=-2000 pods=110 taints=1")]
    #[case::cordoned(json!({"spec": {"unschedulable": true}}), "CapacityLeafDeleted { name: \"n1\" }")]
    #[case::not_ready(
        json!({"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}), "CapacityLeafDeleted { name: \"n1\" }")]
    #[case::no_status(json!({"status": null}), "CapacityLeafDeleted { name: \"n1\" }")]
    fn node_becomes_a_capacity_leaf(#[case] change: Value, #[case] expected: &str) {
        assert_eq!(event_text(&change), expected);
    }

    #[test]
    fn deleted_node_has_no_capacity() {
        assert!(matches!(
            event(&Stores::default(), &Key::new("", "n")),
            Event::CapacityLeafDeleted { .. }
        ));
    }
}
