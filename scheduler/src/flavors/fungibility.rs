//! Compares flavors, and decides whether to try the next one.

use crate::{FlavorFungibility, FungibilityPolicy, FungibilityPreference};

/// The effort of using a flavor, from impossible to none. Kueue: `preemptionMode` in
/// `flavorassigner.go`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum PreemptionMode {
    NoFit,
    /// Needs preemption, and has no candidates.
    NoCandidates,
    /// Preempts workloads of the same queue.
    Preempt,
    /// Preempts only workloads of other queues.
    Reclaim,
    Fit,
}

/// A mode and the borrowing height: 0 without borrowing. Kueue: `granularMode` in
/// `flavorassigner.go`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GranularMode {
    pub(crate) mode: PreemptionMode,
    pub(crate) borrow: usize,
}

impl GranularMode {
    pub(crate) const WORST: Self = Self { mode: PreemptionMode::NoFit, borrow: usize::MAX };
    pub(crate) const BEST: Self = Self { mode: PreemptionMode::Fit, borrow: 0 };

    /// Whether this is strictly better than `other`.
    pub(crate) fn beats(self, other: Self, fungibility: FlavorFungibility) -> bool {
        if self.mode == PreemptionMode::NoFit || other.mode == PreemptionMode::NoFit {
            return self.mode != PreemptionMode::NoFit;
        }
        if (self.mode == PreemptionMode::NoCandidates)
            != (other.mode == PreemptionMode::NoCandidates)
        {
            return other.mode == PreemptionMode::NoCandidates;
        }
        let easier = self.mode.cmp(&other.mode);
        let nearer = other.borrow.cmp(&self.borrow);
        let order = match fungibility.preference {
            FungibilityPreference::BorrowingOverPreemption => easier.then(nearer),
            FungibilityPreference::PreemptionOverBorrowing => nearer.then(easier),
        };
        order.is_gt()
    }

    /// Whether the search should try the next flavor.
    pub(crate) fn try_next(self, fungibility: FlavorFungibility) -> bool {
        let try_next = |policy| policy == FungibilityPolicy::TryNextFlavor;
        match self.mode {
            PreemptionMode::NoFit | PreemptionMode::NoCandidates => true,
            PreemptionMode::Preempt | PreemptionMode::Reclaim
                if try_next(fungibility.when_can_preempt) =>
            {
                true
            }
            PreemptionMode::Preempt | PreemptionMode::Reclaim | PreemptionMode::Fit => {
                self.borrow > 0 && try_next(fungibility.when_can_borrow)
            }
        }
    }
}
