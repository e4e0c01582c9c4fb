//! The state of one leader term: a dispatcher, and the tasks that perform its decisions.
//!
//! This file has the events of stores and engine, [`session_events`] those of clusters, [`perform`]
//! the dispatcher's decisions.

mod perform;
mod request_audit;
mod session_events;
#[cfg(test)]
mod tests;
mod trouble;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kube::ResourceExt as _;
use switchyard_api::v1beta2::{Admission, Workload};
use switchyard_controller::engine::EngineHandle;
use switchyard_controller::workload::{self as state, is_group_workload};
use switchyard_controller::{Context, Reservation};
use switchyard_dispatcher::{
    DispatchEvent, Dispatcher, LiveSessions, MemoryReservation, Name, ObservationCache,
    RequestedAssignment, Uid, WorkloadFacts, WriteResult,
};
use switchyard_jobs::elastic;
use switchyard_platform::log_limit::LogLimit;
use switchyard_platform::store::Key;
use switchyard_scheduler::RefusedReason;
use tokio::time::Instant;

use self::request_audit::RequestAuditor;
use super::cluster_set::ClusterSet;
use super::gather::{self, TermMemory};
use super::inbox::Changes;
use super::job_changes::is_slice_of;
use super::status_mirror_queue::MirrorQueue;
use super::troubles::TroubleQueue;
use super::{TaskInputs, TaskResult, TermClock, WriteContext};
use super::{payload, replicas, workload_view};
use crate::cluster_channel::ClusterChannels;
use crate::cluster_reports::ClusterReports;

pub(super) struct LeaderTerm {
    pub(super) epoch: u64,
    ctx: Arc<Context>,
    engine: EngineHandle,
    channels: Arc<ClusterChannels>,
    reports: Arc<ClusterReports>,
    writer: WriteContext,
    clock: TermClock,
    dispatcher: Dispatcher,
    cluster_set: ClusterSet,
    /// The key of each Workload in the API, by uid.
    all_keys: BTreeMap<Uid, Key>,
    /// The key of each workload that the dispatcher knows.
    active_keys: BTreeMap<Uid, Key>,
    /// Reservations that the API does not show yet.
    reservations: BTreeMap<Uid, Arc<Reservation>>,
    /// The current session of each cluster.
    live: LiveSessions,
    observations: ObservationCache,
    /// The hub lost its store, so clusters may run workloads that it must recognize by their jobs.
    has_store_loss: bool,
    /// Assignments of committed attempts that wait until their jobs are read, by the uid that
    /// clusters use.
    unsent: BTreeMap<Uid, RequestedAssignment>,
    mirror_queue: MirrorQueue,
    troubles: TroubleQueue,
    /// Since when each silent or removed cluster has sent nothing.
    silent_since: BTreeMap<Name, Instant>,
    /// When to review the workloads of these clusters.
    reviews: BTreeSet<(Instant, Name)>,
    /// Limits the log lines about what each cluster reports.
    log: BTreeMap<Name, LogLimit>,
    auditor: RequestAuditor,
}

impl LeaderTerm {
    /// Starts a term: reads everything from the stores, then lets sessions start.
    pub(super) fn begin(
        parts: &TaskInputs,
        writer: WriteContext,
        epoch: u64,
        clock: TermClock,
    ) -> Self {
        parts.inbox.open();
        parts.channels.clear();
        let has_store_loss = parts.settings.store_loss.is_some();
        let mut state = Self {
            epoch,
            ctx: parts.ctx.clone(),
            engine: parts.engine.clone(),
            channels: parts.channels.clone(),
            reports: parts.reports.clone(),
            writer,
            clock,
            dispatcher: Dispatcher::new(parts.settings.clone(), clock.now()),
            cluster_set: ClusterSet::default(),
            all_keys: BTreeMap::new(),
            active_keys: BTreeMap::new(),
            reservations: BTreeMap::new(),
            live: LiveSessions::default(),
            observations: ObservationCache::new(has_store_loss),
            has_store_loss,
            unsent: BTreeMap::new(),
            mirror_queue: MirrorQueue::default(),
            troubles: TroubleQueue::default(),
            silent_since: BTreeMap::new(),
            reviews: BTreeSet::new(),
            log: BTreeMap::new(),
            auditor: RequestAuditor::new(parts.ctx.client.clone()),
        };
        state.reports.set_breaker(None);
        state.update_cluster_set();
        // An agent's report to this process may not be in its MultiKueueCluster's status yet.
        for name in parts.registry.all_unable() {
            state.apply(DispatchEvent::AgentWasNotReady { name: name.as_str().into() });
        }
        let workloads = state.ctx.stores.workloads.all();
        // Register adopted uids first, so that observations reach the workload that adopted the
        // copy.
        for workload in &workloads {
            state.register_uid_alias(workload);
        }
        for workload in &workloads {
            state.workload_changed(workload);
        }
        tracing::info!(epoch, workloads = workloads.len(), "dispatching");
        parts.term.send_replace(Some(epoch));
        state
    }

