//! Pace of writes that start and end no job.
//!
//! When a cluster is lost, each workload that waits for it needs such writes. All at once, they would
//! keep the API server busy while jobs of other tenants could start. So each workload gets a turn, in
//! the order in which they ask, and decides again when its turn comes.

use super::Dispatcher;
use super::tracked_workload::TrackedWorkload;
use crate::UnixMillis;

/// Milliseconds between two turns. A returned reservation causes about six writes and four events,
/// until the workload waits again.
const INTERVAL: i64 = 150;
/// So many turns are granted at once after a quiet time.
const BURST: i64 = 5;
/// Milliseconds after which an unused turn is void.
const VALID_FOR: i64 = 5_000;

impl Dispatcher {
    /// Whether the workload may write now. If not, it is woken at its turn.
    pub(super) fn has_turn(&mut self, entry: &mut TrackedWorkload, now: UnixMillis) -> bool {
        let turn = match entry.turn.filter(|at| now < at.saturating_add(VALID_FOR)) {
            Some(at) => at,
            None => {
                let at = self.next_turn.max(now - BURST * INTERVAL);
                self.next_turn = at + INTERVAL;
                at
            }
        };
        if now < turn {
            entry.turn = Some(turn);
            entry.wake_at(turn);
            return false;
        }
        entry.turn = None;
        true
    }
}
