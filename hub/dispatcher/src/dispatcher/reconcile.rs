//! Decides what follows for one workload: the assignment of each cluster, the write to the API,
//! and the release of its quota.
//!
//! Input: a dirty [`TrackedWorkload`]. Output: assignments, acknowledgements and at most one write.
//!
//! The first case that applies decides:
//! 1. Another workload took over the copy, or is doing so.
//! 2. The workload is deleted or finished: remove the copies.
//! 3. The job ended: write the end.
//! 4. The store was restored, or the cluster was renamed: follow what runs.
//! 5. A cluster has the workload: run it there, and check that it runs.
//! 6. The workload leaves: remove the copies, then release the quota.
//! 7. The workload has quota: look for a cluster (`nominate.rs`).

use super::acknowledgements::resend_changed_priority;
use super::replicas::FOLLOWS;
use super::tracked_workload::TrackedWorkload;
use super::{Dispatcher, MAX_WRITE_BACKOFF};
use crate::{
    CLUSTER_DRAINED, CLUSTER_LOST, CheckStatus, DispatchAction, Name, Phase, RetriedAttempt, STUCK,
    State, UnixMillis, WorkloadWrite,
};

/// Reason of a [`crate::WorkloadWrite::Retry`], as `status.dispatch` keeps it.
const VANISHED: &str = "GoneOnWorker";
/// The job ran for as long as it may (`maximumExecutionTimeSeconds`): it is not tried again.
pub const TIMED_OUT: &str = "ExecutionTimeExceeded";
/// Reason of the worker's eviction for that, as Kueue and Switchyard write it.
const EXECUTION_TIME_EXCEEDED: &str = "DeactivatedDueToMaximumExecutionTimeExceeded";
/// Milliseconds until the target of a move request is checked again.
const MOVE_RETRY: i64 = 5_000;

impl Dispatcher {
    pub(super) fn reconcile(
        &mut self,
        entry: &mut TrackedWorkload,
        now: UnixMillis,
        out: &mut Vec<DispatchAction>,
    ) {
        self.drop_tombstones(entry, out);
        self.decide(entry, now, out);
        self.acknowledge_superseded_ends(entry, out);
        self.resend_changed_fences(entry, now, out);
        resend_changed_priority(entry, out);
        // Tombstones on deleted clusters are no longer needed.
        self.drop_tombstones(entry, out);
    }

    fn decide(
        &mut self,
        entry: &mut TrackedWorkload,
        now: UnixMillis,
        out: &mut Vec<DispatchAction>,
    ) {
        entry.spared_on = None;
        if self.uid_aliases.has_successor(&entry.facts.uid) {
            return self.reconcile_succeeded(entry, now, out);
        }
        if self.is_handing_over(entry) {
            return;
        }
        if entry.is_deleted || entry.facts.state.finished {
            entry.reservation = None;
            entry.nomination = None;
            entry.unsaved_end = None;
            entry.request_absence(None, now, out);
            self.acknowledge_unneeded_ends(entry, out);
            return;
        }
        self.withdraw_reservation(entry, now, out);
        if self.restore_dropped_attempt(entry, now, out) {
            return;
        }
        entry.restore_end_of_commit();
        if let Some((cluster, attempt, success)) = entry.unsaved_end.clone() {
            if entry.is_current(&cluster, attempt) {
                self.finish(entry, &cluster, attempt, success, now, out);
                return;
            }
            // The attempt was given up, and another one counts.
            entry.unsaved_end = None;
            out.push(DispatchAction::AcknowledgeEnd {
                cluster,
                uid: entry.facts.uid.clone(),
                attempt,
            });
        }
        if entry.facts.job_ended == Some(true) && !entry.facts.is_leaving() {
            self.wait_for_finish(entry);
            return;
        }
        if self.follow_later_attempt(entry, now, out)
            || self.follow_renamed_cluster(entry, now, out)
        {
            return;
        }
        match entry.facts.state.cluster.clone() {
            Some(cluster) => self.reconcile_committed(entry, &cluster, now, out),
            None if entry.facts.is_leaving() => {
                if entry.reservation.take().is_some() {
                    let message = "the workload is no longer to run".to_owned();
                    out.push(DispatchAction::ReturnReservation {
                        uid: entry.facts.uid.clone(),
                        message,
                        retry_at: now,
                    });
                }
                self.clear_before_release(entry, now, out);
            }
            None if entry.facts.state.reserved || entry.reservation.is_some() => {
                self.nominate(entry, now, out)
            }
            None => {
                entry.nomination = None;
                if !entry.is_committing() {
                    entry.request_absence(None, now, out);
                }
                self.acknowledge_unneeded_ends(entry, out);
            }
        }
    }

