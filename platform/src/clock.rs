//! Time as an argument: pure code takes a time, tasks take a [`Clock`].

use std::{
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};

use jiff::Timestamp;
use rustls::{pki_types::UnixTime, time_provider::TimeProvider};

/// Reads the time. Tests use one that they move by hand.
pub trait Clock: Send + Sync + 'static {
    /// The wall clock, for conditions and certificates.
    fn now(&self) -> Timestamp;
    /// A monotonic clock, for leases and deadlines.
    fn monotonic(&self) -> Instant;
}

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

/// A [`Clock`] as rustls reads it when it verifies certificates.
pub struct RustlsClock(pub Arc<dyn Clock>);

impl fmt::Debug for RustlsClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Wall")
    }
}

impl TimeProvider for RustlsClock {
    fn current_time(&self) -> Option<UnixTime> {
        let seconds = u64::try_from(self.0.now().as_second()).ok()?;
        Some(UnixTime::since_unix_epoch(Duration::from_secs(seconds)))
    }
}

/// The time from `earlier` to `later`, or zero if `later` is not later.
#[must_use]
pub fn since(later: Timestamp, earlier: Timestamp) -> Duration {
    Duration::try_from(later.duration_since(earlier)).unwrap_or(Duration::ZERO)
}

/// The delay before attempt number `count`: `base`, doubled with each further attempt, up to
/// `most`. A `most` of zero is no bound. Kueue adds a jitter of 1/10,000, which conditions in whole
/// seconds hide.
#[must_use]
pub fn exponential_backoff(base: Duration, most: Duration, count: i32) -> Duration {
    let doublings = u32::try_from(count.saturating_sub(1)).unwrap_or(0).min(31);
    let wait = base.saturating_mul(1 << doublings);
    if most.is_zero() { wait } else { wait.min(most) }
}

/// Truncates a time to whole seconds, as `metav1.Time` is serialized.
#[must_use]
pub fn whole_seconds(at: Timestamp) -> Timestamp {
    Timestamp::from_second(at.as_second()).unwrap_or(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_the_maximum() {
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
    fn seconds_are_truncated_and_differences_not_negative() {
        let at: Timestamp = "2026-11-21T10:00:00.123456789Z".parse().unwrap();
        assert_eq!(whole_seconds(at).to_string(), "2026-11-21T10:00:00Z");
        assert_eq!(since(at, Timestamp::MAX), Duration::ZERO);
    }
}
