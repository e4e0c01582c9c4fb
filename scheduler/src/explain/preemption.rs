//! Who would have to go, and why they need not.

use crate::{Amount, Name, PreemptionPolicy, WorkloadKey};

/// What preemption could do for one resource on one flavor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PreemptionOutlook {
    /// Workloads whose going would make room, and who may be told to. Empty: none, or not enough.
    pub victims: Vec<Victim>,
    /// Those who hold some of it and stay, by ClusterQueue and obstacle.
    pub refused: Vec<Refusal>,
}

/// A workload that would be preempted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Victim {
    /// Which.
    pub key: WorkloadKey,
    /// Its ClusterQueue.
    pub cluster_queue: Name,
    /// Its priority.
    pub priority: i32,
    /// What its `Preempted` condition would say.
    pub reason: &'static str,
}

/// Workloads of one ClusterQueue that hold what is wanted and stay for one reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The ClusterQueue.
    pub cluster_queue: Name,
    /// How many.
    pub workloads: usize,
    /// What they hold of it together.
    pub holds: Amount,
    /// One of them.
    pub example: WorkloadKey,
    /// Why they stay.
    pub obstacle: Obstacle,
}

/// Why a workload is not preempted.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Obstacle {
    /// `preemption.withinClusterQueue` is `Never`.
    WithinClusterQueueNever,
    /// `preemption.reclaimWithinCohort` is `Never`.
    ReclaimWithinCohortNever,
    /// Its ClusterQueue, or a Cohort above that, uses no more than its own quota.
    NotBorrowing {
        /// Which.
        name: Name,
    },
    /// The policy asks for a lower priority.
    Priority {
        /// The policy's field.
        field: &'static str,
        /// What it says.
        policy: PreemptionPolicy,
        /// The priority of the one that waits.
        own: i32,
        /// The lowest priority of those that stay.
        lowest: i32,
    },
    /// The one that waits would itself borrow, which allows no preemption of borrowers: `borrowWithinCohort`.
    WhileBorrowing {
        /// What it says.
        policy: PreemptionPolicy,
        /// Its threshold.
        max_priority_threshold: Option<i32>,
    },
    /// The shares forbid it.
    FairShare {
        /// The share with the one that waits, in thousandths.
        own: i64,
        /// The share of those that hold it.
        theirs: i64,
    },
    /// Their ClusterQueue is not active.
    QueueInactive,
    /// They may be told to go, but even all of them together would not make room.
    NotEnough,
}
