//! Job kinds: pure functions between a job object and its pod sets.
//!
//! Each kind has a file, an implementation of [`JobKind`], and a line in the table
//! ([`kinds`]). Nothing here holds a client or reads a clock. Objects are JSON, so fields of newer
//! API servers survive every edit. Changes are written as merge patches ([`merge_diff`]).
//!
//! # The kinds
//!
//! The most difficult kind is [`batch_job`]. Its API server guards its template, so start and stop
//! take several steps ([`JobKind::before_run`], [`JobKind::stop`]), and it checks status writes.
//! Kinds of CRDs are simpler and alike: `plain` has their common code, and a kind adds its pod
//! templates, its suspend field and the interpretation of its status.
//! `docs/adding-a-job-kind.md` shows how to add a kind.
//!
//! | kind | pod sets | finished | pods ready |
//! |---|---|---|---|
//! | Job | `main` | Complete, Failed | counters |
//! | JobSet | one for each replicated job | Completed, Failed | counters, in Jobs |
//! | Kubeflow's six | one for each replica type | Succeeded, Failed | Running |
//! | RayCluster, RayService | `head`, one for each worker group | never | state `ready`, Ready |
//! | RayJob | those and `submitter` | `jobDeploymentStatus` | its cluster's state |
//! | AppWrapper | one for each wrapped template | phase | PodsReady |
//! | SparkApplication | `driver`, `executor` | state | state and executors' states |
//! | TrainJob | those of its runtime's JobSet | Complete, Failed | counters, in Jobs |
//! | Pod | `main`; for a group, one for each role | phase; all succeeded | Ready |
//! | Deployment | its pods' | never | its pods' |
//! | StatefulSet | `main` | never | its pods' |
//! | LeaderWorkerSet | `leader` and `worker`, or `main` | never | its pods' |
//! | external frameworks | their controller's | with their Workload | their controller's |

#![warn(missing_docs)]

pub mod app_wrapper;
pub mod batch_job;
mod build;
mod by_pods;
mod copy;
pub mod deployment;
pub mod elastic;
mod equivalence;
mod external;
mod follow;
mod index_set;
pub mod job_set;
pub mod kubeflow;
pub mod leader_worker_set;
pub mod limit_range;
pub mod meta;
mod mirror;
mod number;
mod partial;
mod plain;
pub mod pod;
pub mod pod_requests;
mod pod_set_info;
mod pods_of;
mod priority;
pub mod ray;
mod remote;
pub mod serving;
pub mod spark_application;
pub mod stateful_set;
mod strategic;
mod table;
mod template;
pub mod topology;
pub mod train_job;
mod validate;

use jiff::Timestamp;
use serde_json::Value;

pub use build::{
    BuildOptions, build_group_workload, build_workload, job_pod_sets, owner_annotations,
    owner_reference, pod_sets_with_topology,
};
pub use by_pods::Maker;
pub use copy::{copy_of_another, is_copy_of_hub, mark_as, named_job, owner_gvk, same_copy};
pub use equivalence::{is_equivalent, owned_by};
pub use external::external_kind;
pub use follow::following;
pub use mirror::{merged_status, reset_status};
pub use partial::sized_pod_sets;
pub use pod_set_info::{
    PodSetInfo, is_dns_label, pod_set_infos, restore_template, running_pod_sets,
};
pub use pods_of::{PodSelector, pod_selector};
pub use priority::{Priority, PriorityError, PriorityLookup, resolve_priority};
pub use remote::sent_objects;
pub use switchyard_api::reclaimable::may_reclaim;
pub use switchyard_api::workload_names::{
    limited_name, variant_name, workload_name, workload_name_with_extra,
};
pub use switchyard_syntax::merge_patch::{apply_merge, merge_diff};
pub use table::{enabled_kinds, framework_of, kind_for, kind_of_owner, kinds};
pub use topology::{TopologyGates, TopologySource};
pub use validate::{Around, validate_create, validate_update};

use switchyard_api::v1beta2::{PodSet, ReclaimablePod};
use switchyard_syntax::field::{FieldError, Path};

