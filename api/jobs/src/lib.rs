//! Job kinds: pure functions between a job object and its pod sets.
//!
//! One file a kind, one trait ([`JobKind`]), one table ([`kinds`]). Nothing here
//! holds a client or reads a clock; objects are JSON, so fields of newer API
//! servers survive every edit, and what changed is written as a merge patch
//! ([`merge_diff`]).
//!
//! # The kinds
//!
//! [`batch_job`] is the one that everything is checked against: its API server guards its template, so starting and
//! stopping it takes steps ([`JobKind::before_run`], [`JobKind::stop`]), and its status may only be mirrored under rules.
//! The kinds of CRDs are simpler and alike: `plain` holds what they share, and a kind is its list of pod templates, where
//! it is suspended, and how its status reads. `docs/adding-a-job-kind.md` shows how to add one.
//!
//! | kind | pod sets | finished | pods ready |
//! |---|---|---|---|
//! | Job | `main` | Complete, Failed | counters |
//! | JobSet | one a replicated job | Completed, Failed | counters, in Jobs |
//! | Kubeflow's six | one a replica type | Succeeded, Failed | Running |
//! | RayCluster, RayService | `head`, one a worker group | never | state `ready`, Ready |
//! | RayJob | those, and `submitter` | Complete, Failed as `jobDeploymentStatus` | its cluster's state |
//! | AppWrapper | one a wrapped template | phase | PodsReady |
//! | SparkApplication | `driver`, `executor` | state | state and executors' |
//! | TrainJob | those of the JobSet that its runtime makes | Complete, Failed | counters, in Jobs |
//! | Pod | `main`; of a group, one a role | phase; of a group, all have succeeded | Ready |
//! | Deployment | its pods' | never | its pods' |
//! | StatefulSet | `main` | never | its pods' |
//! | LeaderWorkerSet | of each replica, `leader` and `worker`, or `main` | never | its pods' |
//! | external frameworks | their controller's | with their workload | their controller's |

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

/// Why a job could not be turned into pod sets or back.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JobError {
    /// The object has not the shape of its kind. The user's fault; permanent.
    #[error("{field}: {problem}")]
    Malformed {
        /// Path of the field.
        field: String,
        /// What is wrong with it.
        problem: String,
    },
    /// The workload has another number of pod sets than the job. Permanent.
    #[error("invalid podset infos: expecting {want} podset, got {got}")]
    PodSetCount {
        /// Pod sets of the job.
        want: usize,
        /// Pod sets given.
        got: usize,
    },
    /// The workload has no pod set of this name. Permanent.
    #[error("invalid podset infos: podSetInfo with the name '{name}' is not found")]
    PodSetMissing {
        /// The pod set that a pod needs.
        name: String,
    },
    /// An annotation that asks for a topology cannot be read. Permanent.
    #[error("{problem}")]
    TopologyRequest {
        /// What is wrong with it, in Kueue's words.
        problem: String,
    },
    /// What admission wants to set contradicts the template. Permanent.
    #[error("{}invalid admission check PodSetUpdate: conflict for {what}: {detail}", in_check(.check.as_deref()))]
    PodSetUpdateConflict {
        /// Admission check that asked for it, if one did.
        check: Option<String>,
        /// `labels`, `annotations` or `nodeSelector`.
        what: &'static str,
        /// The key and both values.
        detail: String,
    },
    /// A flavor of the admission does not exist (any more). Worth a retry.
    #[error("ResourceFlavor {name:?} not found; create it again, or let the workload be evicted")]
    FlavorNotFound {
        /// Its name.
        name: String,
    },
}

fn in_check(check: Option<&str>) -> String {
    check.map(|name| format!("in admission check {name:?}: ")).unwrap_or_default()
}

impl JobError {
    /// True when trying again cannot help, so the workload is finished as failed to start.
    #[must_use]
    pub fn is_permanent(&self) -> bool {
        !matches!(self, Self::FlavorNotFound { .. })
    }
}

/// Group, version, kind and resource name of a job kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KindId {
    /// API group, such as `batch`.
    pub group: &'static str,
    /// Version that we read and write.
    pub version: &'static str,
    /// Kind.
    pub kind: &'static str,
    /// Resource name.
    pub plural: &'static str,
    /// Name in `integrations.frameworks` of the configuration, such as `batch/job`.
    pub framework: &'static str,
}

