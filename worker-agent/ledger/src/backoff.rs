//! Exponential backoff.

use std::time::Duration;

/// A delay that doubles with each failure, up to a maximum.
///
/// Pure: callers count the failures and add jitter.
#[derive(Clone, Copy, Debug)]
pub struct Backoff {
    first: Duration,
    max: Duration,
}

impl Backoff {
    /// A backoff that starts with `first`.
    pub const fn new(first: Duration, max: Duration) -> Self {
        Self { first, max }
    }

    /// The delay after this many earlier failures: `first` after none.
    pub fn delay(&self, failures: u32) -> Duration {
        self.first.saturating_mul(1 << failures.min(31)).min(self.max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delay_doubles_up_to_maximum() {
        let backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(30));
        let seconds = [0, 1, 2, 4, 5, u32::MAX].map(|failures| backoff.delay(failures).as_secs());
        assert_eq!(seconds, [1, 2, 4, 16, 30, 30]);
    }
}
