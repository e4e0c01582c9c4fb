//! A Workload on the hub, as the API shows it.
//!
//! Input of every decision: [`WorkloadFacts`], built by the hub's dispatcher task from the
//! Workload, its queue and its job.

use std::sync::Arc;

use switchyard_scheduler::PodSet;
use switchyard_syntax::affinity::Affinity;
use switchyard_syntax::flavor_pins::FlavorPins;

use super::{LossPolicy, Name, Uid};

/// State of the dispatching AdmissionCheck in `status.admissionChecks`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CheckStatus {
    /// No cluster runs the workload yet.
    #[default]
    Pending,
    /// A cluster runs the workload.
    Ready,
    /// Evict the workload and try again.
    Retry,
    /// The workload never runs.
    Rejected,
}

/// Identity of a job across a store loss. Workloads with equal identities in one namespace stand
/// for the same job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobIdentity {
    /// For example `batch/v1, Kind=Job`.
    pub kind: Name,
    pub job: Name,
    /// Hash of the pod sets: [`switchyard_proto::pod_sets_hash`].
    pub pod_sets: Arc<[u8]>,
}

/// Namespace, kind and name of a job.
pub(crate) type JobKey = (Name, Name, Name);

impl JobIdentity {
    pub(crate) fn key(&self, namespace: &Name) -> JobKey {
        (namespace.clone(), self.kind.clone(), self.job.clone())
    }
}

/// An administrator's choice of the copy that a workload adopts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AdoptRequest {
    /// The copy with this uid on this cluster, even if its pod sets differ.
    Copy(Name, Uid),
    /// Adopt nothing, and ignore existing copies.
    NoCopy,
}

impl AdoptRequest {
    pub(crate) fn is_copy(&self, cluster: &Name, uid: &Uid) -> bool {
        matches!(self, Self::Copy(at, cluster_uid) if at == cluster && cluster_uid == uid)
    }
}

/// The part of a Workload that decides whether a write is still needed, too.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WorkloadState {
    /// `spec.active`.
    pub active: bool,
    /// It has a deletion timestamp.
    pub deleting: bool,
    /// Condition `QuotaReserved` is True.
    pub reserved: bool,
    /// Condition `Evicted` is True.
    pub evicted: bool,
    /// Condition `Finished` is True.
    pub finished: bool,
    /// The dispatching AdmissionCheck and its state.
    pub check: Option<(Name, CheckStatus)>,
    /// `status.clusterName`.
    pub cluster: Option<Name>,
    /// `status.dispatch.attempt`.
    pub attempt: u64,
    /// The uid that clusters use for it, if it adopted a copy of another Workload.
    pub cluster_uid: Option<Uid>,
}

/// When a workload without a ready pod is moved: `onStuck`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StuckPolicy {
    /// Time without a ready pod, in milliseconds.
    pub after: i64,
    /// The most moves of the workload.
    pub times: u32,
}

/// The policy for a workload without a ready pod, and its earlier moves.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StuckFacts {
    /// None: it stays.
    pub policy: Option<StuckPolicy>,
    /// `status.dispatch.stuckMoves`.
    pub moves: u32,
    /// The clusters where its pods did not become ready, oldest first, as far as its status
    /// remembers. One entry for each attempt.
    pub clusters: Vec<Name>,
}

