//! Idle timeouts of connections.

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};

/// Time for the first request after the handshake.
pub(super) const FIRST: Duration = Duration::from_secs(5);
/// Idle time after a request. API servers close after 90 s and reconnect when needed.
pub(super) const IDLE: Duration = Duration::from_secs(120);

/// The requests of one connection.
#[derive(Debug)]
pub(super) struct Activity {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Requests in progress.
    open: usize,
    /// Whether any request has come.
    asked: bool,
    /// When the connection is closed without another request.
    until: Instant,
}

/// Marks a request as in progress until it is dropped.
#[derive(Debug)]
pub(super) struct RequestGuard(Arc<Activity>);

impl Activity {
    pub(super) fn new(now: Instant) -> Arc<Self> {
        let state = State { open: 0, asked: false, until: now + FIRST };
        Arc::new(Self { state: Mutex::new(state) })
    }

    /// A request began.
    pub(super) fn start_request(self: &Arc<Self>) -> RequestGuard {
        let mut state = self.state.lock();
        (state.open, state.asked) = (state.open + 1, true);
        drop(state);
        RequestGuard(self.clone())
    }

    /// The handshake is complete.
    pub(super) fn handshake_done(&self, now: Instant) {
        self.state.lock().until = now + FIRST;
    }

    /// How busy the connection is, for comparison: whether a request is in progress, whether any
    /// has come, and the idle deadline.
    pub(super) fn usage(&self) -> (bool, bool, Instant) {
        let state = self.state.lock();
        (state.open > 0, state.asked, state.until)
    }

    /// Returns when the connection has been idle for too long.
    pub(super) async fn idle(&self) {
        loop {
            let now = Instant::now();
            let until = {
                let state = self.state.lock();
                if state.open > 0 { now + IDLE } else { state.until }
            };
            if until <= now {
                return;
            }
            sleep_until(until).await;
        }
    }
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.open = state.open.saturating_sub(1);
        state.until = Instant::now() + IDLE;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn idle_connection_ends_and_busy_one_does_not() {
        let start = Instant::now();
        let activity = Activity::new(start);
        activity.idle().await;
        assert_eq!(start.elapsed(), FIRST, "nothing was ever asked");

        let activity = Activity::new(Instant::now());
        let busy = activity.start_request();
        let long = 3 * IDLE;
        assert!(
            tokio::time::timeout(long, activity.idle()).await.is_err(),
            "a request is being answered"
        );
        drop(busy);
        let answered = Instant::now();
        activity.idle().await;
        assert_eq!(answered.elapsed(), IDLE);
    }
}
