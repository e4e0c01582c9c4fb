//! Why a workload is pending, as data.

mod render;

use crate::{Amount, LocalQueueKey, Name, WorkloadKey};

/// Why a workload has no quota. One value from which the condition, events, `explain` and metrics are rendered.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// No flavor could be assigned to some pod sets.
    NoFit {
        /// By pod set that did not fit.
        pod_sets: Vec<PodSetReason>,
    },
    /// Waiting its turn.
    Waiting {
        /// The queue.
        cluster_queue: Name,
        /// Who is first in it.
        head: WorkloadKey,
        /// How many are before it.
        ahead: usize,
    },
    /// The LocalQueue it names does not exist.
    LocalQueueMissing {
        /// The name.
        local_queue: LocalQueueKey,
    },
}

/// Why one pod set has no flavor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodSetReason {
    /// The pod set.
    pub name: Name,
    /// By flavor and resource.
    pub causes: Vec<Cause>,
}

/// Why one flavor, or one resource on one flavor, does not do.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cause {
    /// Too little is free.
    InsufficientUnused {
        /// The resource.
        resource: Name,
        /// The flavor.
        flavor: Name,
        /// How much more is needed.
        missing: Amount,
    },
}
