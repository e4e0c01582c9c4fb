//! Whether the program runs that writes the usage of a cluster's queues into their statuses: Switchyard or stock Kueue.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// How long the statuses may be old after a program has ended or started again. It may take a minute to be ready.
const CATCH_UP: Duration = Duration::from_secs(120);

/// The programs that tests have started and ended on a cluster.
#[derive(Debug, Default)]
pub(crate) struct UsageWriterState(Mutex<Programs>);

#[derive(Debug, Default)]
struct Programs {
    running: usize,
    /// The last end of a program, or the start of one where none ran. `None` until a program ends.
    last_change: Option<Instant>,
}

impl UsageWriterState {
    /// Notes that a program starts. It ends when the guard is dropped.
    pub(crate) fn start(self: &Arc<Self>) -> RunningWriter {
        let mut programs = self.0.lock();
        if programs.running == 0 && programs.last_change.is_some() {
            programs.last_change = Some(Instant::now());
        }
        programs.running += 1;
        RunningWriter(Arc::clone(self))
    }

    /// Whether the usage in the statuses may be old, because a program has ended.
    pub(crate) fn is_behind(&self, now: Instant) -> bool {
        let programs = self.0.lock();
        let Some(last_change) = programs.last_change else { return false };
        programs.running == 0 || now.duration_since(last_change) < CATCH_UP
    }
}

/// A running program.
#[derive(Debug)]
pub(crate) struct RunningWriter(Arc<UsageWriterState>);

impl Drop for RunningWriter {
    fn drop(&mut self) {
        let mut programs = self.0.0.lock();
        programs.running -= 1;
        programs.last_change = Some(Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_is_behind_until_a_program_has_caught_up() {
        let state = Arc::<UsageWriterState>::default();
        let is_behind = |after| state.is_behind(Instant::now() + after);
        assert!(!is_behind(Duration::ZERO), "none has started");
        let first = state.start();
        assert!(!is_behind(Duration::ZERO), "none has ended");
        let second = state.start();
        drop(first);
        assert!(is_behind(Duration::ZERO), "the second has to take over");
        assert!(!is_behind(CATCH_UP), "it has taken over");
        drop(second);
        assert!(is_behind(CATCH_UP), "none runs");
        let _third = state.start();
        assert!(is_behind(Duration::ZERO), "it has just started");
        assert!(!is_behind(CATCH_UP), "it has caught up");
    }
}