impl KindId {
    /// `group/version` as in `apiVersion`.
    #[must_use]
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_owned()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// What a dynamic client needs.
    #[must_use]
    pub fn api_resource(&self) -> kube::core::ApiResource {
        let gvk = kube::core::GroupVersionKind::gvk(self.group, self.version, self.kind);
        kube::core::ApiResource::from_gvk_with_plural(&gvk, self.plural)
    }
}

/// The end of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finished {
    /// False when the job failed.
    pub success: bool,
    /// Message of the job's terminal condition.
    pub message: String,
}

/// How jobs of a kind are kept from running.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Held {
    /// By a field that suspends them, at any time.
    Suspended,
    /// By a scheduling gate that only their creation can set: one that was created without it has escaped. They carry the
    /// label `kueue.x-k8s.io/managed`, by which they are watched, and whether a job of ours owns them is settled then.
    Gated,
    /// Not at all: the pods that they make are. What [`JobKind::suspend`] writes into their templates says so to the pods'
    /// webhook, at creation and on updates.
    ByPods,
}

/// The next write that takes a job towards "stopped, with its own templates".
#[derive(Debug, Clone, PartialEq)]
pub enum Stop {
    /// It is stopped and as its user wrote it.
    Done,
    /// Write the difference to this object. `now` is true when this is the write
    /// that suspends it.
    Update {
        /// The wanted object.
        job: Box<Value>,
        /// True for the write that suspends.
        now: bool,
    },
    /// Write the difference to this object's status.
    UpdateStatus(Box<Value>),
    /// End these members of the job: what is to go on is made anew by whoever made them.
    Terminate(Vec<Value>),
    /// Nothing can be written until the job's own controller has acted.
    Wait,
}

/// An object that the pods of a job depend on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dependency {
    /// Its kind, one of [`JobKind::dependencies`].
    pub kind: KindId,
    /// Its namespace, empty for kinds that have none.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// What is put on the copy of a job that is created in a worker cluster.
#[derive(Debug, Clone, Copy)]
pub struct RemoteMeta<'a> {
    /// Name of the workload in the worker cluster.
    pub workload: &'a str,
    /// Value of the label `kueue.x-k8s.io/multikueue-origin`.
    pub origin: &'a str,
}

