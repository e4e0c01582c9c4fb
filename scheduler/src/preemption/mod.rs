//! Preemption: which workloads lose their quota to a workload of higher claim. Kueue KEP-83,
//! `pkg/scheduler/preemption`.
//!
//! [`NoPreemption`] allows none, [`classical::ClassicalPreemption`] decides by priority and
//! borrowing, [`fair::FairPreemption`] by shares. The search for flavors asks each through
//! [`PreemptionOracle`]; the nomination takes the victims through [`TargetSelector`].

pub(crate) mod candidates;
pub(crate) mod classical;
pub(crate) mod fair;
mod message;
pub(crate) mod non_candidates;
mod victim_search;

use crate::flavor_resource::FlavorResource;
use crate::flavors::{Assignment, PreemptionOracle, PreemptionPossibility};
use crate::ids::{NodeId, WorkloadId};
use crate::tree::QuotaTree;
use crate::{Amount, PreemptionPolicy};

pub(crate) use message::path;

/// A victim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) id: WorkloadId,
    /// The reason of its `Preempted` condition.
    pub(crate) reason: &'static str,
}

/// Chooses the victims of an assignment.
///
/// Both this and [`PreemptionOracle`] leave the tree as they found it.
pub(crate) trait TargetSelector: PreemptionOracle {
    /// Empty if no workload may be preempted, or if preemption would not free enough.
    fn targets(&mut self, tree: &mut QuotaTree, assignment: &Assignment) -> Vec<Target>;
}

#[derive(Debug)]
pub(crate) struct NoPreemption {
    pub(crate) node: NodeId,
}

impl PreemptionOracle for NoPreemption {
    fn simulate(
        &mut self,
        tree: &mut QuotaTree,
        fr: FlavorResource,
        amount: Amount,
    ) -> (PreemptionPossibility, usize) {
        (PreemptionPossibility::NoCandidates, tree.borrow_height(self.node, fr, amount).0)
    }
}

impl TargetSelector for NoPreemption {
    fn targets(&mut self, _tree: &mut QuotaTree, _assignment: &Assignment) -> Vec<Target> {
        Vec::new()
    }
}

/// Whether a ClusterQueue can reclaim its quota from every borrower. Then it need not keep quota
/// from lesser workloads of the cycle. Kueue: `CanAlwaysReclaim` in
/// `pkg/scheduler/preemption/policy.go`.
pub(crate) fn can_always_reclaim(rules: &crate::PreemptionRules) -> bool {
    rules.reclaim_within_cohort == PreemptionPolicy::Any
}
