//! The state machine: takes events in, then settles each workload that they touch.

use std::collections::{BTreeMap, BTreeSet};

use super::breaker::Breaker;
use super::cluster::Cluster;
use super::entry::Entry;
use super::identities::Identities;
use super::index::Index;
use super::orphans::Orphans;
use super::{Action, Event, Facts, JobKey, Name, Phase, Settings, Time, Uid, take_from};

/// The longest pause between two tries of a write that fails, in milliseconds.
pub(super) const MAX_WRITE_BACKOFF: i64 = 30_000;

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

/// The dispatcher. One task owns it.
#[derive(Debug)]
pub struct Dispatcher {
    pub(super) settings: Settings,
    pub(super) started: Time,
    pub(super) clusters: BTreeMap<Name, Cluster>,
    pub(super) checks: BTreeMap<Name, Vec<Name>>,
    pub(super) entries: BTreeMap<Uid, Entry>,
    pub(super) index: Index,
    pub(super) orphans: Orphans,
    pub(super) identities: Identities,
    /// Workloads of which the API has said something since clusters' word on them was last looked for among the orphans.
    pub(super) newcomers: BTreeSet<Uid>,
    pub(super) breaker: Breaker,
    /// Looking for a cluster: highest priority first, then the longest waiting.
    pub(super) nominating: BTreeSet<(i64, Time, Uid)>,
    /// Those for which nothing is decided before clusters have spoken.
    pub(super) waiting_for_word: BTreeSet<Uid>,
    /// Those that look for a cluster by their jobs, where those may have copies that the hub has forgotten.
    pub(super) waiting: BTreeMap<JobKey, BTreeSet<Uid>>,
    /// Given back for want of a cluster; to be woken when one may take it.
    pub(super) parked: BTreeMap<Uid, Facts>,
    timers: BTreeSet<(Time, Uid)>,
    /// Clusters whose news for what waits has to wait, and until when.
    pub(super) looks: BTreeSet<(Time, Name)>,
    pub(super) dirty: BTreeSet<Uid>,
    decided: u64,
    /// Events so far, the present one included.
    pub(super) events: u64,
}

impl Dispatcher {
    /// A dispatcher that knows nothing yet.
    pub fn new(settings: Settings, now: Time) -> Self {
        Self {
            orphans: Orphans::new(settings.clone()),
            settings,
            started: now,
            clusters: BTreeMap::new(),
            checks: BTreeMap::new(),
            entries: BTreeMap::new(),
            index: Index::default(),
            identities: Identities::default(),
            newcomers: BTreeSet::new(),
            breaker: Breaker::default(),
            nominating: BTreeSet::new(),
            waiting_for_word: BTreeSet::new(),
            waiting: BTreeMap::new(),
            parked: BTreeMap::new(),
            timers: BTreeSet::new(),
            looks: BTreeSet::new(),
            dirty: BTreeSet::new(),
            decided: 0,
            events: 0,
        }
    }