    /// The job shows its end, but the Workload does not yet. Its cluster may have removed the copy
    /// and would create it again, so the hub waits: the job's reconciler writes the end, or the
    /// cluster reports it. Happens when a restored store is from between the two writes, and when
    /// the end was written to a replaced workload slice.
    fn wait_for_finish(&mut self, entry: &mut TrackedWorkload) {
        entry.nomination = None;
        if let Some(cluster) = entry.facts.state.cluster.clone() {
            entry.assume_sent(&cluster, entry.facts.state.attempt);
        }
    }

    /// The engine gives the quota to another workload. A reservation in memory is returned at once.
    /// A write under way decides first: once the API shows the reservation, the engine evicts it
    /// there.
    pub(super) fn withdraw_reservation(
        &mut self,
        entry: &mut TrackedWorkload,
        now: UnixMillis,
        out: &mut Vec<DispatchAction>,
    ) {
        if !entry.is_withdrawn || (entry.reservation.is_some() && entry.pending_write.is_some()) {
            return;
        }
        entry.is_withdrawn = false;
        let uid = entry.facts.uid.clone();
        if entry.reservation.take().is_some() {
            entry.nomination = None;
            let message = "preempted before a worker cluster had it".to_owned();
            out.push(DispatchAction::ReturnReservation { uid, message, retry_at: now });
        } else {
            out.push(DispatchAction::ReservationPersisted { uid });
        }
    }

    /// Writes the end, even during an eviction or a search: the job must not run again.
    fn finish(
        &mut self,
        entry: &mut TrackedWorkload,
        cluster: &Name,
        attempt: u64,
        success: bool,
        now: UnixMillis,
        out: &mut Vec<DispatchAction>,
    ) {
        if entry.is_committing() {
            // The write decides which attempt counts, and the copy of that one must stay.
            return;
        }
        entry.nomination = None;
        if entry.reservation.take().is_some() {
            let message = "the job has ended".to_owned();
            out.push(DispatchAction::ReturnReservation {
                uid: entry.facts.uid.clone(),
                message,
                retry_at: now + MAX_WRITE_BACKOFF,
            });
        }
        entry.request_absence(Some(cluster), now, out);
        if entry.pending_write.is_none() && self.may_write(entry, now) {
            entry.start_write(
                WorkloadWrite::Finish { cluster: cluster.clone(), attempt, success },
                out,
            );
        }
    }

    fn reconcile_committed(
        &mut self,
        entry: &mut TrackedWorkload,
        cluster: &Name,
        now: UnixMillis,
        out: &mut Vec<DispatchAction>,
    ) {
        entry.nomination = None;
        entry.returned_in_a_row = 0;
        let attempt = entry.attempt_on(cluster);
        if let Some(known) = self.clusters.get_mut(cluster) {
            known.has_been_used = true;
        }
        let observed = entry
            .remotes
            .get(cluster)
            .filter(|remote| remote.attempt == attempt)
            .and_then(|r| r.state);

        if entry.facts.is_leaving() {
            self.clear_before_release(entry, now, out);
            return;
        }
        // A cluster with another name may have the copy of an attempt that the API dropped.
        if !entry.has_dropped_attempt() {
            entry.request_absence(Some(cluster), now, out);
        }
        let buried = entry
            .remotes
            .get(cluster)
            .is_some_and(|r| r.attempt == attempt && r.phase == Some(Phase::Absent));
        if entry.has_dropped_attempt()
            || self.may_be_behind(entry, cluster, now)
            || self.others_may_run(entry, cluster, now)
        {
            entry.assume_sent(cluster, attempt);
        } else if !buried && !matches!(observed, Some(State::Gone | State::Evicted)) {
            // Do not run an evicted attempt: if its copy is gone, the agent would create it.
            entry.request(cluster, attempt, Phase::Run, now, out);
        }
        self.check_running(entry, cluster, attempt, observed, now, out);
    }

