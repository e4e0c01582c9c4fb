//! The one task that owns the engine: what changed comes in, decisions and views go out.
//!
//! # Guarantees
//! - Nothing that changed is missed, however fast it changes: the inbox holds keys, and the task reads the newest object.
//! - Decisions are made by the leader only. A follower's engine is kept in step and decides from the first moment it leads.
//! - A reservation that is not written (lost leadership, failed write) is always given back.

mod claims;
mod inbox;
mod views;

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use inbox::Batch;
pub(crate) use inbox::{Inbox, Kind};
use switchyard_scheduler::{
    ChangedQueues, Cycle, Decision, Engine, Event, Explanation, LocalQueueKey, Name, PendingEntry,
    Reason, RefusedReason, Time, WorkloadKey,
};
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;
pub use views::{ClusterQueueFigures, LocalQueueFigures, Views};

use crate::{
    context::Context,
    engine::{admission::Admitter, capacity::Capacity, convert, recording::Recorded},
    engine_time::engine_time,
    reconcilers::topology,
};
use switchyard_platform::store::Key;

/// Kueue's pause after a cycle that admitted nothing: doubling between these.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LAST_PAUSE: Duration = Duration::from_millis(10);
/// A blocked engine looks again after this long even if nothing tells it to.
const IDLE: Duration = Duration::from_secs(1);
/// Decisions waiting to be written above which no more are made.
const BACKLOG: usize = 256;
/// Views are published at most this often.
const VIEWS_EVERY: Duration = Duration::from_millis(20);
/// Capacity is published at most this often.
const CAPACITY_EVERY: Duration = Duration::from_millis(200);
/// Questions waiting for the engine.
const QUESTIONS: usize = 256;
/// An engine that does not answer within this is stuck.
const ANSWER_DEADLINE: Duration = Duration::from_secs(10);

type Question = Box<dyn FnOnce(&Engine) + Send>;

/// Talks to the engine's task.
#[derive(Clone)]
pub struct EngineHandle {
    inbox: Arc<Inbox>,
    questions: mpsc::Sender<Question>,
    views: Arc<Views>,
}

impl std::fmt::Debug for EngineHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EngineHandle").finish_non_exhaustive()
    }
}

/// A workload in its ClusterQueue's order, as [`EngineHandle::pending`] answers.
#[derive(Debug, Clone, PartialEq)]
pub struct Pending {
    /// Which.
    pub key: WorkloadKey,
    /// Its LocalQueue.
    pub local_queue: String,
    /// Its priority.
    pub priority: i32,
    /// From 0.
    pub position_in_cluster_queue: usize,
    /// From 0.
    pub position_in_local_queue: usize,
}

/// A part of the pending workloads of a ClusterQueue, or of those of one LocalQueue in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// The ClusterQueue.
    pub cluster_queue: String,
    /// Only the workloads of this one.
    pub local_queue: Option<LocalQueueKey>,
    /// So many are left out at the beginning.
    pub offset: usize,
    /// So many at most.
    pub limit: usize,
}

impl Part {
    /// Looks no further than the last workload of the part.
    fn of(&self, engine: &Engine) -> Vec<Pending> {
        let there = self
            .local_queue
            .as_ref()
            .map(|key| engine.local_queue(key).map_or(0, |queue| queue.pending));
        let left =
            there.map_or(self.limit, |there| there.saturating_sub(self.offset).min(self.limit));
        let asked = |entry: &PendingEntry<'_>| {
            self.local_queue.as_ref().is_none_or(|queue| {
                entry.key.namespace == queue.namespace && *entry.local_queue == *queue.name
            })
        };
        let owned = |entry: PendingEntry<'_>| Pending {
            key: entry.key.clone(),
            local_queue: entry.local_queue.into(),
            priority: entry.priority,
            position_in_cluster_queue: entry.position_in_cluster_queue,
            position_in_local_queue: entry.position_in_local_queue,
        };
        engine
            .pending(&self.cluster_queue)
            .filter(asked)
            .skip(self.offset)
            .take(left)
            .map(owned)
            .collect()
    }
}

impl EngineHandle {
    /// A handle to no engine, for tests of those who hold one: what it is told changes nothing, and nobody answers.
    #[must_use]
    pub fn disconnected() -> Self {
        Self { inbox: Arc::default(), questions: mpsc::channel(1).0, views: Arc::default() }
    }

    /// Gives a reservation back. Never blocks, is never lost.
    pub fn refuse(&self, key: WorkloadKey, uid: Name, reason: RefusedReason) {
        self.inbox.refuse(key, uid, reason);
    }

