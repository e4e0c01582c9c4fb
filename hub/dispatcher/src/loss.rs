//! Clusters that are away: until when their jobs stay theirs.

use super::cluster::Loss;
use super::entry::Entry;
use super::machine::Dispatcher;
use super::{Name, Time};

/// How the hub stands with the cluster that a workload was sent to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contact {
    /// Its last state is fresh.
    Heard,
    /// It is silent.
    Silent {
        /// Since then.
        since: Time,
        /// When the workload is given up there; none: not as things are.
        given_up: Option<Time>,
    },
    /// The MultiKueueCluster is deleted.
    Removed {
        /// When the workload is given up there; none: not as things are.
        given_up: Option<Time>,
    },
}

impl Dispatcher {
    /// How the hub stands with the cluster of a workload.
    pub fn contact(&self, cluster: &Name, uid: &str) -> Contact {
        let given_up = self.entries.get(uid).and_then(|entry| self.give_up_at(cluster, entry));
        match self.clusters.get(cluster) {
            Some(known) if known.exists => match (known.up, known.unable) {
                (true, None) => Contact::Heard,
                (true, Some(since)) => Contact::Silent { since, given_up },
                (false, _) => Contact::Silent { since: known.since, given_up },
            },
            _ => Contact::Removed { given_up },
        }
    }

    /// When the jobs of a cluster that is away are given up there; none: not while things are as they are.
    ///
    /// # The fence
    /// The agent's lease lasts from when it *sent* the last ping that was answered, on its clock; we count from when the
    /// session ended, on ours, which is later. Our clock may be faster by an eighth: of the whole time that the agent
    /// waits, an eighth more is waited. Then it writes, and the pods have their grace.
    pub(super) fn give_up_at(&self, name: &Name, entry: &Entry) -> Option<Time> {
        let grace = entry.facts.grace;
        let settings = &self.settings;
        let Some(cluster) = self.clusters.get(name) else {
            return Some(self.started + settings.worker_lost_timeout.max(settings.restart_grace));
        };
        if cluster.up {
            // What its agent cannot stop runs on. It is known to, so only whoever allows two at once gives it up.
            return match (cluster.unable, self.relied_on(name, entry)) {
                (Some(since), Loss::Duplicate { after }) => {
                    Some(since.saturating_add(after).max(self.started + settings.restart_grace))
                }
                _ => None,
            };
        }
        let since = cluster.since.max(self.started);
        if cluster.exists && cluster.rules.declared_lost {
            return Some(since);
        }
        // One that never came since we began had its last answer from another process, about when we began.
        let answered =
            if cluster.came { since } else { since.max(self.started + settings.restart_grace) };
        let fence = |after: i64| {
            let stops = settings.lease.saturating_add(after);
            answered.saturating_add(stops).saturating_add(stops / 8 + settings.fence_margin + grace)
        };
        let due = match self.relied_on(name, entry) {
            // Whoever deletes the MultiKueueCluster wants nothing of it any more.
            Loss::Fence { after } if !cluster.exists => {
                fence(after).max(since + settings.worker_lost_timeout)
            }
            _ if !cluster.exists => since + settings.worker_lost_timeout,
            Loss::Hold => return None,
            Loss::Fence { after } => fence(after),
            Loss::Duplicate { after } => since.saturating_add(after),
            Loss::GiveUp => since + settings.worker_lost_timeout,
        };
        Some(due.max(self.started + settings.restart_grace))
    }

    /// Whether a cluster has been away for so long that its jobs are given up there. Sets the timer if not yet.
    pub(super) fn lost(&self, cluster: &Name, entry: &mut Entry, now: Time) -> bool {
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

    /// Whether we know all clusters on which an attempt of it may run: each has told its inventory since we started, or
    /// has been given up. What the API says is not enough for that if its store may be an old one.
    pub(super) fn sure(&self, entry: &mut Entry, now: Time) -> bool {
        if self.unheard(entry, now).is_some() {
            return false;
        }
        if entry.sure {
            return true;
        }
        let mut until = now;
        for (name, cluster) in
            self.clusters.iter().filter(|(_, cluster)| cluster.exists && !cluster.synced)
        {
            let due = match self.relied_on(name, entry) {
                // It may be connected and not know its own cluster yet. One that has just come back is about to say what it has.
                Loss::Duplicate { .. } | Loss::GiveUp if cluster.up => {
                    Some(cluster.since.max(self.started) + self.settings.worker_lost_timeout)
                }
                _ => self.give_up_at(name, entry),
            };
            let Some(due) = due else {
                entry.waits_for_word = true;
                return false;
            };
            until = until.max(due);
        }
        entry.sure = until <= now;
        if !entry.sure {
            entry.waits_for_word = true;
            entry.wake_at(until);
        }
        entry.sure
    }

    /// The cluster is not there, and nobody waits for it: what was to be removed from it is not asked for any more. Should
    /// it come back, its inventory names what it has.
    pub(super) fn nobody_there(&self, cluster: &Name) -> bool {
        self.clusters.get(cluster).is_none_or(|known| !known.exists && !known.up)
    }
}
