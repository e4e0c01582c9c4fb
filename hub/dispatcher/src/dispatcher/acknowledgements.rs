//! Acknowledgements of ends, tombstones that are done, and priorities that changed.
//!
//! An agent keeps the end of a job, and delays all later acknowledgements, until the hub has
//! acknowledged that end. So each end is acknowledged once it is written or not needed.

use super::Dispatcher;
use super::tracked_workload::TrackedWorkload;
use crate::{DispatchAction, Phase, State, is_terminal};

impl Dispatcher {
    /// Drops tombstones of which nothing is left.
    pub(super) fn drop_tombstones(
        &self,
        entry: &mut TrackedWorkload,
        out: &mut Vec<DispatchAction>,
    ) {
        let uid = entry.facts.uid.clone();
        let over = entry.is_deleted || entry.facts.state.finished;
        let cleared = &mut entry.cleared_attempts;
        let committed = (entry.facts.state.cluster.as_ref(), entry.facts.state.attempt);
        entry.remotes.retain(|cluster, remote| {
            // The loss of a committed attempt stays known until the hub has decided what follows.
            let awaited = matches!(remote.phase, Some(Phase::Run | Phase::Suspend))
                || remote.phase.is_none() && (Some(cluster), remote.attempt) == committed && !over;
            let gone = remote.state == Some(State::Gone) && !awaited;
            let nominated = remote.phase == Some(Phase::Reserve);
            let unasked = (over || !remote.may_run())
                && remote.phase == Some(Phase::Absent)
                && self.is_unreachable(cluster);
            if gone && !nominated || unasked {
                if remote.phase == Some(Phase::Absent) {
                    let attempt = remote.attempt;
                    out.push(DispatchAction::ForgetTombstone {
                        cluster: cluster.clone(),
                        uid: uid.clone(),
                        attempt,
                    });
                    cleared.insert(cluster.clone(), attempt);
                }
                return false;
            }
            true
        });
    }

    /// Acknowledges ends that are not needed: the workload ended otherwise, or this cluster does
    /// not run it.
    pub(super) fn acknowledge_unneeded_ends(
        &self,
        entry: &TrackedWorkload,
        out: &mut Vec<DispatchAction>,
    ) {
        if entry.pending_write.is_some() {
            return;
        }
        for (cluster, remote) in &entry.remotes {
            if remote.state.is_some_and(is_terminal) && entry.unsaved_end.is_none() {
                let (uid, attempt) = (entry.facts.uid.clone(), remote.attempt);
                out.push(DispatchAction::AcknowledgeEnd { cluster: cluster.clone(), uid, attempt });
            }
        }
    }

    /// Acknowledges ends of attempts that no longer count. An end on a cluster with a later attempt
    /// than the API knows stays known; it is acknowledged because the acknowledgement of an end
    /// blocks those of all later observations.
    pub(super) fn acknowledge_superseded_ends(
        &self,
        entry: &TrackedWorkload,
        out: &mut Vec<DispatchAction>,
    ) {
        let (committed, current) = (entry.facts.state.cluster.as_ref(), entry.facts.state.attempt);
        if entry.is_deleted || entry.facts.state.finished || entry.unsaved_end.is_some() {
            return;
        }
        let is_chosen = entry.is_committing();
        // The attempt on the renamed cluster is about to count.
        let renamed = self.current_name(entry);
        for (cluster, remote) in
            entry.remotes.iter().filter(|(_, remote)| remote.state.is_some_and(is_terminal))
        {
            if renamed.as_ref() == Some(cluster) {
                continue;
            }
            let elsewhere = committed.is_some_and(|committed| committed != cluster);
            let left_alone =
                entry.spared_on.as_ref() == Some(cluster) && self.has_reported_inventory(cluster);
            // While it is being committed, its end is acknowledged after that write.
            let later = !is_chosen && (left_alone || remote.phase == Some(Phase::Absent));
            if remote.attempt < current || (elsewhere && remote.attempt == current) || later {
                let (uid, attempt) = (entry.facts.uid.clone(), remote.attempt);
                out.push(DispatchAction::AcknowledgeEnd { cluster: cluster.clone(), uid, attempt });
            }
        }
    }
}

/// Sends changed priorities of a WorkloadPriorityClass again. Kueue allows only these to change
/// while quota is reserved.
pub(super) fn resend_changed_priority(entry: &mut TrackedWorkload, out: &mut Vec<DispatchAction>) {
    let Some(class) = entry.facts.priority_class.clone() else { return };
    let mut again = Vec::new();
    for (name, remote) in &mut entry.remotes {
        let Some(phase @ (Phase::Reserve | Phase::Run | Phase::Suspend)) = remote.phase else {
            continue;
        };
        let now = (remote.attempt, entry.facts.priority, class.clone());
        let sent = remote.priority.replace(now.clone());
        // The first assignment of an attempt carries the priority.
        if sent.is_some_and(|sent| sent.0 == now.0 && sent != now) {
            again.push((name.clone(), remote.attempt, phase));
        }
    }
    out.extend(
        again.into_iter().map(|(name, attempt, phase)| entry.assignment(&name, attempt, phase)),
    );
}
