//! Retries of one write until its result is known.

use std::time::Duration;

/// First and longest pause between reads after a write without an answer.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LAST_PAUSE: Duration = Duration::from_secs(5);
/// Conflicts before the dispatcher decides again.
const CONFLICTS: u32 = 4;

#[derive(Debug, Clone, Copy)]
pub struct WriteRetries {
    conflicts: u32,
    pause: Duration,
}

impl Default for WriteRetries {
    fn default() -> Self {
        Self { conflicts: 0, pause: FIRST_PAUSE }
    }
}

impl WriteRetries {
    /// Timeout of one call. A late request may still be performed: it only applies to the version
    /// that was read.
    pub const CALL_TIMEOUT: Duration = Duration::from_secs(30);

    /// A conflict occurred. Returns whether to try again.
    pub fn may_retry_conflict(&mut self) -> bool {
        self.conflicts += 1;
        self.conflicts <= CONFLICTS
    }

    /// Pause before the next read.
    pub fn pause(&self) -> Duration {
        self.pause
    }

    /// A read failed: the next pause is longer.
    pub fn lengthen_pause(&mut self) {
        self.pause = (self.pause * 2).min(LAST_PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retries_allow_four_conflicts_and_pause_at_most_5_s() {
        let mut tries = WriteRetries::default();
        let conflicts: Vec<bool> = (0..5).map(|_| tries.may_retry_conflict()).collect();
        assert_eq!(conflicts, [true, true, true, true, false]);
        let mut pauses = Vec::new();
        for _ in 0..9 {
            pauses.push(tries.pause().as_millis());
            tries.lengthen_pause();
        }
        assert_eq!(pauses, [50, 100, 200, 400, 800, 1600, 3200, 5000, 5000]);
    }
}