    /// Takes an event in and decides what follows.
    pub fn apply(&mut self, event: Event, now: Time) -> Vec<Action> {
        let mut out = Vec::new();
        self.events += 1;
        // One that was learned of since comes before what is said of it now.
        self.adopt(now, &mut out);
        match event {
            Event::Check { name, clusters } => self.check(name, clusters, now, &mut out),
            Event::Cluster { name, rules } => self.cluster(&name, rules, now, &mut out),
            Event::ClusterGone { name } => self.cluster_gone(&name, now, &mut out),
            Event::ClusterIs { name, uid } => self.cluster_is(&name, uid, now),
            Event::ClusterUp { name } => self.cluster_up(&name, now, &mut out),
            Event::ClusterDown { name } => self.cluster_down(&name, now, &mut out),
            Event::ClusterAble { name, able } => self.able(&name, able, now, &mut out),
            Event::ClusterUnable { name } => self.was_unable(&name, now),
            Event::Inventory { cluster, uids } => self.inventory(&cluster, &uids, now, &mut out),
            Event::Capacity { cluster, queues } => self.capacity(&cluster, queues, now, &mut out),
            Event::Reserved { facts, reserved } => {
                self.introduce_facts(&facts);
                let uid = facts.uid.clone();
                self.parked.remove(&uid);
                let entry =
                    self.entries.entry(uid.clone()).or_insert_with(|| Entry::new(facts.clone()));
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
            Event::Workload(facts) => self.workload(facts, &mut out),
            Event::WorkloadGone { uid } => {
                self.parked.remove(&uid);
                match self.entries.get_mut(&uid) {
                    Some(entry) => {
                        entry.gone = true;
                        self.dirty.insert(uid);
                    }
                    None => self.identities.forget(&uid),
                }
            }
            Event::Observed { cluster, observation } => {
                self.observed(&cluster, observation, now, &mut out)
            }
            Event::Written(written) => self.written(written, now, &mut out),
            Event::Tick => {}
        }
        self.adopt(now, &mut out);
        self.look_when_due(now, &mut out);
        self.ring(now);
        self.settle_all(now, &mut out);
        self.sweep_orphans(now, &mut out);
        out
    }

    /// When [`Event::Tick`] is due at the latest.
    pub fn next_wakeup(&self) -> Option<Time> {
        let orphan = self.orphans.due();
        let timer = self.timers.first().map(|(at, _)| *at);
        let look = self.looks.first().map(|(at, _)| *at);
        [timer, look, orphan].into_iter().flatten().min()
    }

    /// How often it has decided upon a workload: what events cost.
    pub fn decided(&self) -> u64 {
        self.decided
    }

    /// Whether the workload is known.
    pub fn knows(&self, uid: &str) -> bool {
        self.entries.contains_key(uid)
    }

    /// The attempt and cluster that run, or ran to their end, by the API's word; none if another workload has taken them over.
    pub fn committed(&self, uid: &str) -> Option<(Name, u64)> {
        let facts = &self
            .entries
            .get(uid)
            .filter(|_| !self.identities.is_succeeded(&Uid::from(uid)))?
            .facts;
        facts.cluster.clone().map(|cluster| (cluster, facts.attempt))
    }

    /// What is known of a cluster.
    pub fn cluster_view(&self, name: &str) -> ClusterView {
        ClusterView {
            usable: self.clusters.get(name).is_some_and(Cluster::usable),
            workloads: self
                .entries
                .values()
                .filter(|entry| entry.remotes.contains_key(name))
                .count(),
            orphans: self.orphans.count(name),
        }
    }

    // === what to look at

    pub(super) fn touch_nominating(&mut self) {
        self.dirty.extend(self.nominating.iter().map(|(_, _, uid)| uid.clone()));
    }

    pub(super) fn touch_on(&mut self, cluster: &Name) {
        self.touch_there(cluster);
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
        self.decided += 1;
        if let Some(at) = entry.wake.take() {
            self.timers.remove(&(at, uid.clone()));
        }
        if let Some((priority, since)) = entry.queued.take() {
            self.nominating.remove(&(priority, since, uid.clone()));
        }
        if let Some(job) = entry.queued_as.take() {
            take_from(&mut self.waiting, &job, uid);
        }
        let from = out.len();
        entry.waits_for_word = false;
        self.settle(&mut entry, now, out);
        if entry.waits_for_word {
            self.waiting_for_word.insert(uid.clone());
        } else {
            self.waiting_for_word.remove(uid);
        }
        self.identities.translate(out.get_mut(from..).unwrap_or_default());

        if let Some(nomination) = &entry.nomination {
            let (priority, since) = (-i64::from(entry.facts.priority), nomination.since);
            entry.queued = Some((priority, since));
            self.nominating.insert((priority, since, uid.clone()));
            if let Some(job) = entry.job().filter(|_| self.settings.store_loss.is_some()) {
                self.waiting.entry(job.clone()).or_default().insert(uid.clone());
                entry.queued_as = Some(Box::new(job));
            }
        } else {
            for cluster in self.clusters.values_mut() {
                if !entry.remotes.values().any(|remote| remote.phase == Some(Phase::Run)) {
                    cluster.capacity.unassume(uid);
                }
            }
        }
        let done =
            entry.remotes.is_empty() && entry.writing.is_none() && entry.nomination.is_none();
        let idle = entry.gone || entry.facts.is_idle();
        // What is known of refusals and back-off is worth keeping while the workload may come again; and so is the last
        // attempt: a tombstone of it may still be under way to a cluster, which takes no lower or equal one.
        let lives = !entry.gone && !entry.facts.finished;
        let memory = lives && (entry.memory.is_some() || entry.given_back > 0 || entry.top > 0);
        if done && idle && !memory {
            if entry.gone {
                self.identities.forget(uid);
            }
            self.index.unlist(&mut entry);
            self.waiting_for_word.remove(uid);
            return;
        }
        self.index.list(&mut entry);
        if let Some(at) = entry.wake {
            self.timers.insert((at, uid.clone()));
        }
        self.entries.insert(uid.clone(), entry);
    }
}
