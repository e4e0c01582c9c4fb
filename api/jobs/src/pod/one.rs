//! A single pod: its state and its scheduling gate.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::shape::shape_hash;
use crate::meta::{
    annotation, is_deleting, is_sent, label, object_mut, set_annotation, set_label, str_at, time_at,
};
use crate::status::is_true;
use crate::{JobError, PodSetInfo, frameworks};
use switchyard_syntax::names;

/// Whether the pod has the scheduling gate of admission.
pub fn is_gated(pod: &Value) -> bool {
    has_gate(pod, names::ADMISSION_SCHEDULING_GATE)
}

fn has_gate(pod: &Value, gate: &str) -> bool {
    let gates = pod.pointer("/spec/schedulingGates").and_then(Value::as_array);
    gates.into_iter().flatten().any(|it| str_at(it, "/name") == gate)
}

/// Whether its containers have ended for good.
pub fn is_terminated(pod: &Value) -> bool {
    matches!(phase(pod), "Failed" | "Succeeded")
}

pub(super) fn phase(pod: &Value) -> &str {
    str_at(pod, "/status/phase")
}

/// Whether it is gated and cannot start by itself.
pub(super) fn is_suspended(pod: &Value) -> bool {
    is_terminated(pod) || is_gated(pod)
}

/// Whether it can run, runs, or has succeeded. A pod that is being deleted and has no node never
/// runs.
pub(super) fn is_runnable_or_succeeded(pod: &Value) -> bool {
    let never_runs = is_deleting(pod) && str_at(pod, "/spec/nodeName").is_empty();
    !never_runs && phase(pod) != "Failed"
}

pub(super) fn is_ready(pod: &Value) -> bool {
    is_true(pod, "Ready")
}

/// Whether its failure is the failure of its group.
pub(super) fn is_unretriable(pod: &Value) -> bool {
    annotation(pod, names::RETRIABLE_IN_GROUP) == Some("false")
}

/// Whether an owner of the pod gates it and handles its deletion.
pub(super) fn is_suspended_by_parent(pod: &Value) -> bool {
    annotation(pod, names::POD_SUSPENDING_PARENT).is_some()
}

/// The name of its group, by annotation or label. `None` for a single pod.
pub fn group_name(pod: &Value) -> Option<&str> {
    let given = |name: &&str| !name.is_empty();
    let annotated = annotation(pod, names::POD_GROUP_NAME).filter(given);
    annotated.or_else(|| label(pod, names::POD_GROUP_NAME).filter(given))
}

/// Its role in its group: pods with the same shape share a role. A gated pod has the role written
/// down, because admission changes the shape.
#[must_use]
pub fn role(pod: &Value) -> String {
    annotation(pod, names::ROLE_HASH).map_or_else(|| shape_hash(pod), str::to_owned)
}

/// Whether the pod belongs to a serving framework and has no group yet.
pub(super) fn awaits_group(pod: &Value) -> bool {
    let by = annotation(pod, names::POD_SUSPENDING_PARENT);
    let serving = [frameworks::STATEFUL_SET, frameworks::LEADER_WORKER_SET];
    by.is_some_and(|by| serving.contains(&by)) && group_name(pod).is_none()
}

/// The time until which a running pod counts as active. If it is being deleted, twice its grace
/// period at most, because its node may be lost. `None` means as long as it runs.
pub(super) fn active_until(pod: &Value) -> Option<Timestamp> {
    let deleted = time_at(pod, "/metadata/deletionTimestamp")?;
    let grace = pod.pointer("/metadata/deletionGracePeriodSeconds").and_then(Value::as_i64)?;
    deleted.checked_add(SignedDuration::from_secs(grace)).ok()
}

/// When it was last active: the earlier of its failure and its deletion.
pub(super) fn last_active(pod: &Value, now: Timestamp) -> Timestamp {
    let conditions =
        pod.pointer("/status/conditions").and_then(Value::as_array).into_iter().flatten();
    let containers = conditions.into_iter().find(|it| str_at(it, "/type") == "ContainersReady");
    let failed = containers
        .filter(|it| str_at(it, "/status") == "False" && str_at(it, "/reason") == "PodFailed");
    let failed = failed.and_then(|it| time_at(it, "/lastTransitionTime")).unwrap_or(now);
    failed.min(time_at(pod, "/metadata/deletionTimestamp").unwrap_or(now))
}