/// One kind of job. Methods are pure; see the module's documentation.
///
/// # Assumptions
/// Objects come from an API server, so they are valid for their kind; a method
/// that meets a field of another type treats it as absent unless it can fail.
pub trait JobKind: Send + Sync + 'static {
    /// Which kind this is.
    fn id(&self) -> KindId;

    /// How jobs of the kind are kept from running.
    fn held(&self) -> Held {
        Held::Suspended
    }

    /// The name of the group whose objects are one job together, for an object that belongs to one.
    fn group_of<'a>(&self, job: &'a Value) -> Option<&'a str> {
        let _ = job;
        None
    }

    /// The job that the objects of a group are together. All other methods take it as they take a single object; edits
    /// are of its members.
    fn compose(&self, members: Vec<Value>) -> Value {
        members.into_iter().next().unwrap_or_default()
    }

    /// The objects that the job consists of: itself, unless it was composed of others.
    fn members<'a>(&self, job: &'a Value) -> &'a [Value] {
        std::slice::from_ref(job)
    }

    /// Whether the job was composed of the objects of a group.
    fn is_composed(&self, job: &Value) -> bool {
        let _ = job;
        false
    }

    /// For a kind whose pods are groups that serve: what is to be known about them.
    fn serving(&self) -> Option<&dyn serving::Serving> {
        None
    }

    /// Whether objects of the kind are followed. Otherwise only the webhook sees them.
    fn is_watched(&self) -> bool {
        true
    }

    /// Whether a hub sends objects of the kind to other clusters. Of what is not, the pods may be.
    fn is_sent(&self) -> bool {
        true
    }

    /// Whether the workload of a job goes to another queue with the job. That of pods that serve goes with their maker.
    fn leads_queue(&self, job: &Value) -> bool {
        let _ = job;
        true
    }

    /// Takes the finalizer off that keeps an ended job until its end was noted; whether it had one.
    fn release(&self, job: &mut Value) -> bool {
        let _ = job;
        false
    }

    /// Whether we make the workloads of the kind's jobs, and start and stop them. Otherwise another controller does.
    fn makes_workloads(&self) -> bool {
        true
    }

    /// Whether [`JobKind::finished`] says when a job has ended. Otherwise only its workload does.
    fn tells_its_end(&self) -> bool {
        true
    }

    /// JSON pointers to fields of the spec that go on being the hub's after a job was sent: a change of one is brought to
    /// the copy. Of everything else a copy stays as it was sent.
    fn followed_fields(&self) -> &'static [&'static str] {
        &[]
    }

    /// Kinds of objects that the pods of the kind's jobs depend on. They are watched with it.
    fn dependencies(&self) -> &'static [KindId] {
        &[]
    }

    /// The object that the pods of this job depend on.
    fn depends_on(&self, job: &Value) -> Option<Dependency> {
        let _ = job;
        None
    }

    /// Puts what is needed of that object into the job, beside its own fields; all other methods may read it there. It is
    /// never written.
    fn attach(&self, job: &mut Value, found: &Value) {
        let _ = (job, found);
    }

    /// The pod sets, with pod templates as the user wrote them.
    ///
    /// # Errors
    /// [`JobError::Malformed`] when there is no pod template.
    fn pod_sets(&self, job: &Value) -> Result<Vec<PodSet>, JobError>;

    /// What the template of a pod set says of topologies, and how its pods are numbered. `index` is that of the pod set in
    /// [`Self::pod_sets`].
    fn topology_source(&self, job: &Value, index: usize, pod_set: &PodSet) -> TopologySource {
        let _ = (job, index, pod_set);
        TopologySource::default()
    }

    /// Writes into the pod templates of a new job what tells the rank of each pod, where its controller does not. A pod is held
    /// back until its place is chosen.
    fn apply_topology_defaults(&self, job: &mut Value) {
        let _ = job;
    }

    /// True for jobs of the kind that take no quota and are left alone.
    fn skips(&self, job: &Value) -> bool {
        let _ = job;
        false
    }

    /// True when the job is suspended and not in the middle of being stopped.
    fn is_suspended(&self, job: &Value) -> bool;

    /// Suspends the job.
    fn suspend(&self, job: &mut Value);

    /// True while the job has pods that run or terminate.
    fn is_active(&self, job: &Value) -> bool;

    /// Whether the status of a job goes on to count its pods while it is being deleted: [`Self::is_active`] says then whether some
    /// are left.
    fn counts_while_deleted(&self) -> bool {
        false
    }

    /// Whether jobs of the job's own controller clean up after it once it is being deleted: they run by its quota.
    fn cleans_up(&self, job: &Value) -> bool {
        let _ = job;
        false
    }

    /// Whether its operator has set the job aside, so that it needs no quota although it has not ended.
    fn on_hold(&self, job: &Value) -> bool {
        let _ = job;
        false
    }

    /// When an active job counts as one no more although its pods were not seen to end: their time is up.
    fn active_until(&self, job: &Value) -> Option<Timestamp> {
        let _ = job;
        None
    }

    /// Unsuspends the job with the infos merged into its templates.
    ///
    /// # Errors
    /// [`JobError::PodSetCount`], [`JobError::PodSetMissing`] and [`JobError::PodSetUpdateConflict`].
    fn run(&self, job: &mut Value, infos: &[PodSetInfo]) -> Result<(), JobError>;

    /// Sets templates and counts back to the workload's pod sets; true when
    /// anything changed.
    fn restore(&self, job: &mut Value, pod_sets: &[PodSet]) -> bool;

    /// A status reset that must be written before the API server lets `run`
    /// change the templates, if one is needed.
    fn before_run(&self, job: &Value) -> Option<Value> {
        let _ = job;
        None
    }

    /// The next step of stopping. `pod_sets` are the workload's; without a
    /// workload nothing can be restored.
    fn stop(&self, job: &Value, pod_sets: Option<&[PodSet]>) -> Stop {
        suspend_and_restore(self, job, pod_sets)
    }

    /// As [`JobKind::stop`] for a job whose workload was deleted by somebody.
    fn discard(&self, job: &Value, pod_sets: &[PodSet]) -> Stop {
        self.stop(job, Some(pod_sets))
    }

    /// The pod templates of a job of a kind whose jobs may change their size while they run, as JSON pointers; none of other
    /// kinds.
    fn elastic_templates(&self, job: &Value) -> Vec<String> {
        let _ = job;
        Vec::new()
    }

    /// What tells one size of such a job from the next, for the names of its workloads.
    fn size_generation(&self, job: &Value) -> String {
        meta::generation(job).to_string()
    }

    /// Gives a job that may run with fewer pods than it asks for the counts of [`sized_pod_sets`], and has it ask for no fewer.
    fn shrink(&self, job: &mut Value, pod_sets: &[PodSet]) {
        let _ = (job, pod_sets);
    }

    /// Whether such a job may change its size on the cluster that a hub has sent it to: [`Self::resize`] and
    /// [`Self::take_size`] do that.
    fn resizes(&self) -> bool {
        false
    }

    /// Gives a job the counts of these pod sets, which are its own.
    fn resize(&self, job: &mut Value, pod_sets: &[PodSet]) {
        let _ = (job, pod_sets);
    }

    /// Gives a job the size of another one, as that one says it.
    fn take_size(&self, job: &mut Value, other: &Value) {
        if let Ok(pod_sets) = self.pod_sets(other) {
            self.resize(job, &pod_sets);
        }
    }

    /// The field by which a job has its own controller change its size as it runs, where it does.
    fn autoscales(&self, job: &Value) -> Option<Path> {
        let _ = job;
        None
    }

    /// The end of the job, once it has one.
    fn finished(&self, job: &Value) -> Option<Finished>;

    /// When the job ended, as far as its status says: by default, when its conditions last changed.
    fn ended_at(&self, job: &Value) -> Option<Timestamp> {
        meta::last_transition(job)
    }

    /// True when all pods are ready or have succeeded.
    fn pods_ready(&self, job: &Value) -> bool;

    /// True when as many pods as these pod sets have are ready or have succeeded, of a job that has grown since.
    fn pods_ready_of(&self, job: &Value, pod_sets: &[PodSet]) -> bool {
        let _ = pod_sets;
        self.pods_ready(job)
    }

    /// Pods whose quota is not needed any more. Empty pod sets are left out.
    fn reclaimable(&self, job: &Value) -> Vec<ReclaimablePod> {
        let _ = job;
        Vec::new()
    }

    /// PriorityClass that the kind itself names, before the pod templates' are looked at.
    fn priority_class(&self, job: &Value) -> Option<String> {
        let _ = job;
        None
    }

    /// The controller that runs the job, when it is not the kind's own.
    fn managed_by<'a>(&self, job: &'a Value) -> Option<&'a str>;

    /// Names the controller that runs the job. Only possible at creation for
    /// kinds whose field is immutable, which all kinds' are.
    fn set_managed_by(&self, job: &mut Value, manager: Option<&str>);

    /// Whether jobs of the kind can name the controller that runs them. Those that cannot are kept from running here by
    /// being suspended alone.
    fn names_manager(&self) -> bool {
        true
    }

    /// True when the webhook may hand the job to MultiKueue.
    fn can_default_managed_by(&self, job: &Value) -> bool;

    /// What is wrong with a new job (or the new state of one), beyond the rules
    /// common to all kinds.
    fn validate(&self, job: &Value) -> Vec<FieldError> {
        let _ = job;
        Vec::new()
    }

    /// What is wrong with an update, beyond the rules common to all kinds.
    /// Includes [`JobKind::validate`] where the kind wants it on updates.
    fn validate_update(&self, old: &Value, new: &Value) -> Vec<FieldError> {
        let _ = (old, new);
        Vec::new()
    }

    /// The object to create in a worker cluster: suspended, without owner, uid,
    /// status, managedBy and whatever the worker's API server sets itself. Of a
    /// group, a List of its members ([`sent_objects`]).
    fn remote_copy(&self, job: &Value, remote: RemoteMeta<'_>) -> Value;

    /// The status that the local job should show, given the remote one; `None`
    /// when it shows it already.
    fn mirror_status(&self, local: &Value, remote: &Value) -> Option<Value>;

    /// The status of a local job whose remote copy is gone before it finished;
    /// `None` when it is right already.
    fn reset_status(&self, local: &Value, now: Timestamp) -> Option<Value>;

    /// The status of a local job that waits for a cluster, so that it does not look as if it ran; `None` when it is right
    /// already, or the kind has no words for it.
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