    /// Ends the term: closes sessions, and returns reservations held in memory to the engine.
    pub(super) fn end(self, parts: &TaskInputs) {
        parts.term.send_replace(None);
        parts.registry.close_all("the hub's term has ended");
        let waiting = parts.inbox.close();
        for reservation in self.reservations.values().map(AsRef::as_ref).chain(&waiting) {
            let message = "leadership was lost before a cluster had it".to_owned();
            self.refuse(reservation, RefusedReason::WriteFailed { message });
        }
        for cluster in self.live.clusters() {
            self.reports.left(cluster, false);
        }
        self.reports.forget_all();
        self.writer.metrics.sessions.set(0);
        self.writer.metrics.troubles.clear();
        tracing::info!(epoch = self.epoch, "no longer dispatching");
    }

    /// When the next dispatcher deadline, status write or trouble write is due.
    pub(super) fn next_wakeup(&self) -> Option<Instant> {
        let dispatcher = self.dispatcher.next_wakeup().map(|at| self.clock.instant(at));
        [dispatcher, self.mirror_queue.next_due(), self.next_trouble()].into_iter().flatten().min()
    }

    pub(super) fn tick(&mut self) {
        self.apply(DispatchEvent::Tick);
        self.start_due_writes();
    }

    /// The stores or the engine have changes.
    pub(super) fn changed(&mut self, mut batch: Changes) {
        if batch.cluster_set && self.update_cluster_set() {
            self.checks_changed();
        }
        for uid in batch.gone {
            let uid = Uid::from(uid.as_str());
            self.reservations.remove(&uid);
            self.all_keys.remove(&uid);
            if !self.dispatcher.has_successor(&uid) {
                self.unsent.remove(&self.dispatcher.cluster_uid(&uid));
            }
            self.auditor.gone(&uid);
            self.troubles.forget(&uid);
            self.writer.metrics.troubles.set(&uid, None);
            self.apply(DispatchEvent::WorkloadDeleted { uid: uid.clone() });
            if !self.dispatcher.knows(&uid) {
                self.active_keys.remove(&uid);
            }
        }
        if !batch.queues.is_empty() {
            self.queues_changed(&batch.queues);
        }
        for (namespace, jobs) in &batch.elastic_jobs {
            let workloads = self.ctx.stores.workloads.in_namespace(namespace);
            let slices = workloads.iter().filter(|workload| is_slice_of(workload, jobs));
            batch.workloads.extend(slices.map(|workload| Key::of(&**workload)));
        }
        for key in batch.workloads {
            if let Some(workload) = self.ctx.stores.workloads.by_key(&key) {
                self.workload_changed(&workload);
            }
        }
        for reservation in batch.reservations {
            self.reserved(reservation);
        }
        for (key, uid) in batch.withdrawn {
            let uid = Uid::from(uid.as_str());
            self.active_keys.entry(uid.clone()).or_insert(key);
            self.apply(DispatchEvent::ReservationWithdrawn { uid });
        }
        self.start_due_writes();
    }

    /// The `onDisconnect`, `onStuck` or cluster affinity of these ClusterQueues changed: update the
    /// workloads that they have sent, and those that wait for a cluster.
    fn queues_changed(&mut self, queues: &BTreeSet<String>) {
        let stores = &self.ctx.stores;
        let theirs = |workload: &Workload| {
            let uid = workload.metadata.uid.as_deref();
            let known = || uid.is_some_and(|uid| self.dispatcher.needs_changes(uid));
            let queue = || gather::queue_of(stores, workload);
            (is_on_cluster(workload) || known())
                && queue().is_some_and(|it| {
                    queues.contains(it.metadata.name.as_deref().unwrap_or_default())
                })
        };
        for workload in stores.workloads.filter(theirs) {
            self.workload_changed(&workload);
        }
    }

