//! `apps/v1` StatefulSet. Its pods are one group, which is admitted with its first pod. Scaled to
//! zero, its Workload is on hold. It cannot be scaled between other numbers.

use serde_json::Value;

use super::by_pods::{ByPods, PodOwner, gate_pods_of, replicas, set_pod_metadata};
use super::frameworks::STATEFUL_SET as FRAMEWORK;
use super::meta::{annotation, name, queue_name, set_annotation, set_label, str_at};
use super::pod::{changed_shape, group_name};
use super::serving::{
    Group, PodMetadata, Serving, follow_priority, follow_queue, original_uid, set_group, template,
};
use super::topology::{PodRanks, TopologySource};
use super::{JobError, KindId, number, workload_name};
use switchyard_api::v1beta2::{DEFAULT_POD_SET_NAME, PodSet};
use switchyard_syntax::field::{FieldError, Path};
use switchyard_syntax::names;

/// The identity of the kind.
pub(super) const ID: KindId = KindId {
    group: "apps",
    version: "v1",
    kind: "StatefulSet",
    plural: "statefulsets",
    framework: FRAMEWORK,
};

/// The kind `apps/v1` StatefulSet.
#[derive(Debug, Clone, Copy)]
pub struct StatefulSet;

/// StatefulSet as a job kind.
pub static STATEFUL_SET: PodOwner<StatefulSet> = PodOwner(StatefulSet);

const TEMPLATE: &str = "/spec/template";
/// The label of a StatefulSet's pods with their index.
const POD_INDEX: &str = "apps.kubernetes.io/pod-index";

/// Marks an object whose group has the name that an older Kueue gave it. Not a field of the API.
const OLDER: &str = "switchyard.dev/olderGroup";

fn group_of(object: &Value) -> String {
    let uid = if object.get(OLDER).is_some() { "" } else { original_uid(object) };
    workload_name(ID.kind, ID.group, name(object), uid)
}

impl ByPods for StatefulSet {
    fn id(&self) -> KindId {
        ID
    }

    fn mark(&self, object: &mut Value) {
        gate_pods_of(object, &["spec", "template"], FRAMEWORK);
    }

    fn serving(&self) -> Option<&dyn Serving> {
        Some(self)
    }

    /// The StatefulSet of a LeaderWorkerSet is not a job.
    fn skips(&self, object: &Value) -> bool {
        let template = object.pointer(TEMPLATE);
        let by = template.and_then(|template| annotation(template, names::POD_SUSPENDING_PARENT));
        by.is_some_and(|by| by != FRAMEWORK)
    }

    fn pod_sets(&self, object: &Value) -> Result<Vec<PodSet>, JobError> {
        let mut template = template(object, TEMPLATE)?;
        // As in Kueue: labels and annotations come with the pods.
        if let Some(fields) = template.as_object_mut() {
            fields.remove("metadata");
        }
        let count = number::pods(replicas(object).0, "/spec/replicas")?;
        Ok(vec![PodSet {
            name: DEFAULT_POD_SET_NAME.into(),
            template: template.into(),
            count,
            ..PodSet::default()
        }])
    }

    fn topology_source(&self, object: &Value, _index: usize, _pod_set: &PodSet) -> TopologySource {
        TopologySource::at(object, &["spec", "template"], PodRanks::by(POD_INDEX))
    }

    fn validate_change(&self, old: &Value, new: &Value) -> Vec<FieldError> {
        let path = Path::new("spec").child("template").child("spec");
        let spec =
            |object: &Value| object.pointer("/spec/template/spec").cloned().unwrap_or_default();
        let mut errors = changed_shape(&spec(old), &spec(new), &path);
        let ((before, _), (after, path)) = (replicas(old), replicas(new));
        if before != after && before != 0 && after != 0 {
            let detail = "field is immutable: scale to 0 first, or make another StatefulSet";
            errors.push(FieldError::invalid(&path, after, detail));
        }
        let pods_left = new.pointer("/status/replicas").and_then(Value::as_i64).unwrap_or(0) > 0;
        if before == 0 && after > 0 && pods_left {
            errors.push(FieldError::forbidden(&path, "scaling down is still in progress"));
        }
        errors
    }
}

impl Serving for StatefulSet {
    fn mark_pods(&self, object: &mut Value, marks: &PodMetadata<'_>) {
        set_pod_metadata(object, &["spec", "template"], marks);
    }

    fn groups(&self, object: &Value) -> Vec<Group> {
        vec![Group { name: group_of(object), index: None, is_scaled_down: replicas(object).0 <= 0 }]
    }

    fn older_group(&self, object: &Value) -> Option<String> {
        Some(workload_name(ID.kind, ID.group, name(object), ""))
    }

    fn use_older_group_name(&self, object: &mut Value) {
        if let Some(fields) = object.as_object_mut() {
            fields.insert(OLDER.to_owned(), true.into());
        }
    }

    fn owner_of<'a>(&self, part: &'a Value) -> Option<&'a str> {
        if annotation(part, names::POD_SUSPENDING_PARENT) != Some(FRAMEWORK) {
            return None;
        }
        let owners = part.pointer("/metadata/ownerReferences")?.as_array()?;
        let is_it = |owner: &&Value| {
            owner.get("controller").and_then(Value::as_bool) == Some(true)
                && str_at(owner, "/kind") == ID.kind
                && str_at(owner, "/apiVersion") == "apps/v1"
        };
        owners.iter().find(is_it).map(|owner| str_at(owner, "/name"))
    }

    fn pod_labels(&self, object: &Value) -> String {
        let labels = object.pointer("/spec/selector/matchLabels").and_then(Value::as_object);
        let text = |(key, value): (&String, &Value)| Some(format!("{key}={}", value.as_str()?));
        labels.into_iter().flatten().filter_map(text).collect::<Vec<_>>().join(",")
    }

    fn join(&self, object: &Value, pod: &mut Value) -> bool {
        let group = group_of(object);
        if group_name(pod) == Some(&group) {
            return follow_queue(object, pod);
        }
        let (count, _) = replicas(object);
        if count <= 0 {
            // The pod will be deleted.
            return false;
        }
        set_group(pod, &group, count, DEFAULT_POD_SET_NAME);
        set_annotation(pod, names::POD_GROUP_FAST_ADMISSION, "true");
        set_annotation(pod, names::POD_GROUP_POD_INDEX_LABEL, POD_INDEX);
        let queue = queue_name(object);
        if !queue.is_empty() {
            set_label(pod, names::QUEUE_NAME, queue);
        }
        follow_priority(object, pod);
        true
    }
}
