//! Orphans: copies with this hub's id that the hub does not know.
//!
//! An orphan is reported first and removed [`DispatcherSettings::orphan_grace`] later. Not removed:
//! copies from before a store loss, which wait for adoption (`adoption.rs`), and all orphans of a
//! cluster that reports more unknown than known workloads. Ends of orphans are acknowledged after a
//! short wait, since acknowledgements are in order.

use std::collections::{BTreeMap, BTreeSet};

use switchyard_syntax::names::ORPHAN_STAYS;

use super::Dispatcher;
use crate::{
    CopyOrigin, DispatchAction, DispatcherSettings, JobIdentity, JobKey, Name, Observation, Phase,
    RequestedAssignment, State, Uid, UnixMillis, is_running, is_terminal, take_from,
};

/// The most workloads that one cluster may report in a session, and the most orphans of it that the
/// hub remembers. The inventory of a cluster with more does not count as complete.
pub const MAX_WORKLOADS: usize = 200_000;

/// If a cluster reports at least this many orphans, and more orphans than known workloads, remove
/// none: the hub's store was probably lost or restored.
const MANY_ORPHANS: usize = 10;

/// An orphan.
#[derive(Debug, Clone)]
pub(super) struct Orphan {
    /// Last observation.
    last: Observation,
    /// When it was first reported.
    first: UnixMillis,
    /// Begin of its grace period.
    since: UnixMillis,
    /// Its end was acknowledged.
    acked: bool,
    pub(super) removing: bool,
    /// Why no workload for a job of its name adopts it.
    pub(super) mismatch: Option<String>,
}

impl Orphan {
    fn new(last: Observation, now: UnixMillis) -> Self {
        Self { last, first: now, since: now, acked: false, removing: false, mismatch: None }
    }

    /// Whether it may be older than the store loss.
    pub(super) fn predates(&self, settings: &DispatcherSettings) -> bool {
        settings
            .forgotten_until()
            .is_some_and(|end| self.origin().is_none_or(|origin| origin.created < end))
    }

    /// Whether it is kept until a workload adopts it. Copies without a job never ran. An evicted
    /// copy of an unknown job cannot be adopted, and it blocks the name of its job.
    pub(super) fn is_kept(&self, settings: &DispatcherSettings) -> bool {
        let is_over = self.last.state == State::Evicted && self.origin().is_none();
        self.has_job() && self.predates(settings) && !is_over
    }

    pub(super) fn origin(&self) -> Option<&CopyOrigin> {
        self.last.origin.as_ref()
    }

    /// Whether its job exists or may exist. The state tells if the job was created after the origin
    /// was reported.
    pub(super) fn has_job(&self) -> bool {
        let begun = matches!(
            self.last.state,
            State::Running | State::Suspended | State::Succeeded | State::Failed | State::Evicted
        );
        begun || self.origin().is_none_or(|origin| origin.has_job)
    }

    pub(super) fn runs(&self) -> bool {
        is_running(self.last.state, &self.last.reasons)
    }

    /// Whether workloads of its namespace wait for it, because it may be the copy of any of them.
    pub(super) fn blocks_namespace(&self, settings: &DispatcherSettings) -> bool {
        self.origin().is_none() && self.is_kept(settings) && self.last.state == State::Running
    }

    pub(super) fn attempt(&self) -> u64 {
        self.last.attempt
    }

    pub(super) fn state(&self) -> State {
        self.last.state
    }

    /// Its uid, namespace, name and attempt.
    pub(super) fn location(&self) -> (Uid, Name, Name, u64) {
        let Observation { uid, namespace, name, attempt, .. } = &self.last;
        (uid.clone(), namespace.clone(), name.clone(), *attempt)
    }

