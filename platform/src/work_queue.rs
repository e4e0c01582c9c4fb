//! The reconcilers' queue of keys. Each key is reconciled by one worker at a time.
//!
//! A key that is added while it waits stays queued once. A key that is added while it is reconciled
//! is queued again afterwards. So the queue holds each key at most once, and no change is lost.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{
    sync::Notify,
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;

/// Result of reconciling a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// No further run until the key is added again.
    Done,
    /// Run again after this delay, even without a change.
    Requeue(Duration),
    /// Run again after a delay that doubles with each failure, from 5 ms to 30 s.
    Failed,
}

impl Outcome {
    /// This outcome with a run after `after` at the latest.
    #[must_use]
    pub fn at_latest(self, after: Option<Duration>) -> Self {
        match (self, after) {
            (Self::Done, Some(after)) => Self::Requeue(after),
            (Self::Requeue(planned), Some(after)) => Self::Requeue(planned.min(after)),
            (outcome, _) => outcome,
        }
    }
}

/// The interval for each of `count` objects so that all together get `per_second` turns a second,
/// between `least` and `most`.
pub fn fair_interval(
    count: usize,
    per_second: u32,
    (least, most): (Duration, Duration),
) -> Duration {
    let step = Duration::from_secs(1) / per_second;
    step.saturating_mul(u32::try_from(count).unwrap_or(u32::MAX)).clamp(least, most)
}

const FIRST_RETRY: Duration = Duration::from_millis(5);
const LAST_RETRY: Duration = Duration::from_secs(30);

struct State<K> {
    ready: VecDeque<K>,
    // The keys in `ready`.
    queued: BTreeSet<K>,
    running: BTreeSet<K>,
    // Keys that were added while a worker had them.
    dirty: BTreeSet<K>,
    later: BTreeMap<(Instant, u64), K>,
    due: BTreeMap<K, (Instant, u64)>,
    failures: BTreeMap<K, u32>,
    sequence: u64,
}

/// A cheap handle to the queue.
pub struct Queue<K> {
    state: Arc<Mutex<State<K>>>,
    notify: Arc<Notify>,
}

impl<K> Clone for Queue<K> {
    fn clone(&self) -> Self {
        Self { state: self.state.clone(), notify: self.notify.clone() }
    }
}

impl<K> std::fmt::Debug for Queue<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queue").finish_non_exhaustive()
    }
}

impl<K: Ord + Clone> Default for Queue<K> {
    fn default() -> Self {
        let state = State {
            ready: VecDeque::new(),
            queued: BTreeSet::new(),
            running: BTreeSet::new(),
            dirty: BTreeSet::new(),
            later: BTreeMap::new(),
            due: BTreeMap::new(),
            failures: BTreeMap::new(),
            sequence: 0,
        };
        Self { state: Arc::new(Mutex::new(state)), notify: Arc::default() }
    }
}

impl<K: Ord + Clone> Queue<K> {
    /// Queues `key` for the next free worker.
    pub fn add(&self, key: K) {
        let mut state = self.state.lock();
        if state.enqueue(key) {
            drop(state);
            self.notify.notify_one();
        }
    }

    /// Queues `key` to run after `delay`. If it is already scheduled, the earlier time takes
    /// precedence.
    pub fn add_after(&self, key: K, delay: Duration) {
        if delay.is_zero() {
            return self.add(key);
        }
        let mut state = self.state.lock();
        let at = Instant::now() + delay;
        if let Some(planned) = state.due.get(&key).copied() {
            if planned.0 <= at {
                return;
            }
            state.later.remove(&planned);
        }
        state.sequence += 1;
        let slot = (at, state.sequence);
        state.later.insert(slot, key.clone());
        state.due.insert(key, slot);
        drop(state);
        self.notify.notify_one();
    }

