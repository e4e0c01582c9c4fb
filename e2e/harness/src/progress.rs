//! Prints the progress of long work to standard error.

use std::io::Write;
use std::time::{Duration, Instant};

/// Least time between two lines.
const PERIOD: Duration = Duration::from_secs(10);

/// Prints how many parts of the work are done.
#[derive(Debug)]
pub struct Progress {
    what: String,
    of: usize,
    start: Instant,
    told: Duration,
}

impl Progress {
    /// Work of `of` parts that starts now. `what` names the finished parts, such as "jobs sent".
    pub fn new(what: impl Into<String>, of: usize) -> Self {
        Self { what: what.into(), of, start: Instant::now(), told: Duration::ZERO }
    }

    /// Records that `done` parts are done. Prints a line at most every ten seconds.
    pub fn at(&mut self, done: usize) {
        if let Some(line) = self.line(done, self.start.elapsed()) {
            // A closed standard error needs no message.
            let _ = writeln!(std::io::stderr(), "{line}");
        }
    }

    fn line(&mut self, done: usize, elapsed: Duration) -> Option<String> {
        if elapsed < self.told + PERIOD {
            return None;
        }
        self.told = elapsed;
        Some(format!("    {}: {done} of {}, {} s", self.what, self.of, elapsed.as_secs()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_comes_every_ten_seconds_and_none_when_it_was_quick() {
        let mut progress = Progress::new("jobs sent", 200);
        let lines = [(3, 1), (80, 9), (90, 10), (100, 15), (190, 21), (200, 23)]
            .map(|(done, seconds)| progress.line(done, Duration::from_secs(seconds)));
        assert_eq!(
            lines.into_iter().flatten().collect::<Vec<_>>(),
            ["    jobs sent: 90 of 200, 10 s", "    jobs sent: 190 of 200, 21 s"]
        );
    }
}
