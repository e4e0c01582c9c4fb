//! The question that a search for flavors asks of preemption. Kueue's `preemption_oracle.go`.

use crate::Amount;
use crate::flavor_resource::FlavorResource;
use crate::tree::QuotaTree;

/// Kueue: `PreemptionPossibility` in `pkg/scheduler/preemption/common/types.go`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum PreemptionPossibility {
    /// No workload may be preempted, or preemption does not free enough.
    NoCandidates,
    /// At least one victim is of the same ClusterQueue.
    Preempt,
    /// All victims are of other ClusterQueues.
    Reclaim,
}

impl PreemptionPossibility {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::NoCandidates => "NoCandidates",
            Self::Preempt => "Preempt",
            Self::Reclaim => "Reclaim",
        }
    }
}

/// Answers what preemption could do for one workload in one ClusterQueue. Leaves the tree as it
/// found it.
pub(crate) trait PreemptionOracle {
    /// Whether preemption could free `amount`, and the borrowing height that the workload would
    /// have then.
    fn simulate(
        &mut self,
        tree: &mut QuotaTree,
        fr: FlavorResource,
        amount: Amount,
    ) -> (PreemptionPossibility, usize);
}
