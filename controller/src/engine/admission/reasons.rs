//! How reasons for waiting are written beside admissions: later, one after the other, and the less often the more wait.
//!
//! Of ten thousand workloads that wait, each would otherwise cost a write as soon as it is looked at, and another one
//! whenever a little less is missing: the API server would be busy with them while quota is free.

use std::time::Duration;

use switchyard_platform::work_queue::turns;

/// A reason for waiting is written only when it has lasted this long: most jobs of a burst are admitted before.
pub(super) const AFTER: Duration = Duration::from_millis(150);

/// Between two reasons, while reservations are being written here. (What a hub dispatches is written by its placement, and
/// is not among them.)
const GAP_WHEN_BUSY: Duration = Duration::from_millis(50);
/// Between two reasons otherwise.
const GAP: Duration = Duration::from_millis(3);

/// Of one workload, a change of the message alone is written at most this often.
const MESSAGE_EVERY: Duration = Duration::from_secs(2);
/// With many that wait, about so many such changes a second are written of all together,
const MESSAGES_PER_SECOND: u32 = 20;
/// but each may change this often, however many wait.
const MESSAGE_AT_LATEST: Duration = Duration::from_secs(60);

/// How long to wait after one reason before the next is written: at least as long as the last one took.
pub(super) fn gap(reservations: usize, took: Duration) -> Duration {
    took.max(if reservations > 0 { GAP_WHEN_BUSY } else { GAP })
}

/// How often a workload's message may change, when so many wait.
pub(super) fn message_every(waiting: usize) -> Duration {
    turns(waiting, MESSAGES_PER_SECOND, (MESSAGE_EVERY, MESSAGE_AT_LATEST))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[rstest::rstest]
    #[case::one_that_waits(1, 2)]
    #[case::forty(40, 2)]
    #[case::two_hundred(200, 10)]
    #[case::ten_thousand(10_000, 60)]
    fn the_more_wait_the_less_often_each_says_why(#[case] waiting: usize, #[case] seconds: u64) {
        assert_eq!(message_every(waiting), Duration::from_secs(seconds));
    }

    #[rstest::rstest]
    #[case::nothing_else_to_do(0, 2, GAP)]
    #[case::beside_reservations(1, 2, GAP_WHEN_BUSY)]
    #[case::to_a_slow_server(0, 300, Duration::from_millis(300))]
    fn reasons_give_way(
        #[case] reservations: usize,
        #[case] took: u64,
        #[case] expected: Duration,
    ) {
        assert_eq!(gap(reservations, Duration::from_millis(took)), expected);
    }
}
