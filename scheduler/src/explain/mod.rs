//! The explanation of why a workload waits.
//!
//! [`Engine::explain`](crate::Engine::explain) computes it on demand, so that pending workloads
//! need no memory for it. [`Explanation::reason`] is the value that conditions and events render;
//! the other fields say what it follows from.

mod preemption;
mod render;
mod resource;

pub use preemption::{NonCandidates, Obstacle, PreemptionOutlook, Victim};
pub use resource::{FlavorOutlook, QuotaBound, ResourceOutlook, Verdict, WithheldQuota};

use std::collections::BTreeMap;

use crate::{
    Admission, Amount, InactiveCause, LocalQueueKey, Name, PlacementOutlook, Reason, Time,
    WorkloadKey,
};

/// Why a workload waits, or what quota it has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    pub key: WorkloadKey,
    pub uid: Name,
    /// Need not exist.
    pub local_queue: LocalQueueKey,
    /// The LocalQueue's ClusterQueue; need not exist.
    pub cluster_queue: Option<Name>,
    /// All causes that keep the ClusterQueue from admitting.
    pub inactive: Vec<InactiveCause>,
    pub priority: i32,
    pub outlook: Outlook,
    /// The reason in its condition, now or after the next cycle. `None` if it has quota.
    pub reason: Option<Reason>,
    /// Why it would not be admitted now as the only head. `None` if it would be, or if it is not
    /// tried.
    pub solo_reason: Option<Reason>,
    pub held: Option<ReservedQuota>,
    /// `None` if it waits in no queue.
    pub place: Option<QueuePosition>,
    /// Requests and quota of each pod set by flavor. Empty if the workload has quota, or if no
    /// queue can give any.
    pub pod_sets: Vec<PodSetOutlook>,
    /// The victims if it were the only head.
    pub victims: Vec<Victim>,
    /// The failed placement search of the first pod set that fits the quota but no topology domain.
    pub placement: Option<PlacementOutlook>,
}

/// The prospects of a workload in the present state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Outlook {
    Finished,
    Admitted,
    /// Has quota and waits for its admission checks.
    QuotaReserved,
    /// In no queue: the workload or its queue is stopped, missing, on hold or in a back-off.
    NotTried,
    /// Admitted at its turn.
    Fits,
    /// Preempts others at its turn.
    Preempts,
    /// Stays pending at its turn.
    Blocked,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReservedQuota {
    pub admission: Admission,
    pub since: Time,
    /// Being evicted.
    pub evicted: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueuePosition {
    /// From 0, among the pending workloads of its ClusterQueue.
    pub in_cluster_queue: usize,
    /// Pending workloads of its ClusterQueue.
    pub of_cluster_queue: usize,
    /// From 0, among the pending workloads of its LocalQueue.
    pub in_local_queue: usize,
    /// Pending workloads of its LocalQueue.
    pub of_local_queue: usize,
    /// `None` if the workload is the head itself.
    pub head: Option<QueueHead>,
    /// `StrictFIFO`: the head blocks all workloads behind it.
    pub strict: bool,
    /// Tried without success; waits for a trigger.
    pub parked: bool,
    /// Evicted; not retried before this.
    pub backing_off_until: Option<Time>,
}

/// The head of a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueHead {
    pub key: WorkloadKey,
    pub priority: i32,
    /// Why it would not be admitted now; `None` if it would be.
    pub solo_reason: Option<Reason>,
}

/// Requests and quota of one pod set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodSetOutlook {
    pub name: Name,
    /// Without reclaimable pods.
    pub count: i32,
    pub min_count: Option<i32>,
    /// The requests of all its pods.
    pub requests: BTreeMap<Name, Amount>,
    /// Why the pod set can never be admitted.
    pub problem: Option<String>,
    /// Requested resources that no resource group covers.
    pub uncovered: Vec<Name>,
    /// The flavors of all requested resource groups, in the order of attempts.
    pub flavors: Vec<FlavorOutlook>,
}
