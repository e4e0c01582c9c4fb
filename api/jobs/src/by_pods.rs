//! Kinds that are queued by their pods. Each pod of a Deployment is a job ([`super::deployment`]).
//! The pods of a StatefulSet or LeaderWorkerSet form serving groups, and each group is a job
//! ([`super::stateful_set`], [`super::leader_worker_set`], see [`super::serving`]).
//!
//! Their objects are never stopped or started. The webhook marks their pod templates, so that the
//! pods are created with the scheduling gate (`pod/`).

use jiff::Timestamp;
use serde_json::Value;

use super::kind::{PodMetadata, Serving};
use super::meta::{count_at, label, label_path, object_mut, queue_name, set_annotation, uid};
use super::remote::remote_object;
use super::topology::TopologySource;
use super::{
    Dependent, JobEnd, JobError, JobKind, KindId, KindProfile, PodSetInfo, Remote, RemoteMeta,
    SuspendMode,
};
use switchyard_api::v1beta2::PodSet;
use switchyard_syntax::field::{FieldError, Path};
use switchyard_syntax::names;

/// The differences between such kinds.
pub(super) trait ByPods: Send + Sync + 'static {
    /// The identity of the kind.
    fn id(&self) -> KindId;

    /// Marks the pod templates, so that the pods are gated. Idempotent.
    fn mark(&self, object: &mut Value);

    /// See [`JobKind::serving`].
    fn serving(&self) -> Option<&dyn Serving> {
        None
    }

    /// Kinds of objects between the object and its pods. See [`Dependent::dependencies`].
    fn dependencies(&self) -> &'static [KindId] {
        &[]
    }

    /// See [`KindProfile::skips`].
    fn skips(&self, object: &Value) -> bool {
        let _ = object;
        false
    }

    /// The pod sets of one of its groups of pods, with pod templates as the user wrote them.
    ///
    /// # Errors
    /// [`JobError::Malformed`] if there is no pod template, or if each pod is a job of its own.
    fn pod_sets(&self, object: &Value) -> Result<Vec<PodSet>, JobError> {
        let _ = object;
        let problem = format!("each pod of a {} is a job of its own", self.id().kind);
        Err(JobError::Malformed { field: "kind".into(), problem })
    }

    /// See [`JobKind::topology_source`].
    fn topology_source(&self, object: &Value, index: usize, pod_set: &PodSet) -> TopologySource;

    /// See [`KindProfile::apply_topology_defaults`].
    fn apply_topology_defaults(&self, object: &mut Value) {
        let _ = object;
    }

    /// Errors of an object, beyond the rules common to all kinds.
    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let _ = object;
        Vec::new()
    }

    /// Errors of an update that do not depend on the new state alone.
    fn validate_change(&self, old: &Value, new: &Value) -> Vec<FieldError> {
        let _ = (old, new);
        Vec::new()
    }
}

/// A kind that is queued by its pods.
#[derive(Debug, Clone, Copy)]
pub struct PodOwner<K>(pub(super) K);

/// Names the framework that gates the pods in a pod template. `at` are the keys of the template.
pub(super) fn gate_pods_of(object: &mut Value, at: &[&str], framework: &str) {
    annotate(object, at, names::POD_SUSPENDING_PARENT, framework);
}

/// Copies queue and priority class of the object to a pod template.
pub(super) fn copy_queue_labels(object: &mut Value, at: &[&str]) {
    for key in [names::QUEUE_NAME, names::PRIORITY_CLASS] {
        if let Some(value) = label(object, key).filter(|value| !value.is_empty()).map(str::to_owned)
        {
            write(object, at, "labels", key, &value);
        }
    }
}

/// Sets an annotation of a pod template.
pub(super) fn annotate(object: &mut Value, at: &[&str], key: &str, value: &str) {
    write(object, at, "annotations", key, value);
}

/// Sets an entry of `labels` or `annotations` of a pod template.
pub(super) fn write(object: &mut Value, at: &[&str], map: &'static str, key: &str, value: &str) {
    let path: Vec<&str> = at.iter().copied().chain(["metadata", map]).collect();
    if let Some(map) = object_mut(object, &path) {
        map.insert(key.to_owned(), value.into());
    }
}

/// Sets labels and annotations in the pod template at these keys.
pub(super) fn set_pod_metadata(object: &mut Value, at: &[&str], marks: &PodMetadata<'_>) {
    for (map, entries) in [("labels", marks.labels), ("annotations", marks.annotations)] {
        for (key, value) in entries {
            write(object, at, map, key, value);
        }
    }
}

