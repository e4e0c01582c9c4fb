//! Who has to give way for whom.
//!
//! The cycle asks two questions: while flavors are searched, whether a lack of one resource on one flavor could be
//! mended, and for the chosen flavors who would have to go. [`Oracle`] answers both: [`NoPreemption`] that nobody may
//! be preempted, [`classical::Classical`] by priorities and borrowing, [`fair::Fair`] by shares.

pub(crate) mod candidates;
pub(crate) mod classical;
pub(crate) mod fair;
mod message;
pub(crate) mod non_candidates;
mod victim_search;

use crate::flavor_resource::Fr;
use crate::flavors::Assignment;
use crate::tree::{NodeId, Tree};
use crate::workloads::WlId;
use crate::{Amount, PreemptionPolicy};

pub(crate) use message::path;

/// Whether preemption could help for one resource on one flavor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Possibility {
    /// Nobody may be preempted, or it would not help.
    NoCandidates,
    /// Somebody of the own ClusterQueue would have to go.
    Preempt,
    /// Only workloads of other ClusterQueues would have to go.
    Reclaim,
}

impl Possibility {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::NoCandidates => "NoCandidates",
            Self::Preempt => "Preempt",
            Self::Reclaim => "Reclaim",
        }
    }
}

/// A workload that has to go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) id: WlId,
    /// The reason of its `Preempted` condition.
    pub(crate) reason: &'static str,
}

/// Answers what preemption could do for one workload in one ClusterQueue. Leaves the tree as it found it.
pub(crate) trait Oracle {
    /// Whether room for `amount` could be made, and how far away it would then be borrowed from.
    fn simulate(&mut self, tree: &mut Tree, fr: Fr, amount: Amount) -> (Possibility, usize);

    /// Who would have to go for an assignment; empty if nobody may, or if it would not help.
    fn targets(&mut self, tree: &mut Tree, assignment: &Assignment) -> Vec<Target>;
}

/// Nobody may be preempted.
#[derive(Debug)]
pub(crate) struct NoPreemption {
    /// The ClusterQueue of the workload that asks.
    pub(crate) node: NodeId,
}

impl Oracle for NoPreemption {
    fn simulate(&mut self, tree: &mut Tree, fr: Fr, amount: Amount) -> (Possibility, usize) {
        (Possibility::NoCandidates, tree.borrow_height(self.node, fr, amount).0)
    }

    fn targets(&mut self, _tree: &mut Tree, _assignment: &Assignment) -> Vec<Target> {
        Vec::new()
    }
}

/// Whether a ClusterQueue gets its own quota back from any borrower, so that it need not hold it against lesser
/// workloads of the same cycle.
pub(crate) fn can_always_reclaim(rules: &crate::PreemptionRules) -> bool {
    rules.reclaim_within_cohort == PreemptionPolicy::Any
}
