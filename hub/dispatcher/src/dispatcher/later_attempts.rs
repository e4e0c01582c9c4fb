//! Later attempts than the API knows, after a restored store.
//!
//! A cluster may have a later attempt than the restored API shows. Switchyard keeps what runs:
//!
//! - If the later attempt runs, it is committed, and any earlier one is removed.
//! - If it does not run and the earlier one does, the earlier one goes on. The later copy is spared
//!   ([`TrackedWorkload::spared_on`]) if it was suspended by its fence or has ended. It goes on
//!   only when nothing of the earlier one is left.
//! - A copy that waits for local quota could start by itself, so it is removed while an earlier
//!   attempt runs.
//!
//! If the earlier attempt's cluster is disconnected, the cluster's policy decides when it is given
//! up, as without a restored store.
//!
//! # Dropped attempts
//! A committed Workload has an attempt above zero. The API may drop it and keep the cluster: stock
//! Kueue's CRDs lack `status.dispatch`. The attempt that the cluster has is then written again, and
//! nothing else is decided. While the cluster reports no copy, one is assumed to run there: it may
//! lack the hub's marks. The policy for a lost cluster and an eviction end that.

use super::Dispatcher;
use super::tracked_workload::{Remote, TrackedWorkload};
use crate::{DispatchAction, Name, Observation, Phase, State, UnixMillis, has_reason, is_terminal};

/// State of the committed attempt, if a later one is on another cluster.
#[derive(PartialEq, Eq)]
enum CommittedAttempt {
    /// It runs, or has an assignment in phase `Run`.
    Runs,
    /// It ran or may have run, and is not known to be gone.
    MayRun,
    /// No other cluster has it.
    Gone,
}

impl Remote {
    /// Whether its cluster has or shall have an attempt, and the hub does not remove it.
    fn is_kept(&self) -> bool {
        let is_gone = self.lost || self.state == Some(State::Gone);
        self.attempt > 0 && !is_gone && self.phase != Some(Phase::Absent)
    }

    /// State of an attempt above `known` that has a job and that this process did not give out.
    pub(super) fn ahead_of(&self, known: u64) -> Option<State> {
        let has_job = self.origin.as_ref().map(|origin| origin.has_job);
        let made = |state: &State| match state {
            State::Running | State::Suspended => true,
            // Its job is suspended or is being removed.
            State::Waiting | State::Reserved | State::Evicted => has_job == Some(true),
            // A Workload that ended without a job was an offer.
            state => is_terminal(*state) && has_job != Some(false),
        };
        let is_stopping = has_reason(&self.reasons, &[switchyard_proto::STOPPING]);
        let state = match self.state {
            Some(State::Running) if is_stopping => Some(State::Suspended),
            Some(State::Running) if !self.runs() => Some(State::Evicted),
            state => state,
        };
        state.filter(made).filter(|_| self.phase.is_none() && self.attempt > known && !self.lost)
    }
}

impl TrackedWorkload {
    /// Whether the API has a cluster without an attempt.
    pub(super) fn has_dropped_attempt(&self) -> bool {
        self.facts.state.cluster.is_some() && self.facts.state.attempt == 0
    }

    /// The attempt on the committed cluster: the API's, or the cluster's if the API dropped it.
    pub(super) fn attempt_on(&self, cluster: &Name) -> u64 {
        if !self.has_dropped_attempt() {
            return self.facts.state.attempt;
        }
        self.remotes.get(cluster).map_or(0, |remote| remote.attempt)
    }

    /// Whether the committed attempt is gone because its cluster reports that a later one is. An
    /// agent with that tombstone does not go back to an earlier attempt.
    pub(super) fn is_committed_gone(&self, cluster: &Name, observation: &Observation) -> bool {
        let committed = self.facts.state.attempt;
        let stays =
            |remote: &Remote| remote.attempt <= committed && remote.phase != Some(Phase::Absent);
        observation.state == State::Gone
            && self.facts.state.cluster.as_ref() == Some(cluster)
            && observation.attempt > committed
            && !self.has_dropped_attempt()
            && self.remotes.get(cluster).is_none_or(|remote| stays(remote))
    }

