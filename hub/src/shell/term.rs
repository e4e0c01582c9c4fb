//! One term of leadership: a dispatcher, and what its wishes become.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kube::ResourceExt as _;
use serde_json::Value;
use switchyard_api::v1beta2::Workload;
use switchyard_controller::engine_task::EngineHandle;
use switchyard_controller::store::Key;
use switchyard_controller::{Context, Reservation};
use switchyard_proto::v1::{self as proto, Phase, State};
use switchyard_scheduler::{RefusedReason, WorkloadKey};
use tokio::time::Instant;

use super::inbox::Batch;
use super::mirror::{self, Show};
use super::slots::{Slots, Work};
use super::topology::Topology;
use super::writes::{What, Write, finish_reason};
use super::{Answer, Clock, Hands, Parts, Reports, desire};
use crate::cluster::Ports;
use crate::dispatch::{
    Action, Dispatcher, Event, Facts, Name, Observation, Outcome, Reason, Reserved, Uid, Written, capacity, terminal,
};
use crate::server::SessionEvent;

/// Orphans that a cluster's status shows: its schema's limit.
const ORPHANS: usize = 64;

/// What a cluster last told of a workload.
#[derive(Debug, Clone, Default)]
struct Told {
    attempt: u64,
    job_status: Option<Arc<Value>>,
    reason: Option<Reason>,
}

/// The state of one term.
pub(super) struct TermState {
    pub(super) epoch: u64,
    ctx: Arc<Context>,
    engine: EngineHandle,
    ports: Arc<Ports>,
    reports: Arc<Reports>,
    hands: Hands,
    clock: Clock,
    dispatcher: Dispatcher,
    topology: Topology,
    /// Where each workload that we act upon lies.
    places: BTreeMap<Uid, Key>,
    /// Quota in memory.
    reservations: BTreeMap<Uid, Arc<Reservation>>,
    /// The session that counts, by cluster.
    live: BTreeMap<String, u64>,
    told: BTreeMap<(Name, Uid), Told>,
    slots: Slots,
}

impl TermState {
    /// Begins a term: everything is read anew, then sessions may begin.
    pub(super) fn begin(parts: &Parts, hands: Hands, epoch: u64, clock: Clock) -> Self {
        parts.inbox.set_open(true);
        parts.inbox.take();
        parts.ports.clear();
        let mut state = Self {
            epoch,
            ctx: parts.ctx.clone(),
            engine: parts.engine.clone(),
            ports: parts.ports.clone(),
            reports: parts.reports.clone(),
            hands,
            clock,
            dispatcher: Dispatcher::new(parts.settings.clone(), clock.now()),
            topology: Topology::default(),
            places: BTreeMap::new(),
            reservations: BTreeMap::new(),
            live: BTreeMap::new(),
            told: BTreeMap::new(),
            slots: Slots::default(),
        };
        state.reports.set_breaker(None);
        state.update_topology();
        let workloads = state.ctx.stores.workloads.all();
        for workload in &workloads {
            state.workload(workload);
        }
        tracing::info!(epoch, workloads = workloads.len(), "dispatching");
        parts.term.send_replace(Some(epoch));
        state
    }

    /// Ends it: sessions are cut, and quota that is in memory only goes back.
    pub(super) fn end(self, parts: &Parts) {
        parts.term.send_replace(None);
        parts.registry.cut_all("the hub's term has ended");
        let waiting = parts.inbox.take().reservations;
        parts.inbox.set_open(false);
        for reservation in self.reservations.values().map(AsRef::as_ref).chain(&waiting) {
            let message = "leadership was lost before a cluster had it".to_owned();
            self.refuse(&reservation.workload, RefusedReason::WriteFailed { message });
        }
        for cluster in self.live.keys() {
            self.reports.set(cluster, None);
        }
        self.hands.metrics.sessions.set(0);
        tracing::info!(epoch = self.epoch, "no longer dispatching");
    }

