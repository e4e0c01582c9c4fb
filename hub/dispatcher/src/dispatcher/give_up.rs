//! When a workload is given up on a disconnected cluster.
//!
//! Input: the disconnect policy, and how long the cluster has been silent. Output: whether and when
//! the workload may start elsewhere, and whether all clusters that may run it are known.

use super::Dispatcher;
use super::tracked_workload::TrackedWorkload;
use crate::{LossPolicy, Name, UnixMillis};

/// Contact with the cluster of a workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contact {
    /// Connected: the reported state is current.
    Live,
    /// Disconnected.
    Silent(LostContact),
    /// Connected, but its agent does not reach its own API server.
    NotReady(LostContact),
    /// The MultiKueueCluster is deleted.
    Removed(LostContact),
}

/// The outlook of a workload on a cluster without current state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LostContact {
    /// Since when its state is not current.
    pub since: UnixMillis,
    /// When the workload is given up. None: not by its policy.
    pub given_up: Option<UnixMillis>,
    /// The configured policy of the workload.
    pub policy: LossPolicy,
    /// The policy is a fence that the agent may not know or could not carry out, so the workload
    /// stays as under [`LossPolicy::Hold`].
    pub is_fence_unsure: bool,
    /// An administrator declared the cluster lost.
    pub is_declared_lost: bool,
}

impl Dispatcher {
    pub fn contact(&self, cluster: &Name, uid: &str) -> Contact {
        let entry = self.entries.get(uid);
        let known = self.clusters.get(cluster);
        let policy = entry.map_or_else(LossPolicy::default, |it| self.policy(cluster, &it.facts));
        let lost = |since: UnixMillis| LostContact {
            since,
            given_up: entry.and_then(|entry| self.give_up_at(cluster, entry)),
            policy,
            is_fence_unsure: policy.fence().is_some()
                && entry.is_some_and(|it| self.reliable_policy(cluster, it) == LossPolicy::Hold),
            is_declared_lost: known.is_some_and(|it| it.config.declared_lost),
        };
        match known {
            Some(known) if known.exists => match (known.is_connected, known.not_ready_since) {
                (true, None) => Contact::Live,
                (true, Some(since)) => Contact::NotReady(lost(since)),
                // Its reports while its agent was not ready were not current either.
                (false, not_ready) => {
                    let since = not_ready.unwrap_or(known.since).min(known.since);
                    Contact::Silent(lost(since))
                }
            },
            Some(known) => Contact::Removed(lost(known.since)),
            None => Contact::Removed(lost(self.started)),
        }
    }

    /// When the workload is given up on a disconnected cluster. None: not by its policy.
    ///
    /// # Fence
    /// The agent's lease begins when it *sends* the last answered ping, by its clock. The hub counts
    /// from the end of the session, which is later, by its own clock. The hub waits an eighth
    /// longer, since its clock may be faster by an eighth. Then the agent needs time to write, and
    /// the pods have their grace period.
    pub(super) fn give_up_at(&self, name: &Name, entry: &TrackedWorkload) -> Option<UnixMillis> {
        let grace = entry.facts.grace;
        let settings = &self.settings;
        let Some(cluster) = self.clusters.get(name) else {
            return Some(self.started + settings.worker_lost_timeout.max(settings.restart_grace));
        };
        if cluster.is_connected {
            // An agent that is not ready cannot stop the job, so it runs on. Only `Duplicate`
            // allows two.
            return match (cluster.not_ready_since, self.reliable_policy(name, entry)) {
                (Some(since), LossPolicy::Duplicate { after }) => {
                    Some(since.saturating_add(after).max(self.started + settings.restart_grace))
                }
                _ => None,
            };
        }
        let since = cluster.since.max(self.started);
        if cluster.exists && cluster.config.declared_lost {
            return Some(since);
        }
        // An earlier hub process answered its last ping, about when this one started.
        let answered = if cluster.has_connected {
            since
        } else {
            since.max(self.started + settings.restart_grace)
        };
        let fence = |after: i64| {
            let stops = settings.lease.saturating_add(after);
            answered.saturating_add(stops).saturating_add(stops / 8 + settings.fence_margin + grace)
        };
        let due = match self.reliable_policy(name, entry) {
            // The administrator who deletes a MultiKueueCluster does not expect the cluster back.
            LossPolicy::Fence { after } if !cluster.exists => {
                fence(after).max(since + settings.worker_lost_timeout)
            }
            _ if !cluster.exists => since + settings.worker_lost_timeout,
            LossPolicy::Hold => return None,
            LossPolicy::Fence { after } => fence(after),
            LossPolicy::Duplicate { after } => since.saturating_add(after),
            LossPolicy::GiveUp => since + settings.worker_lost_timeout,
        };
        Some(due.max(self.started + settings.restart_grace))
    }

    /// Whether the workload is given up on the cluster. Sets the timer if not yet.
    pub(super) fn is_given_up(
        &self,
        cluster: &Name,
        entry: &mut TrackedWorkload,
        now: UnixMillis,
    ) -> bool {
        let Some(due) = self.give_up_at(cluster, entry) else { return false };
        if now < due {
            entry.wake_at(due);
            return false;
        }
        if let Some(remote) = entry.remotes.get_mut(cluster) {
            remote.lost = true;
        }
        true
    }

    /// Whether all clusters that may run the workload are known: each reported its inventory in
    /// this process or is given up. A restored API does not show them.
    pub(super) fn knows_all_clusters(&self, entry: &mut TrackedWorkload, now: UnixMillis) -> bool {
        if self.silent_clusters(entry, now).is_some() {
            return false;
        }
        if entry.knows_all_clusters {
            return true;
        }
        let mut until = now;
        for (name, cluster) in
            self.clusters.iter().filter(|(_, cluster)| cluster.exists && !cluster.has_synced)
        {
            let due = match self.reliable_policy(name, entry) {
                // A session may open before the agent knows its cluster; a reconnected one reports
                // soon.
                LossPolicy::Duplicate { .. } | LossPolicy::GiveUp if cluster.is_connected => {
                    Some(cluster.since.max(self.started) + self.settings.worker_lost_timeout)
                }
                _ => self.give_up_at(name, entry),
            };
            let Some(due) = due else {
                entry.waits_for_inventories = true;
                return false;
            };
            until = until.max(due);
        }
        entry.knows_all_clusters = until <= now;
        if !entry.knows_all_clusters {
            entry.waits_for_inventories = true;
            entry.wake_at(until);
        }
        entry.knows_all_clusters
    }

    /// The cluster is deleted and disconnected, so its tombstones are dropped. If it returns, its
    /// inventory lists its copies.
    pub(super) fn is_unreachable(&self, cluster: &Name) -> bool {
        self.clusters.get(cluster).is_none_or(|known| !known.exists && !known.is_connected)
    }
}
