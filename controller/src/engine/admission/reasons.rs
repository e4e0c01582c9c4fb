//! Pace of writes of reasons for waiting: after a delay, one after the other, and less often the
//! more workloads wait.
//!
//! Otherwise 10,000 pending workloads would each cost a write when first considered, and another
//! whenever a little less is missing. The API server would be busy with them while quota is free.

use std::time::Duration;

use switchyard_platform::work_queue::fair_interval;

/// A reason is written only after it has lasted this long. Most jobs of a burst are admitted
/// before.
pub(super) const AFTER: Duration = Duration::from_millis(150);

/// Pause between two reasons while reservations wait. Reservations that a hub dispatches do not
/// count: the placement writes them.
const GAP_WHEN_BUSY: Duration = Duration::from_millis(50);
/// Pause between two reasons otherwise.
const GAP: Duration = Duration::from_millis(3);

/// Minimum interval between changes of one workload's message alone.
const MESSAGE_EVERY: Duration = Duration::from_secs(2);
/// Rate of such changes of all workloads together, if many wait.
const MESSAGES_PER_SECOND: u32 = 20;
/// Maximum of that interval, however many wait.
const MESSAGE_AT_LATEST: Duration = Duration::from_secs(60);

/// Pause after one reason before the next. At least as long as the last write took.
pub(super) fn gap(reservations: usize, took: Duration) -> Duration {
    took.max(if reservations > 0 { GAP_WHEN_BUSY } else { GAP })
}

/// Minimum interval between changes of a workload's message, with this many waiting.
pub(super) fn message_every(waiting: usize) -> Duration {
    fair_interval(waiting, MESSAGES_PER_SECOND, (MESSAGE_EVERY, MESSAGE_AT_LATEST))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[rstest::rstest]
    #[case::one(1, 2)]
    #[case::forty(40, 2)]
    #[case::two_hundred(200, 10)]
    #[case::ten_thousand(10_000, 60)]
    fn message_interval_grows_with_waiting_workloads(#[case] waiting: usize, #[case] seconds: u64) {
        assert_eq!(message_every(waiting), Duration::from_secs(seconds));
    }

    #[rstest::rstest]
    #[case::idle(0, 2, GAP)]
    #[case::with_reservations(1, 2, GAP_WHEN_BUSY)]
    #[case::slow_server(0, 300, Duration::from_millis(300))]
    fn pause_is_longer_beside_reservations(
        #[case] reservations: usize,
        #[case] took: u64,
        #[case] expected: Duration,
    ) {
        assert_eq!(gap(reservations, Duration::from_millis(took)), expected);
    }
}
