//! Kinds whose pods are groups that serve, so they never finish. Each group has a Workload of its
//! own, made for the object before the pods exist. The reconciler assigns each pod to its group
//! when it first sees the pod.

use serde_json::Value;

use super::meta::{
    LABEL_VALUE_MAX, annotation, controller_of, i32_at, label, queue_name, set_annotation,
    set_label, set_prebuilt_workload_name, str_at, uid, workload_priority_class,
};
use super::pod::{group_name, is_gated, is_terminated};
use switchyard_syntax::names;

/// A group of pods that should exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// Its name, which is also the name of its Workload.
    pub name: String,
    /// Index among the object's groups, for kinds with several groups.
    pub index: Option<u32>,
    /// Whether it is scaled to zero. Then its Workload is on hold or is not created.
    pub at_rest: bool,
}

/// Labels and annotations for pods.
#[derive(Debug, Clone, Copy)]
pub struct Marks<'a> {
    /// Labels.
    pub labels: &'a [(&'a str, &'a str)],
    /// Annotations.
    pub annotations: &'a [(&'a str, &'a str)],
}

impl Marks<'_> {
    /// Sets them in the pod template at these keys.
    pub(super) fn put(&self, object: &mut Value, at: &[&str]) {
        for (map, entries) in [("labels", self.labels), ("annotations", self.annotations)] {
            for (key, value) in entries {
                super::by_pods::write(object, at, map, key, value);
            }
        }
    }
}

/// Whether the object is a pod of a serving group, or an object between that pod and the group's
/// owner.
#[must_use]
pub fn is_part(object: &Value) -> bool {
    super::kinds()
        .iter()
        .any(|kind| kind.serving().is_some_and(|serving| serving.maker_of(object).is_some()))
}

/// Facet of kinds with serving groups. [`super::JobKind::pod_sets`] are the pod sets of one group.
pub trait Serving: Send + Sync {
    /// Whether a hub sends the object itself: its pods then run where it is, and those that it has
    /// on the hub wait.
    fn is_sent(&self) -> bool;

    /// Sets labels and annotations in its pod templates, so that its pods have them.
    fn mark_pods(&self, object: &mut Value, marks: &Marks<'_>);

    /// The name of the first group of the object with that name and uid. The object is dispatched
    /// with this group, and the other groups go to the same cluster. `None` if objects of the kind
    /// have one group. Names on a worker derive from the hub's uid.
    fn first_group(&self, name: &str, uid: &str) -> Option<String> {
        let _ = (name, uid);
        None
    }

    /// The number of groups that the object asks for. A hub propagates changes of it to the copy.
    /// `None` if objects of the kind have one group.
    fn replicas(&self, object: &Value) -> Option<i64> {
        let _ = object;
        None
    }

    /// The groups that should exist.
    fn groups(&self, object: &Value) -> Vec<Group>;

    /// The name that an older Kueue gave the object's only group, without its uid. `None` if the
    /// names have not changed.
    fn older_group(&self, object: &Value) -> Option<String> {
        let _ = object;
        None
    }

    /// Makes the group use that older name. The mark is kept beside the object's own fields and
    /// never written to the API server.
    fn name_as_older(&self, object: &mut Value) {
        let _ = object;
    }

    /// The name of the object that a part (a pod, or an object in between) belongs to. Both have
    /// the same namespace.
    fn maker_of<'a>(&self, part: &'a Value) -> Option<&'a str>;

    /// Makes a pod a member of its group. Returns true if the pod changed. A pod whose group is not
    /// known yet stays unchanged.
    fn join(&self, object: &Value, pod: &mut Value) -> bool;
}

/// The name of one of several groups where jobs are identified by name.
#[must_use]
pub fn part_name(object: &str, index: &str) -> String {
    format!("{object}/{index}")
}

/// The uid from which the names of the object's groups derive. For a copy, the uid of the hub's
/// object.
pub(super) fn naming_uid(object: &Value) -> &str {
    let origin = annotation(object, names::MULTIKUEUE_ORIGIN_UID).filter(|_| is_sent(object));
    origin.unwrap_or_else(|| uid(object))
}

/// Whether a hub sent the object. Then its Workloads come with it.
#[must_use]
pub fn is_sent(object: &Value) -> bool {
    label(object, names::MULTIKUEUE_ORIGIN).is_some()
}

/// Records the group of a pod: the group's name, which is also that of its Workload, its number of
/// pods, and the pod's role.
pub(super) fn enrol(pod: &mut Value, group: &str, count: i64, role: &str) {
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

/// Whether the pod belongs to a serving framework and has no group yet.
pub(super) fn awaits_group(pod: &Value) -> bool {
    let by = annotation(pod, names::POD_SUSPENDING_PARENT);
    let serving = [super::stateful_set::FRAMEWORK, super::leader_worker_set::FRAMEWORK];
    by.is_some_and(|by| serving.contains(&by)) && group_name(pod).is_none()
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

/// The pod template at a JSON pointer, with the user's labels and annotations, and with quantities
/// as text.
pub(super) fn template(object: &Value, pointer: &str) -> Option<Value> {
    let template =
        object.pointer(pointer).filter(|it| it.get("spec").is_some_and(Value::is_object))?;
    let mut template = super::template::clean_template(template, &[]);
    super::template::quantities_as_text(&mut template);
    Some(template)
}

/// The error of a missing or empty pod template.
pub(super) fn no_template(pointer: &str) -> super::JobError {
    let field = format!("{}.spec", pointer.trim_start_matches('/').replace('/', "."));
    super::JobError::Malformed {
        field,
        problem: "is missing; a pod template is needed here".into(),
    }
}
