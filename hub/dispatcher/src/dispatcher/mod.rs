//! The state machine: applies an event, then reconciles each workload that it concerns.
//!
//! An event handler changes what is known and marks workloads as dirty. [`Dispatcher::apply`] then
//! decides for each dirty workload, those with the highest priority first, and returns the actions.

mod acknowledgements;
mod adoption;
mod affinity;
mod breaker;
mod cluster_answers;
mod cluster_events;
mod cluster_index;
mod cluster_state;
mod fences;
mod give_up;
mod kueue_dispatchers;
mod later_attempts;
mod nominate;
mod observed;
mod orphans;
mod parked;
mod pins;
mod preemption_gates;
mod reconcile;
mod refusals;
mod renamed_clusters;
mod replicas;
mod scan_budget;
mod stuck;
mod tracked_workload;
mod uid_aliases;
mod workload_events;
mod workload_slices;
mod write_pace;

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    DispatchAction, DispatchEvent, DispatcherSettings, JobKey, Name, Phase, PinRules, Uid,
    UnixMillis, take_from,
};
use breaker::Breaker;
use cluster_index::ClusterIndex;
use cluster_state::ClusterState;
use orphans::Orphans;
use parked::ParkedWorkload;
use tracked_workload::TrackedWorkload;
use uid_aliases::UidAliases;
use workload_slices::Replacements;

pub use breaker::BreakerTrip;
pub use give_up::{Contact, LostContact};
pub use orphans::{MAX_WORKLOADS, OrphanView};
pub use reconcile::TIMED_OUT;
pub use stuck::{Stuck, StuckOutlook};

/// Longest pause between two tries of a failing write, in milliseconds.
pub(super) const MAX_WRITE_BACKOFF: i64 = 30_000;
/// How many times the decisions after one event may cause others at once.
const MAX_ROUNDS: usize = 4;
/// Milliseconds until further rounds, if no event comes before: at first, and at most. The pause
/// doubles, since slices that replace each other in a circle cause decisions without end.
const NEXT_ROUNDS: (i64, i64) = (100, 30_000);

/// Summary of a cluster for its status and metrics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterSummary {
    /// Workloads can be offered to it.
    pub usable: bool,
    /// Workloads that it has or shall have.
    pub workloads: usize,
    /// Copies that the hub does not know.
    pub orphans: usize,
}

/// All state of the dispatcher. One task owns it.
#[derive(Debug)]
pub struct Dispatcher {
    pub(crate) settings: DispatcherSettings,
    pub(crate) started: UnixMillis,
    pub(crate) clusters: BTreeMap<Name, ClusterState>,
    pub(crate) checks: BTreeMap<Name, Vec<Name>>,
    /// Whether and how each check's clusters must use the hub's flavors.
    pub(crate) pin_rules: BTreeMap<Name, PinRules>,
    pub(crate) entries: BTreeMap<Uid, TrackedWorkload>,
    pub(crate) index: ClusterIndex,
    pub(crate) orphans: Orphans,
    pub(crate) uid_aliases: UidAliases,
    pub(crate) replacements: Replacements,
    /// Workloads learned since orphans were last matched with them.
    pub(crate) new_workloads: BTreeSet<Uid>,
    pub(crate) breaker: Breaker,
    /// Workloads that look for a cluster: highest priority first, then longest waiting.
    pub(crate) nominating: BTreeSet<(i64, UnixMillis, Uid)>,
    /// Workloads whose decision waits for the inventories of silent clusters.
    pub(crate) waiting_for_inventories: BTreeSet<Uid>,
    /// After a store loss: the workloads that look for a cluster, by job.
    pub(crate) waiting_by_job: BTreeMap<JobKey, BTreeSet<Uid>>,
    /// Workloads whose reservation was returned because no cluster could take them. Requeued when
    /// one can.
    pub(crate) parked: BTreeMap<Uid, ParkedWorkload>,
    timers: BTreeSet<(UnixMillis, Uid)>,
    /// Postponed scans of waiting workloads, by cluster.
    pub(crate) due_scans: BTreeSet<(UnixMillis, Name)>,
    pub(crate) dirty: BTreeSet<Uid>,
    /// When the last event was applied.
    applied: UnixMillis,
    /// Milliseconds until further rounds about what is `dirty`. Zero if nothing is.
    rest_pause: i64,
    /// The next free turn of `write_pace`.
    next_turn: UnixMillis,
    decided: u64,
    /// Number of events so far, including the current one.
    pub(crate) events: u64,
}

