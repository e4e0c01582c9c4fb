//! How much one session may say, and how much of it may wait in the hub's memory.

use std::sync::Arc;
use std::time::Duration;

use prost::Message;
use switchyard_proto::v1::Observation;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// Observations that are given to the dispatcher at once: others' go in between.
pub(super) const AT_ONCE: usize = 256;
/// Messages of one session in a second. An honest agent, whose reports coalesce, stays far below.
const PACE: u32 = 1000;

/// Between two changes of an agent's word of whether it can act. It says so with its pings, which are ten seconds apart: what
/// is not heard now is heard with the next one.
const TURN: Duration = Duration::from_secs(1);

/// How often an agent changes its word: each time, all that it has is looked at, and its cluster's status is written.
#[derive(Debug, Default)]
pub(super) struct Turns(Option<Instant>);

impl Turns {
    /// Makes the change if it is not too soon. Whether it was made.
    pub(super) fn turn(&mut self, change: impl FnOnce() -> bool) -> bool {
        let now = Instant::now();
        if self.0.is_some_and(|last| now < last + TURN) || !change() {
            return false;
        }
        self.0 = Some(now);
        true
    }
}

/// How much of one session may wait for the dispatcher: a flood waits in its own connection, and others pass by.
#[derive(Debug, Clone)]
pub(super) struct Share(Arc<Semaphore>);

/// A part of a session's [`Share`], held until the dispatcher has taken it in. The dispatcher's own events have none.
#[derive(Debug, Default)]
pub struct Weight {
    _permit: Option<OwnedSemaphorePermit>,
}

impl Share {
    /// Bytes that one session may have waiting.
    const BYTES: usize = 8 * 1024 * 1024;
    /// Messages that it may have waiting: each weighs at least this part.
    const MESSAGES: usize = 64;

    pub(super) fn new() -> Self {
        Self(Arc::new(Semaphore::new(Self::BYTES)))
    }

    /// Waits until there is room for a message of so many bytes.
    pub(super) async fn take(&self, bytes: usize) -> Weight {
        let weight = bytes.clamp(Self::BYTES / Self::MESSAGES, Self::BYTES);
        // It is never closed.
        let _permit =
            self.0.clone().acquire_many_owned(u32::try_from(weight).unwrap_or(u32::MAX)).await.ok();
        Weight { _permit }
    }
}

/// About what observations take, in bytes.
pub(super) fn size(observations: &[Observation]) -> usize {
    observations.iter().map(|observation| observation.encoded_len() + 64).sum()
}

/// Slows a session down that says more than [`PACE`] messages a second.
#[derive(Debug)]
pub(super) struct Pace {
    since: Instant,
    said: u32,
}

impl Pace {
    pub(super) fn new() -> Self {
        Self { since: Instant::now(), said: 0 }
    }

    /// Waits until the next message may be taken.
    pub(super) async fn keep(&mut self) {
        const ROUND: Duration = Duration::from_secs(1);
        self.said += 1;
        if self.said <= PACE {
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
    async fn a_word_that_changes_is_heard_once_a_second() {
        let mut turns = Turns::default();
        let mut heard = 0;
        for _ in 0..100 {
            heard += u32::from(turns.turn(|| true));
            tokio::time::advance(Duration::from_millis(100)).await;
        }
        assert_eq!(heard, 10);
        assert!(!turns.turn(|| false), "no news");
        assert!(turns.turn(|| true), "which costs nothing");
    }

    #[tokio::test]
    async fn a_session_has_its_share_of_the_queue_and_no_more() {
        let share = Share::new();
        let mut held = Vec::new();
        for _ in 0..Share::MESSAGES {
            held.push(share.take(1).await);
        }
        let more = share.take(1);
        assert!(futures::poll!(Box::pin(more)).is_pending());
        held.clear();
        // One that alone is more than the share still gets in, when nothing else is there.
        drop(share.take(usize::MAX).await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_flood_is_slowed_down_and_nobody_else() {
        let began = Instant::now();
        let mut pace = Pace::new();
        for _ in 0..PACE {
            pace.keep().await;
        }
        assert_eq!(began.elapsed(), Duration::ZERO);
        pace.keep().await;
        assert_eq!(began.elapsed(), Duration::from_secs(1));
    }
}
