//! How much one session may send, and how much of it may wait in the hub's memory.

use std::sync::Arc;
use std::time::Duration;

use prost::Message;
use switchyard_proto::v1::Observation;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// Observations in one event. Events of other clusters are taken in between.
pub(super) const BATCH: usize = 256;
/// Messages of one session in a second. An honest agent coalesces its reports and stays far below.
const MESSAGES_A_SECOND: u32 = 1000;

/// Least time between two changes of an agent's health. Agents report it with each ping, every ten
/// seconds, so an ignored change comes again.
const CHANGE_EVERY: Duration = Duration::from_secs(1);

/// Limits how often an agent changes its health. Each change costs passes over all Workloads and a
/// status write.
#[derive(Debug, Default)]
pub(super) struct ChangeLimiter(Option<Instant>);

impl ChangeLimiter {
    /// Makes the change unless it is too soon. Returns whether it was made.
    pub(super) fn try_change(&mut self, change: impl FnOnce() -> bool) -> bool {
        let now = Instant::now();
        if self.0.is_some_and(|last| now < last + CHANGE_EVERY) || !change() {
            return false;
        }
        self.0 = Some(now);
        true
    }
}

/// Bytes of one session that may wait for the dispatcher. A flood waits in its own connection, and
/// other clusters pass.
#[derive(Debug, Clone)]
pub(super) struct SessionBudget(Arc<Semaphore>);

/// A part of a [`SessionBudget`], held until the dispatcher has taken the event. Events that the
/// dispatcher makes itself hold none.
#[derive(Debug, Default)]
pub struct BudgetPermit {
    _permit: Option<OwnedSemaphorePermit>,
}

impl SessionBudget {
    /// Bytes that one session may have waiting.
    const BYTES: usize = 8 * 1024 * 1024;
    /// Messages that one session may have waiting: each counts at least this part of the bytes.
    const MESSAGES: usize = 64;

    pub(super) fn new() -> Self {
        Self(Arc::new(Semaphore::new(Self::BYTES)))
    }

    /// Waits until a message of so many bytes fits.
    pub(super) async fn take(&self, bytes: usize) -> BudgetPermit {
        let permits = bytes.clamp(Self::BYTES / Self::MESSAGES, Self::BYTES);
        // The semaphore is never closed.
        let _permit = self
            .0
            .clone()
            .acquire_many_owned(u32::try_from(permits).unwrap_or(u32::MAX))
            .await
            .ok();
        BudgetPermit { _permit }
    }
}

/// The approximate size of observations, in bytes.
pub(super) fn weight(observations: &[Observation]) -> usize {
    observations.iter().map(|observation| observation.encoded_len() + 64).sum()
}

/// Slows down a session that sends more than [`MESSAGES_A_SECOND`].
#[derive(Debug)]
pub(super) struct MessagePacer {
    since: Instant,
    messages: u32,
}

impl MessagePacer {
    pub(super) fn new() -> Self {
        Self { since: Instant::now(), messages: 0 }
    }

    /// Waits until the next message may be taken.
    pub(super) async fn wait(&mut self) {
        const ROUND: Duration = Duration::from_secs(1);
        self.messages += 1;
        if self.messages <= MESSAGES_A_SECOND {
            return;
        }
        tokio::time::sleep_until(self.since + ROUND).await;
        *self = Self::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn health_change_passes_once_a_second() {
        let mut changes = ChangeLimiter::default();
        let mut heard = 0;
        for _ in 0..100 {
            heard += u32::from(changes.try_change(|| true));
            tokio::time::advance(Duration::from_millis(100)).await;
        }
        assert_eq!(heard, 10);
        assert!(!changes.try_change(|| false), "no news");
        assert!(changes.try_change(|| true), "which costs nothing");
    }

    #[tokio::test]
    async fn session_budget_bounds_waiting_messages() {
        let budget = SessionBudget::new();
        let mut held = Vec::new();
        for _ in 0..SessionBudget::MESSAGES {
            held.push(budget.take(1).await);
        }
        let more = budget.take(1);
        assert!(futures::poll!(Box::pin(more)).is_pending());
        held.clear();
        // A message larger than the whole budget still passes when nothing else waits.
        drop(budget.take(usize::MAX).await);
    }

    #[tokio::test(start_paused = true)]
    async fn message_flood_is_slowed_down() {
        let began = Instant::now();
        let mut pacer = MessagePacer::new();
        for _ in 0..MESSAGES_A_SECOND {
            pacer.wait().await;
        }
        assert_eq!(began.elapsed(), Duration::ZERO);
        pacer.wait().await;
        assert_eq!(began.elapsed(), Duration::from_secs(1));
    }
}