    /// An eviction that was decided has not come about: the engine decides anew. Never blocks.
    pub fn preemption_failed(&self, key: WorkloadKey) {
        self.inbox.preemption_failed(key);
    }

    /// Has a parked workload tried again. Never blocks.
    pub fn retry(&self, key: WorkloadKey) {
        self.inbox.retry(key);
    }

    /// Why a workload has no quota; none if it has, or is not known.
    ///
    /// # Errors
    /// When the engine has ended or does not answer in time.
    pub async fn why(&self, key: WorkloadKey) -> anyhow::Result<Option<Reason>> {
        self.ask(move |engine| engine.why(&key).map(std::borrow::Cow::into_owned)).await
    }

    /// Everything there is to say about why a workload waits at `now`; none if it is not known.
    ///
    /// # Errors
    /// When the engine has ended or does not answer in time.
    pub async fn explain(
        &self,
        key: WorkloadKey,
        now: Time,
    ) -> anyhow::Result<Option<Explanation>> {
        self.ask(move |engine| engine.explain(&key, now)).await
    }

    /// A part of what is pending in a ClusterQueue, in its order, parked workloads included. The engine is held up for as
    /// long as it takes to get to the end of the part.
    ///
    /// # Errors
    /// When the engine has ended or does not answer in time.
    pub async fn pending(&self, part: Part) -> anyhow::Result<Vec<Pending>> {
        self.ask(move |engine| part.of(engine)).await
    }

    /// The published figures of all queues: at most a few tens of milliseconds old.
    #[must_use]
    pub fn views(&self) -> &Arc<Views> {
        &self.views
    }

    async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&Engine) -> T + Send + 'static,
    ) -> anyhow::Result<T> {
        let (answer, answered) = oneshot::channel();
        let question: Question = Box::new(move |engine| {
            // Whoever asked may have gone; then nobody misses the answer.
            let _ = answer.send(question(engine));
        });
        let asked = async {
            self.questions.send(question).await.ok().context("the engine has ended")?;
            answered.await.context("the engine has ended")
        };
        tokio::time::timeout(ANSWER_DEADLINE, asked).await.context("the engine does not answer")?
    }
}

/// The task's state.
pub(crate) struct EngineTask {
    ctx: Arc<Context>,
    engine: Recorded,
    inbox: Arc<Inbox>,
    questions: mpsc::Receiver<Question>,
    admitter: Arc<Admitter>,
    views: Arc<Views>,
    capacity: watch::Sender<Arc<Capacity>>,
    known: BTreeMap<(Kind, Key), Event>,
    // The engine gets Topologies only after the first lists of nodes and pods.
    awaits_nodes: bool,
    pace: Pace,
    publish: Publish,
}

#[derive(Default)]
struct Pace {
    pause: Duration,
    next: Option<Instant>,
    // The last cycle, if it changed nothing: the same again means that only an event can help.
    last_idle: Option<Cycle>,
    blocked_until: Option<Instant>,
}

#[derive(Default)]
struct Publish {
    // The engine moved since the views were published.
    unpublished: bool,
    views_at: Option<Instant>,
    capacity_at: Option<Instant>,
    capacity_dirty: bool,
}

impl EngineTask {
    /// The task and the handles to it. It sees nothing until `inbox` is connected to the stores.
    pub(crate) fn new(
        ctx: Arc<Context>,
        engine: Recorded,
        inbox: Arc<Inbox>,
        admitter: Arc<Admitter>,
        views: Arc<Views>,
    ) -> (Self, EngineHandle, watch::Receiver<Arc<Capacity>>) {
        let (question, questions) = mpsc::channel(QUESTIONS);
        let (capacity, published) = watch::channel(Arc::new(Capacity::default()));
        let handle =
            EngineHandle { inbox: inbox.clone(), questions: question, views: views.clone() };
        let (known, pace, publish) = Default::default();
        let awaits_nodes = ctx.stores.awaits_nodes();
        let task = Self {
            ctx,
            engine,
            inbox,
            questions,
            admitter,
            views,
            capacity,
            known,
            awaits_nodes,
            pace,
            publish,
        };
        (task, handle, published)
    }