pub(super) fn created(pod: &Value) -> Option<Timestamp> {
    time_at(pod, "/metadata/creationTimestamp")
}

pub(super) fn is_held(pod: &Value) -> bool {
    finalizers(pod).any(|it| it == names::MANAGED)
}

fn finalizers(pod: &Value) -> impl Iterator<Item = &str> {
    pod.pointer("/metadata/finalizers")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
}

/// Removes Kueue's finalizer. Returns true if it was there.
pub(super) fn release(pod: &mut Value) -> bool {
    let held = is_held(pod);
    if let Some(list) = pod.pointer_mut("/metadata/finalizers").and_then(Value::as_array_mut) {
        list.retain(|it| it.as_str() != Some(names::MANAGED));
    }
    held
}

/// Marks a new pod as managed and gates it.
pub(super) fn gate(pod: &mut Value) {
    set_label(pod, names::MANAGED, "true");
    if !is_suspended_by_parent(pod) && !is_held(pod) {
        append(pod, "metadata", "finalizers", Value::from(names::MANAGED));
    }
    if !is_gated(pod) {
        append(pod, "spec", "schedulingGates", json!({ "name": names::ADMISSION_SCHEDULING_GATE }));
    }
    // The webhook overwrites the owner's value, because all pods of a role are charged like the
    // first one. A hub's copy keeps the role that its Workload names.
    let role = if is_sent(pod) { role(pod) } else { shape_hash(pod) };
    set_annotation(pod, names::ROLE_HASH, &role);
}

/// Copies a pod's index from the label that holds it to the label that ranks the pods of a group.
/// If the former is missing, the index is empty, which keeps the group from being queued, as in
/// Kueue.
pub(super) fn copy_index(pod: &mut Value) {
    if let Some(key) = annotation(pod, names::POD_GROUP_POD_INDEX_LABEL) {
        let index = label(pod, key).unwrap_or_default().to_owned();
        set_label(pod, names::POD_GROUP_POD_INDEX, &index);
    }
}

/// Adds the gate that holds a pod until its topology domain is chosen. [`start`] removes that gate
/// from a pod without a topology request.
pub(super) fn gate_topology(pod: &mut Value) {
    if is_gated(pod) && !has_gate(pod, names::TOPOLOGY_SCHEDULING_GATE) {
        append(pod, "spec", "schedulingGates", json!({ "name": names::TOPOLOGY_SCHEDULING_GATE }));
    }
}

/// Ungates a pod with the additions of its admission. A pod that is not gated has been started
/// before.
pub(super) fn start(pod: &mut Value, info: &PodSetInfo) -> Result<(), JobError> {
    if !is_gated(pod) {
        return Ok(());
    }
    // An existing pod accepts no new gates. It has had its gates since its creation.
    PodSetInfo { scheduling_gates: Vec::new(), ..info.clone() }.merge_into(pod)?;
    let keeps_topology =
        info.scheduling_gates.iter().any(|gate| gate.name == names::TOPOLOGY_SCHEDULING_GATE);
    if let Some(gates) = pod.pointer_mut("/spec/schedulingGates").and_then(Value::as_array_mut) {
        gates.retain(|gate| match str_at(gate, "/name") {
            names::ADMISSION_SCHEDULING_GATE => false,
            names::TOPOLOGY_SCHEDULING_GATE => keeps_topology,
            _ => true,
        });
    }
    Ok(())
}

fn append(pod: &mut Value, parent: &str, field: &str, item: Value) {
    let Some(map) = object_mut(pod, &[parent]) else { return };
    let list = map.entry(field.to_owned()).or_insert(Value::Null);
    match list.as_array_mut() {
        Some(list) => list.push(item),
        None => *list = Value::Array(vec![item]),
    }
}