    /// Replaces the observation. Origin and an unseen job status are kept. If it was kept until
    /// now, its grace period begins: an eviction may be followed by another run.
    fn update(&mut self, observation: Observation, settings: &DispatcherSettings, now: UnixMillis) {
        let stayed = self.is_kept(settings);
        let before = std::mem::replace(&mut self.last, observation);
        if self.last.attempt == before.attempt {
            self.last.job_status |= before.job_status;
        }
        if self.last.origin.is_none() {
            self.last.origin = before.origin;
        }
        if stayed && !self.is_kept(settings) {
            self.since = now;
        }
    }

    /// Why it is kept, for its owner.
    fn note(&self, settings: &DispatcherSettings) -> Option<String> {
        let waits =
            || "made before this hub's memory; waits for its job to be applied again".to_owned();
        self.is_kept(settings).then(|| self.mismatch.clone().unwrap_or_else(waits))
    }

    /// The attempt whose end is not acknowledged. It blocks the acknowledgement of all later
    /// observations of its cluster.
    fn unacknowledged_end(&self) -> Option<u64> {
        (is_terminal(self.last.state) && !self.acked).then_some(self.last.attempt)
    }

    /// When to act on it, if nothing happens before. Its end may belong to a workload that the hub
    /// is about to learn of, so it is not acknowledged at once.
    pub(super) fn due(&self, settings: &DispatcherSettings) -> Option<UnixMillis> {
        if self.removing {
            return None;
        }
        let wait = if self.unacknowledged_end().is_some() {
            settings.start_grace.min(settings.orphan_grace)
        } else if self.is_kept(settings) {
            return None;
        } else {
            settings.orphan_grace
        };
        Some(self.since.saturating_add(wait))
    }
}

/// An orphan, for status and command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OrphanView {
    /// The uid of its Workload on the hub that created it.
    pub uid: Uid,
    pub namespace: Name,
    pub name: Name,
    pub attempt: u64,
    pub state: State,
    /// When the hub first saw it.
    pub since: UnixMillis,
    /// Why it stays, and what helps. None if it will be removed.
    pub note: Option<String>,
}

impl OrphanView {
    /// Whether it is kept until a job adopts it.
    #[must_use]
    pub fn is_kept(&self) -> bool {
        self.note.as_deref().is_some_and(|note| !note.starts_with(ORPHAN_STAYS))
    }
}

/// All orphans, by cluster and uid.
#[derive(Debug)]
pub(crate) struct Orphans {
    settings: DispatcherSettings,
    all: BTreeMap<(Name, Uid), Orphan>,
    /// By job.
    by_job: BTreeMap<JobKey, BTreeSet<(Name, Uid)>>,
    /// Orphans of unknown jobs, by namespace.
    of_unknown_job: BTreeMap<Name, BTreeSet<(Name, Uid)>>,
    /// The clusters of each uid.
    by_uid: BTreeMap<Uid, BTreeSet<Name>>,
    /// By the time to act on them.
    by_due: BTreeSet<(UnixMillis, (Name, Uid))>,
    /// Number per cluster.
    counts: BTreeMap<Name, usize>,
}

impl Orphans {
    pub(super) fn new(settings: DispatcherSettings) -> Self {
        Self {
            settings,
            all: BTreeMap::new(),
            by_job: BTreeMap::new(),
            of_unknown_job: BTreeMap::new(),
            by_uid: BTreeMap::new(),
            by_due: BTreeSet::new(),
            counts: BTreeMap::new(),
        }
    }

    fn job(orphan: &Orphan) -> Option<JobKey> {
        Some(orphan.origin()?.subject.key(&orphan.last.namespace))
    }

    /// The orphans of this job.
    pub(super) fn of_job(
        &self,
        namespace: &Name,
        subject: &JobIdentity,
    ) -> impl Iterator<Item = &(Name, Uid)> {
        self.by_job.get(&subject.key(namespace)).into_iter().flatten()
    }

    /// The orphans of unknown jobs in a namespace.
    pub(super) fn of_unknown_job(&self, namespace: &Name) -> impl Iterator<Item = &(Name, Uid)> {
        self.of_unknown_job.get(namespace).into_iter().flatten()
    }