impl Dispatcher {
    pub fn new(settings: DispatcherSettings, now: UnixMillis) -> Self {
        Self {
            orphans: Orphans::new(settings.clone()),
            settings,
            started: now,
            clusters: BTreeMap::new(),
            checks: BTreeMap::new(),
            pin_rules: BTreeMap::new(),
            entries: BTreeMap::new(),
            index: ClusterIndex::default(),
            uid_aliases: UidAliases::default(),
            replacements: Replacements::default(),
            new_workloads: BTreeSet::new(),
            breaker: Breaker::default(),
            nominating: BTreeSet::new(),
            waiting_for_inventories: BTreeSet::new(),
            waiting_by_job: BTreeMap::new(),
            parked: BTreeMap::new(),
            timers: BTreeSet::new(),
            due_scans: BTreeSet::new(),
            dirty: BTreeSet::new(),
            applied: now,
            rest_pause: 0,
            next_turn: now,
            decided: 0,
            events: 0,
        }
    }

    /// Applies an event and decides what follows.
    pub fn apply(&mut self, event: DispatchEvent, now: UnixMillis) -> Vec<DispatchAction> {
        let mut out = Vec::new();
        self.events += 1;
        self.applied = now;
        // Match orphans first, so that the event reaches the workload that adopted the copy.
        self.claim_orphans(now, &mut out);
        match event {
            DispatchEvent::CheckConfigured { name, clusters } => {
                self.configure_check(name, clusters, now, &mut out)
            }
            DispatchEvent::PinsConfigured { check, rules } => {
                self.configure_pins(&check, rules, now, &mut out)
            }
            DispatchEvent::ClusterConfigured { name, config } => {
                self.configure_cluster(&name, config, now, &mut out)
            }
            DispatchEvent::ClusterDeleted { name } => self.delete_cluster(&name, now, &mut out),
            DispatchEvent::ClusterIdentified { name, uid } => {
                self.identify_cluster(&name, uid, now)
            }
            DispatchEvent::SessionOpened { name } => self.open_session(&name, now, &mut out),
            DispatchEvent::SessionClosed { name } => self.close_session(&name, now, &mut out),
            DispatchEvent::AgentReadiness { name, ready } => {
                self.set_agent_ready(&name, ready, now, &mut out)
            }
            DispatchEvent::AgentWasNotReady { name } => self.restore_not_ready(&name, now),
            DispatchEvent::InventoryComplete { cluster, uids } => {
                self.complete_inventory(&cluster, &uids, now, &mut out)
            }
            DispatchEvent::CapacityReported { cluster, report } => {
                self.update_capacity(&cluster, report, now, &mut out)
            }
            DispatchEvent::QuotaReserved { facts, reserved } => {
                self.register_facts(&facts);
                let uid = facts.uid.clone();
                self.parked.remove(&uid);
                let entry = self
                    .entries
                    .entry(uid.clone())
                    .or_insert_with(|| TrackedWorkload::new(facts.clone()));
                let charged = facts.charged.clone();
                entry.take(facts);
                if !entry.facts.state.reserved
                    && entry.facts.state.cluster.is_none()
                    && !entry.facts.state.finished
                {
                    // The Workload may have changed since the engine charged it.
                    entry.facts.charged = charged;
                    entry.reservation = Some(reserved);
                    entry.last_recorded = None;
                }
                self.dirty.insert(uid);
            }
            DispatchEvent::ReservationWithdrawn { uid } => match self.entries.get_mut(&uid) {
                Some(entry) => {
                    entry.is_withdrawn = true;
                    self.dirty.insert(uid);
                }
                None => out.push(DispatchAction::ReservationPersisted { uid }),
            },
            DispatchEvent::WorkloadChanged(facts) => self.update_workload(facts, &mut out),
            DispatchEvent::WorkloadDeleted { uid } => {
                self.parked.remove(&uid);
                match self.entries.get_mut(&uid) {
                    Some(entry) => {
                        entry.is_deleted = true;
                        self.dirty.insert(uid);
                    }
                    None => self.uid_aliases.forget(&uid),
                }
            }
            DispatchEvent::Observed { cluster, observation } => {
                self.observed(&cluster, observation, now, &mut out)
            }
            DispatchEvent::WriteEnded(written) => self.end_write(written, now, &mut out),
            DispatchEvent::Tick => {}
        }
        self.claim_orphans(now, &mut out);
        self.run_due_scans(now, &mut out);
        self.fire_timers(now);
        self.reconcile_all(now, &mut out);
        self.remove_due_orphans(now, &mut out);
        out
    }

