//! The core of a job kind, and what every caller may ask of any kind.

use jiff::Timestamp;
use serde_json::Value;
use switchyard_api::v1beta2::{PodSet, ReclaimablePod};
use switchyard_syntax::field::{FieldError, Path};

mod facets;

pub use facets::{Dependent, Elastic, Group, Grouped, Managed, PodMetadata, Remote, Serving};

use crate::{
    CountedPods, Dependency, JobEnd, JobError, KindId, PodSetInfo, Stop, SuspendMode,
    TopologySource, meta,
};

/// Names a job kind and reads the state of its jobs. [`JobKind`] adds how its jobs are queued,
/// started and stopped.
///
/// Objects come from an API server, so they are valid for their kind. A method that cannot fail
/// treats a field of an unexpected type as absent.
pub trait KindProfile: Send + Sync + 'static {
    /// The identity of the kind.
    fn id(&self) -> KindId;

    /// Facet of kinds whose jobs may change their size while they run.
    fn elastic(&self) -> Option<&dyn Elastic> {
        None
    }

    /// Facet of kinds whose pods depend on another object.
    fn dependent(&self) -> Option<&dyn Dependent> {
        None
    }

    /// Whether the job takes no quota and is left alone.
    fn skips(&self, job: &Value) -> bool {
        let _ = job;
        false
    }

    /// True while pods of the job run or terminate.
    fn is_active(&self, job: &Value) -> bool;

    /// True if all pods are ready or have succeeded.
    fn pods_ready(&self, job: &Value) -> bool;

    /// The pods that the job's status counts. `None` if the status of the kind counts none: then only
    /// a list of pods tells.
    fn counted_pods(&self, job: &Value) -> Option<CountedPods> {
        let _ = job;
        None
    }

    /// Pods whose quota is no longer needed. Pod sets without such pods are left out.
    fn reclaimable(&self, job: &Value) -> Vec<ReclaimablePod> {
        let _ = job;
        Vec::new()
    }

    /// Whether the job's own controller holds it back for now. The job has not ended and needs no
    /// quota.
    fn on_hold(&self, job: &Value) -> bool {
        let _ = job;
        false
    }

    /// The end of the job, once it has ended.
    fn finished(&self, job: &Value) -> Option<JobEnd>;

    /// When the job ended, as its status says. Defaults to the last transition of its conditions.
    fn ended_at(&self, job: &Value) -> Option<Timestamp> {
        meta::last_transition(job)
    }

    /// Whether the job's controller starts clean-up jobs when the job is deleted. They run within
    /// its quota.
    fn has_cleanup(&self, job: &Value) -> bool {
        let _ = job;
        false
    }

    /// PriorityClass that the job itself names. It takes precedence over the pod templates'.
    fn priority_class(&self, job: &Value) -> Option<String> {
        let _ = job;
        None
    }

    /// Prepares a new job for topology-aware placement.
    ///
    /// Adds the rank labels that the job's controller does not set. A pod also gets the scheduling
    /// gate that holds it until its topology domain is chosen.
    fn apply_topology_defaults(&self, job: &mut Value) {
        let _ = job;
    }

    /// Errors of a job, beyond the rules common to all kinds.
    fn validate(&self, job: &Value) -> Vec<FieldError> {
        let _ = job;
        Vec::new()
    }
}

/// One kind of job. All methods are pure functions of JSON objects.
///
/// Abilities of only some kinds are facets: traits of their own, reached by accessors such as
/// [`KindProfile::elastic`], which return `None` for kinds without them.
pub trait JobKind: KindProfile {
    // Facets.

    /// Facet of kinds of which several objects can form one job.
    fn grouped(&self) -> Option<&dyn Grouped> {
        None
    }

    /// Facet of kinds whose pods are groups that serve.
    fn serving(&self) -> Option<&dyn Serving> {
        None
    }

    /// Facet of kinds with a field that names the controller of a job.
    fn managed(&self) -> Option<&dyn Managed> {
        None
    }

