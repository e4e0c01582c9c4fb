//! State of one workload in the dispatcher: the Workload itself, and one [`Remote`] for each
//! cluster that has or shall have a copy.
//!
//! Requests to clusters go through [`TrackedWorkload::request`], so that the attempts sent to one
//! cluster never fall. Writes go through [`TrackedWorkload::start_write`]; callers start one only
//! when none is under way.

use std::collections::BTreeMap;
use std::sync::Arc;

use switchyard_syntax::flavor_pins::FlavorPins;

use super::fences::AnnouncedFence;
use super::preemption_gates::CopyGate;
use super::refusals::Refusals;
use crate::{
    CANNOT_SEND, CopyOrigin, DispatchAction, JobKey, MemoryReservation, Name, Phase, Reason,
    RequestedAssignment, State, Uid, UnixMillis, WorkloadFacts, WorkloadWrite, has_reason,
    is_running, is_terminal,
};

/// One workload on one cluster.
#[derive(Debug, Clone, Default)]
pub(crate) struct Remote {
    /// The highest attempt sent to or reported by the cluster.
    pub(super) attempt: u64,
    /// The hub's last request for this attempt. None if the attempt was only reported.
    pub(super) phase: Option<Phase>,
    /// Last reported state of this attempt.
    pub(super) state: Option<State>,
    /// Reasons of that state.
    pub(super) reasons: Vec<Reason>,
    /// The job that the copy was made for, if the cluster reported it.
    pub(super) origin: Option<CopyOrigin>,
    /// The highest attempt requested or reported to run. Until it is gone, it may run there.
    pub(super) ran: Option<u64>,
    /// Given up after a disconnect.
    pub(super) lost: bool,
    /// When `phase` last changed.
    pub(super) since: UnixMillis,
    /// Since when the cluster reports that the attempt has no ready pod, within this session.
    pub(super) stalled_since: Option<UnixMillis>,
    /// When the decision to withdraw the attempt for that may be carried out.
    pub(super) confirmed_at: Option<UnixMillis>,
    /// This process offered the attempt, so no earlier order can have started the job.
    pub(super) was_offered: bool,
    /// The fence announced with this attempt.
    pub(super) fence: AnnouncedFence,
    /// Attempt, priority and class last sent to the cluster.
    pub(super) priority: Option<(u64, i32, Name)>,
    pub(super) gate: CopyGate,
    /// The flavors of the copy's quota, until the cluster is committed.
    pub(super) flavors: Option<Arc<FlavorPins>>,
}

impl Remote {
    /// Whether the cluster reported a copy that may be older than the hub's store, which knows
    /// everything since `forgotten`.
    pub(super) fn predates(&self, forgotten: Option<UnixMillis>) -> bool {
        self.origin.as_ref().is_some_and(|origin| Some(origin.created) < forgotten)
    }

    /// Whether something may run there.
    pub(super) fn may_run(&self) -> bool {
        self.ran.is_some() && !self.lost
    }

    /// Whether the cluster reports that it runs.
    pub(super) fn runs(&self) -> bool {
        self.state.is_some_and(|state| is_running(state, &self.reasons))
    }

    /// Whether the cluster reports that it runs, or shall run it and reports no eviction.
    pub(super) fn is_meant_to_run(&self) -> bool {
        self.runs() || (self.phase == Some(Phase::Run) && self.state != Some(State::Evicted))
    }

    /// Whether the hub requested or the cluster reported it. Otherwise only the API names the
    /// cluster.
    pub(super) fn is_requested_or_reported(&self) -> bool {
        self.phase.is_some() || self.state.is_some()
    }

    /// Whether the cluster may still admit a copy that it refused or evicted: quota may grow,
    /// others may leave, and an evicted Workload is queued again.
    pub(super) fn may_still_fit(&self) -> bool {
        match self.state {
            Some(State::Refused) => !has_reason(&self.reasons, &[CANNOT_SEND]),
            Some(State::Evicted) => !has_reason(&self.reasons, OVER),
            _ => true,
        }
    }

    /// Whether the cluster reported a copy without quota that this process never requested. An
    /// earlier leader made it, for another charge or under other rules: it keeps its old pins.
    pub(super) fn is_waiting_copy_of_earlier_leader(&self) -> bool {
        let waits = matches!(
            self.state,
            Some(State::Waiting | State::Unfit | State::Refused | State::Evicted)
        );
        waits && self.phase.is_none()
    }