    /// Evicts the workload on the hub if its cluster evicted, lost, refused or gave up the attempt.
    /// Also if the workload shall move, or has no ready pod for too long.
    fn check_running(
        &mut self,
        entry: &mut TrackedWorkload,
        cluster: &Name,
        attempt: u64,
        observed: Option<State>,
        now: UnixMillis,
        out: &mut Vec<DispatchAction>,
    ) {
        let previously =
            entry.facts.state.check.as_ref().map_or("Ready", |(_, check)| match check {
                CheckStatus::Pending => "Pending",
                CheckStatus::Ready => "Ready",
                CheckStatus::Retry => "Retry",
                CheckStatus::Rejected => "Rejected",
            });
        let reasons =
            entry.remotes.get(cluster).map(|remote| remote.reasons.clone()).unwrap_or_default();
        let withdrawn = entry.remotes.get(cluster).is_some_and(|remote| {
            // A spared later attempt counts once its state is known.
            let is_later = remote.attempt > attempt && entry.spared_on.as_ref() != Some(cluster);
            is_later || (remote.attempt == attempt && remote.phase == Some(Phase::Absent))
        });
        let reported =
            reasons.iter().map(|reason| reason.message.as_str()).collect::<Vec<_>>().join("; ");
        let timed_out = reasons.iter().any(|reason| reason.code == EXECUTION_TIME_EXCEEDED);
        let (reason, message) = match observed {
            Some(State::Evicted) if timed_out => (
                TIMED_OUT,
                format!(
                    "Workload exceeded its maximum execution time on worker cluster: \"{cluster}\""
                ),
            ),
            Some(State::Evicted) => {
                let tail = format!("resetting for re-admission. Previously: \"{previously}\"");
                (
                    "EvictedOnWorker",
                    format!("Workload evicted on worker cluster: \"{cluster}\", {tail}"),
                )
            }
            // A silent cluster may have a later attempt.
            Some(State::Gone) if self.silent_clusters(entry, now).is_some() => return,
            Some(State::Gone) => (
                VANISHED,
                format!("Admitting remote no longer exists, Previously: \"{previously}\""),
            ),
            Some(State::Unfit | State::Refused) => {
                let message = format!(
                    "Worker cluster \"{cluster}\" cannot run it: {reported}. Previously: \"{previously}\""
                );
                ("RefusedByWorker", message)
            }
            // A commit that seemed lost arrived after the offer was withdrawn, or the store was
            // restored.
            _ if withdrawn => (
                "Withdrawn",
                format!(
                    "Worker cluster \"{cluster}\" was told to drop it. Previously: \"{previously}\""
                ),
            ),
            _ if self.is_given_up(cluster, entry, now) => {
                (CLUSTER_LOST, format!("Admitting remote lost, Previously: \"{previously}\""))
            }
            _ => match self
                .reason_to_move(entry, cluster, now)
                .or_else(|| self.reason_to_withdraw(entry, cluster, now))
            {
                Some((reason, why)) => (reason, format!("{why}. Previously: \"{previously}\"")),
                None => return,
            },
        };
        if entry.pending_write.is_some() || !self.may_write(entry, now) {
            return;
        }
        let may = match reason {
            CLUSTER_LOST | VANISHED => self.may_give_up(entry, cluster, now, out),
            CLUSTER_DRAINED | STUCK => self.is_within_rate(entry, now),
            _ => true,
        };
        if !may {
            return;
        }
        // A lost, drained or requested move is no refusal. Kueue's dispatchers ask a cluster that
        // evicted again at once.
        let was_evicted = observed == Some(State::Evicted);
        let evicted_for = was_evicted
            .then(|| reasons.first().map_or_else(String::new, |reason| reason.code.clone()));
        let refuses =
            matches!(observed, Some(State::Evicted | State::Unfit | State::Refused | State::Gone));
        if refuses && !(self.settings.mode.keeps_copies() && was_evicted) {
            self.record_refusal(entry, cluster, now);
        }
        if reason == STUCK {
            self.record_stuck(entry, cluster, now);
        }
        let retried =
            Some(RetriedAttempt { cluster: cluster.clone(), attempt, reason, evicted_for });
        entry.start_write(WorkloadWrite::Retry { message, retried }, out);
    }

