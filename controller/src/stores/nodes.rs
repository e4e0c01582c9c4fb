//! Nodes as they are stored, and what is read of them.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, NodeCondition, NodeStatus, Taint};
use switchyard_scheduler::HOSTNAME_LABEL;

use super::Stores;

/// Removes all fields that are not read. A cluster has thousands of nodes with large statuses.
pub(crate) fn strip_unused_fields(node: &mut Node) {
    node.metadata.annotations = None;
    if let Some(spec) = &mut node.spec {
        spec.pod_cidrs = None;
        spec.provider_id = None;
    }
    let Some(status) = node.status.take() else { return };
    let ready = status
        .conditions
        .into_iter()
        .flatten()
        .filter(|condition| condition.type_ == "Ready")
        .map(|condition| {
            // Heartbeats must not count as changes.
            NodeCondition { last_heartbeat_time: None, message: None, reason: None, ..condition }
        });
    let conditions = Some(ready.collect());
    node.status =
        Some(NodeStatus { allocatable: status.allocatable, conditions, ..NodeStatus::default() });
}

/// The value of the hostname label.
pub(crate) fn hostname(node: &Node) -> Option<&str> {
    node.metadata.labels.as_ref()?.get(HOSTNAME_LABEL).map(String::as_str)
}

/// The node with this hostname. Nearly always that is its name, so the store is tried by name
/// first.
pub(crate) fn of_host(stores: &Stores, host: &str) -> Option<Arc<Node>> {
    let named =
        stores.nodes.get("", host).filter(|node| hostname(node).is_none_or(|it| it == host));
    named.or_else(|| stores.nodes.filter(|node| hostname(node) == Some(host)).into_iter().next())
}

pub(crate) fn ready_condition(node: &Node) -> Option<&NodeCondition> {
    node.status.as_ref()?.conditions.as_ref()?.iter().find(|condition| condition.type_ == "Ready")
}

pub(crate) fn is_ready(node: &Node) -> bool {
    ready_condition(node).is_some_and(|condition| condition.status == "True")
}

pub(crate) fn taints(node: &Node) -> &[Taint] {
    node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default()
}

/// Whether the node is ready and not cordoned.
pub(crate) fn takes_pods(node: &Node) -> bool {
    is_ready(node) && !is_cordoned(node)
}

pub(crate) fn is_cordoned(node: &Node) -> bool {
    node.spec.as_ref().is_some_and(|spec| spec.unschedulable == Some(true))
}