    /// Whether the answer is open: no report yet, or only one from before the evaluation.
    pub(super) fn is_unanswered(&self) -> bool {
        match self.state {
            None => true,
            Some(State::Waiting) => self.reasons.iter().all(|reason| reason.code == UNSEEN),
            Some(_) => false,
        }
    }
}

/// Reasons of [`State::Evicted`] after which the worker never admits the Workload again.
const OVER: &[&str] =
    &["OutOfSync", "OwnerNotFound", "WorkloadSliceReplaced", switchyard_proto::DELETED_ON_WORKER];

/// Reason on a worker whose admission has not evaluated the Workload yet.
const UNSEEN: &str = "PendingEvaluation";

/// The search for a cluster. It begins with quota and ends with a commit or the loss of quota.
#[derive(Debug, Clone)]
pub(super) struct Nomination {
    pub(super) attempt: u64,
    pub(super) since: UnixMillis,
    /// Incremental dispatcher: rounds begun, and when the next one begins.
    pub(super) rounds: usize,
    pub(super) next_round: UnixMillis,
}

#[derive(Debug, Clone)]
pub(crate) struct TrackedWorkload {
    pub(crate) facts: WorkloadFacts,
    /// Whether the Workload was deleted.
    pub(super) is_deleted: bool,
    /// Quota that the API does not show yet.
    pub(super) reservation: Option<MemoryReservation>,
    /// The engine wants the reservation back.
    pub(super) is_withdrawn: bool,
    /// The highest attempt ever used or reported.
    pub(crate) highest_attempt: u64,
    /// Boxed: a BTreeMap node has room for eleven values, and most workloads are on one cluster.
    pub(crate) remotes: BTreeMap<Name, Box<Remote>>,
    pub(super) nomination: Option<Nomination>,
    /// The write under way. At most one, so that decisions reach the API in order.
    pub(super) pending_write: Option<Arc<WorkloadWrite>>,
    /// Failed writes in a row, and when to write again.
    pub(super) failed_writes: u32,
    pub(super) retry_write_at: UnixMillis,
    pub(super) refusals: Refusals,
    /// How many times in a row no cluster could take it.
    pub(super) returned_in_a_row: u32,
    /// Message last written to the check, and when.
    pub(super) last_recorded: Option<(String, UnixMillis)>,
    /// Its turn to write, while it waits for one.
    pub(super) turn: Option<UnixMillis>,
    /// The resource version for which its quota was released.
    pub(super) released_version: Option<u64>,
    /// The cluster that was last committed.
    pub(super) last_cluster: Option<Name>,
    /// An end that is not written yet: cluster, attempt, and whether the job succeeded.
    pub(super) unsaved_end: Option<(Name, u64, bool)>,
    /// Per cluster, the highest attempt of which nothing is left.
    pub(super) cleared_attempts: BTreeMap<Name, u64>,
    /// Whether every cluster on which it may run is known. After a restart during an eviction, the
    /// API shows that there was an attempt, but not where.
    pub(super) knows_all_clusters: bool,
    /// Its policy changed in this process. An agent knows the new one only from a later assignment.
    pub(super) has_new_policy: bool,
    /// When to reconcile it again.
    pub(super) reconcile_at: Option<UnixMillis>,
    /// Its key among the workloads that look for a cluster.
    pub(super) nominating_key: Option<(i64, UnixMillis)>,
    /// Its key among the workloads waiting by job. Boxed: most have none.
    pub(super) waiting_key: Option<Box<JobKey>>,
    /// A cluster with a later attempt than the API knows, whose copy stays.
    pub(super) spared_on: Option<Name>,
    /// The clusters under which the index lists it.
    pub(super) indexed_on: Vec<Name>,
    /// Clusters whose quota contradicted its pins.
    pub(super) mismatched_on: Vec<Name>,
    /// The rules for pins changed since its open offers.
    pub(super) has_new_pins: bool,
    /// The decision waits for the inventories of silent clusters.
    pub(super) waits_for_inventories: bool,
    /// The workload slice that is being committed to its copy.
    pub(super) copy_goes_to: Option<Uid>,
}

impl TrackedWorkload {
    pub(super) fn new(facts: WorkloadFacts) -> Self {
        Self {
            highest_attempt: facts.state.attempt,
            knows_all_clusters: facts.state.attempt == 0 || facts.state.cluster.is_some(),
            last_cluster: facts.state.cluster.clone(),
            facts,
            is_deleted: false,
            reservation: None,
            is_withdrawn: false,
            remotes: BTreeMap::new(),
            nomination: None,
            pending_write: None,
            failed_writes: 0,
            retry_write_at: 0,
            refusals: Refusals::default(),
            returned_in_a_row: 0,
            last_recorded: None,
            turn: None,
            released_version: None,
            unsaved_end: None,
            cleared_attempts: BTreeMap::new(),
            has_new_policy: false,
            reconcile_at: None,
            nominating_key: None,
            waiting_key: None,
            spared_on: None,
            indexed_on: Vec::new(),
            mismatched_on: Vec::new(),
            has_new_pins: false,
            waits_for_inventories: false,
            copy_goes_to: None,
        }
    }

