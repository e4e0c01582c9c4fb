//! Workloads with our hub's id on a cluster, of which the hub does not know: reported first, removed much later.

use std::collections::{BTreeMap, BTreeSet};

use super::machine::Dispatcher;
use super::{
    Action, JobKey, Name, Observation, Origin, Phase, Settings, State, Subject, Time, Uid,
    is_running, take_from, terminal,
};

/// The most workloads that one cluster may speak of in a session, and the most unknown ones of it that are remembered at once.
/// One that has more is not believed to have told all.
pub const MAX_WORKLOADS: usize = 200_000;

/// A cluster of which the hub knows less than it does not know, and of that at least this much, is left as it is: it is
/// more likely that the hub's store was lost or is an old one.
const MANY_ORPHANS: usize = 10;

/// A workload of ours that we do not know.
#[derive(Debug, Clone)]
pub(super) struct Orphan {
    /// What was last said of it.
    last: Observation,
    /// When it was first heard of.
    first: Time,
    /// From when on its time runs.
    since: Time,
    /// Its end has been acknowledged.
    acked: bool,
    pub(super) removing: bool,
    /// Why it is not the copy of a workload that stands for a job of its name.
    pub(super) differs: Option<String>,
}

impl Orphan {
    fn new(last: Observation, now: Time) -> Self {
        Self { last, first: now, since: now, acked: false, removing: false, differs: None }
    }

    /// Whether it may have been made before this hub's memory began.
    pub(super) fn predates(&self, settings: &Settings) -> bool {
        settings
            .forgotten_until()
            .is_some_and(|end| self.origin().is_none_or(|origin| origin.created < end))
    }

    /// Whether it is never removed as unknown. One that has no job holds quota, and nothing of it ever ran. One that was evicted
    /// there, and of which nobody knows what it was made of, nobody can adopt; and its job's name is taken by it.
    pub(super) fn stays(&self, settings: &Settings) -> bool {
        let is_over = self.last.state == State::Evicted && self.origin().is_none();
        self.has_job() && self.predates(settings) && !is_over
    }

    /// What it was made of.
    pub(super) fn origin(&self) -> Option<&Origin> {
        self.last.origin.as_ref()
    }

    /// Whether its job is there, or may be, and not only its Workload. It may have been made since its cluster said that it
    /// was not: then the state tells.
    pub(super) fn has_job(&self) -> bool {
        let begun = matches!(
            self.last.state,
            State::Running | State::Suspended | State::Succeeded | State::Failed | State::Evicted
        );
        begun || self.origin().is_none_or(|origin| origin.has_job)
    }

    /// Whether its cluster says that it runs.
    pub(super) fn runs(&self) -> bool {
        is_running(self.last.state, &self.last.reasons)
    }

    /// Whether jobs of its namespace wait for it, as it may be the copy of any of them.
    pub(super) fn holds_up(&self, settings: &Settings) -> bool {
        self.origin().is_none() && self.stays(settings) && self.last.state == State::Running
    }

    pub(super) fn attempt(&self) -> u64 {
        self.last.attempt
    }

    pub(super) fn state(&self) -> State {
        self.last.state
    }

    /// Its uid, namespace, name and attempt.
    pub(super) fn place(&self) -> (Uid, Name, Name, u64) {
        let Observation { uid, namespace, name, attempt, .. } = &self.last;
        (uid.clone(), namespace.clone(), name.clone(), *attempt)
    }

    /// Takes what is said of it now. What it was made of, and a status that nobody has seen, stay. If it was not to be removed
    /// until now, its time begins: an eviction may be followed by its going on.
    fn update(&mut self, said: Observation, settings: &Settings, now: Time) {
        let stayed = self.stays(settings);
        let before = std::mem::replace(&mut self.last, said);
        if self.last.attempt == before.attempt {
            self.last.job_status |= before.job_status;
        }
        if self.last.origin.is_none() {
            self.last.origin = before.origin;
        }
        if stayed && !self.stays(settings) {
            self.since = now;
        }
    }