    /// The cluster, attempt and state of the latest attempt above the API's.
    fn ahead(&self, counts: impl Fn(&Name, &Remote) -> bool) -> Option<(Name, u64, State)> {
        let known = self.facts.state.attempt;
        let ahead = self.remotes.iter().filter(|(name, remote)| counts(name, remote));
        let ahead = ahead.filter_map(|(name, remote)| {
            Some((name.clone(), remote.attempt, remote.ahead_of(known)?))
        });
        ahead.max_by_key(|(_, attempt, _)| *attempt)
    }
}

impl Dispatcher {
    /// Writes the attempt again that the API dropped. Returns whether nothing else is to be decided.
    pub(super) fn restore_dropped_attempt(
        &mut self,
        entry: &mut TrackedWorkload,
        now: UnixMillis,
        out: &mut Vec<DispatchAction>,
    ) -> bool {
        if !entry.has_dropped_attempt() || entry.facts.is_leaving() {
            return false;
        }
        let Some(cluster) = entry.facts.state.cluster.clone() else { return false };
        let copy = entry.remotes.get(&cluster).filter(|remote| remote.is_kept());
        let Some(attempt) = copy.map(|copy| copy.attempt) else { return false };
        entry.nomination = None;
        let cluster_uid = self.uid_aliases.cluster_uid(&entry.facts.uid);
        self.commit_existing(entry, cluster, attempt, cluster_uid, now, out);
        true
    }

    /// Commits a later attempt that runs. Returns whether nothing else is to be decided.
    pub(super) fn follow_later_attempt(
        &mut self,
        entry: &mut TrackedWorkload,
        now: UnixMillis,
        out: &mut Vec<DispatchAction>,
    ) -> bool {
        entry.spared_on = None;
        if self.settings.store_loss.is_none()
            || entry.facts.state.deleting
            || !entry.facts.state.active
        {
            return false;
        }
        let configured = self.configured_clusters(entry);
        let (early, forgotten) = (self.in_recovery_window(now), self.settings.forgotten_until());
        let counts = |cluster: &Name, remote: &Remote| {
            (configured.is_empty() || configured.contains(cluster))
                && (early || remote.predates(forgotten))
        };
        let Some((cluster, attempt, state)) = entry.ahead(counts) else { return false };
        entry.spared_on = Some(cluster.clone());
        // A cluster that is disconnected, or just returned, may have stopped the job since.
        let state = if state == State::Running && !self.has_reported_inventory(&cluster) {
            State::Suspended
        } else {
            state
        };
        let charged = entry.facts.state.reserved
            || entry.reservation.is_some()
            || entry.facts.state.cluster.is_some();
        if !charged || entry.facts.is_leaving() {
            // The job runs on and waits for quota. The eviction in the API is from before the
            // attempt.
            return false;
        }
        if state != State::Running {
            let on = entry.facts.state.cluster.clone().filter(|on| *on != cluster);
            let is_given_up = on.is_some_and(|on| self.is_given_up(&on, entry, now));
            // A waiting copy could start by itself: it is removed at once, even if others are
            // silent.
            let may_stay = state == State::Suspended || is_terminal(state) || is_given_up;
            let earlier = self.committed_besides(entry, &cluster);
            if !may_stay && earlier == CommittedAttempt::Runs {
                entry.spared_on = None;
                return false;
            }
            if self.silent_clusters(entry, now).is_some() {
                // A silent cluster may run an even later attempt.
                return false;
            }
            if earlier != CommittedAttempt::Gone {
                entry.spared_on.take_if(|_| !may_stay);
                return false;
            }
            if self.may_run_elsewhere(entry, now, out) {
                return true;
            }
        }
        entry.nomination = None;
        let cluster_uid = self.uid_aliases.cluster_uid(&entry.facts.uid);
        self.commit_existing(entry, cluster, attempt, cluster_uid, now, out);
        true
    }

