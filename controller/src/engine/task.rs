//! The task that owns the engine: it applies changes, runs cycles and publishes views.
//!
//! # Guarantees
//!
//! - No change is lost, however fast changes come: the inbox holds keys, and the task reads the
//!   newest object.
//! - Only the leader decides. A follower's engine is kept up to date, so it decides as soon as it
//!   leads.
//! - A reservation that is not written (lost leadership, failed write) is always given back.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use switchyard_platform::store::Key;
use switchyard_scheduler::{ChangedQueues, Cycle, Decision, Event, RefusedReason};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::{
    admission::Admitter,
    capacity::Capacity,
    convert::{self, ObjectKind, time::engine_time},
    handle::{EngineHandle, Question},
    inbox::{Batch, Inbox},
    recording::RecordedEngine,
    views::Views,
};
use crate::context::Context;

/// Bounds of the pause after a cycle that admitted nothing. As in Kueue, it doubles.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LAST_PAUSE: Duration = Duration::from_millis(10);
/// A blocked engine runs a cycle after this long even without an event.
const IDLE: Duration = Duration::from_secs(1);
/// With this many unwritten reservations, no further cycle runs.
const BACKLOG: usize = 256;
/// Minimum interval between publications of views.
const VIEWS_EVERY: Duration = Duration::from_millis(20);
/// Minimum interval between publications of capacity.
const CAPACITY_EVERY: Duration = Duration::from_millis(200);
/// Minimum interval between publications of free domains, which visit all leaves of all topologies.
const DOMAINS_EVERY: Duration = Duration::from_secs(1);
pub(crate) struct EngineTask {
    ctx: Arc<Context>,
    engine: RecordedEngine,
    inbox: Arc<Inbox>,
    questions: mpsc::Receiver<Question>,
    admitter: Arc<Admitter>,
    views: Arc<Views>,
    capacity: watch::Sender<Arc<Capacity>>,
    known: BTreeMap<(ObjectKind, Key), Event>,
    // Topologies reach the engine only after the first lists of nodes and pods.
    awaits_nodes: bool,
    pace: CyclePace,
    publish: PublishState,
}

#[derive(Default)]
struct CyclePace {
    pause: Duration,
    next: Option<Instant>,
    // The last cycle if it admitted nothing. An equal one means that only an event can help.
    last_idle: Option<Cycle>,
    blocked_until: Option<Instant>,
}

#[derive(Default)]
struct PublishState {
    // Whether the engine changed since the views were published.
    unpublished: bool,
    views_at: Option<Instant>,
    capacity_at: Option<Instant>,
    capacity_dirty: bool,
    domains_at: Option<Instant>,
    domains_dirty: bool,
}

impl EngineTask {
    /// The task and its handles. It gets no event before `inbox` is connected to the stores.
    pub(crate) fn new(
        ctx: Arc<Context>,
        engine: RecordedEngine,
        inbox: Arc<Inbox>,
        admitter: Arc<Admitter>,
        views: Arc<Views>,
    ) -> (Self, EngineHandle, watch::Receiver<Arc<Capacity>>) {
        let (handle, questions) = EngineHandle::new(inbox.clone(), views.clone());
        let (capacity, published) = watch::channel(Arc::new(Capacity::default()));
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
                    .for_each(|it| self.inbox.add(ObjectKind::Topology, Key::of(&**it)));
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
                Ok(()) = leadership.changed() => self.pace = CyclePace::default(),
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
                // Capacity shows labels and taints of flavors, which are in no queue's figures.
                self.publish.capacity_dirty |= kind == ObjectKind::ResourceFlavor;
            }
        }
        for key in batch.pods {
            self.engine.apply(convert::pods::event(&self.ctx.stores, &key), now);
        }
        for key in batch.workloads {
            self.engine.apply(convert::workload(&self.ctx, &key), now);
        }
        for (key, (cycle, reason)) in batch.refused {
            let to_tell =
                matches!(reason, RefusedReason::DispatchFailed { .. }).then(|| key.clone());
            self.engine.apply(Event::AdmissionRefused { key, cycle: Some(cycle), reason }, now);
            // No cycle mentions the workload again until it is retried.
            let told = to_tell.and_then(|key| self.engine.pending_decision_of(&key));
            self.admitter.submit(told.into_iter().collect());
        }
        for key in batch.preemption_failed {
            self.engine.apply(Event::PreemptionFailed { key }, now);
        }
        for key in batch.retries {
            self.engine.apply(Event::Retry { key }, now);
        }
        self.pace = CyclePace::default();
        self.publish.changed();
    }

    // The status of a LocalQueue matters only when the queue is new. Later it is the controller's
    // own.
    fn past_usage(&self, kind: ObjectKind, key: &Key) -> Option<Event> {
        let new = kind == ObjectKind::LocalQueue && !self.known.contains_key(&(kind, key.clone()));
        let queue = new.then(|| self.ctx.stores.local_queues.by_key(key)).flatten()?;
        convert::past_usage(&queue)
    }

    // The controller's own status updates return through the watch without a change for the engine.
    fn changed_object(&mut self, kind: ObjectKind, key: &Key) -> Option<Event> {
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
            // Time is an event too: a backoff has ended, or collected triggers are due.
            self.engine.flush_inadmissible(now);
            self.pace = CyclePace::default();
            self.publish.changed();
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
        // A cycle that only preempts has admitted nothing.
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
        self.publish.changed();
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
        if self.publish.domains_dirty
            && self.publish.domains_at.is_none_or(|last| now >= last + DOMAINS_EVERY)
        {
            self.publish.domains_dirty = false;
            self.publish.domains_at = Some(now);
            self.publish.capacity_dirty |= self.views.update_topologies(&self.engine);
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
        if self.publish.domains_dirty {
            wait = wait.min(due(self.publish.domains_at, DOMAINS_EVERY));
        }
        if self.publish.capacity_dirty {
            wait = wait.min(due(self.publish.capacity_at, CAPACITY_EVERY));
        }
        wait
    }
}

impl PublishState {
    fn changed(&mut self) {
        self.unpublished = true;
        self.domains_dirty = true;
    }
}

impl CyclePace {
    /// Schedules the next cycle by the result of this one.
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

    /// Time until the next cycle without an event.
    fn wait(&self, now: Instant) -> Duration {
        let until = [self.next, self.blocked_until].into_iter().flatten().max();
        until.map_or(Duration::ZERO, |at| at.saturating_duration_since(now))
    }
}

#[cfg(test)]
mod tests {
    use switchyard_scheduler::{Name, Reason, WorkloadKey};

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
    fn idle_cycles_slow_down_and_equal_ones_wait_for_an_event() {
        let (mut pace, now) = (CyclePace::default(), Instant::now());
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