/// One Workload and what the dispatcher needs of its queue and its job.
#[derive(Debug, Clone)]
pub struct WorkloadFacts {
    pub uid: Uid,
    pub namespace: Name,
    pub name: Name,
    /// Numeric resource version. A lower one is older; zero is unknown.
    pub version: u64,
    /// Name of its LocalQueue, in its namespace.
    pub queue: Name,
    /// Effective priority.
    pub priority: i32,
    /// The WorkloadPriorityClass that sets the priority.
    pub priority_class: Option<Name>,
    pub pod_sets: Arc<[PodSet]>,
    /// The flavors of its last reservation, by pod set and resource.
    pub charged: Arc<FlavorPins>,
    /// Conditions, cluster and attempt.
    pub state: WorkloadState,
    /// All other admission checks are Ready.
    pub other_checks_ready: bool,
    /// `status.nominatedClusterNames`.
    pub nominated: Vec<Name>,
    /// Termination grace period of its pods, in milliseconds.
    pub grace: i64,
    /// The policy of the workload or its ClusterQueue. None: the cluster's policy applies.
    pub on_disconnect: Option<LossPolicy>,
    /// Its policy and its earlier moves for lack of a ready pod.
    pub stuck: StuckFacts,
    /// Which clusters it may use and prefers, by its annotations and its ClusterQueue.
    pub affinity: Option<Arc<Affinity>>,
    /// A request to move this attempt to this cluster.
    pub move_request: Option<(u64, Name)>,
    /// Only set after a store loss, to recognize its copies.
    pub subject: Option<JobIdentity>,
    /// An administrator's choice of the copy to adopt.
    pub adopt: Option<AdoptRequest>,
    /// The workload slice of the same elastic job that this one replaces.
    pub replaces: Option<Uid>,
    /// Its place among the replicas of one object. None if it is the whole job, or if the caller
    /// did not look.
    pub replica: Option<Replica>,
    /// The user created the Workload before the job, so there is nothing to send yet.
    pub waits_for_job: bool,
    /// Whether the job itself shows its end. Only set after a store loss and for slices that
    /// replace another.
    pub job_ended: Option<bool>,
}

impl WorkloadFacts {
    #[cfg(test)]
    pub(crate) fn with(mut self, change: impl FnOnce(&mut WorkloadState)) -> Self {
        change(&mut self.state);
        self
    }

    /// Whether no decision is due: it finished, or it has lost its quota and its cluster.
    pub(crate) fn is_idle(&self) -> bool {
        self.state.finished || !(self.state.reserved || self.state.cluster.is_some())
    }

    /// Whether quota that the engine reserved in memory for this version is settled: the API shows
    /// the reservation, or shows that none is needed. A late answer may concern an earlier
    /// reservation.
    pub fn settles_reservation(&self, version: Option<u64>) -> bool {
        let shown = self.state.reserved || self.state.finished || self.state.cluster.is_some();
        shown && version.is_none_or(|version| version <= self.version)
    }

    /// Whether the workload gives up its quota or its cluster.
    pub fn is_leaving(&self) -> bool {
        let held = self.state.reserved || self.state.cluster.is_some();
        let refused =
            self.state.check.as_ref().is_some_and(|(_, check)| {
                matches!(check, CheckStatus::Retry | CheckStatus::Rejected)
            });
        self.state.deleting || !self.state.active || (held && (self.state.evicted || refused))
    }
}

/// A workload's place among the replicas of one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Replica {
    /// The first replica. The pod sets are those of all replicas.
    First(Arc<[PodSet]>),
    /// A later replica. The first has no quota.
    FirstWithoutQuota,
    /// A later replica. The first looks for a cluster.
    FirstWithoutCluster,
    /// A later replica. The first is on this cluster.
    FirstOnCluster(Name),
}

impl Replica {
    /// Whether it is a later replica, and the first is not on this cluster.
    pub(crate) fn left(&self, cluster: &Name) -> bool {
        match self {
            Self::First(_) => false,
            Self::FirstWithoutQuota | Self::FirstWithoutCluster => true,
            Self::FirstOnCluster(there) => there != cluster,
        }
    }
}

impl WorkloadFacts {
    /// Whether it is a later replica.
    pub(crate) fn follows_first(&self) -> bool {
        self.replica.as_ref().is_some_and(|replica| !matches!(replica, Replica::First(_)))
    }

    /// Whether it is a later replica whose first one has no quota.
    pub(crate) fn lacks_first_quota(&self) -> bool {
        self.replica == Some(Replica::FirstWithoutQuota)
    }
}

/// Quota that the engine reserved in memory and the API does not show yet.
#[derive(Debug, Clone)]
pub struct MemoryReservation {
    /// The dispatching AdmissionCheck.
    pub check: Name,
    /// Other checks must become Ready before the first offer.
    pub needs_other_checks: bool,
}
