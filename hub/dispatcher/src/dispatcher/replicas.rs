//! Replicas: objects such as a LeaderWorkerSet, with one Workload per replica, go to one cluster.
//!
//! The first replica looks for a cluster; one that fits all replicas is preferred. The object is
//! sent with it. A later replica is never offered: with the object there, its pods would start as
//! soon as its cluster has quota. It is committed to the first replica's cluster and waits there.
//!
//! If the cluster enforces flavor pins and cannot use a later replica's charged flavors, its
//! reservation returns. The engine may charge others the next time.
//!
//! A later replica holds quota on the hub only while the first one does. Otherwise two objects
//! could wait for each other's quota. It leaves its cluster when the first one does. `onStuck`
//! moves the first one, if no pod of any replica is ready (`stuck.rs`).

use super::Dispatcher;
use super::tracked_workload::{Nomination, TrackedWorkload};
use crate::capacity::Fit;
use crate::{ClusterPins, DispatchAction, Name, Reason, Replica, UnixMillis, WorkloadFacts};

/// Reason of a later replica's [`crate::RetriedAttempt`].
pub(super) const FOLLOWS: &str = "FollowsFirstReplica";

fn join_messages(reasons: &[Reason]) -> String {
    reasons.iter().map(|reason| reason.message.as_str()).collect::<Vec<_>>().join(", ")
}

impl Dispatcher {
    /// Handles a later replica with quota until the first has a cluster. Returns whether it was
    /// one.
    pub(super) fn wait_for_first_replica(
        &mut self,
        entry: &mut TrackedWorkload,
        now: UnixMillis,
        out: &mut Vec<DispatchAction>,
    ) -> bool {
        if !matches!(
            entry.facts.replica,
            Some(Replica::FirstWithoutQuota | Replica::FirstWithoutCluster)
        ) {
            return false;
        }
        let attempt = entry.highest_attempt + 1;
        let nomination = || Nomination { attempt, since: now, rounds: 0, next_round: now };
        let since = entry.nomination.get_or_insert_with(nomination).since;
        entry.request_absence(None, now, out);
        // The engine often reserves quota for both within a moment.
        let due = since.saturating_add(self.settings.record_after);
        if !entry.facts.lacks_first_quota() {
            self.record_when_late(entry, now, out, |_, _| {
                "Waiting for the first replica to have a cluster".to_owned()
            });
        } else if now < due {
            entry.wake_at(due);
        } else {
            self.return_reservation(entry, "The first replica has no quota".to_owned(), now, out);
        }
        true
    }

    /// Commits a later replica to the first one's cluster. Returns whether it was one.
    pub(super) fn join_first_replica(
        &mut self,
        entry: &mut TrackedWorkload,
        now: UnixMillis,
        out: &mut Vec<DispatchAction>,
    ) -> bool {
        let Some(Replica::FirstOnCluster(cluster)) = entry.facts.replica.clone() else {
            return false;
        };
        entry.request_absence(None, now, out);
        if let Some(reasons) = self.flavors_unusable(entry, &cluster) {
            let why = join_messages(&reasons);
            let message =
                format!("Worker cluster \"{cluster}\", which has the first replica: {why}");
            self.return_reservation(entry, message, now, out);
            return true;
        }
        if let Some(why) = self.reason_to_wait(entry, &cluster, now) {
            self.record_when_late(entry, now, out, |_, _| why);
            return true;
        }
        let still_running =
            entry.remotes.iter().any(|(name, remote)| *name != cluster && remote.may_run());
        if still_running || !self.knows_all_clusters(entry, now) || !self.may_write(entry, now) {
            return true;
        }
        let Some(attempt) = entry.nomination.as_ref().map(|nomination| nomination.attempt) else {
            return true;
        };
        let attempt = attempt.max(entry.highest_attempt + 1);
        self.assume(entry, &cluster);
        entry.highest_attempt = attempt;
        entry.start_commit(cluster, attempt, None, out);
        true
    }

    /// Why a later replica cannot be committed to this cluster now.
    fn reason_to_wait(
        &self,
        entry: &mut TrackedWorkload,
        cluster: &Name,
        now: UnixMillis,
    ) -> Option<String> {
        if !self.clusters.get(cluster).is_some_and(|known| known.is_usable()) {
            return Some(format!(
                "Waiting for worker cluster \"{cluster}\", which has the first replica"
            ));
        }
        let refusal = self.refusal(entry, cluster, now)?;
        let reported = join_messages(&refusal.reasons);
        let until = refusal.until;
        entry.wake_at(until);
        Some(format!(
            "Waiting for worker cluster \"{cluster}\", which has the first replica: {reported}"
        ))
    }

    /// Whether a later replica must leave this cluster because the first is elsewhere. Within the
    /// recovery window, a first replica without a cluster means nothing.
    pub(super) fn has_left_first(
        &self,
        entry: &TrackedWorkload,
        cluster: &Name,
        now: UnixMillis,
    ) -> bool {
        let Some(replica) = &entry.facts.replica else { return false };
        let known = matches!(replica, Replica::FirstOnCluster(_)) || !self.in_recovery_window(now);
        known && replica.left(cluster)
    }

    /// Whether a cluster with room for the workload has it for all replicas of its object now.
    pub(super) fn fits_all_replicas_now(&self, entry: &TrackedWorkload, cluster: &Name) -> bool {
        let facts = &entry.facts;
        let Some(Replica::First(all)) = &facts.replica else { return true };
        let Some(known) = self.clusters.get(cluster) else { return false };
        let pins = self.cluster_pins(facts, entry.check(), cluster);
        let fit = known.capacity.fit(&facts.namespace, &facts.queue, all, pins);
        matches!(fit, Fit::Now(_))
    }

    /// Whether the workload fits. For a first replica, clusters that fit all replicas now come
    /// first, then clusters that may fit them later.
    pub(super) fn verdict(
        &self,
        facts: &WorkloadFacts,
        capacity: &crate::capacity::ClusterCapacity,
        pins: ClusterPins<'_>,
    ) -> Fit {
        let verdict = capacity.fit(&facts.namespace, &facts.queue, &facts.pod_sets, pins);
        let (Fit::Now(_), Some(Replica::First(all))) = (&verdict, &facts.replica) else {
            return verdict;
        };
        match capacity.fit(&facts.namespace, &facts.queue, all, pins) {
            Fit::Never(reasons) => Fit::Later { reasons, pending: u32::MAX },
            all => all,
        }
    }
}
