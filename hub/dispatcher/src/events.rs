//! Inputs of the dispatcher.
//!
//! The dispatcher task translates watches, session messages, the engine's reservations and the
//! results of writes into [`DispatchEvent`]s. [`super::Dispatcher::apply`] takes them one at a
//! time.

use super::capacity::CapacityReport;
use super::{
    ClusterConfig, MemoryReservation, Name, Observation, PinRules, Uid, Uids, WorkloadFacts,
};

/// Something that the dispatcher reacts to.
#[derive(Debug, Clone)]
pub enum DispatchEvent {
    /// The clusters of a dispatching AdmissionCheck, in the order of its MultiKueueConfig.
    CheckConfigured {
        /// The AdmissionCheck.
        name: Name,
        /// Empty if the check is deleted or its parameters cannot be read.
        clusters: Vec<Name>,
    },
    /// Whether and how the clusters of a check must use the flavors that the hub charged. Comes
    /// before the clusters.
    PinsConfigured {
        /// The AdmissionCheck.
        check: Name,
        rules: PinRules,
    },
    /// A MultiKueueCluster exists or changed.
    ClusterConfigured { name: Name, config: ClusterConfig },
    /// A MultiKueueCluster was deleted.
    ClusterDeleted { name: Name },
    /// Identity of the cluster whose session is about to open.
    ClusterIdentified {
        name: Name,
        /// Uid of its namespace `kube-system`.
        uid: Name,
    },
    /// A session opened. Its observations and inventory follow.
    SessionOpened { name: Name },
    /// The session ended.
    SessionClosed { name: Name },
    /// An agent reports whether it reaches its own API server: `Ping.unable`.
    AgentReadiness { name: Name, ready: bool },
    /// The MultiKueueCluster's status says that the agent was not ready when it was last connected,
    /// perhaps to an earlier hub process.
    AgentWasNotReady { name: Name },
    /// The complete inventory of a cluster. The observation of each workload came before.
    InventoryComplete {
        cluster: Name,
        /// All workloads of this hub on the cluster.
        uids: Uids,
    },
    /// A capacity report.
    CapacityReported { cluster: Name, report: CapacityReport },
    /// The engine reserved quota in memory.
    QuotaReserved {
        /// The workload at that time.
        facts: WorkloadFacts,
        reserved: MemoryReservation,
    },
    /// The engine preempts a reservation that may still be only in memory. Answered by
    /// [`super::DispatchAction::ReturnReservation`] or
    /// [`super::DispatchAction::ReservationPersisted`].
    ReservationWithdrawn { uid: Uid },
    /// A Workload exists or changed.
    WorkloadChanged(WorkloadFacts),
    /// A Workload was deleted.
    WorkloadDeleted { uid: Uid },
    /// A cluster reported the state of one workload.
    Observed { cluster: Name, observation: Observation },
    /// A [`super::DispatchAction::Write`] ended.
    WriteEnded(WriteResult),
    /// Time passed: see [`super::Dispatcher::next_wakeup`].
    Tick,
}

/// Result of a [`super::DispatchAction::Write`].
#[derive(Debug, Clone)]
pub struct WriteResult {
    pub uid: Uid,
    pub outcome: WriteOutcome,
    /// The Workload after the write, as far as known.
    pub facts: Option<WorkloadFacts>,
}

/// How a write ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteOutcome {
    /// The API has the change.
    Done,
    /// Not written: the Workload changed meanwhile or is gone. The dispatcher decides again.
    Superseded,
    /// Not written: the API refused or was unreachable. The dispatcher tries again later.
    Failed,
}
