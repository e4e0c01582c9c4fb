//! How a write goes on until its fate is known. Pure.

use std::time::Duration;

/// Pauses between tries of a write whose fate is not known: the API server is away.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LAST_PAUSE: Duration = Duration::from_secs(5);
/// Other writers that may come first before the dispatcher decides anew.
const CONFLICTS: u32 = 4;

/// The tries of one write.
#[derive(Debug, Clone, Copy)]
pub struct Tries {
    conflicts: u32,
    pause: Duration,
}

impl Default for Tries {
    fn default() -> Self {
        Self { conflicts: 0, pause: FIRST_PAUSE }
    }
}

impl Tries {
    /// One call, answer included. A request may be performed after it as well: whatever it asks for is bound to the version
    /// of the object that was looked at.
    pub const CALL: Duration = Duration::from_secs(30);

    /// Somebody else wrote first. Whether to look again; if not, the dispatcher decides anew.
    pub fn conflict(&mut self) -> bool {
        self.conflicts += 1;
        self.conflicts <= CONFLICTS
    }

    /// How long to wait before a look that tells whether it has happened.
    pub fn pause(&self) -> Duration {
        self.pause
    }

    /// That look has failed: the next one waits for longer.
    pub fn unseen(&mut self) {
        self.pause = (self.pause * 2).min(LAST_PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_may_come_first_four_times_and_looks_are_at_most_five_seconds_apart() {
        let mut tries = Tries::default();
        let conflicts: Vec<bool> = (0..5).map(|_| tries.conflict()).collect();
        assert_eq!(conflicts, [true, true, true, true, false]);
        let mut pauses = Vec::new();
        for _ in 0..9 {
            pauses.push(tries.pause().as_millis());
            tries.unseen();
        }
        assert_eq!(pauses, [50, 100, 200, 400, 800, 1600, 3200, 5000, 5000]);
    }
}