    /// State of the committed attempt if it is on another cluster. A disconnected cluster is given
    /// up by its policy; then the API names no cluster.
    fn committed_besides(&self, entry: &TrackedWorkload, later: &Name) -> CommittedAttempt {
        let Some(on) = entry.facts.state.cluster.as_ref().filter(|on| *on != later) else {
            return CommittedAttempt::Gone;
        };
        match entry.remotes.get(on).filter(|remote| remote.is_requested_or_reported()) {
            Some(remote) if remote.ran.is_some() && remote.is_meant_to_run() => {
                CommittedAttempt::Runs
            }
            Some(remote) if remote.ran.is_some() => CommittedAttempt::MayRun,
            Some(_) => CommittedAttempt::Gone,
            None if self.clusters.get(on).is_some_and(|cluster| cluster.has_listed_all) => {
                CommittedAttempt::Gone
            }
            None => CommittedAttempt::MayRun,
        }
    }

    /// Whether anything but the spared copy and the committed attempt may run. Requests its
    /// removal.
    fn may_run_elsewhere(
        &self,
        entry: &mut TrackedWorkload,
        now: UnixMillis,
        out: &mut Vec<DispatchAction>,
    ) -> bool {
        if entry.facts.state.cluster.is_some() {
            return false;
        }
        entry.request_absence(None, now, out);
        let clusters: Vec<Name> = entry.remotes.keys().cloned().collect();
        for cluster in clusters {
            self.is_given_up(&cluster, entry, now);
        }
        entry.may_run()
    }

    /// Whether a committed attempt must wait: it was not reported to run, and another cluster has
    /// the end of a later attempt or is silent.
    pub(super) fn may_be_behind(
        &self,
        entry: &mut TrackedWorkload,
        cluster: &Name,
        now: UnixMillis,
    ) -> bool {
        let runs = |remote: &Remote| remote.phase.is_some() || remote.state == Some(State::Running);
        if entry.remotes.get(cluster).is_some_and(|remote| runs(remote)) {
            return false;
        }
        let has_listed = self.clusters.get(cluster).is_some_and(|known| known.has_listed_all);
        let has_ended =
            |at: &Name| entry.remotes.get(at).and_then(|it| it.state).is_some_and(is_terminal);
        let is_behind = !has_listed
            && entry.spared_on.as_ref().is_some_and(|later| later != cluster && has_ended(later));
        is_behind || self.silent_clusters(entry, now).is_some()
    }

    /// Whether a committed attempt that is not known to run must wait because another one may run.
    /// Its fence may have stopped the other one, but a disconnected cluster cannot tell.
    pub(super) fn others_may_run(
        &self,
        entry: &mut TrackedWorkload,
        cluster: &Name,
        now: UnixMillis,
    ) -> bool {
        let attempt = entry.facts.state.attempt;
        let has_reported_inventory = self.has_reported_inventory(cluster);
        let runs = |it: &Remote| {
            it.attempt == attempt
                && (it.phase == Some(Phase::Run) || (has_reported_inventory && it.runs()))
        };
        if self.settings.store_loss.is_none()
            || entry.remotes.get(cluster).is_some_and(|remote| runs(remote))
        {
            return false;
        }
        let is_other = |at: &Name, it: &Remote| {
            at != cluster && entry.spared_on.as_ref() != Some(at) && it.may_run()
        };
        let others = entry.remotes.iter().filter(|(at, remote)| is_other(at, remote));
        let others: Vec<Name> = others.map(|(at, _)| at.clone()).collect();
        // Check all: each check sets the timer of its cluster.
        others.iter().filter(|at| !self.is_given_up(at, entry, now)).count() > 0
    }
}