    /// The set of MultiKueue checks changed: reads the workloads again that hold quota and may wait
    /// for one. Their quota may be older than the check.
    fn checks_changed(&mut self) {
        let waits = |workload: &Workload| {
            state::has_reservation(workload)
                && !is_on_cluster(workload)
                && !state::is_finished(workload)
        };
        for workload in self.ctx.stores.workloads.filter(waits) {
            self.workload_changed(&workload);
        }
    }

    /// Returns whether the set of MultiKueue checks changed.
    fn update_cluster_set(&mut self) -> bool {
        let stores = &self.ctx.stores;
        let (checks, clusters) = (stores.admission_checks.all(), stores.multi_kueue_clusters.all());
        let config = |name: &str| stores.multi_kueue_configs.get("", name);
        let now = ClusterSet::of(
            checks.iter().map(AsRef::as_ref),
            &config,
            clusters.iter().map(AsRef::as_ref),
        );
        let events = now.events(&self.cluster_set);
        let has_other_checks = !now.checks().eq(self.cluster_set.checks());
        let is_open = self.dispatcher.breaker().is_some();
        let mut changed = Vec::new();
        for (name, before, now) in now.changed_configs(&self.cluster_set) {
            self.auditor.cluster(name, request_audit::cluster_requests(before, now, is_open));
            changed.push(Name::from(name));
        }
        self.cluster_set = now;
        for event in events {
            let gone = match &event {
                DispatchEvent::ClusterDeleted { name } => Some(name.clone()),
                _ => None,
            };
            self.apply(event);
            gone.iter().for_each(|name| self.mark_silent(name));
        }
        // The condition says what the policy of a silent cluster means for its jobs.
        for name in changed {
            if self.silent_since.contains_key(&name) {
                self.review_cluster(&name);
            }
        }
        has_other_checks
    }

    fn workload_changed(&mut self, workload: &Workload) {
        self.update_workload(workload);
        self.update_later_replicas(workload);
    }

    /// Later replicas of an object go where the first one is.
    fn update_later_replicas(&mut self, workload: &Workload) {
        for follower in replicas::later_replicas(&self.ctx.stores, workload) {
            self.update_workload(&follower);
        }
    }

    fn update_workload(&mut self, workload: &Workload) {
        let uid = Uid::from(workload.metadata.uid.as_deref().unwrap_or_default());
        self.register_uid_alias(workload);
        if state::is_replaced(workload)
            && self.dispatcher.knows(&uid)
            && !self.dispatcher.has_successor(&uid)
        {
            self.register_replacements(workload);
        }
        if !self.all_keys.contains_key(&uid) {
            self.all_keys.insert(uid.clone(), Key::of(workload));
        }
        let concerns = is_on_cluster(workload) || state::has_reservation(workload);
        if !concerns && !self.dispatcher.needs_changes(&uid) {
            return;
        }
        let facts = self.facts(workload);
        // Without a MultiKueue check the job runs here, unless it was sent before and has to be
        // withdrawn.
        let sent = facts.state.cluster.is_some() || (facts.state.attempt > 0 && facts.is_leaving());
        if facts.state.check.is_none() && !sent && !self.dispatcher.needs_changes(&uid) {
            return;
        }
        self.remember_key(&facts);
        self.forget_shown_reservation(&facts);
        self.auditor.workload(&facts);
        // An ended job is not sent again: its cluster may have removed it.
        let has_ended = facts.job_ended == Some(true);
        self.apply(DispatchEvent::WorkloadChanged(facts));
        if !has_ended {
            self.send_unsent(workload, &uid);
        }
        self.count_trouble(workload, &uid);
        self.note_silence(&uid);
        self.review_trouble(&uid);
        if is_group_workload(workload) {
            self.show_group_members(workload, &uid);
        }
        let is_followed = || elastic::is_slice(workload) || payload::has_followed_fields(workload);
        if is_group_workload(workload) || is_followed() {
            self.propagate_spec(workload, &uid);
        }
    }

