//! How long things took, many of them.

use std::time::Duration;

use serde_json::{Value, json};

/// Quantiles of times in seconds; zero without times.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Quantiles {
    pub(crate) count: usize,
    pub(crate) p50: f64,
    pub(crate) p90: f64,
    pub(crate) p99: f64,
    pub(crate) max: f64,
}

impl Quantiles {
    /// Quantiles of times in any order.
    pub(crate) fn of(times: impl IntoIterator<Item = Duration>) -> Self {
        let mut sorted: Vec<Duration> = times.into_iter().collect();
        sorted.sort();
        let at = |share: f64| {
            let index = (sorted.len().saturating_sub(1) as f64 * share).round() as usize;
            sorted.get(index).map_or(0.0, Duration::as_secs_f64)
        };
        Self { count: sorted.len(), p50: at(0.5), p90: at(0.9), p99: at(0.99), max: at(1.0) }
    }

    /// With the unit in the names.
    pub(crate) fn json(&self) -> Value {
        json!({"count": self.count, "p50Seconds": self.p50, "p90Seconds": self.p90, "p99Seconds": self.p99, "maxSeconds": self.max})
    }
}

/// Seconds for readers: to the millisecond below one, else to the hundredth.
pub(crate) fn seconds(seconds: f64) -> String {
    if seconds < 1.0 { format!("{:.0} ms", seconds * 1000.0) } else { format!("{seconds:.2} s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_and_the_ends() {
        let quantiles = Quantiles::of((1..=100).rev().map(Duration::from_millis));
        assert_eq!(
            (quantiles.count, quantiles.p50, quantiles.p99, quantiles.max),
            (100, 0.051, 0.099, 0.1)
        );
        assert_eq!(Quantiles::of([]), Quantiles::default());
        assert_eq!((seconds(0.0123), seconds(2.5)), ("12 ms".to_owned(), "2.50 s".to_owned()));
    }
}