    /// Facet of kinds that a hub sends to worker clusters. Pods of other kinds may be sent.
    fn remote(&self) -> Option<&dyn Remote> {
        None
    }

    // Control.

    /// How jobs of the kind are kept from running until they are admitted.
    fn suspend_mode(&self) -> SuspendMode {
        SuspendMode::Field
    }

    /// Whether the reconciler watches objects of the kind. Other kinds pass the webhook only.
    fn is_watched(&self) -> bool {
        true
    }

    /// Whether Switchyard creates the Workloads of the kind's jobs, and starts and stops the jobs.
    /// For external frameworks another controller does.
    fn makes_workloads(&self) -> bool {
        true
    }

    /// Whether [`KindProfile::finished`] reports the end of a job. For other kinds only the
    /// Workload does.
    fn reports_completion(&self) -> bool {
        true
    }

    // Pods.

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

    /// Sets the counts of [`crate::sized_pod_sets`] in a job that allows partial admission, and
    /// removes its minimum.
    fn shrink(&self, job: &mut Value, pod_sets: &[PodSet]) {
        let _ = (job, pod_sets);
    }

    /// The time after which an active job no longer counts as active, even if its pods have not
    /// ended.
    fn active_until(&self, job: &Value) -> Option<Timestamp> {
        let _ = job;
        None
    }

    /// Whether [`KindProfile::is_active`] stays correct while a job is being deleted.
    fn counts_while_deleted(&self) -> bool {
        false
    }

    // Start and stop.

    /// True if the job is suspended and no stop is in progress.
    fn is_suspended(&self, job: &Value) -> bool;

    /// Suspends the job.
    fn suspend(&self, job: &mut Value);