    /// Registers the uid by which clusters know a workload, if not its own.
    fn register_uid_alias(&mut self, workload: &Workload) {
        let Some((theirs, uid)) =
            workload_view::cluster_uid(workload).zip(workload.metadata.uid.as_deref())
        else {
            return;
        };
        let replaced = gather::replaced(&self.ctx, workload);
        let replaced = replaced.and_then(|it| it.metadata.uid.as_deref().map(Uid::from));
        self.dispatcher.register_uid_alias(
            &Uid::from(uid),
            Some(&Uid::from(theirs)),
            replaced.as_ref(),
            state::is_finished(workload),
        );
    }

    /// Registers the Workloads that replace this one before the dispatcher sees it finished. The
    /// end of a slice must not count as the end of its elastic job.
    fn register_replacements(&mut self, workload: &Workload) {
        let namespace = workload.metadata.namespace.as_deref().unwrap_or_default();
        for other in self.ctx.stores.workloads.in_namespace(namespace) {
            if elastic::replaces(&other, workload) {
                self.register_uid_alias(&other);
            }
        }
    }

    /// The engine has reserved quota for a workload that dispatches.
    fn reserved(&mut self, reservation: Reservation) {
        let uid = Uid::from(reservation.workload.metadata.uid.as_deref().unwrap_or_default());
        let reserved = MemoryReservation {
            check: reservation.check.as_str().into(),
            needs_other_checks: reservation.other_checks,
        };
        let reservation = Arc::new(reservation);
        self.reservations.insert(uid, reservation.clone());
        let facts = self.facts(&reservation.workload);
        self.remember_key(&facts);
        self.apply(DispatchEvent::QuotaReserved { facts, reserved });
        self.update_later_replicas(&reservation.workload);
    }

    pub(super) fn task_ended(&mut self, result: TaskResult) {
        match result {
            TaskResult::Written(written) => self.written(written),
            TaskResult::StatusShown { uid, unshown, written } => {
                let unshown = unshown.filter(|_| !self.dispatcher.has_successor(&uid));
                self.mirror_queue.done(&uid, unshown, Instant::now());
                if let Some(written) = written {
                    self.written(written);
                }
            }
            TaskResult::TroubleWritten { uid, wrote } => self.wrote_trouble(&uid, wrote),
        }
        self.start_due_writes();
    }

    fn written(&mut self, written: WriteResult) {
        if let Some(facts) = &written.facts {
            self.forget_shown_reservation(facts);
            self.observations.move_to_adopter(facts);
            if let (Some(before), Some(_)) = (&facts.replaces, &facts.state.cluster_uid) {
                self.mirror_queue.drop_unfinished(before);
            }
        }
        self.apply(DispatchEvent::WriteEnded(written));
    }

    fn facts(&self, workload: &Workload) -> WorkloadFacts {
        let memory = TermMemory {
            has_store_loss: self.has_store_loss,
            has_quota: &|uid: &str| self.reservations.contains_key(uid),
        };
        gather::facts(&self.ctx, workload, self.held(workload), Some(&memory))
    }

    /// The workload's quota, if reserved in memory only.
    fn held(&self, workload: &Workload) -> Option<&Admission> {
        let uid = Uid::from(workload.metadata.uid.as_deref()?);
        self.reservations.get(&uid).map(|reservation| &reservation.admission)
    }

    /// Forgets a reservation that the API shows.
    fn forget_shown_reservation(&mut self, facts: &WorkloadFacts) {
        let since = |reservation: &Reservation| {
            reservation.workload.resource_version()?.parse::<u64>().ok()
        };
        if self
            .reservations
            .get(&facts.uid)
            .is_some_and(|held| facts.settles_reservation(since(held)))
        {
            self.reservations.remove(&facts.uid);
        }
    }

    /// Whether a log line about this cluster may be written. Returns the number of lines suppressed
    /// before.
    fn may_log(&mut self, cluster: &Name) -> Option<u64> {
        self.log.entry(cluster.clone()).or_default().admit(Instant::now())
    }

    fn remember_key(&mut self, facts: &WorkloadFacts) {
        self.active_keys.insert(
            facts.uid.clone(),
            Key { namespace: facts.namespace.clone(), name: facts.name.clone() },
        );
    }
}

/// Whether the API names a cluster that has the workload.
fn is_on_cluster(workload: &Workload) -> bool {
    workload.status.as_ref().is_some_and(|status| status.cluster_name.is_some())
}
