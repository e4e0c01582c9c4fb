//! One term of leadership: a dispatcher, and what its wishes become.
//!
//! Here is what comes in from the stores and the engine; [`session_events`] has what clusters say, [`perform`] what is done.

mod perform;
mod session_events;
#[cfg(test)]
mod tests;
mod trouble;
mod user_requests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kube::ResourceExt as _;
use switchyard_api::v1beta2::{Admission, Workload};
use switchyard_controller::engine::EngineHandle;
use switchyard_controller::{Context, Reservation};
use switchyard_jobs::elastic;
use switchyard_platform::log_limit::LogLimit;
use switchyard_platform::store::Key;
use switchyard_scheduler::RefusedReason;
use tokio::time::Instant;

use self::user_requests::Auditor;
use super::inbox::Batch;
use super::spec_propagation::is_slice_of;
use super::status_mirror_queue::Slots;
use super::topology::Topology;
use super::troubles::TroubleQueue;
use super::{Answer, Clock, Hands, Parts};
use super::{payload, replicas};
use crate::cluster_channel::Ports;
use crate::cluster_reports::Reports;
use crate::dispatch::{Dispatcher, Event, Facts, Memory, Name, Reserved, Sessions, Uid, Written};

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
    /// Where each workload of the API lies: what clusters say costs no search.
    living: BTreeMap<Uid, Key>,
    /// Where each workload that we act upon lies.
    places: BTreeMap<Uid, Key>,
    /// Quota in memory.
    reservations: BTreeMap<Uid, Arc<Reservation>>,
    /// The session that counts, by cluster.
    live: Sessions,
    told: Memory,
    /// Clusters may have what the hub has forgotten: workloads are to be known again by their jobs.
    forgetful: bool,
    slots: Slots,
    troubles: TroubleQueue,
    /// Since when nothing is heard of a cluster.
    quiet: BTreeMap<Name, Instant>,
    /// When the workloads of a quiet cluster are reviewed.
    reviews: BTreeSet<(Instant, Name)>,
    /// Of what clusters say, by cluster.
    log: BTreeMap<Name, LogLimit>,
    auditor: Auditor,
}