    /// Whether this is the attempt that the API last committed to this cluster. An eviction removes
    /// the cluster's name from the API, and a restart removes it from memory: then the attempt
    /// decides.
    pub(super) fn is_current(&self, cluster: &Name, attempt: u64) -> bool {
        let committed = self.facts.state.cluster.as_ref().or(self.last_cluster.as_ref());
        let here = committed.is_none_or(|committed| committed == cluster);
        !self.facts.state.finished && here && attempt > 0 && self.facts.state.attempt == attempt
    }

    /// Restores the end that a cluster reported before the hub adopted its copy. The adoption shows
    /// in a watch event or in the answer to the write, whichever comes first.
    pub(super) fn restore_end(&mut self, cluster: &Name, attempt: u64) {
        let remote = self
            .remotes
            .get(cluster)
            .filter(|it| it.attempt == attempt && self.is_current(cluster, attempt));
        let state = remote.and_then(|remote| remote.state).filter(|state| is_terminal(*state));
        if let Some(state) = state {
            self.unsaved_end = Some((cluster.clone(), attempt, state == State::Succeeded));
        }
    }

    /// Starts a write. [`crate::DispatchEvent::WriteEnded`] answers it.
    pub(super) fn start_write(&mut self, write: WorkloadWrite, out: &mut Vec<DispatchAction>) {
        let write = Arc::new(write);
        self.pending_write = Some(write.clone());
        out.push(DispatchAction::Write { uid: self.facts.uid.clone(), write });
    }

    /// Starts to write the cluster that has the attempt, chosen for the quota as it is now.
    pub(super) fn start_commit(
        &mut self,
        cluster: Name,
        attempt: u64,
        adopts: Option<Uid>,
        out: &mut Vec<DispatchAction>,
    ) {
        let charged = self.facts.charged.clone();
        self.start_write(WorkloadWrite::Commit { cluster, attempt, adopts, charged }, out);
    }

    /// Whether the write under way names a cluster.
    pub(super) fn is_committing(&self) -> bool {
        self.pending_write.as_deref().is_some_and(|write| write.committed().is_some())
    }

    /// [`Self::restore_end`] of the attempt that is being committed.
    pub(super) fn restore_end_of_commit(&mut self) {
        let Some(write) = self.pending_write.clone() else { return };
        if let Some((cluster, attempt)) = write.committed() {
            self.restore_end(cluster, attempt);
        }
    }

    /// The dispatching AdmissionCheck of its reservation, or else of its status.
    pub(super) fn check(&self) -> Option<&Name> {
        match (&self.reservation, &self.facts.state.check) {
            (Some(reserved), _) => Some(&reserved.check),
            (None, Some((check, _))) => Some(check),
            (None, None) => None,
        }
    }

    pub(super) fn job(&self) -> Option<JobKey> {
        let WorkloadFacts { namespace, subject, .. } = &self.facts;
        subject.as_ref().map(|subject| subject.key(namespace))
    }

    /// Updates the facts unless these are older.
    pub(super) fn take(&mut self, facts: WorkloadFacts) {
        if facts.version != 0 && facts.version < self.facts.version {
            return;
        }
        if facts.queue != self.facts.queue || facts.pod_sets != self.facts.pod_sets {
            // The refusals concerned other pod requests.
            self.refusals.forget_all();
        }
        // Without quota, the last charge stays: it is what the refusals were about.
        let charged = if facts.charged.is_empty() && !facts.state.reserved {
            self.facts.charged.clone()
        } else {
            facts.charged.clone()
        };
        self.has_new_policy |= facts.on_disconnect != self.facts.on_disconnect;
        let asks =
            facts.move_request.as_ref().filter(|_| facts.move_request != self.facts.move_request);
        // The user may have removed the reason for the refusal. A running job is not stopped for a
        // try.
        match asks {
            Some((_, to)) if facts.state.cluster.is_none() => self.refusals.forget(to),
            Some((_, to)) => self.refusals.forget_stuck(to),
            None => {}
        }
        self.highest_attempt = self.highest_attempt.max(facts.state.attempt);
        if facts.state.reserved || facts.state.cluster.is_some() || facts.state.finished {
            self.reservation = None;
        }
        self.knows_all_clusters |= facts.state.cluster.is_some();
        if facts.state.cluster_uid != self.facts.state.cluster_uid {
            // The cleared attempts belonged to another uid.
            self.cleared_attempts.clear();
        }
        if facts.state.cluster.is_some() {
            self.last_cluster.clone_from(&facts.state.cluster);
        }
        // The answer of a write comes without job and replica.
        let (subject, replica) = (self.facts.subject.take(), self.facts.replica.take());
        // A replaced slice is looked up by name while it exists.
        let replaces = self.facts.replaces.take();
        self.facts = WorkloadFacts {
            subject: facts.subject.clone().or(subject),
            replica: facts.replica.clone().or(replica),
            job_ended: facts.job_ended.or(self.facts.job_ended),
            replaces: replaces.or_else(|| facts.replaces.clone()),
            charged,
            ..facts
        };
    }

