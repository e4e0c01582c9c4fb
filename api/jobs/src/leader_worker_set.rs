//! `leaderworkerset.x-k8s.io/v1` LeaderWorkerSet. Each replica, a leader with its workers, is a
//! group of pods with its own Workload.

use serde_json::Value;

use super::by_pods::{
    ByPods, PodOwner, annotate, copy_queue_labels, gate_pods_of, replicas, set_pod_metadata,
};
use super::frameworks::LEADER_WORKER_SET as FRAMEWORK;
use super::meta::{LABEL_VALUE_MAX, annotation, count_at, label, name, str_at};
use super::pod::{changed_shape, group_name};
use super::serving::{
    Group, PodMetadata, Serving, follow_queue, original_uid, set_group, template,
};
use super::topology::{self, PodRanks, TopologySource};
use super::{JobError, KindId, workload_name};
use switchyard_api::v1beta2::{DEFAULT_POD_SET_NAME, PodSet};
use switchyard_syntax::field::{FieldError, Path};
use switchyard_syntax::names;

const ID: KindId = KindId {
    group: "leaderworkerset.x-k8s.io",
    version: "v1",
    kind: "LeaderWorkerSet",
    plural: "leaderworkersets",
    framework: FRAMEWORK,
};

/// The kind `leaderworkerset.x-k8s.io/v1` LeaderWorkerSet.
#[derive(Debug, Clone, Copy)]
pub struct LeaderWorkerSet;

/// LeaderWorkerSet as a job kind.
pub static LEADER_WORKER_SET: PodOwner<LeaderWorkerSet> = PodOwner(LeaderWorkerSet);

const LEADER: &str = "/spec/leaderWorkerTemplate/leaderTemplate";
const WORKER: &str = "/spec/leaderWorkerTemplate/workerTemplate";
/// Prefix of labels and annotations that its controller sets.
const PREFIX: &str = "leaderworkerset.sigs.k8s.io";
const SET_NAME: &str = "leaderworkerset.sigs.k8s.io/name";
const GROUP_INDEX: &str = "leaderworkerset.sigs.k8s.io/group-index";
/// Label of a pod with its index in its replica. The leader has 0.
const WORKER_INDEX: &str = "leaderworkerset.sigs.k8s.io/worker-index";
const LEADER_NAME: &str = "leaderworkerset.sigs.k8s.io/leader-name";
/// Most replicas that Kueue allows.
const MAX_REPLICAS: i64 = 1_000_000;

fn has_leader(object: &Value) -> bool {
    object.pointer(LEADER).is_some_and(Value::is_object)
}

/// Fields with its pod templates.
fn templates(object: &Value) -> Vec<&'static str> {
    let mut templates = vec!["workerTemplate"];
    if has_leader(object) {
        templates.push("leaderTemplate");
    }
    templates
}

fn size(object: &Value) -> (i64, Path) {
    let path = Path::new("spec").child("leaderWorkerTemplate").child("size");
    (count_at(object, "/spec/leaderWorkerTemplate/size", 1), path)
}

fn group_of(object: &Value, index: &str) -> String {
    named_group(name(object), original_uid(object), index)
}

fn named_group(name: &str, uid: &str, index: &str) -> String {
    workload_name(ID.kind, ID.group, &format!("{name}-{index}"), uid)
}

/// The number of groups. While a rolling update surges, it includes the extra replicas.
fn count(object: &Value) -> i64 {
    let (wanted, _) = replicas(object);
    let surge = object.pointer("/spec/rolloutStrategy/rollingUpdateConfiguration/maxSurge");
    let surges = surge.is_some_and(|it| {
        it.as_i64().is_some_and(|it| it > 0) || it.as_str().is_some_and(positive)
    });
    let rolling = surges && count_at(object, "/status/updatedReplicas", 0) < wanted;
    let there = count_at(object, "/status/replicas", 0);
    if rolling { wanted.max(there) } else { wanted }.clamp(0, MAX_REPLICAS)
}

/// Whether a percentage or number is above zero.
fn positive(text: &str) -> bool {
    text.trim_end_matches('%').parse::<i64>().is_ok_and(|it| it > 0)
}

fn pod_set(object: &Value, at: &str, name: &str, count: i64) -> Result<PodSet, JobError> {
    let mut template = template(object, at)?;
    for map in ["/metadata/labels", "/metadata/annotations"] {
        if let Some(map) = template.pointer_mut(map).and_then(Value::as_object_mut) {
            map.retain(|key, _| !key.starts_with(PREFIX) || key == SET_NAME);
        }
    }
    let count = i32::try_from(count).ok().filter(|count| *count >= 0).ok_or_else(|| {
        JobError::Malformed {
            field: size(object).1.to_string(),
            problem: format!("must be between 1 and {}", i32::MAX),
        }
    })?;
    Ok(PodSet { name: name.into(), template: template.into(), count, ..PodSet::default() })
}

/// Errors of changes of a pod template. Its shape is immutable.
fn template_change(old: &Value, new: &Value, field: &str) -> Vec<FieldError> {
    let path = Path::new("spec").child("leaderWorkerTemplate").child(field);
    let of =
        |object: &Value| object.pointer(&format!("/spec/leaderWorkerTemplate/{field}")).cloned();
    match (of(old).filter(Value::is_object), of(new).filter(Value::is_object)) {
        (Some(old), Some(new)) => {
            let spec = |template: &Value| template.get("spec").cloned().unwrap_or_default();
            changed_shape(&spec(&old), &spec(&new), &path.child("spec"))
        }
        (None, None) => Vec::new(),
        (None, Some(new)) => {
            vec![FieldError::invalid(&path, new, "field is immutable: it cannot be added later")]
        }
        (Some(_), None) => {
            vec![FieldError::invalid(
                &path,
                Value::Null,
                "field is immutable: it cannot be taken away",
            )]
        }
    }
}

