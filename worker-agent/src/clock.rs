//! The ledger's time, from the clock of this process.

use std::time::Duration;

use tokio::time::Instant;

use switchyard_ledger::Time;

/// The ledger's time when the process begins: later than the longest fence, so that also a lease that an earlier process
/// lost so long ago has a time.
const BEGIN: Time = Time::from_secs(11 * 365 * 24 * 3600);

/// A clock that never goes back. It stands still while the machine sleeps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    began: Instant,
}

impl Clock {
    /// One that begins now.
    pub(crate) fn new() -> Self {
        Self { began: Instant::now() }
    }

    pub(crate) fn now(&self) -> Time {
        BEGIN + self.began.elapsed()
    }

    /// Waits until then; for ever, without a time.
    pub(crate) async fn until(&self, at: Option<Time>) {
        // Far beyond what timers are made for a fence may lie; waking for nothing costs nothing.
        const LONGEST: Duration = Duration::from_secs(24 * 3600);
        match at {
            Some(at) => tokio::time::sleep(at.saturating_sub(self.now()).min(LONGEST)).await,
            None => std::future::pending().await,
        }
    }
}