    /// Requests `phase` of `attempt` from a cluster, and sends an assignment if that is new.
    ///
    /// A cluster that never had the workload gets no tombstone.
    pub(super) fn request(
        &mut self,
        cluster: &Name,
        attempt: u64,
        phase: Phase,
        now: UnixMillis,
        out: &mut Vec<DispatchAction>,
    ) {
        self.highest_attempt = self.highest_attempt.max(attempt);
        if phase == Phase::Absent && !self.remotes.contains_key(cluster) {
            return;
        }
        let remote = self.remotes.entry(cluster.clone()).or_default();
        let attempt = if phase == Phase::Absent { attempt.max(remote.attempt) } else { attempt };
        if attempt < remote.attempt || (attempt == remote.attempt && remote.phase == Some(phase)) {
            return;
        }
        if attempt > remote.attempt {
            // State, origin and flavors of a lower attempt do not apply to this one. The lower one
            // may still run: the agent removes it first, and then reports the new attempt.
            (remote.state, remote.origin, remote.flavors) = (None, None, None);
            (remote.stalled_since, remote.confirmed_at) = (None, None);
            remote.reasons.clear();
            remote.lost = false;
            remote.was_offered = phase == Phase::Reserve;
            remote.gate.renew();
        }
        if remote.state == Some(State::Gone) {
            // The copy was gone before the tombstone, and the agent reports that again.
            remote.state = None;
        }
        remote.attempt = attempt;
        remote.phase = Some(phase);
        remote.since = now;
        if phase == Phase::Run {
            remote.ran = Some(attempt);
        }
        out.push(self.assignment(cluster, attempt, phase));
    }

    /// Assumes that the committed attempt runs on its cluster, although this process has no report
    /// of it.
    pub(super) fn assume_sent(&mut self, cluster: &Name, attempt: u64) {
        let remote = self.remotes.entry(cluster.clone()).or_default();
        if remote.attempt == 0 {
            (remote.attempt, remote.ran) = (attempt, Some(attempt));
        }
    }

    pub(super) fn assignment(&self, cluster: &Name, attempt: u64, phase: Phase) -> DispatchAction {
        DispatchAction::Assign(RequestedAssignment {
            cluster: cluster.clone(),
            uid: self.facts.uid.clone(),
            namespace: self.facts.namespace.clone(),
            name: self.facts.name.clone(),
            attempt,
            phase,
        })
    }

    /// Requests the removal of all copies except on `keep`.
    pub(super) fn request_absence(
        &mut self,
        keep: Option<&Name>,
        now: UnixMillis,
        out: &mut Vec<DispatchAction>,
    ) {
        let others: Vec<(Name, u64)> = self
            .remotes
            .iter()
            .filter(|(cluster, _)| {
                Some(*cluster) != keep && Some(*cluster) != self.spared_on.as_ref()
            })
            .map(|(cluster, remote)| (cluster.clone(), remote.attempt))
            .collect();
        for (cluster, attempt) in others {
            self.request(&cluster, attempt, Phase::Absent, now, out);
        }
    }

    /// Whether it may run on a cluster that is not given up, besides a later attempt than the API
    /// knows. Quota that a cluster reserves for it does not count.
    pub(super) fn may_run(&self) -> bool {
        self.remotes
            .iter()
            .any(|(cluster, remote)| Some(cluster) != self.spared_on.as_ref() && remote.may_run())
    }

    pub(super) fn wake_at(&mut self, at: UnixMillis) {
        self.reconcile_at = Some(self.reconcile_at.map_or(at, |wake| wake.min(at)));
    }
}
