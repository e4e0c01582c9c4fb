//! Handler of observations: what a cluster reports of one workload.
//!
//! An observation of a known workload updates its [`Remote`]; any other concerns an orphan
//! (`orphans.rs`). Observations of lower attempts change nothing but the record of what may run.

use super::Dispatcher;
use super::tracked_workload::Remote;
use crate::{DispatchAction, MAX_LEAD, Name, Observation, Phase, State, UnixMillis, is_terminal};

impl Dispatcher {
    pub(super) fn observed(
        &mut self,
        cluster: &Name,
        observation: Observation,
        now: UnixMillis,
        out: &mut Vec<DispatchAction>,
    ) {
        let hub_uid = self.uid_aliases.hub_uid(&observation.uid);
        if self.uid_aliases.is_aliased(&observation.uid) || !self.entries.contains_key(&hub_uid) {
            self.observed_orphan(cluster, observation, now, out);
            return;
        }
        let from = out.len();
        self.observed_known(cluster, Observation { uid: hub_uid, ..observation }, now, out);
        self.uid_aliases.translate(out.get_mut(from..).unwrap_or_default());
    }

    fn observed_known(
        &mut self,
        cluster: &Name,
        mut observation: Observation,
        now: UnixMillis,
        out: &mut Vec<DispatchAction>,
    ) {
        let uid = observation.uid.clone();
        let Some(entry) = self.entries.get_mut(&uid) else { return };
        if observation.attempt
            > entry.highest_attempt.max(entry.facts.state.attempt).saturating_add(MAX_LEAD)
        {
            // No lost store explains this attempt, and no hub could give out a higher one.
            out.push(DispatchAction::RejectAttempt {
                cluster: cluster.clone(),
                uid,
                attempt: observation.attempt,
            });
            return;
        }
        entry.highest_attempt = entry.highest_attempt.max(observation.attempt);
        if entry.is_committed_gone(cluster, &observation) {
            observation.attempt = entry.facts.state.attempt;
        }
        if is_terminal(observation.state)
            && entry.is_current(cluster, observation.attempt)
            && !entry.is_deleted
        {
            let success = observation.state == State::Succeeded;
            entry.unsaved_end = Some((cluster.clone(), observation.attempt, success));
        }
        let remote = entry.remotes.entry(cluster.clone()).or_default();
        if observation.attempt < remote.attempt {
            if observation.state == State::Gone {
                remote.ran.take_if(|ran| *ran <= observation.attempt);
            }
            if is_terminal(observation.state) && entry.unsaved_end.is_none() {
                let attempt = observation.attempt;
                out.push(DispatchAction::AcknowledgeEnd {
                    cluster: cluster.clone(),
                    uid: uid.clone(),
                    attempt,
                });
            }
            self.dirty.insert(uid);
            return;
        }
        if observation.attempt > remote.attempt {
            // If a later attempt is gone, the tombstone of an earlier one is done, too.
            let phase = remote
                .phase
                .filter(|phase| *phase == Phase::Absent && observation.state == State::Gone);
            **remote =
                Remote { attempt: observation.attempt, phase, since: now, ..Remote::default() };
        }
        remote.lost = false;
        remote.state = Some(observation.state);
        remote.reasons = observation.reasons;
        remote.note_readiness(observation.no_ready_pod, now);
        if observation.origin.is_some() {
            remote.origin = observation.origin;
        }
        let committed_here = entry.facts.state.cluster.as_ref() == Some(cluster)
            && entry.facts.state.attempt == observation.attempt;
        if committed_here {
            remote.flavors = None;
        } else if observation.flavors.is_some() {
            remote.flavors = observation.flavors;
        }
        // The agent removes lower attempts before it reports this one.
        remote.gate.update(observation.gate, now);
        remote.ran.take_if(|ran| *ran < observation.attempt);
        // An earlier hub process gave out this attempt, or the API forgot it. It may run until the
        // cluster reports its end.
        let has_job = remote.origin.as_ref().is_some_and(|origin| origin.has_job);
        let unknown =
            remote.phase.is_none() && (observation.attempt <= entry.facts.state.attempt || has_job);
        match observation.state {
            State::Gone => {
                // The report may be from before the order to run, which still starts the job. The
                // agent reports again for the tombstone.
                if !matches!(remote.phase, Some(Phase::Run | Phase::Suspend)) {
                    remote.ran = None;
                }
                remote.gate.clear();
            }
            State::Running | State::Suspended | State::Succeeded | State::Failed => {
                remote.ran = Some(observation.attempt);
            }
            _ if unknown => remote.ran = Some(observation.attempt),
            State::Waiting
            | State::Reserved
            | State::Unfit
            | State::Refused
            | State::Evicted
            | State::Unspecified => {}
        }
        let settled = matches!(observation.state, State::Reserved | State::Running);
        if let Some(known) = self.clusters.get_mut(cluster) {
            if settled || is_terminal(observation.state) {
                known.progressed_at = now;
            }
            if settled {
                known.capacity.counted(&uid, now);
            } else if !remote.is_unanswered() {
                known.capacity.unassume(&uid);
            }
        }
        // The status of a job under eviction or removal is not mirrored, and an end is final.
        let runs = matches!(observation.state, State::Running | State::Suspended | State::Reserved);
        if committed_here && observation.job_status && runs && !entry.facts.state.finished {
            out.push(DispatchAction::MirrorStatus {
                uid: uid.clone(),
                cluster: cluster.clone(),
                attempt: observation.attempt,
            });
        }
        self.dirty.insert(uid);
    }
}
