//! How long to stay away from the hub. Pure: randomness is an argument.

use std::time::Duration;

const FLOOR: Duration = Duration::from_millis(500);
const CAP: Duration = Duration::from_secs(30);
/// After what only people can mend: another protocol version, a certificate that is not accepted.
const HOPELESS: Duration = Duration::from_secs(120);

/// Full jitter between half a second and a bound that doubles up to 30 s.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    failures: u32,
}

impl Backoff {
    /// A session was open: the next failure is the first again.
    pub(crate) fn reset(&mut self) {
        self.failures = 0;
    }

    /// The wait before the next try. `random` is uniform in 0..1.
    pub(crate) fn next(&mut self, random: f64) -> Duration {
        self.failures = self.failures.saturating_add(1);
        let bound = FLOOR.saturating_mul(1 << self.failures.min(10)).min(CAP);
        FLOOR + (bound - FLOOR).mul_f64(random.clamp(0.0, 1.0))
    }

    /// The wait when the hub asked for one: at least that, and spread, so that not all agents return at once.
    pub(crate) fn asked(&mut self, after: Duration, random: f64) -> Duration {
        let after = after.min(HOPELESS);
        after + (after / 2).mul_f64(random.clamp(0.0, 1.0)) + self.next(random)
    }

    /// The wait when the hub refuses us: as after a failure, but ever longer, since it is for people to mend.
    pub(crate) fn refused(&mut self, random: f64) -> Duration {
        let soon = self.next(random);
        let bound = FLOOR.saturating_mul(1 << self.failures.min(10)).min(HOPELESS);
        soon.max(bound.mul_f64(0.5 + random.clamp(0.0, 1.0) / 2.0))
    }

    /// The wait when no try is likely to help.
    pub(crate) fn hopeless(&mut self, random: f64) -> Duration {
        self.failures = self.failures.saturating_add(1);
        HOPELESS.mul_f64(0.5 + random.clamp(0.0, 1.0) / 2.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_cap_and_never_go_below_the_floor() {
        let mut backoff = Backoff::default();
        let highest: Vec<f64> = (0..8).map(|_| backoff.next(1.0).as_secs_f64()).collect();
        assert_eq!(highest, [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0]);
        assert_eq!(backoff.next(0.0), FLOOR);
        backoff.reset();
        assert_eq!(backoff.next(0.5), Duration::from_millis(750));
    }

    #[test]
    fn the_hub_is_given_the_time_it_asks_for_within_reason() {
        let mut backoff = Backoff::default();
        assert!(backoff.asked(Duration::from_secs(10), 0.0) >= Duration::from_secs(10));
        assert!(backoff.asked(Duration::from_secs(1_000_000), 1.0) < 2 * HOPELESS);
        assert_eq!(backoff.hopeless(0.0), HOPELESS / 2);
    }

    #[test]
    fn a_refusal_is_tried_again_soon_at_first_and_seldom_later() {
        let mut backoff = Backoff::default();
        let waits: Vec<u128> = (0..10).map(|_| backoff.refused(0.0).as_millis()).collect();
        assert_eq!(waits, [500, 1000, 2000, 4000, 8000, 16000, 32000, 60000, 60000, 60000]);
    }
}
