//! Epochs that agents remember from before the hub's store was lost or restored from a backup.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;
use switchyard_dispatcher::MAX_LEAD;
use switchyard_platform::lease::EpochFloor;
use tokio::time::Instant;

/// How long an agent with a later epoch waits before it dials again.
pub(super) const BEHIND_RETRY: Duration = Duration::from_secs(2);

/// One cluster can raise the epoch once in this time, so a bad agent cannot force term after term.
const RAISE_AGAIN: Duration = Duration::from_secs(3600);

#[derive(Debug, Default)]
pub(super) struct RememberedEpochs {
    floor: EpochFloor,
    /// When each cluster last raised the epoch. One entry for each cluster that ever did.
    raised: Mutex<BTreeMap<String, Instant>>,
}

impl RememberedEpochs {
    /// Raises the epoch floor of the leader election.
    pub(super) fn raising(floor: EpochFloor) -> Self {
        Self { floor, ..Self::default() }
    }

    /// Why a session must wait: the agent remembers an epoch above this term's.
    ///
    /// An epoch out of reach (more than [`MAX_LEAD`] ahead, or above [`EpochFloor::HIGHEST`]) is
    /// not believed. The agent gets a session and ends it itself.
    pub(super) fn is_behind(
        &self,
        cluster: &str,
        remembered: u64,
        epoch: u64,
        now: Instant,
    ) -> Option<String> {
        if remembered <= epoch || remembered - epoch > MAX_LEAD || remembered > EpochFloor::HIGHEST
        {
            return None;
        }
        if self.floor.get() < remembered {
            let mut raised = self.raised.lock();
            if raised.get(cluster).is_some_and(|at| now < *at + RAISE_AGAIN) {
                return None;
            }
            raised.insert(cluster.to_owned(), now);
            self.floor.raise(remembered);
        }
        Some(format!(
            "its agent remembers epoch {remembered}, this is {epoch}: a term with a higher one is about to begin, if there \
             is leader election (leaderElection.leaderElect)"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn epoch_raise_is_rate_limited_and_bounded() {
        let (epochs, begin) = (RememberedEpochs::default(), Instant::now());
        for (case, minute, cluster, remembered, waits, floor) in [
            ("this epoch", 0, "a", 7, false, 0),
            ("more than any hub forgets", 0, "a", 7 + MAX_LEAD + 1, false, 0),
            ("a later one", 0, "a", 9, true, 9),
            ("one that the election has been told", 0, "a", 8, true, 9),
            ("once more", 59, "a", 12, false, 9),
            ("another cluster's", 59, "b", 11, true, 11),
            ("another loss, later", 60, "a", 12, true, 12),
        ] {
            let now = begin + Duration::from_secs(60 * minute);
            let found = epochs.is_behind(cluster, remembered, 7, now);
            assert_eq!((found.is_some(), epochs.floor.get()), (waits, floor), "{case}: {found:?}");
        }
        let high = EpochFloor::HIGHEST;
        assert_eq!(epochs.is_behind("c", high + 1, high, begin), None, "a Lease counts in 32 bits");
        epochs.floor.raise(high + 1);
        assert_eq!(epochs.floor.get(), 12);
    }
}