    /// When [`DispatchEvent::Tick`] is due at the latest.
    pub fn next_wakeup(&self) -> Option<UnixMillis> {
        let orphan = self.orphans.due();
        let timer = self.timers.first().map(|(at, _)| *at);
        let look = self.due_scans.first().map(|(at, _)| *at);
        let rest = (!self.dirty.is_empty()).then(|| self.applied.saturating_add(self.rest_pause));
        [timer, look, orphan, rest].into_iter().flatten().min()
    }

    /// How many times a workload was reconciled: the cost of the events so far.
    pub fn decided(&self) -> u64 {
        self.decided
    }

    pub fn knows(&self, uid: &str) -> bool {
        self.entries.contains_key(uid)
    }

    /// Whether a change of the workload may cause an action: the dispatcher tracks or parked it.
    pub fn needs_changes(&self, uid: &str) -> bool {
        self.knows(uid) || self.parked.contains_key(uid)
    }

    /// The cluster and attempt in the API. None if another workload took over the copy.
    pub fn committed(&self, uid: &str) -> Option<(Name, u64)> {
        let facts = &self
            .entries
            .get(uid)
            .filter(|_| !self.uid_aliases.has_successor(&Uid::from(uid)))?
            .facts;
        facts.state.cluster.clone().map(|cluster| (cluster, facts.state.attempt))
    }

    pub fn cluster_view(&self, name: &str) -> ClusterSummary {
        ClusterSummary {
            usable: self.clusters.get(name).is_some_and(ClusterState::is_usable),
            workloads: self
                .entries
                .values()
                .filter(|entry| entry.remotes.contains_key(name))
                .count(),
            orphans: self.orphans.count(name),
        }
    }

    pub(super) fn mark_nominating(&mut self) {
        self.dirty.extend(self.nominating.iter().map(|(_, _, uid)| uid.clone()));
    }

    pub(super) fn mark_waiting_for_inventories(&mut self) {
        self.dirty.extend(self.waiting_for_inventories.iter().cloned());
    }

    pub(super) fn mark_on_and_nominating(&mut self, cluster: &Name) {
        self.mark_on(cluster);
        self.mark_nominating();
    }

    fn fire_timers(&mut self, now: UnixMillis) {
        while let Some((at, uid)) = self.timers.first().cloned() {
            if at > now {
                break;
            }
            self.timers.remove(&(at, uid.clone()));
            if let Some(entry) = self.entries.get_mut(&uid) {
                entry.reconcile_at = None;
            }
            self.dirty.insert(uid);
        }
    }