    /// Whether a cluster has an orphan of this uid.
    pub(super) fn has(&self, uid: &Uid) -> bool {
        self.by_uid.contains_key(uid)
    }

    pub(super) fn get(&self, cluster: &Name, uid: &Uid) -> Option<&Orphan> {
        self.all.get(&(cluster.clone(), uid.clone()))
    }

    /// Changes an orphan, if it exists.
    pub(super) fn change(&mut self, cluster: &Name, uid: &Uid, change: impl FnOnce(&mut Orphan)) {
        let key = (cluster.clone(), uid.clone());
        if let Some(mut orphan) = self.remove(&key) {
            change(&mut orphan);
            self.insert(key, orphan);
        }
    }

    fn insert(&mut self, key: (Name, Uid), orphan: Orphan) {
        match Self::job(&orphan) {
            Some(job) => self.by_job.entry(job).or_default().insert(key.clone()),
            None => self
                .of_unknown_job
                .entry(orphan.last.namespace.clone())
                .or_default()
                .insert(key.clone()),
        };
        if let Some(due) = orphan.due(&self.settings) {
            self.by_due.insert((due, key.clone()));
        }
        self.by_uid.entry(key.1.clone()).or_default().insert(key.0.clone());
        *self.counts.entry(key.0.clone()).or_default() += 1;
        self.all.insert(key, orphan);
    }

    fn remove(&mut self, key: &(Name, Uid)) -> Option<Orphan> {
        let orphan = self.all.remove(key)?;
        match Self::job(&orphan) {
            Some(job) => take_from(&mut self.by_job, &job, key),
            None => take_from(&mut self.of_unknown_job, &orphan.last.namespace, key),
        }
        if let Some(due) = orphan.due(&self.settings) {
            self.by_due.remove(&(due, key.clone()));
        }
        take_from(&mut self.by_uid, &key.1, &key.0);
        if let Some(count) = self.counts.get_mut(&key.0) {
            *count -= 1;
        }
        Some(orphan)
    }

    /// Removes the orphans of a uid and returns them with their clusters.
    fn take(&mut self, uid: &Uid) -> Vec<(Name, Orphan)> {
        let clusters: Vec<Name> = self.by_uid.get(uid).into_iter().flatten().cloned().collect();
        clusters
            .into_iter()
            .filter_map(|at| Some((at.clone(), self.remove(&(at, uid.clone()))?)))
            .collect()
    }

    /// The orphans to act on now.
    fn due_now(&self, now: UnixMillis) -> Vec<(Name, Uid)> {
        self.by_due.iter().take_while(|(due, _)| *due <= now).map(|(_, key)| key.clone()).collect()
    }

    /// Forgets the orphans of a cluster except those to keep. Returns the forgotten ones.
    pub(super) fn retain(
        &mut self,
        cluster: &Name,
        keep: impl Fn(&Uid, &Orphan) -> bool,
    ) -> Vec<Orphan> {
        let there = self
            .all
            .range((cluster.clone(), Uid::from(""))..)
            .take_while(|((at, _), _)| at == cluster);
        let gone = there.filter(|((_, uid), orphan)| !keep(uid, orphan));
        let gone: Vec<(Name, Uid)> = gone.map(|(key, _)| key.clone()).collect();
        gone.into_iter().filter_map(|key| self.remove(&key)).collect()
    }

    /// When to act on the first orphan.
    pub(super) fn due(&self) -> Option<UnixMillis> {
        self.by_due.first().map(|(due, _)| *due)
    }

    pub(super) fn count(&self, cluster: &str) -> usize {
        self.counts.get(cluster).copied().unwrap_or(0)
    }
}

impl Dispatcher {
    /// Whether the cluster is connected and reported its inventory.
    pub fn has_reported_inventory(&self, cluster: &str) -> bool {
        self.clusters.get(cluster).is_some_and(|it| it.is_connected && it.has_synced)
    }