/// Most pod sets that a workload can have.
const MAX_POD_SETS: usize = 18;

/// Why a job could not be turned into pod sets, or admission could not be written into it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JobError {
    /// The object has a shape that its kind does not allow. Permanent: the user has to change it.
    #[error("{field}: {problem}")]
    Malformed {
        /// Path of the field.
        field: String,
        /// The problem with it.
        problem: String,
    },
    /// The Workload and the job have different numbers of pod sets. Permanent.
    #[error("invalid podset infos: expecting {want} podset, got {got}")]
    PodSetCount {
        /// Pod sets of the job.
        want: usize,
        /// Pod sets given.
        got: usize,
    },
    /// The Workload has no pod set of this name. Permanent.
    #[error("invalid podset infos: podSetInfo with the name '{name}' is not found")]
    PodSetMissing {
        /// Its name, which is also the name of its Workload.
        name: String,
    },
    /// A topology annotation cannot be parsed. Permanent.
    #[error("{problem}")]
    TopologyRequest {
        /// The problem with it.
        problem: String,
    },
    /// Admission sets a key that the template sets to another value. Permanent.
    #[error("{}invalid admission check PodSetUpdate: conflict for {what}: {detail}", in_check(.check.as_deref()))]
    PodSetUpdateConflict {
        /// The admission check that set the key, if one did.
        check: Option<String>,
        /// `labels`, `annotations` or `nodeSelector`.
        what: &'static str,
        /// The key and both values.
        detail: String,
    },
    /// A flavor of the admission does not exist. Worth a retry.
    #[error("ResourceFlavor {name:?} not found; create it again, or let the workload be evicted")]
    FlavorNotFound {
        /// Its name, which is also the name of its Workload.
        name: String,
    },
}

fn in_check(check: Option<&str>) -> String {
    check.map(|name| format!("in admission check {name:?}: ")).unwrap_or_default()
}

impl JobError {
    /// True if a retry cannot help. The Workload is then finished with `FailedToStart`.
    #[must_use]
    pub fn is_permanent(&self) -> bool {
        !matches!(self, Self::FlavorNotFound { .. })
    }
}

/// The identity of a job kind: its API resource and its name in the configuration file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KindId {
    /// API group, such as `batch`. Empty for the core group.
    pub group: &'static str,
    /// The API version that Switchyard reads and writes, such as `v1`.
    pub version: &'static str,
    /// Kind, such as `Job`.
    pub kind: &'static str,
    /// Plural resource name, such as `jobs`.
    pub plural: &'static str,
    /// Name in `integrations.frameworks` of the configuration file, such as `batch/job`.
    pub framework: &'static str,
}

impl KindId {
    /// `group/version` as in `apiVersion`, or `version` alone for the core group.
    #[must_use]
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_owned()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// The resource for a dynamic client.
    #[must_use]
    pub fn api_resource(&self) -> kube::core::ApiResource {
        let gvk = kube::core::GroupVersionKind::gvk(self.group, self.version, self.kind);
        kube::core::ApiResource::from_gvk_with_plural(&gvk, self.plural)
    }
}

/// How a job ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finished {
    /// False if the job failed.
    pub success: bool,
    /// Message of the job's terminal condition.
    pub message: String,
}

/// How the jobs of a kind are kept from running until they are admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Held {
    /// A field of the job, which can be set at any time.
    Suspended,
    /// A scheduling gate, which only the creation of the pod can set: a pod created without it is
    /// out of control. Managed pods carry the label `kueue.x-k8s.io/managed`, and only pods with
    /// the label are watched. The webhook checks at creation whether a managed job owns the pod.
    Gated,
    /// The gates of the pods that the job creates. [`crate::JobKind::suspend`] marks the job's pod
    /// templates for the pod webhook, at creation and on updates.
    ByPods,
}

/// The next write on the way to a stopped job with its original templates.
#[derive(Debug, Clone, PartialEq)]
pub enum Stop {
    /// The job is stopped and has the templates that its user wrote.
    Done,
    /// Write the difference to this object.
    Update {
        /// The wanted object.
        job: Box<Value>,
        /// True if this write suspends the job.
        now: bool,
    },
    /// Write the difference to this object's status.
    UpdateStatus(Box<Value>),
    /// Delete these pods of the job. Their owner creates replacements if the job goes on.
    Terminate(Vec<Value>),
    /// Nothing can be written until the job's own controller has acted.
    Wait,
}