    /// Number of keys that are ready now.
    #[must_use]
    pub fn len(&self) -> usize {
        self.state.lock().ready.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Waits for the next key. Return it with [`Queue::done`].
    pub async fn next(&self) -> K {
        loop {
            let notified = self.notify.notified();
            let wake = {
                let mut state = self.state.lock();
                state.promote(Instant::now());
                if let Some(key) = state.ready.pop_front() {
                    state.queued.remove(&key);
                    state.running.insert(key.clone());
                    if !state.ready.is_empty() {
                        self.notify.notify_one();
                    }
                    return key;
                }
                state.later.keys().next().map(|(at, _)| *at)
            };
            match wake {
                Some(at) => tokio::select! { () = notified => (), () = sleep_until(at) => () },
                None => notified.await,
            }
        }
    }

    /// Returns a key after its run.
    pub fn done(&self, key: &K, outcome: Outcome) {
        let mut state = self.state.lock();
        state.running.remove(key);
        let delay = match outcome {
            Outcome::Done => {
                state.failures.remove(key);
                None
            }
            Outcome::Requeue(delay) => {
                state.failures.remove(key);
                Some(delay)
            }
            Outcome::Failed => {
                let failures = state.failures.entry(key.clone()).or_insert(0);
                *failures += 1;
                Some(FIRST_RETRY.saturating_mul(1 << (*failures - 1).min(16)).min(LAST_RETRY))
            }
        };
        if state.dirty.remove(key) {
            state.enqueue(key.clone());
        }
        drop(state);
        self.notify.notify_one();
        if let Some(delay) = delay {
            self.add_after(key.clone(), delay);
        }
    }
}

impl<K: Ord + Clone> State<K> {
    // Returns whether a sleeping worker must be woken.
    fn enqueue(&mut self, key: K) -> bool {
        if self.running.contains(&key) {
            self.dirty.insert(key);
            return false;
        }
        if !self.queued.insert(key.clone()) {
            return false;
        }
        self.ready.push_back(key);
        true
    }

    fn promote(&mut self, now: Instant) {
        while let Some(entry) = self.later.first_entry() {
            if entry.key().0 > now {
                return;
            }
            let key = entry.remove();
            self.due.remove(&key);
            self.enqueue(key);
        }
    }
}

/// Runs `reconcile` for the queue's keys, at most `concurrency` at a time, until `shutdown`. Runs
/// that have begun are finished first.
pub async fn run<K, F, Fut>(
    queue: Queue<K>,
    concurrency: usize,
    shutdown: CancellationToken,
    reconcile: F,
) where
    K: Ord + Clone + Send + 'static,
    F: Fn(K) -> Fut,
    Fut: Future<Output = Outcome> + Send,
{
    let worker = || async {
        loop {
            let key = tokio::select! { biased; () = shutdown.cancelled() => return, key = queue.next() => key };
            let outcome = reconcile(key.clone()).await;
            queue.done(&key, outcome);
        }
    };
    futures::future::join_all((0..concurrency.max(1)).map(|_| worker())).await;
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn key_added_while_running_runs_once_more() {
        let queue = Queue::default();
        queue.add("a");
        queue.add("a");
        queue.add("b");
        assert_eq!(queue.len(), 2);
        assert_eq!(queue.next().await, "a");
        queue.add("a");
        assert_eq!(queue.next().await, "b");
        assert_eq!(queue.len(), 0, "a is being worked on");
        queue.done(&"a", Outcome::Done);
        assert_eq!(queue.next().await, "a");
    }

    #[tokio::test(start_paused = true)]
    async fn earlier_of_two_delays_wins() {
        let queue = Queue::default();
        let start = Instant::now();
        queue.add_after("a", Duration::from_secs(10));
        queue.add_after("a", Duration::from_secs(3));
        queue.add_after("a", Duration::from_secs(7));
        assert_eq!(queue.next().await, "a");
        assert_eq!(start.elapsed().as_secs(), 3);
        queue.done(&"a", Outcome::Done);
        assert!(tokio::time::timeout(Duration::from_secs(60), queue.next()).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn failures_double_the_delay_up_to_the_maximum() {
        let queue = Queue::default();
        queue.add("a");
        let mut waits = Vec::new();
        for _ in 0..16 {
            let start = Instant::now();
            queue.next().await;
            waits.push(start.elapsed().as_millis());
            queue.done(&"a", Outcome::Failed);
        }
        assert_eq!(waits[..5], [0, 5, 10, 20, 40]);
        assert_eq!(waits[15], 30_000);
    }

    #[tokio::test(start_paused = true)]
    async fn workers_are_bounded_and_stop_at_shutdown() {
        let (queue, shutdown) = (Queue::default(), CancellationToken::new());
        for key in 0..20 {
            queue.add(key);
        }
        let (now, most, done) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
        let reconcile = |_key| async {
            most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(10)).await;
            now.fetch_sub(1, Ordering::SeqCst);
            if done.fetch_add(1, Ordering::SeqCst) == 19 {
                shutdown.cancel();
            }
            Outcome::Done
        };
        tokio::time::timeout(Duration::from_secs(5), run(queue, 4, shutdown.clone(), reconcile))
            .await
            .unwrap();
        assert_eq!((most.into_inner(), done.into_inner()), (4, 20));
    }
}