    /// For people: why it stays.
    fn note(&self, settings: &Settings) -> Option<String> {
        let waits =
            || "made before this hub's memory; waits for its job to be applied again".to_owned();
        self.stays(settings).then(|| self.differs.clone().unwrap_or_else(waits))
    }

    /// The attempt whose end holds up the acknowledgement of all that its cluster said since, if one does.
    fn holds(&self) -> Option<u64> {
        (terminal(self.last.state) && !self.acked).then_some(self.last.attempt)
    }

    /// When something is to be done about it, if nothing happens before. An end may be the end of a workload that we are
    /// about to hear of: it is not let go at once.
    pub(super) fn due(&self, settings: &Settings) -> Option<Time> {
        if self.removing {
            return None;
        }
        let wait = if self.holds().is_some() {
            settings.start_grace.min(settings.orphan_after)
        } else if self.stays(settings) {
            return None;
        } else {
            settings.orphan_after
        };
        Some(self.since.saturating_add(wait))
    }
}

/// A workload of ours that we do not know, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OrphanView {
    /// The uid that it has, or had, on the hub.
    pub uid: Uid,
    /// Where it lies on the cluster.
    pub namespace: Name,
    /// Where it lies on the cluster.
    pub name: Name,
    /// The attempt.
    pub attempt: u64,
    /// What its cluster says of it.
    pub state: State,
    /// Since when we know of it.
    pub since: Time,
    /// Why it is not removed, and what mends it; none if it will be.
    pub note: Option<String>,
}

/// Those of all clusters, by cluster and uid.
#[derive(Debug)]
pub(super) struct Orphans {
    settings: Settings,
    all: BTreeMap<(Name, Uid), Orphan>,
    /// By namespace, kind and name of their jobs.
    by_job: BTreeMap<JobKey, BTreeSet<(Name, Uid)>>,
    /// By namespace, those of which nobody says for which job they were made.
    of_no_job: BTreeMap<Name, BTreeSet<(Name, Uid)>>,
    /// Where those of a uid are.
    by_uid: BTreeMap<Uid, BTreeSet<Name>>,
    /// By when something is to be done about them.
    by_due: BTreeSet<(Time, (Name, Uid))>,
    /// How many each cluster has.
    counts: BTreeMap<Name, usize>,
}

impl Orphans {
    pub(super) fn new(settings: Settings) -> Self {
        Self {
            settings,
            all: BTreeMap::new(),
            by_job: BTreeMap::new(),
            of_no_job: BTreeMap::new(),
            by_uid: BTreeMap::new(),
            by_due: BTreeSet::new(),
            counts: BTreeMap::new(),
        }
    }

    fn job(orphan: &Orphan) -> Option<JobKey> {
        Some(orphan.origin()?.subject.key(&orphan.last.namespace))
    }

    /// Those whose job has this kind and name.
    pub(super) fn of_job(
        &self,
        namespace: &Name,
        subject: &Subject,
    ) -> impl Iterator<Item = &(Name, Uid)> {
        self.by_job.get(&subject.key(namespace)).into_iter().flatten()
    }

    /// Those in a namespace that may have been made for any job of it.
    pub(super) fn of_no_job(&self, namespace: &Name) -> impl Iterator<Item = &(Name, Uid)> {
        self.of_no_job.get(namespace).into_iter().flatten()
    }

    /// Whether a cluster has one of this uid.
    pub(super) fn has(&self, uid: &Uid) -> bool {
        self.by_uid.contains_key(uid)
    }

    pub(super) fn get(&self, cluster: &Name, uid: &Uid) -> Option<&Orphan> {
        self.all.get(&(cluster.clone(), uid.clone()))
    }