    /// The status to write before the API server lets [`Self::run`] change the templates, if such
    /// a reset is needed.
    fn before_run(&self, job: &Value) -> Option<Value> {
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

    /// The next step of a stop. `pod_sets` are the Workload's. Without a Workload nothing is
    /// restored.
    fn stop(&self, job: &Value, pod_sets: Option<&[PodSet]>) -> Stop {
        suspend_and_restore(self, job, pod_sets)
    }

    /// As [`Self::stop`], for a job whose Workload was deleted.
    fn discard(&self, job: &Value, pod_sets: &[PodSet]) -> Stop {
        self.stop(job, Some(pod_sets))
    }

    /// Removes the finalizer that keeps an ended job until its end is recorded. Returns true if
    /// there was one.
    fn release(&self, job: &mut Value) -> bool {
        let _ = job;
        false
    }

    /// Errors of an update, beyond the rules common to all kinds. Includes
    /// [`KindProfile::validate`] if the kind checks that on updates.
    fn validate_update(&self, old: &Value, new: &Value) -> Vec<FieldError> {
        let _ = (old, new);
        Vec::new()
    }
}

/// Stops a job in one step.
pub(crate) fn suspend_and_restore<K: JobKind + ?Sized>(
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

/// Methods for all kinds: each asks the facet, and returns a default for kinds without the facet.
impl dyn JobKind + '_ {
    /// The name of the group of an object, if it belongs to one. See [`Grouped::group_of`].
    #[must_use]
    pub fn group_of<'a>(&self, job: &'a Value) -> Option<&'a str> {
        self.grouped()?.group_of(job)
    }

    /// The job that these objects form. See [`Grouped::compose`].
    #[must_use]
    pub fn compose(&self, members: Vec<Value>) -> Value {
        match self.grouped() {
            Some(grouped) => grouped.compose(members),
            None => members.into_iter().next().unwrap_or_default(),
        }
    }

    /// The objects that form the job: itself, unless it is a group.
    #[must_use]
    pub fn members<'a>(&self, job: &'a Value) -> &'a [Value] {
        match self.grouped() {
            Some(grouped) => grouped.members(job),
            None => std::slice::from_ref(job),
        }
    }

    /// Whether the job is a group. See [`Grouped::is_composed`].
    #[must_use]
    pub fn is_composed(&self, job: &Value) -> bool {
        self.grouped().is_some_and(|grouped| grouped.is_composed(job))
    }

    /// Whether a change of the job's queue moves its Workload. See [`Grouped::syncs_queue`].
    #[must_use]
    pub fn syncs_queue(&self, job: &Value) -> bool {
        self.grouped().is_none_or(|grouped| grouped.syncs_queue(job))
    }

    /// JSON pointers to the pod templates of an elastic kind. Empty for other kinds.
    #[must_use]
    pub fn elastic_templates(&self, job: &Value) -> Vec<String> {
        self.elastic().map_or_else(Vec::new, |elastic| elastic.templates(job))
    }

    /// Whether an elastic job of the kind can be resized in a worker cluster.
    #[must_use]
    pub fn resizes(&self) -> bool {
        self.elastic().is_some_and(Elastic::resizes)
    }

    /// True if as many pods are ready or have succeeded as these pod sets have. The job may have
    /// grown since.
    #[must_use]
    pub fn pods_ready_of(&self, job: &Value, pod_sets: &[PodSet]) -> bool {
        match self.elastic() {
            Some(elastic) => elastic.pods_ready_of(job, pod_sets),
            None => self.pods_ready(job),
        }
    }

    /// The field that enables the job's own autoscaler, if it is enabled.
    #[must_use]
    pub fn autoscaler_field(&self, job: &Value) -> Option<Path> {
        self.elastic()?.autoscaler_field(job)
    }

    /// Kinds of objects that pods of the kind depend on. See [`Dependent::dependencies`].
    #[must_use]
    pub fn dependencies(&self) -> &'static [KindId] {
        match self.dependent() {
            Some(dependent) => dependent.dependencies(),
            None => &[],
        }
    }

    /// The object that the pods of the job depend on. See [`Dependent::depends_on`].
    #[must_use]
    pub fn depends_on(&self, job: &Value) -> Option<Dependency> {
        self.dependent()?.depends_on(job)
    }

    /// Copies the needed parts of that object into the job. See [`Dependent::attach`].
    pub fn attach(&self, job: &mut Value, found: &Value) {
        if let Some(dependent) = self.dependent() {
            dependent.attach(job, found);
        }
    }

    /// The controller that runs the job, if the job names one.
    #[must_use]
    pub fn managed_by<'a>(&self, job: &'a Value) -> Option<&'a str> {
        self.managed()?.managed_by(job)
    }

    /// Names the controller that runs the job. See [`Managed::set_managed_by`].
    pub fn set_managed_by(&self, job: &mut Value, manager: Option<&str>) {
        if let Some(managed) = self.managed() {
            managed.set_managed_by(job, manager);
        }
    }

    /// True if the webhook may hand the job to MultiKueue.
    #[must_use]
    pub fn can_default_managed_by(&self, job: &Value) -> bool {
        self.managed().is_some_and(|managed| managed.can_default_managed_by(job))
    }

    /// JSON pointers to the fields that a hub propagates to a copy. See
    /// [`Remote::propagated_fields`].
    #[must_use]
    pub fn propagated_fields(&self) -> &'static [&'static str] {
        match self.remote() {
            Some(remote) => remote.propagated_fields(),
            None => &[],
        }
    }

    /// The status that the hub's job should show, given the copy's. `None` if it shows it already.
    #[must_use]
    pub fn mirror_status(&self, local: &Value, remote: &Value) -> Option<Value> {
        self.remote()?.mirror_status(local, remote)
    }

    /// The status of a hub's job whose copy is gone before it finished. `None` if it is right
    /// already.
    #[must_use]
    pub fn reset_status(&self, local: &Value, now: Timestamp) -> Option<Value> {
        self.remote()?.reset_status(local, now)
    }

    /// The status of a hub's job that waits for a cluster. `None` if it is right already.
    #[must_use]
    pub fn waiting_status(&self, local: &Value, now: Timestamp) -> Option<Value> {
        self.remote()?.waiting_status(local, now)
    }
}