    /// When something is due.
    pub(super) fn next_wakeup(&self) -> Option<Instant> {
        let dispatcher = self.dispatcher.next_wakeup().map(|at| self.clock.instant(at));
        match (dispatcher, self.slots.next_due()) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    pub(super) fn tick(&mut self) {
        self.apply(Event::Tick);
        self.start_slots();
    }

    // === what comes in

    /// The stores or the engine have news.
    pub(super) fn changed(&mut self, batch: Batch) {
        if batch.topology {
            self.update_topology();
        }
        for uid in batch.gone {
            let uid = Uid::from(uid.as_str());
            self.reservations.remove(&uid);
            self.apply(Event::WorkloadGone { uid: uid.clone() });
            if !self.dispatcher.knows(&uid) {
                self.places.remove(&uid);
            }
        }
        if !batch.queues.is_empty() {
            self.queues_changed(&batch.queues);
        }
        for key in batch.workloads {
            if let Some(workload) = self.ctx.stores.workloads.by_key(&key) {
                self.workload(&workload);
            }
        }
        for reservation in batch.reservations {
            self.reserved(reservation);
        }
        for (key, uid) in batch.withdrawn {
            let uid = Uid::from(uid.as_str());
            self.places.entry(uid.clone()).or_insert(key);
            self.apply(Event::Withdraw { uid });
        }
        self.start_slots();
    }

    /// What is said of the loss of a cluster has changed for all that these queues have sent.
    fn queues_changed(&mut self, queues: &BTreeSet<String>) {
        let theirs = |workload: &Workload| {
            let sent = workload.status.as_ref().is_some_and(|status| status.cluster_name.is_some());
            sent && switchyard_controller::workload::admitted_by(workload).is_some_and(|name| queues.contains(name))
        };
        for workload in self.ctx.stores.workloads.filter(theirs) {
            self.workload(&workload);
        }
    }

    fn update_topology(&mut self) {
        let stores = &self.ctx.stores;
        let (checks, clusters) = (stores.admission_checks.all(), stores.multi_kueue_clusters.all());
        let config = |name: &str| stores.multi_kueue_configs.get("", name);
        let now = Topology::of(checks.iter().map(AsRef::as_ref), &config, clusters.iter().map(AsRef::as_ref));
        let events = now.events(&self.topology);
        self.topology = now;
        for event in events {
            self.apply(event);
        }
    }

    fn workload(&mut self, workload: &Workload) {
        let uid = Uid::from(workload.metadata.uid.as_deref().unwrap_or_default());
        let status = workload.status.as_ref();
        let sent = status.is_some_and(|status| status.cluster_name.is_some());
        let concerns = sent || switchyard_controller::workload::has_reservation(workload);
        if !concerns && !self.dispatcher.knows(&uid) {
            return;
        }
        let facts = super::facts::facts(&self.ctx, workload);
        // Without a MultiKueue check it is run here, not sent; unless one that was sent has to be brought back.
        let sent = facts.cluster.is_some() || (facts.attempt > 0 && facts.leaving());
        if facts.check.is_none() && !sent && !self.dispatcher.knows(&uid) {
            return;
        }
        self.place(&facts);
        self.confirm(&facts);
        self.apply(Event::Workload(facts));
    }

    fn reserved(&mut self, reservation: Reservation) {
        let facts = super::facts::facts(&self.ctx, &reservation.workload);
        self.place(&facts);
        let reserved = Reserved { check: reservation.check.as_str().into(), other_checks: reservation.other_checks };
        self.reservations.insert(facts.uid.clone(), Arc::new(reservation));
        self.apply(Event::Reserved { facts, reserved });
    }

    /// A session has something to say; only the newest of each cluster counts.
    pub(super) fn session(&mut self, event: SessionEvent) {
        let cluster = event.cluster().to_owned();
        self.take_in(event);
        self.reports.set_orphans(&cluster, self.dispatcher.orphans_of(&cluster, ORPHANS));
        self.hands.metrics.sessions.set(i64::try_from(self.live.len()).unwrap_or(i64::MAX));
        self.start_slots();
    }

    fn take_in(&mut self, event: SessionEvent) {
        match event {
            SessionEvent::Up(info) => {
                let newest = self.live.get(&info.cluster).is_none_or(|id| *id < info.live.session_id);
                if !newest {
                    return;
                }
                if self.live.insert(info.cluster.clone(), info.live.session_id).is_some() {
                    self.apply(Event::ClusterDown { name: info.cluster.as_str().into() });
                }
                self.reports.bell.notify_one();
                self.apply(Event::ClusterUp { name: info.cluster.as_str().into() });
            }
            SessionEvent::Down { cluster, session_id, .. } => {
                if self.live.get(&cluster) == Some(&session_id) {
                    self.live.remove(&cluster);
                    self.reports.set(&cluster, None);
                    self.apply(Event::ClusterDown { name: cluster.as_str().into() });
                }
            }
            SessionEvent::Observed { cluster, session_id, observations, inventory, weight: _weight } => {
                if self.live.get(&cluster) != Some(&session_id) {
                    return;
                }
                let name = Name::from(cluster.as_str());
                for observation in &observations {
                    self.observed(&name, observation);
                }
                if let Some(uids) = inventory {
                    self.apply(Event::Inventory { cluster: name, uids });
                }
            }
            SessionEvent::Capacity { cluster, session_id, capacity, weight: _weight } => {
                if self.live.get(&cluster) == Some(&session_id) {
                    let queues = capacity::from_wire(capacity.clone());
                    self.reports.set(&cluster, Some(capacity));
                    self.apply(Event::Capacity { cluster: cluster.as_str().into(), queues });
                }
            }
        }
    }

    fn observed(&mut self, cluster: &Name, observation: &proto::Observation) {
        let uid = Uid::from(observation.workload_uid.as_str());
        if !self.dispatcher.knows(&uid) {
            self.learn(observation);
        }
        let reasons: Vec<Reason> =
            observation.reasons.iter().map(|reason| Reason::new(reason.code.clone(), reason.message.clone())).collect();
        let news = self.dispatcher.knows(&uid) && self.remember(cluster, &uid, observation, &reasons);
        let observation = Observation {
            uid,
            namespace: observation.namespace.as_str().into(),
            name: observation.name.as_str().into(),
            attempt: observation.attempt,
            state: observation.state(),
            reasons,
            job_status: news,
        };
        self.apply(Event::Observed { cluster: cluster.clone(), observation });
    }

    /// Keeps what may have to be written. Returns whether the job's status is news.
    fn remember(&mut self, cluster: &Name, uid: &Uid, observation: &proto::Observation, reasons: &[Reason]) -> bool {
        let key = (cluster.clone(), uid.clone());
        if observation.state() == State::Gone {
            self.told.remove(&key);
            return false;
        }
        let told = self.told.entry(key).or_default();
        if told.attempt != observation.attempt {
            *told = Told { attempt: observation.attempt, ..Told::default() };
        }
        if terminal(observation.state()) {
            told.reason = reasons.first().cloned();
        }
        let status = parse_status(&observation.job_status);
        let news = status.is_some();
        if let Some(status) = status {
            told.job_status = Some(Arc::new(status));
        }
        news
    }

    /// A cluster speaks of a workload that the dispatcher has nothing to do with: is it one of ours?
    fn learn(&mut self, observation: &proto::Observation) {
        let stores = &self.ctx.stores.workloads;
        let is_it = |workload: &Workload| workload.metadata.uid.as_deref() == Some(&observation.workload_uid);
        let found = match observation.name.as_str() {
            "" => stores.filter(is_it).into_iter().next(),
            name => stores.get(&observation.namespace, name).filter(|workload| is_it(workload)),
        };
        if let Some(workload) = found {
            let facts = super::facts::facts(&self.ctx, &workload);
            self.place(&facts);
            self.dispatcher.learn(facts);
        }
    }

    pub(super) fn answered(&mut self, answer: Answer) {
        match answer {
            Answer::Written(written) => self.written(written),
            Answer::Shown { uid, unshown, written } => {
                self.slots.done(&uid, unshown, Instant::now());
                if let Some(written) = written {
                    self.written(written);
                }
            }
        }
        self.start_slots();
    }

    fn written(&mut self, written: Written) {
        if let Some(facts) = &written.facts {
            self.confirm(facts);
        }
        self.apply(Event::Written(written));
    }

    /// Once the API shows the reservation, it is in memory no longer.
    fn confirm(&mut self, facts: &Facts) {
        let shown = facts.reserved || facts.finished || facts.cluster.is_some();
        let since = |reservation: &Reservation| reservation.workload.resource_version()?.parse::<u64>().ok();
        let held = self.reservations.get(&facts.uid);
        // A late answer may speak of an earlier reservation, that was given up since.
        if shown && held.is_some_and(|held| since(held).is_none_or(|version| version <= facts.version)) {
            self.reservations.remove(&facts.uid);
        }
    }

    fn place(&mut self, facts: &Facts) {
        self.places.insert(facts.uid.clone(), Key { namespace: facts.namespace.clone(), name: facts.name.clone() });
    }

    // === what goes out

    fn apply(&mut self, event: Event) {
        let actions = self.dispatcher.apply(event, self.clock.now());
        let mut refusals = Vec::new();
        for action in actions {
            self.act(action, &mut refusals);
        }
        // What could not even be sent is as good as refused by the cluster.
        for (cluster, observation) in refusals {
            self.apply(Event::Observed { cluster, observation });
        }
    }

    fn act(&mut self, action: Action, refusals: &mut Vec<(Name, Observation)>) {
        match action {
            Action::Desire { cluster, uid, namespace, name, attempt, phase } => {
                if let Err(why) = self.desire(&cluster, &uid, (&namespace, &name), attempt, phase) {
                    tracing::warn!(workload = %name, %namespace, %cluster, why, "cannot be sent");
                    let reasons = vec![Reason::new("CannotSend", why)];
                    let state = State::Refused;
                    let observation = Observation { uid, namespace, name, attempt, state, reasons, job_status: false };
                    refusals.push((cluster, observation));
                }
            }
            Action::Forget { cluster, uid, attempt } => {
                self.ports.of(&cluster).forget(&uid, attempt);
                self.told.remove(&(cluster, uid));
            }
            Action::Ack { cluster, uid, attempt } => self.ports.of(&cluster).persisted(&uid, attempt),
            Action::Commit { uid, cluster, attempt } => self.write(&uid, What::Commit { cluster, attempt }),
            Action::Record { uid, message, nominated } => self.write(&uid, What::Record { message, nominated }),
            Action::Retry { uid, message, after_seconds, left } => {
                self.write(&uid, What::Retry { message, after_seconds, left });
            }
            Action::GiveBack { uid, message, retry_at } => {
                if let Some(reservation) = self.reservations.remove(&uid) {
                    let retry_at = switchyard_scheduler::Time(retry_at.saturating_mul(1_000_000));
                    let reason = RefusedReason::GivenBack { message, retry_at: Some(retry_at) };
                    self.refuse(&reservation.workload, reason);
                }
            }
            Action::Wake { uid } => {
                if let Some(key) = self.places.get(&uid) {
                    self.engine.retry(WorkloadKey { namespace: key.namespace.clone(), name: key.name.clone() });
                }
            }
            Action::Recorded { uid } => {
                if let Some(key) = self.places.get(&uid) {
                    self.engine.unpreempted(WorkloadKey { namespace: key.namespace.clone(), name: key.name.clone() });
                }
            }
            Action::Release { uid } => {
                if let Some(write) = self.prepare(&uid, What::Release) {
                    self.slots.release(write, Instant::now());
                }
            }
            Action::Mirror { uid, cluster, attempt } => {
                if let Some(status) = self.status_of(&cluster, &uid, attempt) {
                    self.slots.status(&uid, status, Instant::now());
                }
            }
            Action::Breaker { open } => {
                match &open {
                    Some(why) => tracing::error!(why, "circuit breaker open: nothing is given up until it is released"),
                    None => tracing::info!("circuit breaker closed"),
                }
                self.reports.set_breaker(self.dispatcher.breaker());
            }
            Action::Finish { uid, cluster, attempt, success } => self.finish(&uid, cluster, attempt, success),
            Action::Orphan { cluster, uid, attempt } => {
                tracing::warn!(
                    %cluster, workload_uid = %uid, attempt,
                    "a workload with this hub's id is on a cluster, and the hub does not know it"
                );
            }
        }
    }

    fn desire(
        &self,
        cluster: &Name,
        uid: &Uid,
        (namespace, name): (&Name, &Name),
        attempt: u64,
        phase: Phase,
    ) -> Result<(), String> {
        let port = self.ports.of(cluster);
        let fence = self.dispatcher.fence(uid, cluster);
        if phase == Phase::Absent {
            let tombstone = desire::assignment(uid, namespace, name, attempt, phase, None, None);
            port.set(tombstone, None);
            return Ok(());
        }
        let workload = self.ctx.stores.workloads.get(namespace, name);
        let workload = workload.filter(|workload| workload.metadata.uid.as_deref() == Some(uid));
        let workload = workload.ok_or("the workload is gone")?;
        let content = desire::content_for(&self.ctx, &port, &workload).map_err(|error| error.to_string())?;
        let assignment = desire::assignment(uid, namespace, name, attempt, phase, Some(&workload), fence);
        if phase == Phase::Reserve {
            let held = self.reservations.get(uid).map(|reservation| reservation.admission.cluster_queue.as_str());
            let queue = held.or(switchyard_controller::workload::admitted_by(&workload)).unwrap_or_default();
            self.hands.metrics.dispatched(queue, cluster);
        }
        port.set(assignment, Some(content));
        Ok(())
    }

    fn write(&self, uid: &Uid, what: What) {
        let Some(write) = self.prepare(uid, what) else { return };
        let (hands, epoch) = (self.hands.clone(), self.epoch);
        tokio::spawn(async move {
            let Ok(_place) = hands.writers.acquire().await else { return };
            let written = write.perform(&hands.ctx, &hands.metrics).await;
            // Nobody listens any more at shutdown only.
            let _ = hands.answers.send((epoch, Answer::Written(written))).await;
        });
    }

    fn prepare(&self, uid: &Uid, what: What) -> Option<Write> {
        let key = self.places.get(uid)?.clone();
        Some(Write { key, uid: uid.clone(), reservation: self.reservations.get(uid).cloned(), what })
    }

    fn finish(&mut self, uid: &Uid, cluster: Name, attempt: u64, success: bool) {
        let told = self.told.get(&(cluster.clone(), uid.clone())).filter(|told| told.attempt == attempt);
        let reason = told.and_then(|told| told.reason.clone());
        let code = finish_reason(success, reason.as_ref().map(|reason| reason.code.as_str()));
        let message = reason.map_or_else(|| "Job finished".to_owned(), |reason| reason.message);
        let status = told.and_then(|told| told.job_status.clone());
        let what = What::Finish { cluster, attempt, reason: code.to_owned(), message };
        if let Some(write) = self.prepare(uid, what) {
            self.slots.finish(write, status, Instant::now());
        }
    }

    fn status_of(&self, cluster: &Name, uid: &Uid, attempt: u64) -> Option<Arc<Value>> {
        let told = self.told.get(&(cluster.clone(), uid.clone()))?;
        (told.attempt == attempt).then(|| told.job_status.clone()).flatten()
    }

    fn start_slots(&mut self) {
        for work in self.slots.take(Instant::now()) {
            let (hands, epoch) = (self.hands.clone(), self.epoch);
            let key = self.places.get(&work.uid).cloned();
            tokio::spawn(async move {
                let Ok(_place) = hands.writers.acquire().await else { return };
                let answer = show(&hands, key, work).await;
                let _ = hands.answers.send((epoch, answer)).await;
            });
        }
    }

    fn refuse(&self, workload: &Workload, reason: RefusedReason) {
        let text = |text: &Option<String>| Name::from(text.as_deref().unwrap_or_default());
        let key = WorkloadKey { namespace: text(&workload.metadata.namespace), name: text(&workload.metadata.name) };
        self.engine.refuse(key, text(&workload.metadata.uid), reason);
    }
}

/// Shows a status, then writes the end. An end is never written before its status is shown.
async fn show(hands: &Hands, key: Option<Key>, work: Work) -> Answer {
    let ctx = &hands.ctx;
    let Work { uid, show, finish } = work;
    let workload = key.as_ref().and_then(|key| ctx.stores.workloads.by_key(key));
    let workload = workload.filter(|workload| workload.metadata.uid.as_deref() == Some(&*uid));
    if let (Some(what), Some(workload)) = (&show, &workload)
        && let Err(error) = mirror::show(ctx, workload, what).await
    {
        tracing::warn!(workload = ?key, error = format!("{error:#}"), "job status not written");
        // The dispatcher asks for the end again; what is shown on the way is shown later.
        let written = finish.map(|write| Written { uid: write.uid, outcome: Outcome::Failed, facts: None });
        let unshown = if written.is_some() { None } else { show };
        return Answer::Shown { uid, unshown, written };
    }
    let written = match finish {
        Some(write) => Some(write.perform(ctx, &hands.metrics).await),
        None => None,
    };
    Answer::Shown { uid, unshown: None::<Show>, written }
}

/// A job's status as the agent sent it. What cannot be read is not shown.
fn parse_status(bytes: &[u8]) -> Option<Value> {
    if bytes.is_empty() {
        return None;
    }
    match serde_json::from_slice::<Value>(bytes) {
        Ok(status) if status.is_object() => Some(status),
        Ok(_) | Err(_) => {
            tracing::warn!("an agent sent a job status that is no JSON object, ignored");
            None
        }
    }
}
