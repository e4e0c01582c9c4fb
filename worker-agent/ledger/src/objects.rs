//! The objects of the cluster, reduced to what the ledger decides by.

use std::sync::Arc;
use std::time::Duration;

use switchyard_proto::v1::{Origin, PreemptionGate};

/// Time on a monotonic clock. It starts well above zero, so that a lease which expired in an
/// earlier process still has a positive time.
pub type Time = Duration;

/// One of a workload's two objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ObjectKind {
    Workload,
    /// The job, of any kind.
    Job,
}

/// One object on the cluster, identified by its uid.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Target {
    /// Group, version and kind, such as `batch/v1, Kind=Job`.
    pub gvk: Arc<str>,
    pub namespace: String,
    pub name: String,
    pub uid: String,
}

/// The part that Workloads and jobs have in common. Only objects that carry this hub's id become
/// one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meta {
    pub target: Target,
    /// The resourceVersion as a number. The higher of two is the newer state.
    pub version: u64,
    /// The uid of the hub's Workload.
    pub workload_uid: String,
    pub attempt: u64,
    pub deleting: bool,
    /// The position of the agent's finalizer, if the object has it.
    pub finalizer_index: Option<usize>,
    /// The uids of the object's owners.
    pub owners: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Condition {
    pub is_true: bool,
    pub reason: String,
    pub message: String,
}

/// An admission check of the worker's Workload that is not `Ready`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnreadyCheck {
    pub name: String,
    /// `Pending`, `Retry` or `Rejected`.
    pub state: String,
    pub message: String,
}

/// The priority of a Workload that has a WorkloadPriorityClass. Other priorities cannot change
/// while the job runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Priority {
    /// `spec.priorityClassRef.name`.
    pub class: String,
    pub value: i32,
}

/// The worker's Workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteWorkload {
    pub meta: Meta,
    /// `spec.active`.
    pub active: bool,
    /// Whether the agent deactivated it.
    pub suspended_by_agent: bool,
    /// Whether its pods come with another Workload's job. The Workload has no job of its own,
    /// and its pods run once it has quota.
    pub is_follower: bool,
    /// The recorded fence: how long its job may run after the lease expires. None: without limit.
    pub fence_after: Option<Duration>,
    /// Its priority, if a WorkloadPriorityClass sets it.
    pub priority: Option<Priority>,
    /// The hub's preemption gate, with times in whole seconds.
    pub gate: Option<PreemptionGate>,
    pub quota_reserved: Option<Condition>,
    pub admitted: Option<Condition>,
    pub evicted: Option<Condition>,
    pub finished: Option<Condition>,
    /// The admission checks that are not `Ready`.
    pub unready_checks: Vec<UnreadyCheck>,
    /// The part of the status that the hub mirrors, as JSON.
    pub status: Vec<u8>,
    /// The job that it was created from. A hub that lost its store recognizes the job by it.
    /// Reports set `has_job`.
    pub origin: Origin,
    /// Set if the Workload belongs to an elastic job.
    pub slice: Option<Slice>,
}

/// The position of a Workload among those of an elastic job. When the job grows, the worker's
/// admission creates another Workload, which replaces the previous one once it has quota (Kueue's
/// ElasticJobsViaWorkloadSlices).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slice {
    /// The name of the first Workload, which all of them share.
    pub chain: String,
    /// The name of the Workload that this one replaces.
    pub replaces: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobEnd {
    pub success: bool,
    pub reason: String,
    pub message: String,
}

/// The job on the worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteJob {
    pub meta: Meta,
    pub suspended: bool,
    /// Whether it has running pods.
    pub active: bool,
    /// Whether `end` will report the job's completion. If not, only its Workload does.
    pub reports_completion: bool,
    /// Whether creating it again may change it: a group of objects, or an object with replicas or
    /// with fields that follow the hub's.
    pub may_change: bool,
    /// Whether one of its objects was removed before it had ended. The job does not go on without
    /// it.
    pub has_lost_member: bool,
    /// Set once the job has ended.
    pub end: Option<JobEnd>,
    /// Its status as JSON.
    pub status: Vec<u8>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "it travels in a box")]
pub enum Object {
    Workload(RemoteWorkload),
    Job(RemoteJob),
}

impl Object {
    pub fn meta(&self) -> &Meta {
        match self {
            Self::Workload(workload) => &workload.meta,
            Self::Job(job) => &job.meta,
        }
    }

    pub fn kind(&self) -> ObjectKind {
        match self {
            Self::Workload(_) => ObjectKind::Workload,
            Self::Job(_) => ObjectKind::Job,
        }
    }
}
