//! Webhook rules for jobs, as pure functions: [`default`] at creation, [`validate`] at
//! creation and on updates.

mod validate;
mod warnings;

#[cfg(test)]
mod tests;

use serde_json::Value;
use switchyard_api::names;
use switchyard_jobs::{JobKind, SuspendMode, TopologyGates, elastic, meta, pod, serving::is_sent};

pub(super) use self::{
    validate::{validate, validate_topology},
    warnings::{annotation_warning, warning, with_annotated_queue},
};

/// Facts about the cluster and the job's surroundings that the rules depend on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct JobFacts {
    /// Whether Switchyard manages jobs of this namespace.
    pub(super) is_namespace_managed: bool,
    /// Whether the kind is enabled only for objects that jobs of other kinds create, and no such
    /// job owns this one.
    pub(super) is_implied_kind: bool,
    /// Kueue's `manageJobsWithoutQueueName`.
    pub(super) manages_unqueued: bool,
    /// Whether the namespace has a LocalQueue `default`.
    pub(super) has_default_queue: bool,
    /// Whether a WorkloadPriorityClass `default` exists.
    pub(super) has_default_priority_class: bool,
    /// Whether the job's direct owner is of an enabled kind, queued or not.
    pub(super) has_enabled_owner: bool,
    /// Whether a job above this one is queued in its place.
    pub(super) has_queued_owner: bool,
    /// Whether a pod group that is scaled to zero still has quota, or a Workload that is being
    /// deleted.
    pub(super) is_releasing_quota: bool,
    /// Whether one of its pod groups has quota, even if none of its pods is ready.
    pub(super) has_quota: bool,
    /// Whether this is a hub's copy whose Workload is admitted already, so it is created running.
    pub(super) is_admitted_copy: bool,
    /// Kueue's `ElasticJobsViaWorkloadSlices`: jobs may change their size while they run.
    pub(super) elastic: bool,
    pub(super) topology: TopologyGates,
    /// Kueue's `AdmissionGatedBy` is off: the annotation `admission-gated-by` has no effect.
    pub(super) ignores_admission_gates: bool,
    /// Kueue's `ValidateRayAndSparkJobUpdates` is off: a Ray or Spark job may lose its queue.
    pub(super) skips_ray_and_spark_updates: bool,
    /// Kueue's `LWSImmutableGroupSize` is off: the group size of a LeaderWorkerSet may change.
    pub(super) can_resize_groups: bool,
}

/// Sets the default queue and priority class, suspends the job if it must wait for admission, and
/// hands it to MultiKueue if its queue dispatches, with or without an owner. `dispatches` gets the
/// queue that the job has by then.
pub(super) fn default(
    kind: &dyn JobKind,
    job: &mut Value,
    facts: &JobFacts,
    dispatches: impl Fn(&str) -> bool,
) {
    let settled = is_held_by_owner(kind, job);
    if !settled && !is_in_scope(kind, job, facts) {
        return;
    }
    let waits = settled || !facts.has_queued_owner && set_queue_and_class(kind, job, facts);
    // A user's own scheduling gate lacks the managed label, and kinds queued by their pods are
    // never suspended themselves.
    if waits
        && (kind.suspend_mode() != SuspendMode::Field || !kind.is_suspended(job))
        && !facts.is_admitted_copy
    {
        kind.suspend(job);
    }
    let queued = waits || !meta::queue_name(job).is_empty();
    if queued && kind.can_default_managed_by(job) && dispatches(meta::queue_name(job)) {
        kind.set_managed_by(job, Some(names::MULTIKUEUE_CONTROLLER));
    }
    if waits && facts.elastic && elastic::may_be_elastic(kind, job) {
        elastic::gate_pods(kind, job);
    }
    if waits && facts.topology.aware && !facts.is_admitted_copy {
        kind.apply_topology_defaults(job);
    }
}

/// Whether [`default`] needs to know [`JobFacts::has_queued_owner`].
pub(super) fn needs_owners(kind: &dyn JobKind, job: &Value, facts: &JobFacts) -> bool {
    !is_held_by_owner(kind, job) && is_in_scope(kind, job, facts) && may_be_queued(kind, job, facts)
}

/// Whether [`set_queue_and_class`] may find that the job is queued.
fn may_be_queued(kind: &dyn JobKind, job: &Value, facts: &JobFacts) -> bool {
    let defaulted = facts.has_default_queue
        && (!facts.has_enabled_owner || kind.suspend_mode() == SuspendMode::Gate);
    !meta::queue_name(job).is_empty() || facts.manages_unqueued || defaulted
}

/// Whether an owner holds this pod back already, which settles that it is queued and where.
fn is_held_by_owner(kind: &dyn JobKind, job: &Value) -> bool {
    kind.suspend_mode() == SuspendMode::Gate && pod::is_suspended_by_parent(job)
}

/// Whether the job is in scope if it has a queue.
fn is_in_scope(kind: &dyn JobKind, job: &Value, facts: &JobFacts) -> bool {
    facts.is_namespace_managed
        && !facts.is_implied_kind
        && !kind.skips(job)
        && !meta::is_deleting(job)
}

/// Sets the queue and priority class of a job and returns whether it is queued. A job with an owner
/// of an enabled kind needs a queue of its own; a pod may get the default queue, because
/// [`JobFacts::has_queued_owner`] has excluded queued owners.
fn set_queue_and_class(kind: &dyn JobKind, job: &mut Value, facts: &JobFacts) -> bool {
    let defaulted = !facts.has_enabled_owner || kind.suspend_mode() == SuspendMode::Gate;
    if meta::queue_name(job).is_empty() && facts.has_default_queue && defaulted {
        meta::set_label(job, names::QUEUE_NAME, names::DEFAULT);
    }
    if meta::queue_name(job).is_empty() && !facts.manages_unqueued {
        return false;
    }
    // A hub's copy keeps the hub's priority.
    let has_class =
        facts.has_enabled_owner || is_sent(job) || !meta::workload_priority_class(job).is_empty();
    if facts.has_default_priority_class && !has_class {
        meta::set_label(job, names::PRIORITY_CLASS, names::DEFAULT);
    }
    true
}
