//! Objects of several replicas, each with a workload of its own (LeaderWorkerSet): all go to one cluster.
//!
//! The object is sent with the first replica, which looks for a cluster as others do; of those that fit it, one that fits all
//! replicas comes first. A later replica is not offered to clusters: with the object there, its pods would run as soon as a
//! cluster has quota for it, before anybody has said that they may. It is committed to the first one's cluster and waits there
//! for what it needs.
//!
//! A later replica holds quota of the hub only while the first does, too: else two objects could each wait for what the
//! other's later replicas hold. It leaves its cluster when the first does.

use std::sync::Arc;

use switchyard_scheduler::PodSet;

use super::capacity::Verdict;
use super::entry::{Entry, Nomination, Writing};
use super::machine::Dispatcher;
use super::{Action, Facts, Name, Time};

/// Reason for which a later replica leaves its cluster.
pub(super) const FOLLOWS: &str = "FollowsFirstReplica";

/// Which of several replicas of one object a workload is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Replica {
    /// The first; this is what all of them ask for.
    First(Arc<[PodSet]>),
    /// A later one; the first has no quota.
    Behind,
    /// A later one; the first looks for a cluster.
    Undecided,
    /// A later one; the first is on that cluster.
    At(Name),
}

impl Replica {
    /// Whether it is a later one, which is to be where the first is, and that is not this cluster.
    fn left(&self, cluster: &Name) -> bool {
        match self {
            Self::First(_) => false,
            Self::Behind | Self::Undecided => true,
            Self::At(there) => there != cluster,
        }
    }
}

impl Facts {
    /// Whether it goes where another workload is.
    pub(super) fn follows(&self) -> bool {
        self.replica.as_ref().is_some_and(|replica| !matches!(replica, Replica::First(_)))
    }

    /// Whether it is a later replica whose first has no quota.
    pub(super) fn is_behind(&self) -> bool {
        self.replica == Some(Replica::Behind)
    }
}

impl Dispatcher {
    /// What becomes of a later replica that has quota, until the first has a cluster. Whether there is nothing else to decide.
    pub(super) fn wait_for_first(
        &mut self,
        entry: &mut Entry,
        now: Time,
        out: &mut Vec<Action>,
    ) -> bool {
        if !matches!(entry.facts.replica, Some(Replica::Behind | Replica::Undecided)) {
            return false;
        }
        let attempt = entry.top + 1;
        let nomination = || Nomination { attempt, since: now, rounds: 0, next_round: now };
        let since = entry.nomination.get_or_insert_with(nomination).since;
        entry.clear(None, now, out);
        // Both are often reserved within a moment.
        let due = since.saturating_add(self.settings.record_after);
        if !entry.facts.is_behind() {
            self.record_late(entry, now, out, |_, _| {
                "Waiting for the first replica to have a cluster".to_owned()
            });
        } else if now < due {
            entry.wake_at(due);
        } else {
            self.give_back(entry, "The first replica has no quota".to_owned(), now, out);
        }
        true
    }

    /// Commits a later replica to the cluster of the first. Whether it is one.
    pub(super) fn join_first(
        &mut self,
        entry: &mut Entry,
        now: Time,
        out: &mut Vec<Action>,
    ) -> bool {
        let Some(Replica::At(cluster)) = entry.facts.replica.clone() else { return false };
        entry.clear(None, now, out);
        if let Some(why) = self.keeps_out(entry, &cluster, now) {
            self.record_late(entry, now, out, |_, _| why);
            return true;
        }
        let still_running =
            entry.remotes.iter().any(|(name, remote)| *name != cluster && remote.may_run());
        if still_running || !self.sure(entry, now) || !self.may_write(entry, now) {
            return true;
        }
        let Some(attempt) = entry.nomination.as_ref().map(|nomination| nomination.attempt) else {
            return true;
        };
        let attempt = attempt.max(entry.top + 1);
        let facts = &entry.facts;
        if let Some(known) = self.clusters.get_mut(&cluster) {
            known.capacity.assume(&facts.uid, &facts.namespace, &facts.queue, &facts.pod_sets);
        }
        entry.top = attempt;
        entry.writing = Some(Writing::Commit { cluster: cluster.clone(), attempt });
        out.push(Action::Commit { uid: entry.facts.uid.clone(), cluster, attempt, adopts: None });
        true
    }

    /// Why a later replica is not committed to the cluster of the first now.
    fn keeps_out(&self, entry: &mut Entry, cluster: &Name, now: Time) -> Option<String> {
        if !self.clusters.get(cluster).is_some_and(|known| known.usable()) {
            return Some(format!(
                "Waiting for worker cluster \"{cluster}\", which has the first replica"
            ));
        }
        let refusal = self.refusal(entry, cluster, now)?;
        let said = refusal
            .reasons
            .iter()
            .map(|reason| reason.message.as_str())
            .collect::<Vec<_>>()
            .join(", ");
        let until = refusal.until;
        entry.wake_at(until);
        Some(format!(
            "Waiting for worker cluster \"{cluster}\", which has the first replica: {said}"
        ))
    }

    /// Whether a later replica is no longer where the first is, and is to leave this cluster. While it is not known what ran
    /// before this hub's memory, that the first has no cluster says nothing.
    pub(super) fn is_left(&self, entry: &Entry, cluster: &Name, now: Time) -> bool {
        let Some(replica) = &entry.facts.replica else { return false };
        let known = matches!(replica, Replica::At(_)) || !self.is_careful(now);
        known && replica.left(cluster)
    }

    /// What a cluster's capacity says of a workload. Of those that fit the first replica of several, one that fits them all
    /// comes first, then one that may later.
    pub(super) fn verdict(&self, facts: &Facts, capacity: &super::capacity::Capacity) -> Verdict {
        let verdict = capacity.judge(&facts.namespace, &facts.queue, &facts.pod_sets);
        let (Verdict::Fits(_), Some(Replica::First(all))) = (&verdict, &facts.replica) else {
            return verdict;
        };
        match capacity.judge(&facts.namespace, &facts.queue, all) {
            Verdict::Never(reasons) => Verdict::Waits { reasons, pending: u32::MAX },
            all => all,
        }
    }
}
