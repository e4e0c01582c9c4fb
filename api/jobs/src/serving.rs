//! Kinds whose pods form serving groups, which never finish. Each group has a Workload of its own,
//! made for the object before the pods exist. The reconciler assigns each pod to its group when it
//! first sees the pod.

use serde_json::Value;

use super::JobError;
use super::meta::{
    LABEL_VALUE_MAX, annotation, controller_of, i32_at, label, queue_name, set_annotation,
    set_label, set_prebuilt_workload_name, str_at, uid, workload_priority_class,
};
use super::pod::{is_gated, is_terminated};
use super::template::template_at;
use switchyard_syntax::names;

pub use super::kind::{Group, PodMetadata, Serving};
pub use super::meta::is_sent;

/// The name of one of several groups where jobs are identified by name.
#[must_use]
pub fn part_name(object: &str, index: &str) -> String {
    format!("{object}/{index}")
}

/// The uid from which the names of the object's groups derive. For a copy, the uid of the hub's
/// object.
pub(super) fn original_uid(object: &Value) -> &str {
    let origin = annotation(object, names::MULTIKUEUE_ORIGIN_UID).filter(|_| is_sent(object));
    origin.unwrap_or_else(|| uid(object))
}

/// Records the group of a pod: the group's name, which is also that of its Workload, its number of
/// pods, and the pod's role.
pub(super) fn set_group(pod: &mut Value, group: &str, count: i64, role: &str) {
    set_label(pod, names::MANAGED, "true");
    if group.len() <= LABEL_VALUE_MAX {
        set_label(pod, names::POD_GROUP_NAME, group);
    } else {
        set_annotation(pod, names::POD_GROUP_NAME, group);
    }
    set_prebuilt_workload_name(pod, group);
    set_annotation(pod, names::POD_GROUP_TOTAL_COUNT, &count.to_string());
    set_annotation(pod, names::POD_GROUP_SERVING, "true");
    set_annotation(pod, names::ROLE_HASH, role);
}

/// Moves a gated pod to the queue of its object. Returns true if the pod changed.
pub(super) fn follow_queue(object: &Value, pod: &mut Value) -> bool {
    let queue = queue_name(object);
    if queue.is_empty() || queue == queue_name(pod) || !is_gated(pod) {
        return false;
    }
    set_label(pod, names::QUEUE_NAME, queue);
    true
}

/// Sets the priority class of the object in a pod.
pub(super) fn follow_priority(object: &Value, pod: &mut Value) {
    let class = workload_priority_class(object);
    if !class.is_empty() {
        set_label(pod, names::PRIORITY_CLASS, class);
    }
}

/// Whether the pod has the revision that a rolling update of its StatefulSet replaces. The update
/// continues only if such a pod becomes ready or is recreated. Never true with the update strategy
/// `OnDelete`, or for a pod that a partition keeps.
#[must_use]
pub fn is_outdated(stateful_set: &Value, pod: &Value) -> bool {
    let revision = |pointer: &str| str_at(stateful_set, pointer);
    let (current, update) =
        (revision("/status/currentRevision"), revision("/status/updateRevision"));
    let rolls = str_at(stateful_set, "/spec/updateStrategy/type") != "OnDelete";
    rolls
        && current != update
        && label(pod, REVISION) == Some(current)
        && !is_kept(stateful_set, pod)
}

/// Whether the partition of a rolling update keeps the pod at its revision.
fn is_kept(stateful_set: &Value, pod: &Value) -> bool {
    let at = |pointer: &str| i32_at(stateful_set, pointer).unwrap_or(0);
    let kept = at("/spec/updateStrategy/rollingUpdate/partition")
        .saturating_add(at("/spec/ordinals/start"));
    let number =
        super::meta::name(pod).rsplit_once('-').and_then(|(_, number)| number.parse::<i32>().ok());
    number.is_some_and(|number| number < kept)
}

/// The label of a StatefulSet's pods with their revision.
const REVISION: &str = "controller-revision-hash";

/// The StatefulSet that controls the pod.
#[must_use]
pub fn stateful_set_of(pod: &Value) -> Option<String> {
    let owner = controller_of(pod)?;
    (owner.kind == "StatefulSet" && owner.api_version == "apps/v1").then_some(owner.name)
}

/// Whether the pod has ended or is being deleted.
#[must_use]
pub fn is_ending(pod: &Value) -> bool {
    is_terminated(pod) || super::meta::is_deleting(pod)
}

/// The pod template at a JSON pointer, for the Workload.
///
/// # Errors
/// [`JobError::Malformed`] if there is none.
pub(super) fn template(object: &Value, pointer: &str) -> Result<Value, JobError> {
    template_at(object, pointer).ok_or_else(|| {
        JobError::malformed(&format!("{pointer}/spec"), "is missing; a pod template is needed here")
    })
}
