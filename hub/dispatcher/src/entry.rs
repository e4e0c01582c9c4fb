//! What the dispatcher knows of one workload.

use std::collections::BTreeMap;

use super::gates::RemoteGate;
use super::policy::Told;
use super::refusals::Refusals;
use super::{
    Action, CANNOT_SEND, Facts, JobKey, Name, Origin, Phase, Reason, Reserved, State, Time, Uid,
    is_running, terminal,
};

/// One workload on one cluster.
#[derive(Debug, Clone, Default)]
pub(super) struct Remote {
    /// The highest attempt that was sent there or seen there.
    pub(super) attempt: u64,
    /// What we want of that attempt; none if we have only seen it.
    pub(super) phase: Option<Phase>,
    /// What the cluster last said of that attempt.
    pub(super) state: Option<State>,
    /// Why.
    pub(super) reasons: Vec<Reason>,
    /// What that attempt was made of, where the cluster has said so.
    pub(super) origin: Option<Origin>,
    /// The highest attempt that was told to run, or seen to: until it is gone, something may run there.
    pub(super) ran: Option<u64>,
    /// Given up: the cluster was away for too long.
    pub(super) lost: bool,
    /// When what we want last changed.
    pub(super) since: Time,
    /// The fence that goes with it.
    pub(super) fence: Told,
    /// The attempt, priority and class that it was last told.
    pub(super) priority: Option<(u64, i32, Name)>,
    /// Its copy's preemption gate.
    pub(super) gate: RemoteGate,
}

impl Remote {
    /// Whether something may run there.
    pub(super) fn may_run(&self) -> bool {
        self.ran.is_some() && !self.lost
    }

    /// Whether its cluster says that it runs.
    pub(super) fn runs(&self) -> bool {
        self.state.is_some_and(|state| is_running(state, &self.reasons))
    }

    /// Whether its cluster says that it runs, or has been told to run it and does not say that it is over.
    pub(super) fn goes_on(&self) -> bool {
        self.runs() || (self.phase == Some(Phase::Run) && self.state != Some(State::Evicted))
    }

    /// Whether we or the cluster have said something of it: it is not here by the API's word alone.
    pub(super) fn is_spoken_of(&self) -> bool {
        self.phase.is_some() || self.state.is_some()
    }

    /// Whether a copy that the cluster says no to may yet be admitted there: its quota may grow, what is in the way may go, and
    /// what was evicted is queued again.
    pub(super) fn may_still_fit(&self) -> bool {
        let has = |codes: &[&str]| {
            self.reasons.iter().any(|reason| codes.contains(&reason.code.as_str()))
        };
        match self.state {
            Some(State::Refused) => !has(&[CANNOT_SEND]),
            Some(State::Evicted) => !has(OVER),
            _ => true,
        }
    }

    /// Whether the cluster has said nothing of this attempt, or only that it has not looked yet.
    pub(super) fn unanswered(&self) -> bool {
        match self.state {
            None => true,
            Some(State::Waiting) => self.reasons.iter().all(|reason| reason.code == UNSEEN),
            Some(_) => false,
        }
    }
}

/// Reasons of [`State::Evicted`] with which a worker's Workload does not come to be admitted any more.
const OVER: &[&str] =
    &["OutOfSync", "OwnerNotFound", "WorkloadSliceReplaced", switchyard_proto::DELETED_ON_WORKER];

/// The reason of a worker's admission that has not looked at a workload yet.
const UNSEEN: &str = "PendingEvaluation";

/// The search for a cluster.
#[derive(Debug, Clone)]
pub(super) struct Nomination {
    pub(super) attempt: u64,
    pub(super) since: Time,
    /// Incremental: how many rounds have begun, and when the next does.
    pub(super) rounds: usize,
    pub(super) next_round: Time,
}

/// The write under way. One at a time, so that the API never sees two of our minds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Writing {
    Commit { cluster: Name, attempt: u64 },
    Record,
    Retry,
    Release,
    Finish { cluster: Name, attempt: u64 },
}