    /// Changes one, if it is there.
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
            None => {
                self.of_no_job.entry(orphan.last.namespace.clone()).or_default().insert(key.clone())
            }
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
            None => take_from(&mut self.of_no_job, &orphan.last.namespace, key),
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

    /// Takes those of a uid out, with their clusters.
    fn take(&mut self, uid: &Uid) -> Vec<(Name, Orphan)> {
        let clusters: Vec<Name> = self.by_uid.get(uid).into_iter().flatten().cloned().collect();
        clusters
            .into_iter()
            .filter_map(|at| Some((at.clone(), self.remove(&(at, uid.clone()))?)))
            .collect()
    }

    /// Those about which something is to be done now.
    fn pressing(&self, now: Time) -> Vec<(Name, Uid)> {
        self.by_due.iter().take_while(|(due, _)| *due <= now).map(|(_, key)| key.clone()).collect()
    }

    /// Forgets those of a cluster but for these. Returns what it forgot.
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

    /// When something is to be done about one of them.
    pub(super) fn due(&self) -> Option<Time> {
        self.by_due.first().map(|(due, _)| *due)
    }

    /// How many a cluster has.
    pub(super) fn count(&self, cluster: &str) -> usize {
        self.counts.get(cluster).copied().unwrap_or(0)
    }
}

impl Dispatcher {
    /// Whether a cluster is there and has told all that it has.
    pub fn has_told(&self, cluster: &str) -> bool {
        self.clusters.get(cluster).is_some_and(|it| it.up && it.synced)
    }

    /// Whether a cluster has an orphan of this uid.
    pub fn has_orphan(&self, cluster: &Name, uid: &Uid) -> bool {
        self.orphans.get(cluster, uid).is_some()
    }

    /// The orphans of a cluster, the first so many by their uids.
    pub fn orphans_of(&self, cluster: &str, most: usize) -> Vec<OrphanView> {
        let from = (Name::from(cluster), Uid::from(""));
        let there = self.orphans.all.range(from..).take_while(|((name, _), _)| **name == *cluster);
        let view = |((_, uid), orphan): (&(Name, Uid), &Orphan)| OrphanView {
            uid: uid.clone(),
            namespace: orphan.last.namespace.clone(),
            name: orphan.last.name.clone(),
            attempt: orphan.last.attempt,
            state: orphan.last.state,
            since: orphan.first,
            note: orphan.note(&self.settings),
        };
        there.take(most).map(view).collect()
    }

    pub(super) fn orphaned(
        &mut self,
        cluster: &Name,
        observation: Observation,
        now: Time,
        out: &mut Vec<Action>,
    ) {
        let key = (cluster.clone(), observation.uid.clone());
        if observation.state == State::Gone {
            let (uid, attempt) = (observation.uid, observation.attempt);
            let Some(orphan) = self.orphans.remove(&key) else {
                if self.identities.is_superseded(&uid) {
                    // An offer made before the workload adopted a copy, and taken back.
                    out.push(Action::Forget { cluster: cluster.clone(), uid, attempt });
                }
                return;
            };
            self.touch_waiting_for(cluster, &orphan, now, out);
            if let Some(attempt) = orphan.holds() {
                out.push(Action::Ack { cluster: cluster.clone(), uid: uid.clone(), attempt });
            }
            if orphan.removing {
                out.push(Action::Forget { cluster: cluster.clone(), uid, attempt });
            }
            return;
        }
        let full =
            !self.orphans.all.contains_key(&key) && self.orphans.count(cluster) >= MAX_WORKLOADS;
        // Acknowledgements are in order: one that is not given holds up all behind it.
        let let_go =
            self.orphans.all.get(&key).is_some_and(|orphan| orphan.acked || orphan.removing);
        if terminal(observation.state) && (full || let_go) {
            let (uid, attempt) = (observation.uid.clone(), observation.attempt);
            out.push(Action::Ack { cluster: cluster.clone(), uid, attempt });
        }
        if full {
            if let Some(known) = self.clusters.get_mut(cluster) {
                known.cut_off = true;
            }
            return;
        }
        match self.orphans.remove(&key) {
            None => {
                let (uid, attempt) = (observation.uid.clone(), observation.attempt);
                out.push(Action::Orphan { cluster: cluster.clone(), uid, attempt });
                self.orphans.insert(key, Orphan::new(observation, now));
            }
            Some(mut known) => {
                if known.origin().is_none() {
                    // Its cluster may name its job now, or say that it ended: workloads that waited for it go on then.
                    self.touch_waiting_for(cluster, &known, now, out);
                }
                if observation.attempt >= known.last.attempt {
                    match known.holds() {
                        // An end that is not acknowledged stays until it is.
                        Some(attempt) if attempt == observation.attempt => {}
                        holds => {
                            if let Some(attempt) = holds {
                                let uid = observation.uid.clone();
                                out.push(Action::Ack { cluster: cluster.clone(), uid, attempt });
                            }
                            known.update(observation, &self.settings, now);
                        }
                    }
                }
                self.orphans.insert(key, known);
            }
        }
    }

