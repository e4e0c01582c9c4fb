//! The state machine: takes events in, then settles each workload that they touch.

use std::collections::btree_map::Entry as MapEntry;
use std::collections::{BTreeMap, BTreeSet};

use super::capacity::Capacity;
use super::entry::{Entry, Remote, Writing};
use super::{
    Action, Event, Facts, Name, Observation, Outcome, Phase, Reason, Settings, State, Time, Uid, Uids, Written,
    terminal,
};

/// The longest pause between two tries of a write that fails, in milliseconds.
pub(super) const MAX_WRITE_BACKOFF: i64 = 30_000;

/// Unknown workloads remembered at once. A cluster that makes up more is not listened to.
const MAX_ORPHANS: usize = 20_000;

/// One cluster, as far as the dispatcher cares.
#[derive(Debug, Clone, Default)]
pub(super) struct Cluster {
    /// A MultiKueueCluster of that name exists.
    pub(super) exists: bool,
    /// Its jobs are never given up because of a lost connection.
    pub(super) hold: bool,
    /// A session is open.
    pub(super) up: bool,
    /// Its inventory is complete, and so is what we know.
    pub(super) synced: bool,
    /// Since when `up` is what it is.
    pub(super) since: Time,
    /// It has reported.
    pub(super) reported: bool,
    /// When it last took, ran or ended a workload: while it does, others only wait for their turn.
    pub(super) moved: Time,
    pub(super) capacity: Capacity,
}

impl Cluster {
    /// Whether it can be asked.
    pub(super) fn usable(&self) -> bool {
        self.exists && self.up && self.synced
    }
}

/// A workload of ours that we do not know.
#[derive(Debug, Clone)]
struct Orphan {
    /// What was last said of it.
    last: Observation,
    since: Time,
    /// Its end has been acknowledged.
    acked: bool,
    removing: bool,
}

impl Orphan {
    /// When something is to be done about it, if nothing happens before. An end may be the end of a workload that we are
    /// about to hear of: it is not let go at once.
    fn due(&self, settings: &Settings) -> Option<Time> {
        if self.removing {
            return None;
        }
        let ends = terminal(self.last.state) && !self.acked;
        let wait = if ends { settings.start_grace.min(settings.orphan_after) } else { settings.orphan_after };
        Some(self.since.saturating_add(wait))
    }
}

/// What is known of a cluster, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterView {
    /// It can be asked.
    pub usable: bool,
    /// Workloads of the hub on it, by what is wanted there.
    pub workloads: usize,
    /// Unknown ones that carry our id.
    pub orphans: usize,
}

/// Where a workload is on one cluster, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The cluster.
    pub cluster: Name,
    /// What is wanted.
    pub phase: Option<Phase>,
    /// What is.
    pub state: Option<State>,
    /// Of which attempt.
    pub attempt: u64,
}

/// Where a workload stands, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkloadView {
    /// On which clusters.
    pub places: Vec<Place>,
    /// Why it is not committed, by cluster.
    pub reasons: Vec<(Name, Vec<Reason>)>,
}

/// The dispatcher. One task owns it.
#[derive(Debug)]
pub struct Dispatcher {
    pub(super) settings: Settings,
    pub(super) started: Time,
    pub(super) clusters: BTreeMap<Name, Cluster>,
    pub(super) checks: BTreeMap<Name, Vec<Name>>,
    pub(super) entries: BTreeMap<Uid, Entry>,
    orphans: BTreeMap<(Name, Uid), Orphan>,
    /// Looking for a cluster: highest priority first, then the longest waiting.
    nominating: BTreeSet<(i64, Time, Uid)>,
    /// Given back for want of a cluster; to be woken when one may take it.
    pub(super) parked: BTreeMap<Uid, Facts>,
    timers: BTreeSet<(Time, Uid)>,
    dirty: BTreeSet<Uid>,
}

impl Dispatcher {
    /// A dispatcher that knows nothing yet.
    pub fn new(settings: Settings, now: Time) -> Self {
        Self {
            settings,
            started: now,
            clusters: BTreeMap::new(),
            checks: BTreeMap::new(),
            entries: BTreeMap::new(),
            orphans: BTreeMap::new(),
            nominating: BTreeSet::new(),
            parked: BTreeMap::new(),
            timers: BTreeSet::new(),
            dirty: BTreeSet::new(),
        }
    }