#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) facts: Facts,
    /// The object is gone from the API.
    pub(super) gone: bool,
    /// Quota that is reserved in memory only.
    pub(super) memory: Option<Reserved>,
    /// The engine wants that quota back for another workload.
    pub(super) withdrawn: bool,
    /// The highest attempt ever used or seen.
    pub(super) top: u64,
    /// Boxed: a map has room for eleven from the first on, and most workloads are on one cluster.
    pub(super) remotes: BTreeMap<Name, Box<Remote>>,
    pub(super) nomination: Option<Nomination>,
    pub(super) writing: Option<Writing>,
    /// Failed writes in a row, and when to try again.
    pub(super) failures: u32,
    pub(super) not_before: Time,
    /// Clusters that refused or evicted it.
    pub(super) refusals: Refusals,
    /// How often in a row no cluster could take it.
    pub(super) given_back: u32,
    /// What was last recorded, and when.
    pub(super) recorded: Option<(String, Time)>,
    /// The version for which its quota was given back.
    pub(super) released: Option<u64>,
    /// The cluster that was last committed.
    pub(super) last: Option<Name>,
    /// The job's end, seen and not yet persisted: where, of which attempt, whether it succeeded.
    pub(super) ended: Option<(Name, u64, bool)>,
    /// Nothing of that attempt, and lower ones, is left on that cluster: it said so when told, or does not exist any more.
    pub(super) cleared: BTreeMap<Name, u64>,
    /// Whether this process knows every cluster on which an attempt may run. Not after a restart while the workload is
    /// being evicted: the API then only says that there was an attempt.
    pub(super) sure: bool,
    /// Somebody changed its policy after this process began. An agent knows the new policy only if the hub sent it an assignment since.
    pub(super) changed_policy: bool,
    /// When it is to be looked at again.
    pub(super) wake: Option<Time>,
    /// Its place among those that look for a cluster.
    pub(super) queued: Option<(i64, Time)>,
    /// The job by which it is found there. Boxed: most look for none.
    pub(super) queued_as: Option<Box<JobKey>>,
    /// A later attempt than the API knows is there, and runs, has stopped, has ended, or waits: it is not taken away.
    pub(super) kept: Option<Name>,
    /// Where it is listed in the index.
    pub(super) listed: Vec<Name>,
    /// What is decided waits for the word of clusters that have not spoken.
    pub(super) waits_for_word: bool,
    /// The workload of which it was last asked to be written that it has its copy.
    pub(super) passes_to: Option<Uid>,
}

impl Entry {
    pub(super) fn new(facts: Facts) -> Self {
        Self {
            top: facts.attempt,
            sure: facts.attempt == 0 || facts.cluster.is_some(),
            last: facts.cluster.clone(),
            facts,
            gone: false,
            memory: None,
            withdrawn: false,
            remotes: BTreeMap::new(),
            nomination: None,
            writing: None,
            failures: 0,
            not_before: 0,
            refusals: Refusals::default(),
            given_back: 0,
            recorded: None,
            released: None,
            ended: None,
            cleared: BTreeMap::new(),
            changed_policy: false,
            wake: None,
            queued: None,
            queued_as: None,
            kept: None,
            listed: Vec::new(),
            waits_for_word: false,
            passes_to: None,
        }
    }

    /// Whether this attempt is the one that the API last committed, and to this cluster, as far as is known: an
    /// eviction takes the cluster's name away, and a restart takes our memory of it.
    pub(super) fn is_current(&self, cluster: &Name, attempt: u64) -> bool {
        let committed = self.facts.cluster.as_ref().or(self.last.as_ref());
        let here = committed.is_none_or(|committed| committed == cluster);
        !self.facts.finished && here && attempt > 0 && self.facts.attempt == attempt
    }

    /// Records the end of a copy that the hub is adopting. The cluster reported that end before the adoption, when it did not count
    /// yet. The API shows the adoption in a watch event or in the answer to the write, whichever comes first.
    pub(super) fn recall_end(&mut self, cluster: &Name, attempt: u64) {
        let remote = self
            .remotes
            .get(cluster)
            .filter(|it| it.attempt == attempt && self.is_current(cluster, attempt));
        let state = remote.and_then(|remote| remote.state).filter(|state| terminal(*state));
        if let Some(state) = state.filter(|_| self.facts.cluster.as_ref() == Some(cluster)) {
            self.ended = Some((cluster.clone(), attempt, state == State::Succeeded));
        }
    }

    /// The job that it stands for, as orphans are found by it.
    pub(super) fn job(&self) -> Option<JobKey> {
        let Facts { namespace, subject, .. } = &self.facts;
        subject.as_ref().map(|subject| subject.key(namespace))
    }