/// The object must keep a queue while its pods have one.
fn queue_name_kept(old: &Value, new: &Value) -> Option<FieldError> {
    let taken = queue_name(new).is_empty() && !queue_name(old).is_empty();
    taken.then(|| FieldError::invalid(&label_path(names::QUEUE_NAME), "", "field is immutable"))
}

impl<K: ByPods> KindProfile for PodOwner<K> {
    fn id(&self) -> KindId {
        self.0.id()
    }

    fn dependent(&self) -> Option<&dyn Dependent> {
        (!self.0.dependencies().is_empty()).then_some(self)
    }

    fn apply_topology_defaults(&self, job: &mut Value) {
        self.0.apply_topology_defaults(job);
    }

    fn skips(&self, job: &Value) -> bool {
        self.0.skips(job)
    }

    fn is_active(&self, job: &Value) -> bool {
        !self.is_suspended(job)
    }

    fn finished(&self, _job: &Value) -> Option<JobEnd> {
        None
    }

    fn pods_ready(&self, job: &Value) -> bool {
        count_at(job, "/status/readyReplicas", 0) >= count_at(job, "/spec/replicas", 1)
    }

    fn validate(&self, job: &Value) -> Vec<FieldError> {
        self.0.validate(job)
    }
}

impl<K: ByPods> JobKind for PodOwner<K> {
    fn suspend_mode(&self) -> SuspendMode {
        SuspendMode::Pods
    }

    fn serving(&self) -> Option<&dyn Serving> {
        self.0.serving()
    }

    fn remote(&self) -> Option<&dyn Remote> {
        self.0.serving().is_some().then_some(self)
    }

    /// If each pod is a job, the webhook is enough.
    fn is_watched(&self) -> bool {
        self.0.serving().is_some()
    }

    fn reports_completion(&self) -> bool {
        false
    }

    fn pod_sets(&self, job: &Value) -> Result<Vec<PodSet>, JobError> {
        self.0.pod_sets(job)
    }

    fn topology_source(&self, job: &Value, index: usize, pod_set: &PodSet) -> TopologySource {
        self.0.topology_source(job, index, pod_set)
    }

    /// As in Kueue: until a pod is ready, the queue may change.
    fn is_suspended(&self, job: &Value) -> bool {
        count_at(job, "/status/readyReplicas", 0) == 0
    }

    fn suspend(&self, job: &mut Value) {
        self.0.mark(job);
    }

    /// The pods are started, not the object.
    fn run(&self, _job: &mut Value, _infos: &[PodSetInfo]) -> Result<(), JobError> {
        Ok(())
    }

    fn restore(&self, _job: &mut Value, _pod_sets: &[PodSet]) -> bool {
        false
    }

    fn validate_update(&self, old: &Value, new: &Value) -> Vec<FieldError> {
        let mut errors = self.0.validate(new);
        if self.is_suspended(new) {
            errors.extend(queue_name_kept(old, new));
        }
        errors.extend(self.0.validate_change(old, new));
        errors
    }
}

impl<K: ByPods> Dependent for PodOwner<K> {
    fn dependencies(&self) -> &'static [KindId] {
        self.0.dependencies()
    }
}

impl<K: ByPods> Remote for PodOwner<K> {
    /// Sends the whole spec, because the worker's controller creates the pods. The annotation holds
    /// the uid of the hub's object, from which the names of groups and Workloads derive.
    fn remote_copy(&self, job: &Value, remote: RemoteMeta<'_>) -> Value {
        let mut copy = remote_object(self.0.id(), job, remote);
        set_annotation(&mut copy, names::MULTIKUEUE_ORIGIN_UID, uid(job));
        copy
    }

    /// The hub's controller of the kind would overwrite the status. It derives the status from the
    /// hub's pods, which mirror the worker's pods.
    fn mirror_status(&self, _local: &Value, _remote: &Value) -> Option<Value> {
        None
    }

    fn reset_status(&self, _local: &Value, _now: Timestamp) -> Option<Value> {
        None
    }
}

/// `spec.replicas` and its path.
pub(super) fn replicas(object: &Value) -> (i64, Path) {
    (count_at(object, "/spec/replicas", 1), Path::new("spec").child("replicas"))
}
