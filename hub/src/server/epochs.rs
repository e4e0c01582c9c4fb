//! Epochs that agents remember, where the hub's store was lost or is an older one.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;
use switchyard_controller::EpochFloor;
use switchyard_dispatcher::MAX_LEAD;
use tokio::time::Instant;

/// After this long, an agent that remembers a later epoch than ours may try again.
pub(super) const BEHIND_RETRY: Duration = Duration::from_secs(2);

/// The epoch is raised on a cluster's word once in so long: an agent of bad will cannot begin term after term.
const RAISE_AGAIN: Duration = Duration::from_secs(3600);

/// What agents remember, for the election.
#[derive(Debug, Default)]
pub(super) struct Epochs {
    floor: EpochFloor,
    /// When the epoch was last raised on the word of a cluster. There is one for each that ever had a session.
    raised: Mutex<BTreeMap<String, Instant>>,
}

impl Epochs {
    /// Those that tell an election.
    pub(super) fn telling(floor: EpochFloor) -> Self {
        Self { floor, ..Self::default() }
    }

    /// Why an agent cannot obey us yet: it remembers a later epoch than ours. One that no hub can have forgotten is not
    /// believed, nor one too high to go above: such an agent gets its session, and ends it.
    pub(super) fn behind(
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
    fn an_epoch_is_raised_on_a_clusters_word_now_and_then_and_never_too_high() {
        let (epochs, begin) = (Epochs::default(), Instant::now());
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
            let found = epochs.behind(cluster, remembered, 7, now);
            assert_eq!((found.is_some(), epochs.floor.get()), (waits, floor), "{case}: {found:?}");
        }
        let high = EpochFloor::HIGHEST;
        assert_eq!(epochs.behind("c", high + 1, high, begin), None, "a Lease counts in 32 bits");
        epochs.floor.raise(high + 1);
        assert_eq!(epochs.floor.get(), 12);
    }
}