    /// Runs until `shutdown`.
    pub(crate) async fn run(mut self, shutdown: CancellationToken) {
        let mut leadership = self.ctx.leadership.clone();
        loop {
            if self.awaits_nodes && !self.ctx.stores.awaits_nodes() {
                self.awaits_nodes = false;
                self.ctx
                    .stores
                    .topologies
                    .all()
                    .iter()
                    .for_each(|it| self.inbox.add(Kind::Topology, Key::of(&**it)));
            }
            let batch = self.inbox.take();
            if !batch.is_empty() {
                self.apply(batch);
            }
            self.cycle_if_due();
            self.publish_if_due();
            let (wait, full) = (self.wait(), self.admitter.backlog() >= BACKLOG);
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                Some(question) = self.questions.recv() => question(&self.engine),
                Ok(()) = leadership.changed() => self.pace = Pace::default(),
                () = self.inbox.changed() => (),
                () = self.ctx.stores.nodes_known(), if self.awaits_nodes => (),
                () = self.admitter.drained(), if full => (),
                () = tokio::time::sleep(wait) => (),
            }
        }
    }

    fn apply(&mut self, batch: Batch) {
        let now = engine_time(self.ctx.clock.now());
        for (kind, key) in batch.objects {
            if let Some(event) = self.past_usage(kind, &key) {
                self.engine.apply(event, now);
            }
            if let Some(event) = self.changed_object(kind, &key) {
                self.engine.apply(event, now);
                // Capacity shows the labels and taints of flavors, which change no queue's figures.
                self.publish.capacity_dirty |= kind == Kind::ResourceFlavor;
            }
        }
        for key in batch.pods {
            self.engine.apply(topology::pods::event(&self.ctx.stores, &key), now);
        }
        for key in batch.workloads {
            self.engine.apply(convert::workload(&self.ctx, &key), now);
        }
        for (key, (uid, reason)) in batch.refused {
            let to_tell =
                matches!(reason, RefusedReason::DispatchFailed { .. }).then(|| key.clone());
            self.engine.apply(Event::AdmissionRefused { key, uid, reason }, now);
            // No cycle will speak of it until it is tried again.
            let told = to_tell.and_then(|key| self.engine.pending_decision_of(&key));
            self.admitter.submit(told.into_iter().collect());
        }
        for key in batch.preemption_failed {
            self.engine.apply(Event::PreemptionFailed { key }, now);
        }
        for key in batch.retries {
            self.engine.apply(Event::Retry { key }, now);
        }
        self.pace = Pace::default();
        self.publish.unpublished = true;
    }

    // What the status of a LocalQueue says of past use is news the first time only: then it is what we wrote.
    fn past_usage(&self, kind: Kind, key: &Key) -> Option<Event> {
        let new = kind == Kind::LocalQueue && !self.known.contains_key(&(kind, key.clone()));
        let queue = new.then(|| self.ctx.stores.local_queues.by_key(key)).flatten()?;
        convert::past_usage(&queue)
    }

    // Status updates of queues come back to us through the watch; they are no news for the engine.
    fn changed_object(&mut self, kind: Kind, key: &Key) -> Option<Event> {
        let event = convert::object(&self.ctx.stores, kind, key);
        let slot = (kind, key.clone());
        if self.known.get(&slot) == Some(&event) {
            return None;
        }
        if convert::is_deletion(&event) {
            self.known.remove(&slot);
        } else {
            self.known.insert(slot, event.clone());
        }
        Some(event)
    }

    fn cycle_if_due(&mut self) {
        let now = engine_time(self.ctx.clock.now());
        if self.engine.next_wakeup(now).is_some_and(|at| at <= now) {
            // Time itself is an event: a back-off has ended, or gathered triggers are due.
            self.engine.flush_inadmissible(now);
            self.pace = Pace::default();
            self.publish.unpublished = true;
        }
        let held =
            self.pace.wait(Instant::now()) > Duration::ZERO || self.admitter.backlog() >= BACKLOG;
        if held || !self.ctx.leading() || !self.engine.has_heads(now) {
            return;
        }
        let started = Instant::now();
        let cycle = {
            let _span = tracing::info_span!("cycle").entered();
            self.engine.cycle(now)
        };
        let took = started.elapsed();
        // Who only makes room for others has admitted nothing.
        let admits =
            cycle.decisions.iter().any(|decision| matches!(decision, Decision::Reserve { .. }));
        self.ctx.metrics.attempt(admits, took);
        for (cluster_queue, count) in &cycle.preemption_skips {
            self.ctx.metrics.preemptions_skipped(cluster_queue, *count);
        }
        if !cycle.decisions.is_empty() {
            tracing::debug!(
                cycle = cycle.number,
                decisions = cycle.decisions.len(),
                ?took,
                "cycle"
            );
        }
        self.admitter.submit(cycle.decisions.clone());
        self.pace.after(cycle, Instant::now());
        self.publish.unpublished = true;
    }

    fn publish_if_due(&mut self) {
        let now = Instant::now();
        if self.publish.unpublished
            && self.publish.views_at.is_none_or(|last| now >= last + VIEWS_EVERY)
        {
            self.publish.unpublished = false;
            let changed = self.engine.changed();
            if changed != ChangedQueues::default() {
                self.views.update(&self.engine, &changed);
                self.publish.views_at = Some(now);
                self.publish.capacity_dirty = true;
            }
        }
        let due = self.publish.capacity_at.is_none_or(|last| now >= last + CAPACITY_EVERY);
        if self.publish.capacity_dirty && due {
            self.publish.capacity_dirty = false;
            self.publish.capacity_at = Some(now);
            let next = self.views.capacity(&self.engine, &self.ctx.stores);
            self.capacity.send_if_modified(|current| next.replaces(current));
        }
    }

    fn wait(&self) -> Duration {
        let now = Instant::now();
        let until = |at: Instant| at.saturating_duration_since(now);
        let mut wait = IDLE;
        if let Some(wakeup) = self.engine.next_wakeup(engine_time(self.ctx.clock.now())) {
            let left = wakeup.0.saturating_sub(engine_time(self.ctx.clock.now()).0).max(0);
            wait = wait.min(Duration::from_nanos(left.unsigned_abs()).max(FIRST_PAUSE));
        }
        if self.admitter.backlog() < BACKLOG
            && self.ctx.leading()
            && self.engine.has_heads(engine_time(self.ctx.clock.now()))
        {
            wait = wait.min(self.pace.wait(now));
        }
        let due =
            |last: Option<Instant>, every| last.map_or(Duration::ZERO, |last| until(last + every));
        if self.publish.unpublished {
            wait = wait.min(due(self.publish.views_at, VIEWS_EVERY));
        }
        if self.publish.capacity_dirty {
            wait = wait.min(due(self.publish.capacity_at, CAPACITY_EVERY));
        }
        wait
    }
}

