//! Renamed clusters: a MultiKueueCluster was deleted, and another one leads to the same cluster.
//!
//! The attempt runs on. The hub writes the new name into the Workload, with the same attempt. If
//! the workload's check does not list the new name, the copy stays until the policy of the deleted
//! name gives the workload up.
//!
//! Two names lead to the same cluster if the uid of its namespace `kube-system` is equal. After a
//! restart, the uid of the deleted name is unknown. Then a job of the committed attempt decides:
//! only its cluster creates the job.

use super::Dispatcher;
use super::tracked_workload::{Remote, TrackedWorkload};
use crate::{CheckStatus, DispatchAction, Name, Phase, State, UnixMillis, WorkloadWrite};

impl Remote {
    /// Whether it is the committed attempt. `same`: whether the clusters' uids are equal, if known.
    fn is_committed_copy(&self, attempt: u64, same: Option<bool>) -> bool {
        let is_seen =
            self.attempt == attempt && matches!(self.phase, None | Some(Phase::Run)) && !self.lost;
        let is_there =
            !matches!(self.state, None | Some(State::Gone | State::Unfit | State::Refused));
        let has_job = || self.ahead_of(attempt.saturating_sub(1)).is_some();
        is_seen && is_there && same.unwrap_or_else(has_job)
    }
}

impl Dispatcher {
    pub(super) fn identify_cluster(&mut self, name: &Name, uid: Name, now: UnixMillis) {
        self.clusters
            .entry(name.clone())
            .or_insert_with(|| super::cluster_state::ClusterState::new(now))
            .uid = Some(uid);
    }

    /// The current name of the cluster that has the committed attempt, if its old name is deleted.
    pub(super) fn current_name(&self, entry: &TrackedWorkload) -> Option<Name> {
        let facts = &entry.facts;
        if entry.is_deleted || facts.state.finished || facts.state.attempt == 0 {
            return None;
        }
        let from = match &facts.state.cluster {
            Some(from) => {
                self.clusters.get(from).filter(|it| it.exists).is_none().then_some(Some(from))?
            }
            // An earlier hub process removed the old name and ended before it wrote the new one.
            None => {
                let ready = matches!(facts.state.check, Some((_, CheckStatus::Ready)));
                (ready && facts.state.reserved && !facts.state.evicted).then_some(None)?
            }
        };
        let before = from.and_then(|from| self.clusters.get(from)?.uid.as_ref());
        let is_it = |name: &Name, remote: &Remote| {
            let Some(known) =
                self.clusters.get(name).filter(|known| known.exists && Some(name) != from)
            else {
                return false;
            };
            let same = before.zip(known.uid.as_ref()).map(|(before, now)| before == now);
            remote.is_committed_copy(facts.state.attempt, same)
        };
        entry
            .remotes
            .iter()
            .find(|(name, remote)| is_it(name, remote))
            .map(|(name, _)| name.clone())
    }

    /// Writes the current name of the cluster. Returns whether nothing else is to be decided.
    pub(super) fn follow_renamed_cluster(
        &mut self,
        entry: &mut TrackedWorkload,
        now: UnixMillis,
        out: &mut Vec<DispatchAction>,
    ) -> bool {
        let Some(to) = self.current_name(entry) else { return false };
        let configured = self.configured_clusters(entry);
        if !configured.is_empty() && !configured.contains(&to) && !entry.facts.is_leaving() {
            entry.spared_on = Some(to);
            return false;
        }
        let attempt = entry.facts.state.attempt;
        if let Some(from) = entry.facts.state.cluster.clone() {
            // The same copy is listed under the new name.
            entry.remotes.remove(&from);
            entry.cleared_attempts.insert(from, attempt);
        }
        if entry.facts.is_leaving() {
            return false;
        }
        entry.nomination = None;
        if entry.pending_write.is_none() && self.may_write(entry, now) {
            let from = entry.facts.state.cluster.clone();
            entry.start_write(WorkloadWrite::Rename { from, cluster: to, attempt }, out);
        }
        true
    }
}
