//! Outputs of the dispatcher.
//!
//! [`super::Dispatcher::apply`] returns [`DispatchAction`]s. The dispatcher task performs them: it
//! sends assignments to agents, writes to the API, and answers the engine.

use std::sync::Arc;

use switchyard_syntax::flavor_pins::FlavorPins;

use super::{Name, Phase, Uid};

/// An assignment for a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestedAssignment {
    pub cluster: Name,
    /// As the cluster knows it: [`super::Dispatcher::cluster_uid`].
    pub uid: Uid,
    pub namespace: Name,
    pub name: Name,
    pub attempt: u64,
    /// The cluster shall reserve quota, run, suspend, or remove the copy.
    pub phase: Phase,
}

/// Something for the dispatcher task to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DispatchAction {
    /// Send an assignment to a cluster. A later one replaces it.
    Assign(RequestedAssignment),
    /// Forget a tombstone: the cluster has nothing left of this attempt and lower ones.
    ForgetTombstone {
        cluster: Name,
        /// As the cluster knows it.
        uid: Uid,
        attempt: u64,
    },
    /// Change a Workload's status. Answered by [`super::DispatchEvent::WriteEnded`].
    Write { uid: Uid, write: Arc<WorkloadWrite> },
    /// Return a reservation that is only in memory to the engine.
    ReturnReservation {
        uid: Uid,
        /// The reason, per cluster.
        message: String,
        /// When the engine may try again, in milliseconds since the Unix epoch.
        retry_at: i64,
    },
    /// A cluster may now take a workload whose reservation was returned: let the engine try again.
    Requeue { uid: Uid },
    /// The withdrawn reservation is, or may be, in the API: the engine must evict the workload
    /// there.
    ReservationPersisted { uid: Uid },
    /// Copy the job's status from its cluster to the hub.
    MirrorStatus { uid: Uid, cluster: Name, attempt: u64 },
    /// Acknowledge the end of an attempt: it is written, or not needed.
    AcknowledgeEnd {
        cluster: Name,
        /// As the cluster knows it.
        uid: Uid,
        attempt: u64,
    },
    /// A cluster has a workload with this hub's id that the hub does not know. For the log.
    OrphanFound { cluster: Name, uid: Uid, attempt: u64 },
    /// A cluster reported an attempt that no hub gave out. The observation is ignored. For the log.
    RejectAttempt { cluster: Name, uid: Uid, attempt: u64 },
    /// The circuit breaker opened or closed.
    BreakerChanged {
        /// Why it opened. None: it closed.
        open: Option<String>,
    },
}

/// A change of a Workload's status on the hub.
///
/// [`super::write_guard::check`] decides before each try whether the change is still needed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WorkloadWrite {
    /// Write quota, cluster and attempt together.
    Commit {
        cluster: Name,
        attempt: u64,
        /// The uid that clusters use for the workload from now on. Set if the attempt already runs
        /// there.
        adopts: Option<Uid>,
        /// The flavors of the quota for which the cluster was chosen.
        charged: Arc<FlavorPins>,
    },
    /// Write the new name of the cluster that has the attempt.
    Rename {
        /// The name in the API. None if an earlier hub process already removed it.
        from: Option<Name>,
        /// The new name.
        cluster: Name,
        attempt: u64,
    },
    /// Write the reservation, the check's message and the nominated clusters.
    Record {
        /// Message of the check. None keeps the current one.
        message: Option<String>,
        /// `status.nominatedClusterNames`. None keeps the current ones.
        nominated: Option<Vec<Name>>,
    },
    /// Set the check to Retry, which evicts. After [`super::TIMED_OUT`], deactivate the workload
    /// instead.
    Retry {
        message: String,
        /// The attempt that ends with this. None if no cluster had the workload.
        retried: Option<RetriedAttempt>,
    },
    /// No cluster runs the workload any more: complete its eviction, which returns its quota.
    Release,
    /// Write the end of the job: first its status, then condition `Finished`.
    Finish {
        /// Where the job ended.
        cluster: Name,
        attempt: u64,
        success: bool,
    },
}

/// Reason of a [`RetriedAttempt`] and of a refusal: no pod became ready.
pub const STUCK: &str = "Stuck";
/// Reason of a [`RetriedAttempt`]: its cluster does not answer, and was given up.
pub const CLUSTER_LOST: &str = "ClusterLost";
/// Reason of a [`RetriedAttempt`]: an administrator drains its cluster.
pub const CLUSTER_DRAINED: &str = "ClusterDrained";

impl WorkloadWrite {
    /// The cluster and attempt that the change writes, if it writes them.
    pub fn committed(&self) -> Option<(&Name, u64)> {
        match self {
            Self::Commit { cluster, attempt, .. } | Self::Rename { cluster, attempt, .. } => {
                Some((cluster, *attempt))
            }
            Self::Record { .. } | Self::Retry { .. } | Self::Release | Self::Finish { .. } => None,
        }
    }
}

/// An attempt that ends before its job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetriedAttempt {
    pub cluster: Name,
    pub attempt: u64,
    /// Stable CamelCase reason.
    pub reason: &'static str,
    /// The worker's eviction reason, if the worker evicted the attempt.
    pub evicted_for: Option<String>,
}