    /// Takes an event in and decides what follows.
    pub fn apply(&mut self, event: Event, now: Time) -> Vec<Action> {
        let mut out = Vec::new();
        // One that was learned of since comes before what is said of it now.
        self.adopt(now, &mut out);
        match event {
            Event::Check { name, clusters } => self.check(name, clusters),
            Event::Cluster { name, hold } => self.cluster(&name, hold, now),
            Event::ClusterGone { name } => self.cluster_gone(&name, now),
            Event::ClusterUp { name } => self.cluster_up(&name, now),
            Event::ClusterDown { name } => self.cluster_down(&name, now),
            Event::Inventory { cluster, uids } => self.inventory(&cluster, &uids),
            Event::Capacity { cluster, queues } => self.capacity(&cluster, queues, now, &mut out),
            Event::Reserved { facts, reserved } => {
                let uid = facts.uid.clone();
                self.parked.remove(&uid);
                let entry = self.entries.entry(uid.clone()).or_insert_with(|| Entry::new(facts.clone()));
                entry.take(facts);
                if !entry.facts.reserved && entry.facts.cluster.is_none() && !entry.facts.finished {
                    entry.memory = Some(reserved);
                    entry.recorded = None;
                }
                self.dirty.insert(uid);
            }
            Event::Withdraw { uid } => match self.entries.get_mut(&uid) {
                Some(entry) => {
                    entry.withdrawn = true;
                    self.dirty.insert(uid);
                }
                None => out.push(Action::Recorded { uid }),
            },
            Event::Workload(facts) => self.workload(facts),
            Event::WorkloadGone { uid } => {
                self.parked.remove(&uid);
                if let Some(entry) = self.entries.get_mut(&uid) {
                    entry.gone = true;
                    self.dirty.insert(uid);
                }
            }
            Event::Observed { cluster, observation } => self.observed(&cluster, observation, now, &mut out),
            Event::Written(written) => self.written(written, now, &mut out),
            Event::Tick => {}
        }
        self.adopt(now, &mut out);
        self.ring(now);
        self.settle_all(now, &mut out);
        self.sweep_orphans(now, &mut out);
        out
    }