    /// Why the workload shall leave its cluster: its first replica left, the cluster drains, or a
    /// move request.
    fn reason_to_move(
        &self,
        entry: &mut TrackedWorkload,
        cluster: &Name,
        now: UnixMillis,
    ) -> Option<(&'static str, String)> {
        if self.has_left_first(entry, cluster, now) {
            return Some((FOLLOWS, "The first replica is no longer there".to_owned()));
        }
        let known = self.clusters.get(cluster)?;
        if known.is_connected && known.config.draining {
            return Some((
                CLUSTER_DRAINED,
                format!("Worker cluster \"{cluster}\" is being drained"),
            ));
        }
        let (attempt, to) =
            entry.facts.move_request.clone().filter(|_| !entry.facts.follows_first())?;
        if attempt != entry.facts.state.attempt || to == *cluster || !known.is_connected {
            return None;
        }
        if !self.accepts(entry, &to, now) {
            entry.wake_at(now + MOVE_RETRY);
            return None;
        }
        Some(("Moved", format!("Moved from worker cluster \"{cluster}\" to \"{to}\" on request")))
    }

    /// Removes all copies of an evicted, deactivated or deleted workload, then releases its quota.
    fn clear_before_release(
        &mut self,
        entry: &mut TrackedWorkload,
        now: UnixMillis,
        out: &mut Vec<DispatchAction>,
    ) {
        entry.nomination = None;
        if entry.is_committing() {
            return;
        }
        if let Some(cluster) = entry.facts.state.cluster.clone() {
            // After a restart this process may not know the copy: request its removal all the same.
            // No copy has the attempt zero, of an attempt that the API dropped.
            let attempt = entry.facts.state.attempt.max(1);
            let cleared = entry.cleared_attempts.get(&cluster).is_some_and(|at| *at >= attempt);
            if !cleared {
                entry.assume_sent(&cluster, attempt);
            }
        }
        entry.request_absence(None, now, out);
        self.acknowledge_unneeded_ends(entry, out);
        let clusters: Vec<Name> = entry.remotes.keys().cloned().collect();
        for cluster in clusters {
            self.is_given_up(&cluster, entry, now);
        }
        // A check in state Retry asks for an eviction; it does not show one.
        let facts = &entry.facts;
        let going = facts.state.evicted || facts.state.deleting || !facts.state.active;
        if going
            && !entry.may_run()
            && self.knows_all_clusters(entry, now)
            && entry.released_version != Some(entry.facts.version)
            && entry.pending_write.is_none()
            && self.may_write(entry, now)
        {
            entry.released_version = Some(entry.facts.version);
            entry.start_write(WorkloadWrite::Release, out);
        }
    }

    pub(super) fn may_write(&self, entry: &mut TrackedWorkload, now: UnixMillis) -> bool {
        if entry.retry_write_at > now {
            let at = entry.retry_write_at;
            entry.wake_at(at);
            return false;
        }
        true
    }
}
