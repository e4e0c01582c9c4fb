//! Time as an argument: what decides takes a time, what runs takes a [`Clock`].

use std::{
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};

use jiff::Timestamp;
use rustls::{pki_types::UnixTime, time_provider::TimeProvider};

/// Reads the time. Tests give one that they move by hand.
pub trait Clock: Send + Sync + 'static {
    /// The wall clock, as written into conditions.
    fn now(&self) -> Timestamp;
    /// A clock that never goes back, for leases and deadlines.
    fn monotonic(&self) -> Instant;
}

/// The machine's clocks.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    fn monotonic(&self) -> Instant {
        Instant::now()
    }
}

/// A clock for the library that judges certificates.
pub struct Wall(pub Arc<dyn Clock>);

impl fmt::Debug for Wall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Wall")
    }
}

impl TimeProvider for Wall {
    fn current_time(&self) -> Option<UnixTime> {
        let seconds = u64::try_from(self.0.now().as_second()).ok()?;
        Some(UnixTime::since_unix_epoch(Duration::from_secs(seconds)))
    }
}

/// The engine's nanoseconds for a wall-clock time.
#[must_use]
pub fn engine_time(at: Timestamp) -> switchyard_scheduler::Time {
    // An i64 of nanoseconds ends in the year 2262; later times stay at its end.
    switchyard_scheduler::Time(i64::try_from(at.as_nanosecond()).unwrap_or(i64::MAX))
}

/// The wall-clock time of an engine time.
#[must_use]
pub fn wall_time(at: switchyard_scheduler::Time) -> Timestamp {
    Timestamp::from_nanosecond(i128::from(at.0)).unwrap_or(Timestamp::MAX)
}

/// How long from `earlier` to `later`; zero if it is not later.
#[must_use]
pub fn since(later: Timestamp, earlier: Timestamp) -> Duration {
    Duration::try_from(later.duration_since(earlier)).unwrap_or(Duration::ZERO)
}

/// The wait before the `count`th try: `base` before the first, doubled with each further one, at most `most`; a `most` of
/// zero is no bound. Kueue adds a jitter of a ten-thousandth, which whole seconds hide.
#[must_use]
pub fn exponential_backoff(base: Duration, most: Duration, count: i32) -> Duration {
    let doublings = u32::try_from(count.saturating_sub(1)).unwrap_or(0).min(31);
    let wait = base.saturating_mul(1 << doublings);
    if most.is_zero() { wait } else { wait.min(most) }
}

/// Cuts a time to whole seconds, as `metav1.Time` is stored.
#[must_use]
pub fn whole_seconds(at: Timestamp) -> Timestamp {
    Timestamp::from_second(at.as_second()).unwrap_or(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_longest() {
        let wait = |base, most, count| {
            exponential_backoff(Duration::from_secs(base), Duration::from_secs(most), count)
                .as_secs()
        };
        assert_eq!(
            [1, 2, 3, 4, i32::MAX].map(|count| wait(60, 300, count)),
            [60, 120, 240, 300, 300]
        );
        assert_eq!(
            [i32::MIN, 0, 3].map(|count| wait(60, 0, count)),
            [60, 60, 240],
            "zero is no bound"
        );
    }

    #[test]
    fn engine_time_and_back() {
        let at: Timestamp = "2026-11-21T10:00:00.123456789Z".parse().unwrap();
        assert_eq!(wall_time(engine_time(at)), at);
        assert_eq!(whole_seconds(at).to_string(), "2026-11-21T10:00:00Z");
        assert_eq!(since(at, Timestamp::MAX), Duration::ZERO);
    }
}
