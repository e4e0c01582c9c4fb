//! The ledger's time, by the clock of this process.

use std::time::Duration;

use tokio::time::Instant;

use switchyard_ledger::Time;

/// The ledger's time at the start of the process. It exceeds the longest fence, so that a lease
/// which expired that long ago still has a positive time.
const BEGIN: Time = Time::from_secs(11 * 365 * 24 * 3600);

/// A monotonic clock. It stands still while the machine sleeps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    began: Instant,
}

impl Clock {
    pub(crate) fn new() -> Self {
        Self { began: Instant::now() }
    }

    pub(crate) fn now(&self) -> Time {
        BEGIN + self.began.elapsed()
    }

    /// Waits until `at`; for ever without it.
    pub(crate) async fn until(&self, at: Option<Time>) {
        // A fence may lie beyond what timers support. An early wakeup costs nothing.
        const LONGEST: Duration = Duration::from_secs(24 * 3600);
        match at {
            Some(at) => tokio::time::sleep(at.saturating_sub(self.now()).min(LONGEST)).await,
            None => std::future::pending().await,
        }
    }
}
