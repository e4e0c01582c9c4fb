//! Limits log lines that a client can cause.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Lines per window.
const LINES: u32 = 10;
const WINDOW: Duration = Duration::from_secs(10);

/// Lets ten lines pass every ten seconds and counts the suppressed ones.
#[derive(Debug, Default)]
pub struct LogLimit(Mutex<Window>);

#[derive(Debug, Default)]
struct Window {
    began: Option<Instant>,
    written: u32,
    left_out: u64,
}

impl LogLimit {
    /// `Some` if a line may be written now, with the number of lines suppressed since the last one.
    pub fn admit(&self, now: Instant) -> Option<u64> {
        self.0.lock().admit(now)
    }
}

impl Window {
    fn admit(&mut self, now: Instant) -> Option<u64> {
        if self.began.is_none_or(|began| now >= began + WINDOW) {
            (self.began, self.written) = (Some(now), 0);
        }
        if self.written >= LINES {
            self.left_out += 1;
            return None;
        }
        self.written += 1;
        Some(std::mem::take(&mut self.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flood_writes_ten_lines_a_window_and_counts_the_rest() {
        let (limit, begin) = (LogLimit::default(), Instant::now());
        let lines = |at: u64| -> Vec<u64> {
            (0..1_000).filter_map(|_| limit.admit(begin + Duration::from_secs(at))).collect()
        };
        assert_eq!(lines(0), [0; 10]);
        assert!(lines(9).is_empty());
        let next = lines(10);
        assert_eq!((next.len(), next[0], next[1]), (10, 1_990, 0));
    }
}