    pub fn has_orphan(&self, cluster: &Name, uid: &Uid) -> bool {
        self.orphans.get(cluster, uid).is_some()
    }

    /// The first `most` orphans of a cluster, by uid.
    pub fn orphans_of(&self, cluster: &str, most: usize) -> Vec<OrphanView> {
        let obstacle = self.removal_obstacle(&Name::from(cluster));
        let from = (Name::from(cluster), Uid::from(""));
        let there = self.orphans.all.range(from..).take_while(|((name, _), _)| **name == *cluster);
        let view = |((_, uid), orphan): (&(Name, Uid), &Orphan)| OrphanView {
            uid: uid.clone(),
            namespace: orphan.last.namespace.clone(),
            name: orphan.last.name.clone(),
            attempt: orphan.last.attempt,
            state: orphan.last.state,
            since: orphan.first,
            note: orphan
                .note(&self.settings)
                .or_else(|| obstacle.clone().filter(|_| !orphan.removing)),
        };
        there.take(most).map(view).collect()
    }

    /// Whether a cluster has so many orphans that the hub has probably lost its store.
    fn has_mostly_orphans(&self, cluster: &Name) -> bool {
        let orphans = self.orphans.count(cluster);
        orphans >= MANY_ORPHANS && orphans > self.index.count(cluster)
    }

    /// Why no orphan of a cluster is removed, for its owner.
    fn removal_obstacle(&self, cluster: &Name) -> Option<String> {
        let obstacle = if self.settings.orphan_grace == UnixMillis::MAX {
            "multiKueue.gcInterval is 0"
        } else if self.has_mostly_orphans(cluster) {
            "the cluster has more orphans than known Workloads; was the hub's store lost?"
        } else {
            return None;
        };
        Some(format!("{ORPHAN_STAYS}{obstacle}"))
    }

    pub(super) fn observed_orphan(
        &mut self,
        cluster: &Name,
        observation: Observation,
        now: UnixMillis,
        out: &mut Vec<DispatchAction>,
    ) {
        let key = (cluster.clone(), observation.uid.clone());
        if observation.state == State::Gone {
            let (uid, attempt) = (observation.uid, observation.attempt);
            let Some(orphan) = self.orphans.remove(&key) else {
                if self.uid_aliases.is_aliased(&uid) {
                    // An offer from before its workload adopted a copy.
                    out.push(DispatchAction::ForgetTombstone {
                        cluster: cluster.clone(),
                        uid,
                        attempt,
                    });
                }
                return;
            };
            self.mark_waiting_for(cluster, &orphan, now, out);
            if let Some(attempt) = orphan.unacknowledged_end() {
                out.push(DispatchAction::AcknowledgeEnd {
                    cluster: cluster.clone(),
                    uid: uid.clone(),
                    attempt,
                });
            }
            if orphan.removing {
                out.push(DispatchAction::ForgetTombstone {
                    cluster: cluster.clone(),
                    uid,
                    attempt,
                });
            }
            return;
        }
        let full =
            !self.orphans.all.contains_key(&key) && self.orphans.count(cluster) >= MAX_WORKLOADS;
        // Acknowledgements are in order: a missing one blocks all later ones.
        let let_go =
            self.orphans.all.get(&key).is_some_and(|orphan| orphan.acked || orphan.removing);
        if is_terminal(observation.state) && (full || let_go) {
            let (uid, attempt) = (observation.uid.clone(), observation.attempt);
            out.push(DispatchAction::AcknowledgeEnd { cluster: cluster.clone(), uid, attempt });
        }
        if full {
            if let Some(known) = self.clusters.get_mut(cluster) {
                known.is_truncated = true;
            }
            return;
        }
        match self.orphans.remove(&key) {
            None => {
                let (uid, attempt) = (observation.uid.clone(), observation.attempt);
                out.push(DispatchAction::OrphanFound { cluster: cluster.clone(), uid, attempt });
                self.orphans.insert(key, Orphan::new(observation, now));
            }
            Some(mut known) => {
                if known.origin().is_none() {
                    // The cluster may report the job or the end now, which workloads waited for.
                    self.mark_waiting_for(cluster, &known, now, out);
                }
                if observation.attempt >= known.last.attempt {
                    match known.unacknowledged_end() {
                        // An end that is not acknowledged is kept.
                        Some(attempt) if attempt == observation.attempt => {}
                        holds => {
                            if let Some(attempt) = holds {
                                let uid = observation.uid.clone();
                                out.push(DispatchAction::AcknowledgeEnd {
                                    cluster: cluster.clone(),
                                    uid,
                                    attempt,
                                });
                            }
                            known.update(observation, &self.settings, now);
                        }
                    }
                }
                self.orphans.insert(key, known);
            }
        }
    }

