//! Victims, and workloads that are no candidates.

use crate::{Amount, Name, PreemptionPolicy, WorkloadKey};

/// The outcome of preemption for one resource on one flavor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PreemptionOutlook {
    /// Empty if no workload may be preempted, or if preemption does not free enough.
    pub victims: Vec<Victim>,
    /// Workloads that use the resource and stay, by ClusterQueue and obstacle.
    pub non_candidates: Vec<NonCandidates>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Victim {
    pub key: WorkloadKey,
    pub cluster_queue: Name,
    pub priority: i32,
    /// The reason of its `Preempted` condition.
    pub reason: &'static str,
}

/// Workloads of one ClusterQueue that one obstacle protects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NonCandidates {
    pub cluster_queue: Name,
    pub workloads: usize,
    /// Their total usage of the resource.
    pub holds: Amount,
    /// One of the workloads.
    pub example: WorkloadKey,
    pub obstacle: Obstacle,
}

/// Why a workload is not preempted.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Obstacle {
    WithinClusterQueueNever,
    ReclaimWithinCohortNever,
    /// Its ClusterQueue, or a Cohort above, stays within nominal quota.
    NotBorrowing {
        /// The ClusterQueue or Cohort.
        name: Name,
    },
    /// The policy requires a lower priority.
    Priority {
        /// The policy's field.
        field: &'static str,
        policy: PreemptionPolicy,
        /// The waiting workload's priority.
        own: i32,
        /// The lowest priority of the protected workloads.
        lowest: i32,
    },
    /// The waiting workload would borrow, and `borrowWithinCohort` forbids the preemption.
    WhileBorrowing {
        policy: PreemptionPolicy,
        max_priority_threshold: Option<i32>,
    },
    /// The shares forbid the preemption.
    FairShare {
        /// With the waiting workload, in thousandths.
        own: i64,
        /// The share of the protected workloads' queue, in thousandths.
        theirs: i64,
    },
    QueueInactive,
    /// They may be preempted, but all of them together do not free enough.
    NotEnough,
}
