//! The clock of the measurements.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Processor time of this thread, so that other load on the machine does not count.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock(Duration);

impl Clock {
    pub(crate) fn start() -> Self {
        let now = clock_gettime(ClockId::ThreadCPUTime);
        let (secs, nanos) = (u64::try_from(now.tv_sec), u32::try_from(now.tv_nsec));
        Self(Duration::new(secs.unwrap_or(0), nanos.unwrap_or(0)))
    }

    pub(crate) fn elapsed(self) -> Duration {
        Self::start().0.saturating_sub(self.0)
    }
}