    /// Marks the workloads that may have waited for this orphan. An orphan of an unknown job may
    /// concern its whole namespace, so its cluster's budget applies.
    pub(super) fn mark_waiting_for(
        &mut self,
        cluster: &Name,
        orphan: &Orphan,
        now: UnixMillis,
        out: &mut Vec<DispatchAction>,
    ) {
        match Orphans::job(orphan) {
            Some(job) => {
                self.dirty.extend(self.waiting_by_job.get(&job).into_iter().flatten().cloned())
            }
            None if orphan.blocks_namespace(&self.settings) => {
                self.scan_waiting(cluster, false, now, out)
            }
            None => {}
        }
    }

    /// Gives the observations of orphans to workloads that the hub has learned of.
    pub(super) fn claim_orphans(&mut self, now: UnixMillis, out: &mut Vec<DispatchAction>) {
        for hub_uid in std::mem::take(&mut self.new_workloads) {
            // A workload adopts a copy in the API first. Then the copy's observations count.
            let Some(entry) = self.entries.get(&hub_uid) else { continue };
            for cluster_uid in
                [Some(hub_uid.clone()), entry.facts.state.cluster_uid.clone()].into_iter().flatten()
            {
                if self.uid_aliases.is_aliased(&cluster_uid)
                    || self.uid_aliases.hub_uid(&cluster_uid) != hub_uid
                {
                    continue;
                }
                for (cluster, orphan) in self.orphans.take(&cluster_uid) {
                    self.observed(&cluster, orphan.last, now, out);
                    let entry = self.entries.get_mut(&hub_uid).filter(|_| orphan.removing);
                    if let Some(remote) = entry.and_then(|entry| entry.remotes.get_mut(&cluster)) {
                        remote.phase = Some(Phase::Absent);
                    }
                }
            }
        }
    }

    pub(super) fn remove_due_orphans(&mut self, now: UnixMillis, out: &mut Vec<DispatchAction>) {
        for key in self.orphans.due_now(now) {
            let has_mostly_orphans = self.has_mostly_orphans(&key.0);
            let Some(mut orphan) = self.orphans.remove(&key) else { continue };
            let (cluster, uid) = key.clone();
            let Observation { namespace, name, attempt, .. } = orphan.last.clone();
            if orphan.unacknowledged_end().is_some() {
                orphan.acked = true;
                out.push(DispatchAction::AcknowledgeEnd {
                    cluster: cluster.clone(),
                    uid: uid.clone(),
                    attempt,
                });
            }
            let stays = orphan.is_kept(&self.settings)
                || now < orphan.since.saturating_add(self.settings.orphan_grace);
            if !stays && has_mostly_orphans {
                orphan.since = now;
            } else if !stays {
                orphan.removing = true;
                let phase = Phase::Absent;
                out.push(DispatchAction::Assign(RequestedAssignment {
                    cluster,
                    uid,
                    namespace,
                    name,
                    attempt,
                    phase,
                }));
            }
            self.orphans.insert(key, orphan);
        }
    }
}