impl Pace {
    /// What a cycle says about when to run the next one.
    fn after(&mut self, cycle: Cycle, now: Instant) {
        if !cycle.idle {
            *self = Self::default();
            return;
        }
        let same = self.last_idle.as_ref().is_some_and(|last| last.decisions == cycle.decisions);
        self.blocked_until = same.then(|| now + IDLE);
        self.pause = (self.pause * 2).clamp(FIRST_PAUSE, LAST_PAUSE);
        self.next = Some(now + self.pause);
        self.last_idle = Some(cycle);
    }

    /// How long to wait before the next cycle, if nothing happens before.
    fn wait(&self, now: Instant) -> Duration {
        let until = [self.next, self.blocked_until].into_iter().flatten().max();
        until.map_or(Duration::ZERO, |at| at.saturating_duration_since(now))
    }
}

#[cfg(test)]
mod tests {
    use switchyard_scheduler::Decision;

    use super::*;

    fn idle(reason: Option<Reason>) -> Cycle {
        let key = WorkloadKey::new("ns", "a");
        let pending = |reason| Decision::Pending {
            key: key.clone(),
            uid: Name::from("u"),
            reason,
            requests: Vec::new(),
        };
        let decisions = reason.map(pending).into_iter().collect();
        Cycle { number: 1, decisions, idle: true, ..Cycle::default() }
    }

    #[test]
    fn idle_cycles_slow_down_and_a_cycle_that_says_the_same_again_waits_for_an_event() {
        let (mut pace, now) = (Pace::default(), Instant::now());
        assert_eq!(pace.wait(now), Duration::ZERO);
        let mut waits = Vec::new();
        for reason in [
            Some(Reason::Overtaken),
            None,
            Some(Reason::Overtaken),
            None,
            Some(Reason::ChecksFailed),
        ] {
            pace.after(idle(reason), now);
            waits.push(pace.wait(now).as_millis());
        }
        assert_eq!(waits, [1, 2, 4, 8, 10]);
        pace.after(idle(Some(Reason::ChecksFailed)), now);
        assert_eq!(pace.wait(now), IDLE, "a blocked StrictFIFO head must not spin");
        pace.after(Cycle { idle: false, ..idle(None) }, now);
        assert_eq!(pace.wait(now), Duration::ZERO);
    }
}
