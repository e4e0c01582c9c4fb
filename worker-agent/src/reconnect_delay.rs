//! The delay before the agent dials the hub again. Pure: randomness is an argument.

use std::time::Duration;

use switchyard_ledger::Backoff;

const FLOOR: Duration = Duration::from_millis(500);
const CAP: Duration = Duration::from_secs(30);
/// The delay after errors that only an administrator can correct, such as another protocol version.
const HOPELESS: Duration = Duration::from_secs(120);

/// How many standby replicas in a row are followed by a quick try: about ten seconds.
const STANDBYS: u32 = 20;

/// Full jitter between half a second and a bound that doubles up to 30 s.
#[derive(Debug, Default)]
pub(crate) struct ReconnectDelay {
    failures: u32,
    standbys: u32,
}

impl ReconnectDelay {
    /// Starts over after a session was open.
    pub(crate) fn reset(&mut self) {
        (self.failures, self.standbys) = (0, 0);
    }

    /// The delay after a failure. `random` is uniform in 0..1.
    pub(crate) fn next(&mut self, random: f64) -> Duration {
        self.failures = self.failures.saturating_add(1);
        let bound = Backoff::new(FLOOR, CAP).delay(self.failures);
        FLOOR + (bound - FLOOR).mul_f64(random.clamp(0.0, 1.0))
    }

    /// The delay after a standby replica answered. The leader is found by dialling again.
    pub(crate) fn standby(&mut self, random: f64) -> Duration {
        self.standbys = self.standbys.saturating_add(1);
        // The hub has had no leader for long, so dial less often.
        if self.standbys > STANDBYS {
            self.next(random)
        } else {
            FLOOR.mul_f64(0.5 + random.clamp(0.0, 1.0))
        }
    }

    /// The delay that the hub asked for, at least, with jitter so that not all agents return at
    /// once.
    pub(crate) fn asked(&mut self, after: Duration, random: f64) -> Duration {
        let after = after.min(HOPELESS);
        after + (after / 2).mul_f64(random.clamp(0.0, 1.0)) + self.next(random)
    }

    /// The delay after the hub refused the certificate: as after a failure, but longer in the end,
    /// since an administrator has to act.
    pub(crate) fn refused(&mut self, random: f64) -> Duration {
        let soon = self.next(random);
        let bound = Backoff::new(FLOOR, HOPELESS).delay(self.failures);
        soon.max(bound.mul_f64(0.5 + random.clamp(0.0, 1.0) / 2.0))
    }

    /// The delay if another try is unlikely to help.
    pub(crate) fn hopeless(&mut self, random: f64) -> Duration {
        self.failures = self.failures.saturating_add(1);
        HOPELESS.mul_f64(0.5 + random.clamp(0.0, 1.0) / 2.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failure_delay_doubles_between_floor_and_cap() {
        let mut delay = ReconnectDelay::default();
        let highest: Vec<f64> = (0..8).map(|_| delay.next(1.0).as_secs_f64()).collect();
        assert_eq!(highest, [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0]);
        assert_eq!(delay.next(0.0), FLOOR);
        delay.reset();
        assert_eq!(delay.next(0.5), Duration::from_millis(750));
    }

    #[test]
    fn requested_delay_is_respected_up_to_limit() {
        let mut delay = ReconnectDelay::default();
        assert!(delay.asked(Duration::from_secs(10), 0.0) >= Duration::from_secs(10));
        assert!(delay.asked(Duration::from_secs(1_000_000), 1.0) < 2 * HOPELESS);
        assert_eq!(delay.hopeless(0.0), HOPELESS / 2);
    }

    #[test]
    fn standby_is_retried_quickly_then_backs_off() {
        let mut delay = ReconnectDelay::default();
        let waits: Vec<u128> = (0..24).map(|_| delay.standby(0.5).as_millis()).collect();
        assert_eq!(waits[..20], [500; 20]);
        assert_eq!(waits[20..], [750, 1250, 2250, 4250]);
    }

    #[test]
    fn refusal_is_retried_soon_then_rarely() {
        let mut delay = ReconnectDelay::default();
        let waits: Vec<u128> = (0..10).map(|_| delay.refused(0.0).as_millis()).collect();
        assert_eq!(waits, [500, 1000, 2000, 4000, 8000, 16000, 32000, 60000, 60000, 60000]);
    }
}