    /// Has those settled that stand for the same job as an orphan, and may have waited for it. Where the orphan names no job, these
    /// are all of its namespace: they are looked at as the cluster's budget allows.
    pub(super) fn touch_waiting_for(
        &mut self,
        cluster: &Name,
        orphan: &Orphan,
        now: Time,
        out: &mut Vec<Action>,
    ) {
        match Orphans::job(orphan) {
            Some(job) => self.dirty.extend(self.waiting.get(&job).into_iter().flatten().cloned()),
            None if orphan.holds_up(&self.settings) => self.look_through(cluster, false, now, out),
            None => {}
        }
    }

    /// Workloads that we have come to know are no orphans: what clusters said of them counts.
    pub(super) fn adopt(&mut self, now: Time, out: &mut Vec<Action>) {
        for ours in std::mem::take(&mut self.newcomers) {
            // Of one that adopts a copy, what the API says has to be known first: then what the copy is counts.
            let Some(entry) = self.entries.get(&ours) else { continue };
            for theirs in [Some(ours.clone()), entry.facts.known_as.clone()].into_iter().flatten() {
                if self.identities.is_superseded(&theirs) || self.identities.ours(&theirs) != ours {
                    continue;
                }
                for (cluster, orphan) in self.orphans.take(&theirs) {
                    self.observed(&cluster, orphan.last, now, out);
                    let entry = self.entries.get_mut(&ours).filter(|_| orphan.removing);
                    if let Some(remote) = entry.and_then(|entry| entry.remotes.get_mut(&cluster)) {
                        remote.phase = Some(Phase::Absent);
                    }
                }
            }
        }
    }

    pub(super) fn sweep_orphans(&mut self, now: Time, out: &mut Vec<Action>) {
        for key in self.orphans.pressing(now) {
            let many = self.orphans.count(&key.0);
            let Some(mut orphan) = self.orphans.remove(&key) else { continue };
            let (cluster, uid) = key.clone();
            let Observation { namespace, name, attempt, .. } = orphan.last.clone();
            if orphan.holds().is_some() {
                orphan.acked = true;
                out.push(Action::Ack { cluster: cluster.clone(), uid: uid.clone(), attempt });
            }
            let stays = orphan.stays(&self.settings)
                || now < orphan.since.saturating_add(self.settings.orphan_after);
            if !stays && many >= MANY_ORPHANS && many > self.index.count(&cluster) {
                // It is the hub that has forgotten.
                orphan.since = now;
            } else if !stays {
                orphan.removing = true;
                out.push(Action::Desire {
                    cluster,
                    uid,
                    namespace,
                    name,
                    attempt,
                    phase: Phase::Absent,
                });
            }
            self.orphans.insert(key, orphan);
        }
    }
}