    /// Reconciles in order of priority and age: the first workload takes the capacity that the next
    /// one wants.
    fn reconcile_all(&mut self, now: UnixMillis, out: &mut Vec<DispatchAction>) {
        // A decision about a workload slice may concern the other slices of its job.
        for _ in 0..MAX_ROUNDS {
            if self.dirty.is_empty() {
                break;
            }
            self.reconcile_dirty(now, out);
        }
        let (first, longest) = NEXT_ROUNDS;
        let is_done = self.dirty.is_empty();
        self.rest_pause = if is_done { 0 } else { (self.rest_pause * 2).clamp(first, longest) };
    }

    fn reconcile_dirty(&mut self, now: UnixMillis, out: &mut Vec<DispatchAction>) {
        let dirty = std::mem::take(&mut self.dirty);
        let mut order: Vec<(i64, UnixMillis, Uid)> = dirty
            .into_iter()
            .filter_map(|uid| {
                let entry = self.entries.get(&uid)?;
                let since = entry.nomination.as_ref().map_or(now, |nomination| nomination.since);
                Some((-i64::from(entry.facts.priority), since, uid))
            })
            .collect();
        order.sort();
        for (_, _, uid) in order {
            self.reconcile_one(&uid, now, out);
        }
    }

    fn reconcile_one(&mut self, uid: &Uid, now: UnixMillis, out: &mut Vec<DispatchAction>) {
        let Some(mut entry) = self.entries.remove(uid) else { return };
        self.decided += 1;
        if let Some(at) = entry.reconcile_at.take() {
            self.timers.remove(&(at, uid.clone()));
        }
        if let Some((priority, since)) = entry.nominating_key.take() {
            self.nominating.remove(&(priority, since, uid.clone()));
        }
        if let Some(job) = entry.waiting_key.take() {
            take_from(&mut self.waiting_by_job, &job, uid);
        }
        let from = out.len();
        entry.waits_for_inventories = false;
        self.reconcile(&mut entry, now, out);
        self.dirty.extend(self.waiting_predecessors(uid));
        if entry.waits_for_inventories {
            self.waiting_for_inventories.insert(uid.clone());
        } else {
            self.waiting_for_inventories.remove(uid);
        }
        self.uid_aliases.translate(out.get_mut(from..).unwrap_or_default());

        if let Some(nomination) = &entry.nomination {
            let (priority, since) = (-i64::from(entry.facts.priority), nomination.since);
            entry.nominating_key = Some((priority, since));
            self.nominating.insert((priority, since, uid.clone()));
            if let Some(job) = entry.job().filter(|_| self.settings.store_loss.is_some()) {
                self.waiting_by_job.entry(job.clone()).or_default().insert(uid.clone());
                entry.waiting_key = Some(Box::new(job));
            }
        } else {
            for cluster in self.clusters.values_mut() {
                if !entry.remotes.values().any(|remote| remote.phase == Some(Phase::Run)) {
                    cluster.capacity.unassume(uid);
                }
            }
        }
        let done =
            entry.remotes.is_empty() && entry.pending_write.is_none() && entry.nomination.is_none();
        let idle = entry.is_deleted || entry.facts.is_idle();
        // Refusals and back-off are kept while the workload may come again. So is the highest
        // attempt: agents ignore lower or equal attempts while a tombstone is under way.
        let lives = !entry.is_deleted && !entry.facts.state.finished;
        let memory = lives
            && (entry.reservation.is_some()
                || entry.returned_in_a_row > 0
                || entry.highest_attempt > 0);
        if done && idle && !memory {
            if entry.is_deleted {
                self.uid_aliases.forget(uid);
            }
            self.index.unlist(&mut entry);
            self.replacements.remove(uid);
            self.waiting_for_inventories.remove(uid);
            return;
        }
        self.index.list(&mut entry);
        self.replacements.add(&entry.facts);
        if let Some(at) = entry.reconcile_at {
            self.timers.insert((at, uid.clone()));
        }
        self.entries.insert(uid.clone(), entry);
    }
}
