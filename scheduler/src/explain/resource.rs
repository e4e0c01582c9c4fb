//! Requests and quota of one resource on one flavor.

use super::PreemptionOutlook;
use crate::{Amount, Cause, Name};

/// How well a request fits, from impossible to free.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verdict {
    /// The pods cannot use the flavor.
    Mismatch,
    /// The request exceeds the queue's maximum capacity.
    ExceedsMaxQuota,
    /// The quota is in use, and the queue may preempt none of its users.
    WaitingForQuota,
    /// Preemption would be needed, and there are no candidates.
    NoCandidates,
    /// Preempts workloads of the same ClusterQueue.
    Preempt,
    /// Preempts only workloads of other ClusterQueues.
    Reclaim,
    Fits,
}

/// One flavor for one pod set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlavorOutlook {
    pub flavor: Name,
    /// The worst of its resources.
    pub verdict: Verdict,
    /// The nomination chose this flavor.
    pub chosen: bool,
    /// Why the pods cannot use the flavor.
    pub mismatch: Option<Cause>,
    /// In the order of the resource group.
    pub resources: Vec<ResourceOutlook>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceOutlook {
    pub resource: Name,
    pub verdict: Verdict,
    /// The request of the pod set.
    pub asked: Amount,
    /// Requested by earlier pod sets of the workload.
    pub earlier: Amount,
    /// The queue's nominal quota.
    pub nominal: Amount,
    /// By the queue.
    pub used: Amount,
    /// Borrowing included; never negative.
    pub free: Amount,
    /// The borrowed part of `free`.
    pub borrowable: Amount,
    /// Free if no workload used quota.
    pub most: Amount,
    /// `None` is unlimited.
    pub borrowing_limit: Option<Amount>,
    /// `None` lends everything.
    pub lending_limit: Option<Amount>,
    /// The limit of `free`.
    pub bound: QuotaBound,
    /// Free quota of the cohort that lending limits withhold.
    pub withheld: Vec<WithheldQuota>,
    /// `None` if the request fits, or could never fit.
    pub preemption: Option<PreemptionOutlook>,
}

impl ResourceOutlook {
    /// The missing quota.
    pub fn missing(&self) -> Amount {
        (self.asked + self.earlier - self.free).max(Amount::ZERO)
    }
}

/// The limit of the free quota.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QuotaBound {
    /// The queue is in no cohort and has only its own quota.
    NoCohort,
    /// The total quota of the cohorts on the path.
    Cohort {
        /// The root Cohort.
        name: Name,
    },
    BorrowingLimit {
        /// The ClusterQueue or Cohort with the limit.
        name: Name,
        limit: Amount,
    },
}

/// Free quota that a lending limit withholds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WithheldQuota {
    /// The ClusterQueue or Cohort with the limit.
    pub name: Name,
    pub amount: Amount,
}
