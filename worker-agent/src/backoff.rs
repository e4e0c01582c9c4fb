//! How long to stay away from the hub. Pure: randomness is an argument.

use std::time::Duration;

const FLOOR: Duration = Duration::from_millis(500);
const CAP: Duration = Duration::from_secs(30);
/// After what only people can mend: another protocol version, a certificate that is not accepted.
const HOPELESS: Duration = Duration::from_secs(120);

/// So often a replica that does not lead is followed by a quick try: about ten seconds.
const STANDBYS: u32 = 20;

/// Full jitter between half a second and a bound that doubles up to 30 s.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    failures: u32,
    standbys: u32,
}

impl Backoff {
    /// A session was open: the next failure is the first again.
    pub(crate) fn reset(&mut self) {
        (self.failures, self.standbys) = (0, 0);
    }

    /// The wait before the next try. `random` is uniform in 0..1.
    pub(crate) fn next(&mut self, random: f64) -> Duration {
        self.failures = self.failures.saturating_add(1);
        let bound = FLOOR.saturating_mul(1 << self.failures.min(10)).min(CAP);
        FLOOR + (bound - FLOOR).mul_f64(random.clamp(0.0, 1.0))
    }

    /// The wait when a replica answers that does not lead, or not yet: another is about to, and is found by trying.
    pub(crate) fn standby(&mut self, random: f64) -> Duration {
        self.standbys = self.standbys.saturating_add(1);
        // A hub that has no leader for long has no need of being asked so often.
        if self.standbys > STANDBYS {
            self.next(random)
        } else {
            FLOOR.mul_f64(0.5 + random.clamp(0.0, 1.0))
        }
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
    fn the_replica_that_leads_is_looked_for_quickly_and_not_for_ever() {
        let mut backoff = Backoff::default();
        let waits: Vec<u128> = (0..24).map(|_| backoff.standby(0.5).as_millis()).collect();
        assert_eq!(waits[..20], [500; 20]);
        assert_eq!(waits[20..], [750, 1250, 2250, 4250]);
    }

    #[test]
    fn a_refusal_is_tried_again_soon_at_first_and_seldom_later() {
        let mut backoff = Backoff::default();
        let waits: Vec<u128> = (0..10).map(|_| backoff.refused(0.0).as_millis()).collect();
        assert_eq!(waits, [500, 1000, 2000, 4000, 8000, 16000, 32000, 60000, 60000, 60000]);
    }
}