impl ByPods for LeaderWorkerSet {
    fn id(&self) -> KindId {
        ID
    }

    fn mark(&self, object: &mut Value) {
        for field in templates(object) {
            let at = ["spec", "leaderWorkerTemplate", field];
            gate_pods_of(object, &at, FRAMEWORK);
            annotate(object, &at, names::POD_GROUP_SERVING, "true");
            copy_queue_labels(object, &at);
        }
    }

    fn serving(&self) -> Option<&dyn Serving> {
        Some(self)
    }

    /// Its controller creates StatefulSets, which create the pods.
    fn dependencies(&self) -> &'static [KindId] {
        &[super::stateful_set::ID]
    }

    fn pod_sets(&self, object: &Value) -> Result<Vec<PodSet>, JobError> {
        let (size, _) = size(object);
        if has_leader(object) {
            let leader = pod_set(object, LEADER, "leader", 1)?;
            return Ok(vec![leader, pod_set(object, WORKER, "worker", size - 1)?]);
        }
        Ok(vec![pod_set(object, WORKER, DEFAULT_POD_SET_NAME, size)?])
    }

    /// Its controller numbers the workers of a replica. A replica has one leader, which needs no
    /// number.
    fn topology_source(&self, object: &Value, index: usize, _pod_set: &PodSet) -> TopologySource {
        let (field, ranks) = match (has_leader(object), index) {
            (true, 0) => ("leaderTemplate", PodRanks::default()),
            _ => ("workerTemplate", PodRanks::by(WORKER_INDEX)),
        };
        TopologySource::at(object, &["spec", "leaderWorkerTemplate", field], ranks)
    }

    /// Beside a leader, the workers are numbered from 1.
    fn apply_topology_defaults(&self, object: &mut Value) {
        let grouped = |workers: &Value| annotation(workers, names::POD_SET_GROUP_NAME).is_some();
        let with_leader = has_leader(object);
        if let Some(workers) =
            object.pointer_mut(WORKER).filter(|workers| with_leader && !grouped(workers))
        {
            topology::number_from_one(workers);
        }
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let (replicas, path) = replicas(object);
        let detail = |limit: String| {
            format!("invalid LeaderWorkerSet replicas: must be {limit}, got {replicas}")
        };
        if replicas < 0 {
            return vec![FieldError::invalid(&path, replicas, detail(">= 0".into()))];
        }
        if replicas > MAX_REPLICAS {
            return vec![FieldError::invalid(
                &path,
                replicas,
                detail(format!("<= {MAX_REPLICAS}")),
            )];
        }
        Vec::new()
    }

    fn validate_change(&self, old: &Value, new: &Value) -> Vec<FieldError> {
        let mut errors = template_change(old, new, "leaderTemplate");
        errors.extend(template_change(old, new, "workerTemplate"));
        let ((before, _), (after, path)) = (size(old), size(new));
        if before != after {
            // The existing Workloads would keep the old size.
            errors.push(FieldError::invalid(&path, after, "field is immutable"));
        }
        errors
    }
}

impl Serving for LeaderWorkerSet {
    fn first_group(&self, name: &str, uid: &str) -> Option<String> {
        Some(named_group(name, uid, "0"))
    }

    fn replicas(&self, object: &Value) -> Option<i64> {
        Some(replicas(object).0)
    }

    fn mark_pods(&self, object: &mut Value, marks: &PodMetadata<'_>) {
        for field in templates(object) {
            set_pod_metadata(object, &["spec", "leaderWorkerTemplate", field], marks);
        }
    }

    fn groups(&self, object: &Value) -> Vec<Group> {
        let count = u32::try_from(count(object)).unwrap_or_default();
        let group = |index: u32| Group {
            name: group_of(object, &index.to_string()),
            index: Some(index),
            is_scaled_down: false,
        };
        (0..count).map(group).collect()
    }

    fn owner_of<'a>(&self, part: &'a Value) -> Option<&'a str> {
        let is_marked =
            |part: &Value| annotation(part, names::POD_SUSPENDING_PARENT) == Some(FRAMEWORK);
        let of_template = |part: &Value| part.pointer("/spec/template").is_some_and(is_marked);
        let is_marked =
            is_marked(part) || str_at(part, "/kind") == "StatefulSet" && of_template(part);
        is_marked.then(|| label(part, SET_NAME)).flatten()
    }

    /// Its controller labels the pods with its name.
    fn pod_labels(&self, object: &Value) -> String {
        let name = name(object);
        if name.len() > LABEL_VALUE_MAX { String::new() } else { format!("{SET_NAME}={name}") }
    }

    fn join(&self, object: &Value, pod: &mut Value) -> bool {
        if group_name(pod).is_some() {
            return follow_queue(object, pod);
        }
        // The webhook of its controller sets the label.
        let Some(index) = label(pod, GROUP_INDEX).map(str::to_owned) else { return false };
        let role = match (has_leader(object), annotation(pod, LEADER_NAME)) {
            (false, _) => DEFAULT_POD_SET_NAME,
            (true, None) => "leader",
            (true, Some(_)) => "worker",
        };
        set_group(pod, &group_of(object, &index), size(object).0, role);
        follow_queue(object, pod);
        true
    }
}
