//! Shows a workload's trouble on its worker cluster as the condition `WorkerTrouble`.
//!
//! One write at a time for each workload. A new trouble is written at once; changes soon after
//! wait, so that a flapping trouble costs few writes. A workload without trouble costs none.

mod description;
mod write;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use switchyard_dispatcher::Uid;
use tokio::time::Instant;

pub(super) use description::{Connection, Loss, StuckJob, StuckNext, TroubleDescription, describe};
pub(super) use write::{TroubleWrite, recorded_trouble, resolve_trouble};

/// Least time between two writes with different reasons.
const REASON: Duration = Duration::from_secs(5);
/// Least time between two writes that differ in the message only.
const WORDS: Duration = Duration::from_secs(60);
/// Pause after a failed write.
const RETRY: Duration = Duration::from_secs(5);
/// Concurrent writes. Few, so that they do not delay the writes that move jobs.
const WRITES: usize = 8;

/// How urgent a change of the condition is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Urgency {
    /// The reason changed, or the trouble is over.
    Reason,
    /// Only the message changed.
    Words,
}

#[derive(Debug, Default)]
struct Slot {
    due: Option<Instant>,
    is_busy: bool,
    /// The workload was deleted during its write.
    is_gone: bool,
    written: Option<Instant>,
}

/// Schedules the writes of the condition. Pure.
#[derive(Debug, Default)]
pub(super) struct TroubleQueue {
    slots: BTreeMap<Uid, Slot>,
    due: BTreeSet<(Instant, Uid)>,
    busy: usize,
}

impl TroubleQueue {
    /// Plans a write.
    pub(super) fn plan(&mut self, uid: &Uid, urgency: Urgency, now: Instant) {
        let slot = self.slots.entry(uid.clone()).or_default();
        slot.is_gone = false;
        let pause = match urgency {
            Urgency::Reason => REASON,
            Urgency::Words => WORDS,
        };
        let at = slot.written.map_or(now, |written| (written + pause).max(now));
        self.at(uid, at);
    }

    /// Plans a check at this time, when a write may be due.
    pub(super) fn plan_at(&mut self, uid: &Uid, at: Instant) {
        self.slots.entry(uid.clone()).or_default().is_gone = false;
        self.at(uid, at);
    }

    fn at(&mut self, uid: &Uid, at: Instant) {
        let Some(slot) = self.slots.get_mut(uid).filter(|slot| !slot.is_busy) else {
            return;
        };
        if slot.due.is_some_and(|due| due <= at) {
            return;
        }
        if let Some(due) = slot.due.replace(at) {
            self.due.remove(&(due, uid.clone()));
        }
        self.due.insert((at, uid.clone()));
    }

    /// When the next write is due, if one more may start.
    pub(super) fn next(&self) -> Option<Instant> {
        self.due.first().map(|(at, _)| *at).filter(|_| self.busy < WRITES)
    }

    /// The next workload whose write is due. It stays busy until [`Self::done`].
    pub(super) fn take(&mut self, now: Instant) -> Option<Uid> {
        let (at, uid) =
            self.due.first().cloned().filter(|(at, _)| *at <= now && self.busy < WRITES)?;
        self.due.remove(&(at, uid.clone()));
        let slot = self.slots.get_mut(&uid)?;
        (slot.due, slot.is_busy) = (None, true);
        self.busy += 1;
        Some(uid)
    }

    /// A write has ended, or was not needed.
    pub(super) fn done(&mut self, uid: &Uid, outcome: TroubleOutcome, now: Instant) {
        let Some(slot) = self.slots.get_mut(uid).filter(|slot| slot.is_busy) else { return };
        slot.is_busy = false;
        self.busy -= 1;
        if slot.is_gone {
            self.slots.remove(uid);
            return;
        }
        match outcome {
            TroubleOutcome::Nothing if slot.written.is_none() => {
                self.slots.remove(uid);
            }
            TroubleOutcome::Nothing => {}
            TroubleOutcome::Written => slot.written = Some(now),
            TroubleOutcome::Failed => self.at(uid, now + RETRY),
        }
    }

    /// Forgets a deleted workload.
    pub(super) fn forget(&mut self, uid: &Uid) {
        let busy = self.slots.get(uid).is_some_and(|slot| slot.is_busy);
        if let Some(slot) = self.slots.get_mut(uid) {
            if let Some(due) = slot.due.take() {
                self.due.remove(&(due, uid.clone()));
            }
            slot.is_gone = true;
        }
        // The write under way removes the entry when it ends.
        if !busy {
            self.slots.remove(uid);
        }
    }
}

/// How a write ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TroubleOutcome {
    Written,
    Nothing,
    /// The write is retried.
    Failed,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_trouble_is_written_at_once_and_changes_wait() {
        let (mut queue, now, uid) = (TroubleQueue::default(), Instant::now(), Uid::from("u"));
        queue.plan(&uid, Urgency::Words, now);
        assert_eq!((queue.next(), queue.take(now)), (Some(now), Some(uid.clone())));
        queue.plan(&uid, Urgency::Reason, now);
        assert_eq!(queue.take(now), None, "one at a time");
        queue.done(&uid, TroubleOutcome::Written, now);
        queue.plan(&uid, Urgency::Words, now);
        assert_eq!(queue.next(), Some(now + WORDS));
        queue.plan(&uid, Urgency::Reason, now);
        queue.plan(&uid, Urgency::Words, now);
        assert_eq!(queue.next(), Some(now + REASON));
    }

    #[test]
    fn failed_write_is_retried_and_needless_one_dropped() {
        let (mut queue, now, uid) = (TroubleQueue::default(), Instant::now(), Uid::from("u"));
        queue.plan(&uid, Urgency::Reason, now);
        queue.take(now);
        queue.done(&uid, TroubleOutcome::Failed, now);
        assert_eq!(queue.next(), Some(now + RETRY));
        queue.take(now + RETRY);
        queue.done(&uid, TroubleOutcome::Nothing, now + RETRY);
        assert!(queue.slots.is_empty() && queue.due.is_empty() && queue.busy == 0);
    }

    #[test]
    fn concurrent_writes_stay_bounded_when_workloads_go() {
        let (mut queue, now) = (TroubleQueue::default(), Instant::now());
        let uid = |index: usize| Uid::from(format!("u{index:02}").as_str());
        (0..20).for_each(|index| queue.plan(&uid(index), Urgency::Reason, now));
        let taken: Vec<Uid> = std::iter::from_fn(|| queue.take(now)).collect();
        assert_eq!((taken.len(), queue.next()), (WRITES, None));
        queue.forget(&taken[0]);
        queue.forget(&uid(19));
        assert_eq!(queue.next(), None);
        queue.done(&taken[0], TroubleOutcome::Written, now);
        assert_eq!((queue.busy, queue.due.len()), (WRITES - 1, 11));
    }
}
