//! Whether anything is asked over a connection: places are few, and silence must not hold one.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::{Instant, sleep_until};

/// How long the first request may take to come, after the handshake.
pub(super) const FIRST: Duration = Duration::from_secs(5);
/// How long a connection may be idle after a request. API servers give theirs up after 90 s, and open them anew unasked.
pub(super) const IDLE: Duration = Duration::from_secs(120);

/// What is asked over one connection.
#[derive(Debug)]
pub(super) struct Activity(Mutex<State>);

#[derive(Debug)]
struct State {
    /// Requests that are being answered.
    open: usize,
    /// Something was asked.
    asked: bool,
    /// When the connection is given up if nothing is asked before.
    until: Instant,
}

/// One request, until its answer is made.
#[derive(Debug)]
pub(super) struct Busy(Arc<Activity>);

impl Activity {
    pub(super) fn new(now: Instant) -> Arc<Self> {
        Arc::new(Self(Mutex::new(State { open: 0, asked: false, until: now + FIRST })))
    }

    /// A request has come.
    pub(super) fn begin(self: &Arc<Self>) -> Busy {
        let mut state = self.lock();
        (state.open, state.asked) = (state.open + 1, true);
        drop(state);
        Busy(self.clone())
    }

    /// The handshake is done.
    pub(super) fn begins(&self, now: Instant) {
        self.lock().until = now + FIRST;
    }

    /// How much the connection is used, to compare: whether something is being answered, whether anything was asked, and when
    /// last.
    pub(super) fn use_of(&self) -> (bool, bool, Instant) {
        let state = self.lock();
        (state.open > 0, state.asked, state.until)
    }

    /// Returns when nothing has been asked for too long.
    pub(super) async fn over(&self) {
        loop {
            let now = Instant::now();
            let until = {
                let state = self.lock();
                if state.open > 0 { now + IDLE } else { state.until }
            };
            if until <= now {
                return;
            }
            sleep_until(until).await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.open = state.open.saturating_sub(1);
        state.until = Instant::now() + IDLE;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_connection_is_over_when_it_has_been_silent_and_not_while_it_is_busy() {
        let start = Instant::now();
        let activity = Activity::new(start);
        activity.over().await;
        assert_eq!(start.elapsed(), FIRST, "nothing was ever asked");

        let activity = Activity::new(Instant::now());
        let busy = activity.begin();
        let long = 3 * IDLE;
        assert!(
            tokio::time::timeout(long, activity.over()).await.is_err(),
            "a request is being answered"
        );
        drop(busy);
        let answered = Instant::now();
        activity.over().await;
        assert_eq!(answered.elapsed(), IDLE);
    }
}