impl TermState {
    /// Begins a term: everything is read anew, then sessions may begin.
    pub(super) fn begin(parts: &Parts, hands: Hands, epoch: u64, clock: Clock) -> Self {
        parts.inbox.set_open(true);
        parts.inbox.take();
        parts.ports.clear();
        let forgetful = parts.settings.store_loss.is_some();
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
            living: BTreeMap::new(),
            places: BTreeMap::new(),
            reservations: BTreeMap::new(),
            live: Sessions::default(),
            told: Memory::new(forgetful),
            forgetful,
            slots: Slots::default(),
            troubles: TroubleQueue::default(),
            quiet: BTreeMap::new(),
            reviews: BTreeSet::new(),
            log: BTreeMap::new(),
            auditor: Auditor::new(parts.ctx.client.clone()),
        };
        state.reports.set_breaker(None);
        state.update_topology();
        // What agents told this process in an earlier term may not be in their clusters' status.
        for name in parts.registry.all_unable() {
            state.apply(Event::ClusterUnable { name: name.as_str().into() });
        }
        let workloads = state.ctx.stores.workloads.all();
        // What is said of a workload is said in the name of the one that has its copy.
        for workload in &workloads {
            state.introduce(workload);
        }
        for workload in &workloads {
            state.workload(workload);
        }
        let clusters: BTreeSet<&str> = workloads
            .iter()
            .filter_map(|workload| workload.status.as_ref()?.cluster_name.as_deref())
            .collect();
        clusters.into_iter().for_each(|cluster| state.fell_quiet(&cluster.into()));
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
        for cluster in self.live.clusters() {
            self.reports.left(cluster, false);
        }
        self.reports.forget_all();
        self.hands.metrics.sessions.set(0);
        self.hands.metrics.troubles.clear();
        tracing::info!(epoch = self.epoch, "no longer dispatching");
    }

    /// When something is due.
    pub(super) fn next_wakeup(&self) -> Option<Instant> {
        let dispatcher = self.dispatcher.next_wakeup().map(|at| self.clock.instant(at));
        [dispatcher, self.slots.next_due(), self.next_trouble()].into_iter().flatten().min()
    }

    pub(super) fn tick(&mut self) {
        self.apply(Event::Tick);
        self.start_slots();
    }

    /// The stores or the engine have news.
    pub(super) fn changed(&mut self, mut batch: Batch) {
        if batch.topology {
            self.update_topology();
        }
        for uid in batch.gone {
            let uid = Uid::from(uid.as_str());
            self.reservations.remove(&uid);
            self.living.remove(&uid);
            self.auditor.gone(&uid);
            self.troubles.forget(&uid);
            self.hands.metrics.troubles.set(&uid, None);
            self.apply(Event::WorkloadGone { uid: uid.clone() });
            if !self.dispatcher.knows(&uid) {
                self.places.remove(&uid);
            }
        }
        if !batch.queues.is_empty() {
            self.queues_changed(&batch.queues);
        }
        for (namespace, job) in &batch.resized {
            let workloads = self.ctx.stores.workloads.in_namespace(namespace);
            let slices = workloads.iter().filter(|workload| is_slice_of(workload, job));
            batch.workloads.extend(slices.map(|workload| Key::of(&**workload)));
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

    /// These queues say something else of the loss of clusters, or of which clusters their jobs go to: that counts for all that
    /// they have sent, and for what waits for a cluster.
    fn queues_changed(&mut self, queues: &BTreeSet<String>) {
        let stores = &self.ctx.stores;
        let theirs = |workload: &Workload| {
            let sent = workload.status.as_ref().is_some_and(|status| status.cluster_name.is_some());
            let known =
                || workload.metadata.uid.as_deref().is_some_and(|uid| self.dispatcher.knows(uid));
            let queue = || super::facts::queue_of(stores, workload);
            (sent || known())
                && queue().is_some_and(|it| {
                    queues.contains(it.metadata.name.as_deref().unwrap_or_default())
                })
        };
        for workload in stores.workloads.filter(theirs) {
            self.workload(&workload);
        }
    }

    fn update_topology(&mut self) {
        let stores = &self.ctx.stores;
        let (checks, clusters) = (stores.admission_checks.all(), stores.multi_kueue_clusters.all());
        let config = |name: &str| stores.multi_kueue_configs.get("", name);
        let now = Topology::of(
            checks.iter().map(AsRef::as_ref),
            &config,
            clusters.iter().map(AsRef::as_ref),
        );
        let events = now.events(&self.topology);
        let is_open = self.dispatcher.breaker().is_some();
        for (name, before, rules) in now.changed_rules(&self.topology) {
            self.auditor.cluster(name, user_requests::of_cluster(before, rules, is_open));
        }
        self.topology = now;
        for event in events {
            let gone = match &event {
                Event::ClusterGone { name } => Some(name.clone()),
                _ => None,
            };
            self.apply(event);
            gone.iter().for_each(|name| self.fell_quiet(name));
        }
    }

    fn workload(&mut self, workload: &Workload) {
        self.one(workload);
        self.followers(workload);
    }

    /// Where the first replica of an object stands is where the later ones go.
    fn followers(&mut self, workload: &Workload) {
        for follower in replicas::followers_of(&self.ctx.stores, workload) {
            self.one(&follower);
        }
    }

    fn one(&mut self, workload: &Workload) {
        let uid = Uid::from(workload.metadata.uid.as_deref().unwrap_or_default());
        self.introduce(workload);
        if state::is_replaced(workload)
            && self.dispatcher.knows(&uid)
            && !self.dispatcher.is_succeeded(&uid)
        {
            self.introduce_successors(workload);
        }
        if !self.living.contains_key(&uid) {
            self.living.insert(uid.clone(), Key::of(workload));
        }
        let status = workload.status.as_ref();
        let sent = status.is_some_and(|status| status.cluster_name.is_some());
        let concerns = sent || state::has_reservation(workload);
        if !concerns && !self.dispatcher.knows(&uid) {
            return;
        }
        let facts = self.facts(workload);
        // Without a MultiKueue check it is run here, not sent; unless one that was sent has to be brought back.
        let sent = facts.cluster.is_some() || (facts.attempt > 0 && facts.leaving());
        if facts.check.is_none() && !sent && !self.dispatcher.knows(&uid) {
            return;
        }
        self.place(&facts);
        self.confirm(&facts);
        self.auditor.workload(&facts);
        self.apply(Event::Workload(facts));
        self.count_trouble(workload, &uid);
        self.review_trouble(&uid);
        if is_group_workload(workload) {
            self.show_members(workload, &uid);
        }
        let is_followed = || elastic::is_slice(workload) || payload::has_followed_fields(workload);
        if is_group_workload(workload) || is_followed() {
            self.follow_job(workload, &uid);
        }
    }

    /// Says by which uid clusters know a workload, if that is not its own.
    fn introduce(&mut self, workload: &Workload) {
        let Some((theirs, uid)) =
            super::facts::known_as(workload).zip(workload.metadata.uid.as_deref())
        else {
            return;
        };
        let replaced = super::facts::replaced(&self.ctx, workload);
        let replaced = replaced.and_then(|it| it.metadata.uid.as_deref().map(Uid::from));
        self.dispatcher.introduce(
            &Uid::from(uid),
            Some(&theirs),
            replaced.as_ref(),
            state::is_finished(workload),
        );
    }

    /// News come in any order: nobody may take the end of a workload for that of its job, which goes on as another one.
    fn introduce_successors(&mut self, workload: &Workload) {
        let namespace = workload.metadata.namespace.as_deref().unwrap_or_default();
        for other in self.ctx.stores.workloads.in_namespace(namespace) {
            if elastic::replaces(&other, workload) {
                self.introduce(&other);
            }
        }
    }

    fn reserved(&mut self, reservation: Reservation) {
        let uid = Uid::from(reservation.workload.metadata.uid.as_deref().unwrap_or_default());
        let reserved = Reserved {
            check: reservation.check.as_str().into(),
            other_checks: reservation.other_checks,
        };
        let reservation = Arc::new(reservation);
        self.reservations.insert(uid, reservation.clone());
        let facts = self.facts(&reservation.workload);
        self.place(&facts);
        self.apply(Event::Reserved { facts, reserved });
        self.followers(&reservation.workload);
    }

    pub(super) fn answered(&mut self, answer: Answer) {
        match answer {
            Answer::Written(written) => self.written(written),
            Answer::Shown { uid, unshown, written } => {
                let unshown = unshown.filter(|_| !self.dispatcher.is_succeeded(&uid));
                self.slots.done(&uid, unshown, Instant::now());
                if let Some(written) = written {
                    self.written(written);
                }
            }
            Answer::Troubled { uid, wrote } => self.wrote_trouble(&uid, wrote),
        }
        self.start_slots();
    }

    fn written(&mut self, written: Written) {
        if let Some(facts) = &written.facts {
            self.confirm(facts);
            self.told.rename(facts);
            if let (Some(before), Some(_)) = (&facts.replaces, &facts.known_as) {
                self.slots.hand_over(before);
            }
        }
        self.apply(Event::Written(written));
    }

    fn facts(&self, workload: &Workload) -> Facts {
        let facts = super::facts::facts(&self.ctx, workload, self.held(workload));
        let waits = facts.cluster.is_none() && facts.known_as.is_none() && !facts.finished;
        let subject = if self.forgetful && waits { super::facts::subject(workload) } else { None };
        let looks = (self.forgetful || facts.replaces.is_some()) && !facts.finished;
        let job_ended = looks.then(|| super::mirror::shows_end(&self.ctx, workload));
        let has_quota = |uid: &str| self.reservations.contains_key(uid);
        let replica = replicas::replica(&self.ctx.stores, workload, &facts.pod_sets, has_quota);
        Facts { subject, replica, job_ended, ..facts }
    }

    /// The quota of a workload, where that is in memory.
    fn held(&self, workload: &Workload) -> Option<&Admission> {
        let uid = Uid::from(workload.metadata.uid.as_deref()?);
        self.reservations.get(&uid).map(|reservation| &reservation.admission)
    }

    /// Once the API shows the reservation, it is in memory no longer.
    fn confirm(&mut self, facts: &Facts) {
        let since = |reservation: &Reservation| {
            reservation.workload.resource_version()?.parse::<u64>().ok()
        };
        if self.reservations.get(&facts.uid).is_some_and(|held| facts.settles(since(held))) {
            self.reservations.remove(&facts.uid);
        }
    }

    /// Whether a line of what a cluster says may be logged; if so, how many were left out.
    fn may_log(&mut self, cluster: &Name) -> Option<u64> {
        self.log.entry(cluster.clone()).or_default().admit(Instant::now())
    }

    fn place(&mut self, facts: &Facts) {
        self.places.insert(
            facts.uid.clone(),
            Key { namespace: facts.namespace.clone(), name: facts.name.clone() },
        );
    }
}
