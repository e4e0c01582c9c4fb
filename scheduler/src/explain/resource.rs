//! What is asked of one resource on one flavor, and what there is.

use super::PreemptionOutlook;
use crate::{Amount, Cause, Name};

/// How well a request fits, from impossible to free.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verdict {
    /// The pods cannot use the flavor.
    Mismatch,
    /// More is asked for than the queue can ever have.
    ExceedsMaxQuota,
    /// The quota is in use, and nobody would have to give it back.
    WaitingForQuota,
    /// It would fit if others gave way, but none may be preempted.
    NoCandidates,
    /// Workloads of the same ClusterQueue would be preempted.
    Preempt,
    /// Only workloads of other ClusterQueues would be preempted.
    Reclaim,
    /// It fits.
    Fits,
}

/// One flavor for one pod set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlavorOutlook {
    /// The flavor.
    pub flavor: Name,
    /// The worst of its resources.
    pub verdict: Verdict,
    /// It is the one that would be taken.
    pub chosen: bool,
    /// Why the pods cannot use it, if they cannot.
    pub mismatch: Option<Cause>,
    /// By resource, in the order of the group.
    pub resources: Vec<ResourceOutlook>,
}

/// One resource on one flavor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceOutlook {
    /// The resource.
    pub resource: Name,
    /// What this makes of it.
    pub verdict: Verdict,
    /// What the pod set asks for.
    pub asked: Amount,
    /// What the pod sets before it take of the same.
    pub earlier: Amount,
    /// The queue's own quota.
    pub nominal: Amount,
    /// What the queue uses.
    pub used: Amount,
    /// What it could use now, borrowing included; never below zero.
    pub free: Amount,
    /// How much of that is borrowed from the cohort.
    pub borrowable: Amount,
    /// What it could use if nobody used anything.
    pub most: Amount,
    /// `borrowingLimit`; `None` is unlimited.
    pub borrowing_limit: Option<Amount>,
    /// `lendingLimit`; `None` is all.
    pub lending_limit: Option<Amount>,
    /// What keeps `free` from being more.
    pub bound: Bound,
    /// Free quota of others in the cohort that their lending limits keep back.
    pub kept: Vec<Kept>,
    /// Who would have to go, and why not; `None` where it fits or could never fit.
    pub preemption: Option<PreemptionOutlook>,
}

impl ResourceOutlook {
    /// How much more would have to be free.
    pub fn missing(&self) -> Amount {
        (self.asked + self.earlier - self.free).max(Amount::ZERO)
    }
}

/// What keeps free quota from being more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bound {
    /// The queue is in no cohort: there is only its own quota.
    NoCohort,
    /// All that the cohorts up to this one have.
    Cohort {
        /// The one at the top.
        name: Name,
    },
    /// A borrowing limit.
    BorrowingLimit {
        /// Of this ClusterQueue or Cohort.
        name: Name,
        /// The limit.
        limit: Amount,
    },
}

/// Free quota that a lending limit keeps back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// The ClusterQueue or Cohort whose limit it is.
    pub name: Name,
    /// How much.
    pub amount: Amount,
}