    /// When [`Event::Tick`] is due at the latest.
    pub fn next_wakeup(&self) -> Option<Time> {
        let orphan = self.orphans.values().filter_map(|orphan| orphan.due(&self.settings)).min();
        let timer = self.timers.first().map(|(at, _)| *at);
        match (timer, orphan) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// Whether the workload is known.
    pub fn knows(&self, uid: &str) -> bool {
        self.entries.contains_key(uid)
    }

    /// The attempt and cluster that run, or ran to their end, by the API's word.
    pub fn committed(&self, uid: &str) -> Option<(Name, u64)> {
        let facts = &self.entries.get(uid)?.facts;
        facts.cluster.clone().map(|cluster| (cluster, facts.attempt))
    }

    /// What is known of a cluster.
    pub fn cluster_view(&self, name: &str) -> ClusterView {
        ClusterView {
            usable: self.clusters.get(name).is_some_and(Cluster::usable),
            workloads: self.entries.values().filter(|entry| entry.remotes.contains_key(name)).count(),
            orphans: self.orphans.keys().filter(|(cluster, _)| **cluster == *name).count(),
        }
    }

    /// Where a workload stands.
    pub fn workload_view(&self, uid: &str) -> Option<WorkloadView> {
        let entry = self.entries.get(uid)?;
        let places = entry.remotes.iter().map(|(cluster, remote)| Place {
            cluster: cluster.clone(),
            phase: remote.phase,
            state: remote.state,
            attempt: remote.attempt,
        });
        let committed = entry.facts.cluster.is_some();
        let reasons = if committed { Vec::new() } else { self.reasons(entry) };
        Some(WorkloadView { places: places.collect(), reasons })
    }

    // === taking in

    fn check(&mut self, name: Name, clusters: Vec<Name>) {
        if self.checks.get(&name) == Some(&clusters) {
            return;
        }
        if clusters.is_empty() {
            self.checks.remove(&name);
        } else {
            self.checks.insert(name, clusters);
        }
        self.touch_nominating();
    }

    fn cluster(&mut self, name: &Name, hold: bool, now: Time) {
        let cluster = self.clusters.entry(name.clone()).or_insert_with(|| Cluster { since: now, ..Cluster::default() });
        let same = cluster.exists && cluster.hold == hold;
        cluster.exists = true;
        cluster.hold = hold;
        if !same {
            self.touch_on(name);
        }
    }

    fn cluster_gone(&mut self, name: &Name, now: Time) {
        let Some(cluster) = self.clusters.get_mut(name) else { return };
        cluster.exists = false;
        cluster.hold = false;
        if cluster.up {
            *cluster = Cluster { since: now, ..Cluster::default() };
        }
        self.touch_on(name);
    }

    fn cluster_up(&mut self, name: &Name, now: Time) {
        let cluster = self.clusters.entry(name.clone()).or_default();
        cluster.up = true;
        cluster.synced = false;
        cluster.since = now;
        cluster.reported = false;
        cluster.capacity = Capacity::default();
        self.touch_on(name);
    }

    fn cluster_down(&mut self, name: &Name, now: Time) {
        let Some(cluster) = self.clusters.get_mut(name) else { return };
        if !cluster.up {
            return;
        }
        let (exists, hold) = (cluster.exists, cluster.hold);
        *cluster = Cluster { exists, hold, since: now, ..Cluster::default() };
        self.orphans.retain(|(cluster, _), _| cluster != name);
        self.touch_on(name);
    }

    fn inventory(&mut self, name: &Name, uids: &Uids) {
        if let Some(cluster) = self.clusters.get_mut(name) {
            cluster.synced = true;
        }
        self.orphans.retain(|(cluster, uid), _| cluster != name || uids.contains(uid));
        self.touch_on(name);
        let unsure = self.entries.iter().filter(|(_, entry)| !entry.sure).map(|(uid, _)| uid.clone());
        self.dirty.extend(unsure);
    }

    fn capacity(
        &mut self,
        name: &Name,
        queues: BTreeMap<(Name, Name), super::capacity::Queue>,
        now: Time,
        out: &mut Vec<Action>,
    ) {
        let Some(cluster) = self.clusters.get_mut(name) else { return };
        cluster.capacity.report(queues);
        cluster.reported = true;
        self.touch_nominating();
        self.wake_parked(name, now, out);
    }

    fn workload(&mut self, facts: Facts) {
        let uid = facts.uid.clone();
        if let Some(parked) = self.parked.get_mut(&uid) {
            *parked = facts.clone();
        }
        match self.entries.get_mut(&uid) {
            Some(entry) => entry.take(facts),
            // Neither dispatched nor waiting for it: nothing to remember.
            None if facts.finished || !(facts.reserved || facts.cluster.is_some()) => return,
            None => {
                self.entries.insert(uid.clone(), Entry::new(facts));
            }
        }
        self.dirty.insert(uid);
    }

    /// Takes in what the API says of a workload even if nothing is to be dispatched: it was seen on a cluster.
    pub fn learn(&mut self, facts: Facts) {
        let uid = facts.uid.clone();
        self.entries.entry(uid).or_insert_with(|| Entry::new(facts));
    }

    fn observed(&mut self, cluster: &Name, observation: Observation, now: Time, out: &mut Vec<Action>) {
        let uid = observation.uid.clone();
        let Some(entry) = self.entries.get_mut(&uid) else {
            self.orphaned(cluster, observation, now, out);
            return;
        };
        entry.top = entry.top.max(observation.attempt);
        if terminal(observation.state) && entry.is_current(cluster, observation.attempt) && !entry.gone {
            let success = observation.state == State::Succeeded;
            entry.ended = Some((cluster.clone(), observation.attempt, success));
        }
        let remote = entry.remotes.entry(cluster.clone()).or_default();
        if observation.attempt < remote.attempt {
            if observation.state == State::Gone {
                remote.ran.take_if(|ran| *ran <= observation.attempt);
            }
            if terminal(observation.state) && entry.ended.is_none() {
                let attempt = observation.attempt;
                out.push(Action::Ack { cluster: cluster.clone(), uid: uid.clone(), attempt });
            }
            self.dirty.insert(uid);
            return;
        }
        if observation.attempt > remote.attempt {
            *remote = Remote { attempt: observation.attempt, since: now, ..Remote::default() };
        }
        remote.lost = false;
        remote.state = Some(observation.state);
        remote.reasons = observation.reasons;
        // It speaks of this attempt, so the lower ones have been torn down.
        remote.ran.take_if(|ran| *ran < observation.attempt);
        // Of a committed attempt that another process of the hub gave out, only the end says that it does not run.
        let unknown = remote.phase.is_none() && observation.attempt <= entry.facts.attempt;
        match observation.state {
            State::Gone => remote.ran = None,
            State::Running | State::Suspended | State::Succeeded | State::Failed => {
                remote.ran = Some(observation.attempt);
            }
            _ if unknown => remote.ran = Some(observation.attempt),
            State::Waiting | State::Reserved | State::Unfit | State::Refused | State::Evicted | State::Unspecified => {}
        }
        let settled = matches!(observation.state, State::Reserved | State::Running);
        if let Some(known) = self.clusters.get_mut(cluster) {
            if settled || terminal(observation.state) {
                known.moved = now;
            }
            if settled {
                known.capacity.counted(&uid);
            } else if !remote.unanswered() {
                known.capacity.unassume(&uid);
            }
        }
        let committed_here =
            entry.facts.cluster.as_ref() == Some(cluster) && entry.facts.attempt == observation.attempt;
        // What a job shows while it is evicted or removed is not how it stands, and an end cannot be taken back.
        let runs = matches!(observation.state, State::Running | State::Suspended | State::Reserved);
        if committed_here && observation.job_status && runs && !entry.facts.finished {
            out.push(Action::Mirror { uid: uid.clone(), cluster: cluster.clone(), attempt: observation.attempt });
        }
        self.dirty.insert(uid);
    }

    fn written(&mut self, written: Written, now: Time, out: &mut Vec<Action>) {
        let Some(entry) = self.entries.get_mut(&written.uid) else { return };
        let writing = entry.writing.take();
        if let Some(facts) = written.facts {
            entry.take(facts);
        }
        match written.outcome {
            Outcome::Done => entry.failures = 0,
            Outcome::Superseded | Outcome::Failed => {
                // Even a conflict waits a moment: the news that caused it is on its way.
                entry.failures = (entry.failures + 1).min(16);
                let pause = (20_i64 << entry.failures.min(12)).min(MAX_WRITE_BACKOFF);
                entry.not_before = now + pause;
                entry.released = None;
            }
        }
        if let (Some(Writing::Finish { cluster, attempt }), Outcome::Done) = (writing, written.outcome) {
            out.push(Action::Ack { cluster, uid: written.uid.clone(), attempt });
            entry.ended = None;
            // What the answer did not show will be shown by the watch.
            entry.facts.finished = true;
        }
        self.dirty.insert(written.uid);
    }

    // === orphans

    fn orphaned(&mut self, cluster: &Name, observation: Observation, now: Time, out: &mut Vec<Action>) {
        let key = (cluster.clone(), observation.uid.clone());
        if observation.state == State::Gone {
            if self.orphans.remove(&key).is_some_and(|orphan| orphan.removing) {
                let attempt = observation.attempt;
                out.push(Action::Forget { cluster: cluster.clone(), uid: observation.uid, attempt });
            }
            return;
        }
        let full = !self.orphans.contains_key(&key) && self.orphans.len() >= MAX_ORPHANS;
        // Acknowledgements are in order: one that is not given holds up all behind it.
        let let_go = self.orphans.get(&key).is_some_and(|orphan| orphan.acked || orphan.removing);
        if terminal(observation.state) && (full || let_go) {
            let (uid, attempt) = (observation.uid.clone(), observation.attempt);
            out.push(Action::Ack { cluster: cluster.clone(), uid, attempt });
        }
        if full {
            return;
        }
        match self.orphans.entry(key) {
            MapEntry::Vacant(vacant) => {
                let (uid, attempt) = (observation.uid.clone(), observation.attempt);
                out.push(Action::Orphan { cluster: cluster.clone(), uid, attempt });
                vacant.insert(Orphan { last: observation, since: now, acked: false, removing: false });
            }
            MapEntry::Occupied(mut known) if observation.attempt >= known.get().last.attempt => {
                known.get_mut().last = observation;
            }
            MapEntry::Occupied(_) => {}
        }
    }

    /// Workloads that we have come to know are no orphans: what clusters said of them counts.
    fn adopt(&mut self, now: Time, out: &mut Vec<Action>) {
        let known: Vec<(Name, Uid)> =
            self.orphans.keys().filter(|(_, uid)| self.entries.contains_key(uid)).cloned().collect();
        for (cluster, uid) in known {
            let Some(orphan) = self.orphans.remove(&(cluster.clone(), uid.clone())) else { continue };
            self.observed(&cluster, orphan.last, now, out);
            if orphan.removing
                && let Some(remote) = self.entries.get_mut(&uid).and_then(|entry| entry.remotes.get_mut(&cluster))
            {
                remote.phase = Some(Phase::Absent);
            }
        }
    }

    fn sweep_orphans(&mut self, now: Time, out: &mut Vec<Action>) {
        for ((cluster, uid), orphan) in &mut self.orphans {
            if orphan.due(&self.settings).is_none_or(|due| now < due) {
                continue;
            }
            let Observation { namespace, name, attempt, state, .. } = orphan.last.clone();
            if terminal(state) && !orphan.acked {
                orphan.acked = true;
                out.push(Action::Ack { cluster: cluster.clone(), uid: uid.clone(), attempt });
            }
            if now < orphan.since.saturating_add(self.settings.orphan_after) {
                continue;
            }
            orphan.removing = true;
            let (cluster, uid, phase) = (cluster.clone(), uid.clone(), Phase::Absent);
            out.push(Action::Desire { cluster, uid, namespace, name, attempt, phase });
        }
    }

    // === what to look at

    fn touch_nominating(&mut self) {
        self.dirty.extend(self.nominating.iter().map(|(_, _, uid)| uid.clone()));
    }

    fn touch_on(&mut self, cluster: &Name) {
        let there = self
            .entries
            .iter()
            .filter(|(_, entry)| entry.remotes.contains_key(cluster) || entry.facts.cluster.as_ref() == Some(cluster));
        self.dirty.extend(there.map(|(uid, _)| uid.clone()));
        self.touch_nominating();
    }

    fn ring(&mut self, now: Time) {
        while let Some((at, uid)) = self.timers.first().cloned() {
            if at > now {
                break;
            }
            self.timers.remove(&(at, uid.clone()));
            if let Some(entry) = self.entries.get_mut(&uid) {
                entry.wake = None;
            }
            self.dirty.insert(uid);
        }
    }

    /// Those that look for a cluster are looked at in their order, since the first takes what the second wants.
    fn settle_all(&mut self, now: Time, out: &mut Vec<Action>) {
        let dirty = std::mem::take(&mut self.dirty);
        let mut order: Vec<(i64, Time, Uid)> = dirty
            .into_iter()
            .filter_map(|uid| {
                let entry = self.entries.get(&uid)?;
                let since = entry.nomination.as_ref().map_or(now, |nomination| nomination.since);
                Some((-i64::from(entry.facts.priority), since, uid))
            })
            .collect();
        order.sort();
        for (_, _, uid) in order {
            self.settle_one(&uid, now, out);
        }
    }

    fn settle_one(&mut self, uid: &Uid, now: Time, out: &mut Vec<Action>) {
        let Some(mut entry) = self.entries.remove(uid) else { return };
        if let Some(at) = entry.wake.take() {
            self.timers.remove(&(at, uid.clone()));
        }
        if let Some((priority, since)) = entry.queued.take() {
            self.nominating.remove(&(priority, since, uid.clone()));
        }
        self.settle(&mut entry, now, out);

        if let Some(nomination) = &entry.nomination {
            let (priority, since) = (-i64::from(entry.facts.priority), nomination.since);
            entry.queued = Some((priority, since));
            self.nominating.insert((priority, since, uid.clone()));
        } else {
            for cluster in self.clusters.values_mut() {
                if !entry.remotes.values().any(|remote| remote.phase == Some(Phase::Run)) {
                    cluster.capacity.unassume(uid);
                }
            }
        }
        let done = entry.remotes.is_empty() && entry.writing.is_none() && entry.nomination.is_none();
        let idle = entry.gone || entry.facts.finished || !(entry.facts.reserved || entry.facts.cluster.is_some());
        // What is known of refusals and back-off is worth keeping while the workload may come again; and so is the last
        // attempt: a tombstone of it may still be under way to a cluster, which takes no lower or equal one.
        let lives = !entry.gone && !entry.facts.finished;
        let memory = lives && (entry.memory.is_some() || entry.given_back > 0 || entry.top > 0);
        if done && idle && !memory {
            return;
        }
        if let Some(at) = entry.wake {
            self.timers.insert((at, uid.clone()));
        }
        self.entries.insert(uid.clone(), entry);
    }
}
