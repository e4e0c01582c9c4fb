//! How good a flavor is, and whether to look at the next one.

use crate::{FlavorFungibility, FungibilityPolicy, FungibilityPreference};

/// What it would take to use a flavor, from impossible to free.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Mode {
    /// Impossible as things are.
    NoFit,
    /// Possible if others gave way, but none may be preempted.
    NoCandidates,
    /// Workloads of the own queue would have to be preempted.
    Preempt,
    /// Only workloads of other queues would have to be preempted.
    Reclaim,
    /// It fits.
    Fit,
}

/// A mode and how far away the quota is found: 0 is the own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grade {
    pub(crate) mode: Mode,
    pub(crate) borrow: usize,
}

impl Grade {
    pub(crate) const WORST: Self = Self { mode: Mode::NoFit, borrow: usize::MAX };
    pub(crate) const BEST: Self = Self { mode: Mode::Fit, borrow: 0 };

    /// Whether this is better than `other`, strictly.
    pub(crate) fn beats(self, other: Self, fungibility: FlavorFungibility) -> bool {
        if self.mode == Mode::NoFit || other.mode == Mode::NoFit {
            return self.mode != Mode::NoFit;
        }
        if (self.mode == Mode::NoCandidates) != (other.mode == Mode::NoCandidates) {
            return other.mode == Mode::NoCandidates;
        }
        let easier = self.mode.cmp(&other.mode);
        let nearer = other.borrow.cmp(&self.borrow);
        let order = match fungibility.preference {
            FungibilityPreference::BorrowingOverPreemption => easier.then(nearer),
            FungibilityPreference::PreemptionOverBorrowing => nearer.then(easier),
        };
        order.is_gt()
    }

    /// Whether the next flavor should be looked at although this one was.
    pub(crate) fn try_next(self, fungibility: FlavorFungibility) -> bool {
        let try_next = |policy| policy == FungibilityPolicy::TryNextFlavor;
        match self.mode {
            Mode::NoFit | Mode::NoCandidates => true,
            Mode::Preempt | Mode::Reclaim if try_next(fungibility.when_can_preempt) => true,
            Mode::Preempt | Mode::Reclaim | Mode::Fit => {
                self.borrow > 0 && try_next(fungibility.when_can_borrow)
            }
        }
    }
}
