//! What the engine is told.

use std::collections::BTreeMap;

use crate::{
    AdmissionCheck, CapacityLeaf, ClusterQueue, Cohort, LocalQueue, LocalQueueKey, Name,
    OutsidePod, ResourceFlavor, Time, Workload, WorkloadKey,
};

/// A fact about the world. Each carries the whole object, so a repeated event changes nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub enum Event {
    /// A namespace exists, with these labels.
    Namespace {
        /// Its name.
        name: Name,
        /// Its labels.
        labels: BTreeMap<String, String>,
    },
    /// A namespace is gone.
    NamespaceDeleted {
        /// Its name.
        name: Name,
    },
    /// A ResourceFlavor exists.
    ResourceFlavor(ResourceFlavor),
    /// A ResourceFlavor is gone.
    ResourceFlavorDeleted {
        /// Its name.
        name: Name,
    },
    /// A ClusterQueue exists.
    ClusterQueue(ClusterQueue),
    /// A ClusterQueue is gone.
    ClusterQueueDeleted {
        /// Its name.
        name: Name,
    },
    /// A Cohort object exists.
    Cohort(Cohort),
    /// A Cohort object is gone; the node stays while something names it.
    CohortDeleted {
        /// Its name.
        name: Name,
    },
    /// A LocalQueue exists.
    LocalQueue(LocalQueue),
    /// A LocalQueue is gone.
    LocalQueueDeleted {
        /// Its place.
        key: LocalQueueKey,
    },
    /// An AdmissionCheck exists.
    AdmissionCheck(AdmissionCheck),
    /// An AdmissionCheck is gone.
    AdmissionCheckDeleted {
        /// Its name.
        name: Name,
    },
    /// A Topology exists.
    Topology {
        /// Its name.
        name: Name,
        /// The label keys of its levels, the highest first. Empty: it is only checked that it exists.
        #[cfg_attr(feature = "record", serde(default))]
        levels: Vec<Name>,
    },
    /// A Topology is gone.
    TopologyDeleted {
        /// Its name.
        name: Name,
    },
    /// A place where pods may run, that takes new ones. Not of nodes that are cordoned or not ready.
    CapacityLeaf(Box<CapacityLeaf>),
    /// A place takes no new pods, or is gone.
    CapacityLeafDeleted {
        /// Its name.
        name: Name,
    },
    /// A pod outside of topology-aware scheduling uses capacity.
    OutsidePod(Box<OutsidePod>),
    /// Such a pod is gone, or has ended.
    OutsidePodDeleted {
        /// What tells it apart.
        key: Name,
    },
    /// A Workload exists.
    Workload(Box<Workload>),
    /// A Workload is gone.
    WorkloadDeleted {
        /// Its place.
        key: WorkloadKey,
    },
    /// A reservation that the engine decided did not come about: it is taken back and the workload queued again.
    /// Ignored unless a workload of this uid holds an unconfirmed reservation.
    AdmissionRefused {
        /// The workload's place.
        key: WorkloadKey,
        /// Its uid.
        uid: Name,
        /// Why.
        reason: RefusedReason,
    },
    /// A workload that had to go could not be told: it is decided again if it is still needed. Not necessary if the
    /// workload changed meanwhile, as its own event says so.
    PreemptionFailed {
        /// The victim's place.
        key: WorkloadKey,
    },
    /// What the status of a LocalQueue says of its past use. Counts once in the life of an engine: later ones are what
    /// it wrote itself.
    PastUse {
        /// The LocalQueue's place.
        queue: LocalQueueKey,
        /// By resource, in billionths of a core, of a byte, of a device.
        consumed: BTreeMap<Name, i128>,
    },
    /// Something outside the engine changed that may let this parked workload in: it is tried again.
    Retry {
        /// The workload's place.
        key: WorkloadKey,
    },
    /// Something outside the engine changed that may let parked workloads of this ClusterQueue, or of those that
    /// share its cohorts, in: they are tried again, gathered with other triggers.
    RetryAll {
        /// The ClusterQueue's name.
        cluster_queue: Name,
    },
}

impl Event {
    /// Whether it says how a queue stands, or whether one may admit.
    pub(crate) fn is_of_queues(&self) -> bool {
        matches!(
            self,
            Self::ClusterQueue(_)
                | Self::ClusterQueueDeleted { .. }
                | Self::LocalQueue(_)
                | Self::LocalQueueDeleted { .. }
                | Self::ResourceFlavor(_)
                | Self::AdmissionCheck(_)
                | Self::Topology { .. }
                | Self::Cohort(_)
                | Self::CohortDeleted { .. }
        )
    }
}

/// Why a reservation did not come about.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub enum RefusedReason {
    /// Writing it failed; the workload is tried again at once.
    WriteFailed {
        /// The error, for the workload's reason.
        message: String,
    },
    /// No worker cluster took it; the workload is parked until something changes, or until `retry_at`.
    GivenBack {
        /// Why, for the workload's reason.
        message: String,
        /// When to try again at the latest.
        retry_at: Option<Time>,
    },
}
