//! Kinds whose pods are groups that serve: they do not end, and each group has a Workload of its own, which is made for
//! the object before the pods come. A pod of such an object is told its group when it is seen.

use serde_json::Value;

use super::meta::{
    LABEL_VALUE_MAX, annotation, controller_of, i32_at, label, queue_name, set_annotation,
    set_label, set_prebuilt_workload_name, str_at, uid, workload_priority_class,
};
use super::pod::{group_name, is_gated, is_terminated};
use switchyard_syntax::names;

/// A group of pods that there should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// Its name, which its Workload has, too.
    pub name: String,
    /// Which of the object's groups it is, where there are several.
    pub index: Option<u32>,
    /// Whether it has no pods on purpose: its Workload is put on hold, or not made at all.
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
    /// Puts them into the pod template to which the keys lead.
    pub(super) fn put(&self, object: &mut Value, at: &[&str]) {
        for (map, entries) in [("labels", self.labels), ("annotations", self.annotations)] {
            for (key, value) in entries {
                super::by_pods::write(object, at, map, key, value);
            }
        }
    }
}

/// Whether the object is a pod of a group that serves for what made it, or stands between the two.
#[must_use]
pub fn is_part(object: &Value) -> bool {
    super::kinds()
        .iter()
        .any(|kind| kind.serving().is_some_and(|serving| serving.maker_of(object).is_some()))
}

/// What the reconciler asks of such a kind. Its pod sets are [`super::JobKind::pod_sets`].
pub trait Serving: Send + Sync {
    /// Whether a hub sends the object itself: its pods then run where it is, and those that it has on the hub wait.
    fn is_sent(&self) -> bool;

    /// Writes labels and annotations into its pod templates, so that its pods have them.
    fn mark_pods(&self, object: &mut Value, marks: &Marks<'_>);

    /// The name of the first of several groups of an object of that name and uid: the object is sent with it, and the other
    /// groups go where it is. None for a kind whose objects have one group. What a hub has sent has other names.
    fn first_group(&self, name: &str, uid: &str) -> Option<String> {
        let _ = (name, uid);
        None
    }

    /// How many groups an object asks for of a kind whose objects may have several: another number while they run goes where the
    /// object was sent. None for a kind whose objects have one group.
    fn replicas(&self, object: &Value) -> Option<i64> {
        let _ = object;
        None
    }

    /// The groups that the object should have.
    fn groups(&self, object: &Value) -> Vec<Group>;

    /// The name that an older Kueue gave the only group of an object, without its uid. None for a kind whose groups it named
    /// as today.
    fn older_group(&self, object: &Value) -> Option<String> {
        let _ = object;
        None
    }

    /// Has the group of the object bear that name; it is noted beside the object's own fields, and never written.
    fn name_as_older(&self, object: &mut Value) {
        let _ = object;
    }

    /// The name of the object that a pod, or whatever stands between them, belongs to; in the same namespace.
    fn maker_of<'a>(&self, part: &'a Value) -> Option<&'a str>;

    /// Makes a pod of the object a member of its group. Whether anything changed; not so for one whose group cannot be
    /// told yet.
    fn join(&self, object: &Value, pod: &mut Value) -> bool;
}

/// What stands for one of several groups of an object where jobs are told apart by their names.
#[must_use]
pub fn part_name(object: &str, index: &str) -> String {
    format!("{object}/{index}")
}

/// The uid by which the groups of an object are named: that of the hub's object for a copy.
pub(super) fn naming_uid(object: &Value) -> &str {
    let origin = annotation(object, names::MULTIKUEUE_ORIGIN_UID).filter(|_| is_sent(object));
    origin.unwrap_or_else(|| uid(object))
}

/// Whether a hub has sent the object: its Workloads come with it.
#[must_use]
pub fn is_sent(object: &Value) -> bool {
    label(object, names::MULTIKUEUE_ORIGIN).is_some()
}

/// Writes down the group of a pod: its name, which is also that of the Workload made for it, how many pods it has, and
/// the pod's role.
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

/// Moves a pod that still waits to the queue of its object; whether it was in another.
pub(super) fn follow_queue(object: &Value, pod: &mut Value) -> bool {
    let queue = queue_name(object);
    if queue.is_empty() || queue == queue_name(pod) || !is_gated(pod) {
        return false;
    }
    set_label(pod, names::QUEUE_NAME, queue);
    true
}

/// Gives a pod the priority class of its object.
pub(super) fn follow_priority(object: &Value, pod: &mut Value) {
    let class = workload_priority_class(object);
    if !class.is_empty() {
        set_label(pod, names::PRIORITY_CLASS, class);
    }
}

/// Whether pods of this framework's objects await to be told their group, and this one has not been.
pub(super) fn awaits_group(pod: &Value) -> bool {
    let by = annotation(pod, names::POD_SUSPENDING_PARENT);
    let serving = [super::stateful_set::FRAMEWORK, super::leader_worker_set::FRAMEWORK];
    by.is_some_and(|by| serving.contains(&by)) && group_name(pod).is_none()
}

/// Whether the pod is of the revision that a rolling update of its StatefulSet is leaving. The update goes on only when
/// such a pod gets ready, or is made anew. Where pods are only updated when somebody deletes them, none is, nor are those that a
/// partition keeps.
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

/// Whether the partition of a rolling update keeps a pod at its revision.
fn is_kept(stateful_set: &Value, pod: &Value) -> bool {
    let at = |pointer: &str| i32_at(stateful_set, pointer).unwrap_or(0);
    let kept = at("/spec/updateStrategy/rollingUpdate/partition")
        .saturating_add(at("/spec/ordinals/start"));
    let number =
        super::meta::name(pod).rsplit_once('-').and_then(|(_, number)| number.parse::<i32>().ok());
    number.is_some_and(|number| number < kept)
}

/// The label of a StatefulSet's pods that names their revision.
const REVISION: &str = "controller-revision-hash";

/// The StatefulSet that controls a pod.
#[must_use]
pub fn stateful_set_of(pod: &Value) -> Option<String> {
    let owner = controller_of(pod)?;
    (owner.kind == "StatefulSet" && owner.api_version == "apps/v1").then_some(owner.name)
}

/// Whether the pod ends, or has ended.
#[must_use]
pub fn is_ending(pod: &Value) -> bool {
    is_terminated(pod) || super::meta::is_deleting(pod)
}

/// The pod template at a pointer with the parts of its metadata that its pods have of their user, and the quantities as
/// text.
pub(super) fn template(object: &Value, pointer: &str) -> Option<Value> {
    let template =
        object.pointer(pointer).filter(|it| it.get("spec").is_some_and(Value::is_object))?;
    let mut template = super::template::clean_template(template, &[]);
    super::template::quantities_as_text(&mut template);
    Some(template)
}

/// An empty pod template is as good as none.
pub(super) fn no_template(pointer: &str) -> super::JobError {
    let field = format!("{}.spec", pointer.trim_start_matches('/').replace('/', "."));
    super::JobError::Malformed {
        field,
        problem: "is missing; a pod template is needed here".into(),
    }
}