/// An object that the pods of a job depend on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dependency {
    /// Kind, such as `Job`.
    pub kind: KindId,
    /// Namespace. Empty for cluster-scoped kinds.
    pub namespace: String,
    /// Its name, which is also the name of its Workload.
    pub name: String,
}

/// Metadata of the copy of a job in a worker cluster.
#[derive(Debug, Clone, Copy)]
pub struct RemoteMeta<'a> {
    /// Name of the Workload in the worker cluster.
    pub workload: &'a str,
    /// Value of the label `kueue.x-k8s.io/multikueue-origin`.
    pub origin: &'a str,
}

/// One kind of job. All methods are pure functions of JSON objects.
///
/// Abilities of only some kinds are facets: traits of their own, reached by accessors such as
/// [`Self::elastic`], which return `None` for kinds without them.
///
/// Objects come from an API server, so they are valid for their kind. A method that meets a field
/// of an unexpected type treats it as absent unless the method can fail.
pub trait JobKind: Send + Sync + 'static {
    /// The identity of the kind.
    fn id(&self) -> KindId;

    /// How jobs of the kind are kept from running until they are admitted.
    fn held(&self) -> Held {
        Held::Suspended
    }

    /// The name of the group of an object, if it belongs to one.
    fn group_of<'a>(&self, job: &'a Value) -> Option<&'a str> {
        let _ = job;
        None
    }

    /// The job that the objects of a group form. All other methods take it like a single object.
    /// Edits of it are edits of its members.
    fn compose(&self, members: Vec<Value>) -> Value {
        members.into_iter().next().unwrap_or_default()
    }

    /// The objects that form the job: itself, unless it was composed.
    fn members<'a>(&self, job: &'a Value) -> &'a [Value] {
        std::slice::from_ref(job)
    }

    /// Whether the job was composed of the objects of a group.
    fn is_composed(&self, job: &Value) -> bool {
        let _ = job;
        false
    }

    /// Facet of kinds whose pods are groups that serve.
    fn serving(&self) -> Option<&dyn serving::Serving> {
        None
    }

    /// Whether the reconciler watches objects of the kind. Other kinds pass the webhook only.
    fn is_watched(&self) -> bool {
        true
    }

    /// Whether a hub sends objects of the kind to worker clusters. Pods of other kinds may be sent.
    fn is_sent(&self) -> bool {
        true
    }

    /// Whether changing the job's queue moves its Workload. Serving pods follow their owner.
    fn leads_queue(&self, job: &Value) -> bool {
        let _ = job;
        true
    }

    /// Removes the finalizer that keeps an ended job until its end is recorded. Returns true if
    /// there was one.
    fn release(&self, job: &mut Value) -> bool {
        let _ = job;
        false
    }

    /// Whether Switchyard creates the Workloads of the kind's jobs, and starts and stops the jobs.
    /// For external frameworks another controller does.
    fn makes_workloads(&self) -> bool {
        true
    }

    /// Whether [`Self::finished`] reports the end of a job. For other kinds only the Workload does.
    fn tells_its_end(&self) -> bool {
        true
    }

    /// JSON pointers to spec fields whose changes on the hub are propagated to the copy. All other
    /// fields of a copy stay as they were sent.
    fn followed_fields(&self) -> &'static [&'static str] {
        &[]
    }

    /// Kinds of these objects. The reconciler watches them.
    fn dependencies(&self) -> &'static [KindId] {
        &[]
    }

    /// The object that the pods of this job depend on.
    fn depends_on(&self, job: &Value) -> Option<Dependency> {
        let _ = job;
        None
    }

    /// Copies the needed parts of that object into the job, beside its own fields, where all other
    /// methods find it. It is never written to the API server.
    fn attach(&self, job: &mut Value, found: &Value) {
        let _ = (job, found);
    }

    /// The pod sets, with pod templates as the user wrote them.
    ///
    /// # Errors
    /// [`JobError::Malformed`] if there is no pod template.
    fn pod_sets(&self, job: &Value) -> Result<Vec<PodSet>, JobError>;

    /// The topology annotations of a pod set's template, and the labels that number its pods.
    /// `index` is the position of the pod set in [`Self::pod_sets`].
    fn topology_source(&self, job: &Value, index: usize, pod_set: &PodSet) -> TopologySource {
        let _ = (job, index, pod_set);
        TopologySource::default()
    }

    /// Prepares a new job for topology-aware placement.
    ///
    /// Adds the rank labels that the job's controller does not set. A pod also gets the scheduling
    /// gate that holds it until its topology domain is chosen.
    fn apply_topology_defaults(&self, job: &mut Value) {
        let _ = job;
    }

    /// Whether the job takes no quota and is left alone.
    fn skips(&self, job: &Value) -> bool {
        let _ = job;
        false
    }

    /// True if the job is suspended and no stop is in progress.
    fn is_suspended(&self, job: &Value) -> bool;

    /// Suspends the job.
    fn suspend(&self, job: &mut Value);

    /// True while pods of the job run or terminate.
    fn is_active(&self, job: &Value) -> bool;

    /// Whether [`Self::is_active`] stays correct while a job is being deleted.
    fn counts_while_deleted(&self) -> bool {
        false
    }

    /// Whether the job's controller starts clean-up jobs when the job is deleted. They run within
    /// its quota.
    fn cleans_up(&self, job: &Value) -> bool {
        let _ = job;
        false
    }

    /// Whether the job's operator has set it aside: it has not ended and needs no quota.
    fn on_hold(&self, job: &Value) -> bool {
        let _ = job;
        false
    }

    /// The time after which an active job no longer counts as active, even if its pods have not
    /// ended.
    fn active_until(&self, job: &Value) -> Option<Timestamp> {
        let _ = job;
        None
    }

    /// Unsuspends the job with the infos merged into its templates.
    ///
    /// # Errors
    /// [`JobError::PodSetCount`], [`JobError::PodSetMissing`] or
    /// [`JobError::PodSetUpdateConflict`].
    fn run(&self, job: &mut Value, infos: &[PodSetInfo]) -> Result<(), JobError>;

    /// Restores templates and counts from the Workload's pod sets. Returns true if the job changed.
    fn restore(&self, job: &mut Value, pod_sets: &[PodSet]) -> bool;

    /// The status to write before the API server lets [`Self::run`] change the templates, if such
    /// a reset is needed.
    fn before_run(&self, job: &Value) -> Option<Value> {
        let _ = job;
        None
    }

    /// The next step of a stop. `pod_sets` are the Workload's. Without a Workload nothing is
    /// restored.
    fn stop(&self, job: &Value, pod_sets: Option<&[PodSet]>) -> Stop {
        suspend_and_restore(self, job, pod_sets)
    }

    /// As [`Self::stop`], for a job whose Workload was deleted.
    fn discard(&self, job: &Value, pod_sets: &[PodSet]) -> Stop {
        self.stop(job, Some(pod_sets))
    }

    /// JSON pointers to the pod templates that bear the scheduling gate of elastic jobs.
    fn elastic_templates(&self, job: &Value) -> Vec<String> {
        let _ = job;
        Vec::new()
    }

    /// A text that differs between two sizes of a job, for the names of its Workloads. Defaults to
    /// the job's generation.
    fn size_generation(&self, job: &Value) -> String {
        meta::generation(job).to_string()
    }

    /// Sets the counts of [`crate::sized_pod_sets`] in a job that allows partial admission, and
    /// removes its minimum.
    fn shrink(&self, job: &mut Value, pod_sets: &[PodSet]) {
        let _ = (job, pod_sets);
    }

    /// Whether a job can be resized in a worker cluster, by [`Self::resize`] and
    /// [`Self::take_size`].
    fn resizes(&self) -> bool {
        false
    }

    /// Sets the counts of the job's own pod sets in the job.
    fn resize(&self, job: &mut Value, pod_sets: &[PodSet]) {
        let _ = (job, pod_sets);
    }

    /// Sets the size of another job in this job, in the fields that the other job uses.
    fn take_size(&self, job: &mut Value, other: &Value) {
        if let Ok(pod_sets) = self.pod_sets(other) {
            self.resize(job, &pod_sets);
        }
    }

    /// The field that enables the job's own autoscaler, if it is enabled.
    fn autoscales(&self, job: &Value) -> Option<Path> {
        let _ = job;
        None
    }

    /// The end of the job, once it has ended.
    fn finished(&self, job: &Value) -> Option<Finished>;

    /// When the job ended, as its status says. Defaults to the last transition of its conditions.
    fn ended_at(&self, job: &Value) -> Option<Timestamp> {
        meta::last_transition(job)
    }

    /// True if all pods are ready or have succeeded.
    fn pods_ready(&self, job: &Value) -> bool;

    /// True if as many pods are ready or have succeeded as these pod sets have. The job may have
    /// grown since.
    fn pods_ready_of(&self, job: &Value, pod_sets: &[PodSet]) -> bool {
        let _ = pod_sets;
        self.pods_ready(job)
    }

    /// Pods whose quota is no longer needed. Pod sets without such pods are left out.
    fn reclaimable(&self, job: &Value) -> Vec<ReclaimablePod> {
        let _ = job;
        Vec::new()
    }

    /// PriorityClass that the job itself names. It takes precedence over the pod templates'.
    fn priority_class(&self, job: &Value) -> Option<String> {
        let _ = job;
        None
    }

    /// The controller that the job names.
    fn managed_by<'a>(&self, job: &'a Value) -> Option<&'a str>;

    /// Names the controller that runs the job. The field is immutable in all kinds, so this is
    /// possible only at creation.
    fn set_managed_by(&self, job: &mut Value, manager: Option<&str>);

    /// Whether jobs of the kind can name the controller that runs them. On a hub, only the
    /// suspension keeps jobs of other kinds from running.
    fn names_manager(&self) -> bool {
        true
    }

    /// True if the webhook may hand the job to MultiKueue.
    fn can_default_managed_by(&self, job: &Value) -> bool;

    /// Errors of a job, beyond the rules common to all kinds.
    fn validate(&self, job: &Value) -> Vec<FieldError> {
        let _ = job;
        Vec::new()
    }

    /// Errors of an update, beyond the rules common to all kinds. Includes [`Self::validate`] if
    /// the kind checks that on updates.
    fn validate_update(&self, old: &Value, new: &Value) -> Vec<FieldError> {
        let _ = (old, new);
        Vec::new()
    }

    /// The object to create in a worker cluster: suspended, without owner, uid, status, managedBy
    /// and the fields that the worker's API server sets. For a group, a List of its members
    /// ([`crate::sent_objects`]).
    fn remote_copy(&self, job: &Value, remote: RemoteMeta<'_>) -> Value;

    /// The status that the hub's job should show, given the copy's. `None` if it shows it already.
    fn mirror_status(&self, local: &Value, remote: &Value) -> Option<Value>;

    /// The status of a hub's job whose copy is gone before it finished. `None` if it is right
    /// already.
    fn reset_status(&self, local: &Value, now: Timestamp) -> Option<Value>;

    /// The status of a hub's job that waits for a cluster, so that it does not look running. `None`
    /// if it is right already or the kind has no such status.
    fn waiting_status(&self, _local: &Value, _now: Timestamp) -> Option<Value> {
        None
    }
}

/// Stopping in one step.
fn suspend_and_restore<K: JobKind + ?Sized>(
    kind: &K,
    job: &Value,
    pod_sets: Option<&[PodSet]>,
) -> Stop {
    if kind.is_suspended(job) {
        return Stop::Done;
    }
    let mut wanted = job.clone();
    kind.suspend(&mut wanted);
    if let Some(pod_sets) = pod_sets {
        kind.restore(&mut wanted, pod_sets);
    }
    Stop::Update { job: Box::new(wanted), now: true }
}

#[cfg(test)]
mod tests;
