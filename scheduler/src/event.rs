//! Events: the engine's only input besides the time.

use std::collections::BTreeMap;

use crate::{
    AdmissionCheck, CapacityLeaf, ClusterQueue, Cohort, LocalQueue, LocalQueueKey, Name, NonTasPod,
    ResourceFlavor, Time, Workload, WorkloadKey,
};

/// A fact about the cluster. Each event carries the whole object, so that a repeated event changes
/// nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub enum Event {
    /// A namespace exists with these labels.
    Namespace {
        name: Name,
        labels: BTreeMap<String, String>,
    },
    NamespaceDeleted {
        name: Name,
    },
    ResourceFlavor(ResourceFlavor),
    ResourceFlavorDeleted {
        name: Name,
    },
    ClusterQueue(ClusterQueue),
    ClusterQueueDeleted {
        name: Name,
    },
    Cohort(Cohort),
    /// The object is deleted. Its node of the quota tree stays while other objects name it.
    CohortDeleted {
        name: Name,
    },
    LocalQueue(LocalQueue),
    LocalQueueDeleted {
        key: LocalQueueKey,
    },
    AdmissionCheck(AdmissionCheck),
    AdmissionCheckDeleted {
        name: Name,
    },
    Topology {
        name: Name,
        /// The label keys of its levels, highest first. Empty if the caller only reports that the
        /// Topology exists.
        #[cfg_attr(feature = "record", serde(default))]
        levels: Vec<Name>,
    },
    TopologyDeleted {
        name: Name,
    },
    /// Capacity for new pods. The caller leaves out cordoned nodes and nodes that are not ready.
    CapacityLeaf(Box<CapacityLeaf>),
    /// The leaf is gone or takes no new pods.
    CapacityLeafDeleted {
        name: Name,
    },
    /// A pod outside topology-aware scheduling uses capacity.
    #[cfg_attr(feature = "record", serde(rename = "OutsidePod"))]
    NonTasPod(Box<NonTasPod>),
    /// The pod is gone or has ended.
    #[cfg_attr(feature = "record", serde(rename = "OutsidePodDeleted"))]
    NonTasPodDeleted {
        key: Name,
    },
    Workload(Box<Workload>),
    WorkloadDeleted {
        key: WorkloadKey,
    },
    /// The caller could not apply a `Reserve` decision. The engine takes the reservation back and
    /// queues the workload again. Counts only while the reservation of this cycle is unconfirmed,
    /// because a refusal may come late.
    AdmissionRefused {
        key: WorkloadKey,
        /// The cycle that decided it. `None` in recordings of earlier releases: any.
        #[cfg_attr(feature = "record", serde(default))]
        cycle: Option<u64>,
        reason: RefusedReason,
    },
    /// The caller could not evict a victim. The engine decides again if it still needs the victim.
    /// Not needed if the victim changed, because its own event shows that.
    PreemptionFailed {
        /// The victim.
        key: WorkloadKey,
    },
    /// `status.fairSharing.admissionFairSharingStatus` of a LocalQueue. Counts once per engine,
    /// because later values come from this engine.
    #[cfg_attr(feature = "record", serde(rename = "PastUse"))]
    PastUsage {
        queue: LocalQueueKey,
        /// By resource, in billionths of a core, byte or device.
        consumed: BTreeMap<Name, i128>,
    },
    /// A change outside the engine may admit this parked workload: retry it.
    Retry {
        key: WorkloadKey,
    },
    /// A change outside the engine may admit parked workloads of this ClusterQueue or of its cohort
    /// tree: retry them, together with other triggers.
    RetryAll {
        cluster_queue: Name,
    },
}

impl Event {
    /// Whether the event can change a queue, or whether a queue is active.
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

/// Why a reservation was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub enum RefusedReason {
    /// The write failed. The engine retries the workload at once.
    WriteFailed {
        /// The error.
        message: String,
    },
    /// No worker cluster took the workload. It stays parked until something changes, or until
    /// `retry_at`.
    #[cfg_attr(feature = "record", serde(rename = "GivenBack"))]
    DispatchFailed { message: String, retry_at: Option<Time> },
}
