//! Everything there is to say about why a workload waits, as one value.
//!
//! [`Engine::explain`](crate::Engine::explain) works it out on demand from the state as it is, so that a pending
//! workload costs no memory for it. [`Explanation::reason`] is the very value that the condition and the events render;
//! the rest is what it was decided from.

mod preemption;
mod render;
mod resource;

pub use preemption::{Obstacle, PreemptionOutlook, Refusal, Victim};
pub use resource::{Bound, FlavorOutlook, Kept, ResourceOutlook, Verdict};

use std::collections::BTreeMap;

use crate::{Admission, Amount, Inactive, LocalQueueKey, Name, Reason, Time, WorkloadKey};

/// Why a workload waits, or what it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// The workload.
    pub key: WorkloadKey,
    /// Its uid.
    pub uid: Name,
    /// Its LocalQueue, existing or not.
    pub local_queue: LocalQueueKey,
    /// The ClusterQueue behind that, existing or not.
    pub cluster_queue: Option<Name>,
    /// Everything that keeps the ClusterQueue from admitting.
    pub inactive: Vec<Inactive>,
    /// Its effective priority.
    pub priority: i32,
    /// In one word.
    pub outlook: Outlook,
    /// Why it has no quota: what its condition says, or will say. `None` if it has quota.
    pub reason: Option<Reason>,
    /// Why it would not be admitted now if it were the only head: `None` if it would be, or is not tried at all.
    pub alone: Option<Reason>,
    /// The quota that it holds.
    pub held: Option<Held>,
    /// Where it stands among those that wait; `None` if it does not wait in a queue.
    pub place: Option<Place>,
    /// What each pod set asks for and what there is, by flavor. Empty if it holds quota, or no queue could give any.
    pub pod_sets: Vec<PodSetOutlook>,
    /// Workloads that would be preempted for it if it were the only head.
    pub victims: Vec<Victim>,
}

/// What becomes of a workload as things are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Outlook {
    /// It has ended.
    Finished,
    /// It has quota and may run.
    Admitted,
    /// It has quota and waits for its admission checks.
    QuotaReserved,
    /// It is not tried: it or its queue is stopped, missing, held or backing off.
    NotTried,
    /// It is admitted as soon as it is its turn.
    Fits,
    /// Others are preempted for it as soon as it is its turn.
    Preempts,
    /// It stays pending even if it is its turn.
    Blocked,
}

/// The quota that a workload holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// Which.
    pub admission: Admission,
    /// Since when.
    pub since: Time,
    /// It is told to give it back.
    pub evicted: bool,
}

/// A place in a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// From 0: how many of its ClusterQueue are before it.
    pub in_cluster_queue: usize,
    /// How many wait in its ClusterQueue.
    pub of_cluster_queue: usize,
    /// From 0: how many of its LocalQueue are before it.
    pub in_local_queue: usize,
    /// How many wait in its LocalQueue.
    pub of_local_queue: usize,
    /// The head that it waits behind; `None` if it is the head itself.
    pub head: Option<Head>,
    /// The head blocks all behind it (`StrictFIFO`).
    pub strict: bool,
    /// It was tried without success, and waits for something to change.
    pub parked: bool,
    /// It was evicted and may not come back before this.
    pub backing_off_until: Option<Time>,
}

/// The workload that is first in a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// Which.
    pub key: WorkloadKey,
    /// Its priority.
    pub priority: i32,
    /// Why it would not be admitted now; `None` if it would be.
    pub alone: Option<Reason>,
}

/// One pod set's way to quota.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodSetOutlook {
    /// Its name.
    pub name: Name,
    /// Pods still wanted.
    pub count: i32,
    /// How many would do.
    pub min_count: Option<i32>,
    /// What all of them ask for.
    pub requests: BTreeMap<Name, Amount>,
    /// Why it can never be admitted as it stands.
    pub problem: Option<String>,
    /// Requested resources that no resource group of the queue covers.
    pub uncovered: Vec<Name>,
    /// Every flavor of every resource group that is asked for anything, in the order they are tried.
    pub flavors: Vec<FlavorOutlook>,
}