    /// Takes the API's word, unless it is older than what we have.
    pub(super) fn take(&mut self, facts: Facts) {
        if facts.version != 0 && facts.version < self.facts.version {
            return;
        }
        if facts.queue != self.facts.queue || facts.pod_sets != self.facts.pod_sets {
            // They refused something else.
            self.refusals.forget_all();
        }
        self.changed_policy |= facts.loss != self.facts.loss;
        let asks = facts.moving.as_ref().filter(|_| facts.moving != self.facts.moving);
        if let Some((_, to)) = asks.filter(|_| facts.cluster.is_none()) {
            // The user who asks for a cluster may have mended why it refused. A job that runs is not stopped for a try.
            self.refusals.forget(to);
        }
        self.top = self.top.max(facts.attempt);
        if facts.reserved || facts.cluster.is_some() || facts.finished {
            self.memory = None;
        }
        self.sure |= facts.cluster.is_some();
        if facts.known_as != self.facts.known_as {
            // That was said of attempts under another uid.
            self.cleared.clear();
        }
        if facts.cluster.is_some() {
            self.last.clone_from(&facts.cluster);
        }
        // Who makes facts of a write's answer does not look for the job, nor for other replicas.
        let (subject, replica) = (self.facts.subject.take(), self.facts.replica.take());
        // It is found by its name, for as long as it is there.
        let replaces = self.facts.replaces.take();
        self.facts = Facts {
            subject: facts.subject.clone().or(subject),
            replica: facts.replica.clone().or(replica),
            job_ended: facts.job_ended.or(self.facts.job_ended),
            replaces: replaces.or_else(|| facts.replaces.clone()),
            ..facts
        };
    }

    /// Wants `phase` of `attempt` on a cluster, and says so if that is news.
    ///
    /// Nothing is said to a cluster that has never heard of the workload and is to have nothing of it.
    pub(super) fn want(
        &mut self,
        cluster: &Name,
        attempt: u64,
        phase: Phase,
        now: Time,
        out: &mut Vec<Action>,
    ) {
        self.top = self.top.max(attempt);
        if phase == Phase::Absent && !self.remotes.contains_key(cluster) {
            return;
        }
        let remote = self.remotes.entry(cluster.clone()).or_default();
        let attempt = if phase == Phase::Absent { attempt.max(remote.attempt) } else { attempt };
        if attempt < remote.attempt || (attempt == remote.attempt && remote.phase == Some(phase)) {
            return;
        }
        if attempt > remote.attempt {
            // What was seen of a lower attempt says nothing of this one; whether that one ran still counts, until the
            // cluster speaks of the new one: it tears the lower down first.
            (remote.state, remote.origin) = (None, None);
            remote.reasons.clear();
            remote.lost = false;
            remote.gate.renew();
        }
        if remote.state == Some(State::Gone) {
            // Gone before it was told so: it has to say it again.
            remote.state = None;
        }
        remote.attempt = attempt;
        remote.phase = Some(phase);
        remote.since = now;
        if phase == Phase::Run {
            remote.ran = Some(attempt);
        }
        out.push(self.desire(cluster, attempt, phase));
    }

    /// What was committed to a cluster may run there, though this process has heard nothing of it.
    pub(super) fn presume(&mut self, cluster: &Name, attempt: u64) {
        let remote = self.remotes.entry(cluster.clone()).or_default();
        if remote.attempt == 0 {
            (remote.attempt, remote.ran) = (attempt, Some(attempt));
        }
    }

    pub(super) fn desire(&self, cluster: &Name, attempt: u64, phase: Phase) -> Action {
        Action::Desire {
            cluster: cluster.clone(),
            uid: self.facts.uid.clone(),
            namespace: self.facts.namespace.clone(),
            name: self.facts.name.clone(),
            attempt,
            phase,
        }
    }

    /// Wants nothing of the workload anywhere but on `keep`.
    pub(super) fn clear(&mut self, keep: Option<&Name>, now: Time, out: &mut Vec<Action>) {
        let others: Vec<(Name, u64)> = self
            .remotes
            .iter()
            .filter(|(cluster, _)| Some(*cluster) != keep && Some(*cluster) != self.kept.as_ref())
            .map(|(cluster, remote)| (cluster.clone(), remote.attempt))
            .collect();
        for (cluster, attempt) in others {
            self.want(&cluster, attempt, Phase::Absent, now, out);
        }
    }

    /// Whether it may run on any cluster that has not been given up, but for what the API does not know yet. Quota that a cluster merely holds for it is no
    /// reason to keep the hub's.
    pub(super) fn may_run(&self) -> bool {
        self.remotes
            .iter()
            .any(|(cluster, remote)| Some(cluster) != self.kept.as_ref() && remote.may_run())
    }

    pub(super) fn wake_at(&mut self, at: Time) {
        self.wake = Some(self.wake.map_or(at, |wake| wake.min(at)));
    }
}
