//! The trouble of a workload on its worker cluster, shown as one condition.
//!
//! Per workload one write at a time. What is new is written at once, and what changes soon after waits: a trouble that
//! comes and goes, or whose words change, costs a write now and then. A workload without trouble costs none.

mod word;
mod write;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use switchyard_dispatcher::Uid;
use tokio::time::Instant;

pub(super) use word::{Connection, Word, word};
pub(super) use write::{TroubleWrite, recorded, settle};

/// Between two writes of one workload with different reasons.
const REASON: Duration = Duration::from_secs(5);
/// Between two whose words alone differ.
const WORDS: Duration = Duration::from_secs(60);
/// After a write that failed.
const RETRY: Duration = Duration::from_secs(5);
/// Writes in flight: what tells of the work must not hold it up.
const WRITES: usize = 8;

/// How urgent a change of the condition is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Urgency {
    /// Another reason, or none any more.
    Reason,
    /// Other words.
    Words,
}

#[derive(Debug, Default)]
struct Slot {
    due: Option<Instant>,
    is_busy: bool,
    /// The workload went while its write was under way.
    is_gone: bool,
    written: Option<Instant>,
}

/// When each workload's condition is to be written. Pure.
#[derive(Debug, Default)]
pub(super) struct TroubleQueue {
    slots: BTreeMap<Uid, Slot>,
    due: BTreeSet<(Instant, Uid)>,
    busy: usize,
}

impl TroubleQueue {
    /// The condition of a workload is to change.
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

    fn at(&mut self, uid: &Uid, at: Instant) {
        let Some(slot) = self.slots.get_mut(uid).filter(|slot| !slot.is_busy) else { return };
        if slot.due.is_some_and(|due| due <= at) {
            return;
        }
        if let Some(due) = slot.due.replace(at) {
            self.due.remove(&(due, uid.clone()));
        }
        self.due.insert((at, uid.clone()));
    }

    /// When the next is due, if there is room for its write.
    pub(super) fn next(&self) -> Option<Instant> {
        self.due.first().map(|(at, _)| *at).filter(|_| self.busy < WRITES)
    }

    /// The next that is due. It is busy until [`Self::done`].
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
    pub(super) fn done(&mut self, uid: &Uid, outcome: Wrote, now: Instant) {
        let Some(slot) = self.slots.get_mut(uid).filter(|slot| slot.is_busy) else { return };
        slot.is_busy = false;
        self.busy -= 1;
        if slot.is_gone {
            self.slots.remove(uid);
            return;
        }
        match outcome {
            Wrote::Nothing if slot.written.is_none() => {
                self.slots.remove(uid);
            }
            Wrote::Nothing => {}
            Wrote::Written => slot.written = Some(now),
            Wrote::Failed => self.at(uid, now + RETRY),
        }
    }

    /// A workload is gone.
    pub(super) fn forget(&mut self, uid: &Uid) {
        let busy = self.slots.get(uid).is_some_and(|slot| slot.is_busy);
        if let Some(slot) = self.slots.get_mut(uid) {
            if let Some(due) = slot.due.take() {
                self.due.remove(&(due, uid.clone()));
            }
            slot.is_gone = true;
        }
        // The write that is under way says when it has ended.
        if !busy {
            self.slots.remove(uid);
        }
    }
}

/// How a write ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wrote {
    /// The condition is in the API.
    Written,
    /// There was nothing to write.
    Nothing,
    /// The write failed, and is tried again.
    Failed,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_word_is_written_at_once_and_later_ones_wait() {
        let (mut queue, now, uid) = (TroubleQueue::default(), Instant::now(), Uid::from("u"));
        queue.plan(&uid, Urgency::Words, now);
        assert_eq!((queue.next(), queue.take(now)), (Some(now), Some(uid.clone())));
        queue.plan(&uid, Urgency::Reason, now);
        assert_eq!(queue.take(now), None, "one at a time");
        queue.done(&uid, Wrote::Written, now);
        queue.plan(&uid, Urgency::Words, now);
        assert_eq!(queue.next(), Some(now + WORDS));
        queue.plan(&uid, Urgency::Reason, now);
        queue.plan(&uid, Urgency::Words, now);
        assert_eq!(queue.next(), Some(now + REASON));
    }

    #[test]
    fn failed_write_is_tried_again_and_a_needless_one_forgotten() {
        let (mut queue, now, uid) = (TroubleQueue::default(), Instant::now(), Uid::from("u"));
        queue.plan(&uid, Urgency::Reason, now);
        queue.take(now);
        queue.done(&uid, Wrote::Failed, now);
        assert_eq!(queue.next(), Some(now + RETRY));
        queue.take(now + RETRY);
        queue.done(&uid, Wrote::Nothing, now + RETRY);
        assert!(queue.slots.is_empty() && queue.due.is_empty() && queue.busy == 0);
    }

    #[test]
    fn writes_in_flight_are_bounded_also_where_workloads_go() {
        let (mut queue, now) = (TroubleQueue::default(), Instant::now());
        let uid = |index: usize| Uid::from(format!("u{index:02}").as_str());
        (0..20).for_each(|index| queue.plan(&uid(index), Urgency::Reason, now));
        let taken: Vec<Uid> = std::iter::from_fn(|| queue.take(now)).collect();
        assert_eq!((taken.len(), queue.next()), (WRITES, None));
        queue.forget(&taken[0]);
        queue.forget(&uid(19));
        assert_eq!(queue.next(), None);
        queue.done(&taken[0], Wrote::Written, now);
        assert_eq!((queue.busy, queue.due.len()), (WRITES - 1, 11));
    }
}
