//! Workloads that no cluster can take: their reservation returns to the engine, and they are parked.
//!
//! A parked workload is requeued when a cluster may take it. Otherwise the engine tries it again
//! after a delay.

use super::Dispatcher;
use super::tracked_workload::TrackedWorkload;
use crate::capacity::Fit;
use crate::{DispatchAction, Name, Replica, UnixMillis, WorkloadFacts, WorkloadWrite};

/// A workload that waits for a cluster that may take it.
#[derive(Debug, Clone)]
pub(crate) struct ParkedWorkload {
    pub(super) facts: WorkloadFacts,
    /// The MultiKueue check of its last reservation.
    pub(super) check: Option<Name>,
}

impl Dispatcher {
    pub(super) fn return_reservation(
        &mut self,
        entry: &mut TrackedWorkload,
        message: String,
        now: UnixMillis,
        out: &mut Vec<DispatchAction>,
    ) {
        if !self.may_write(entry, now) {
            return;
        }
        let is_in_api = entry.reservation.is_none();
        if is_in_api && !self.has_turn(entry, now) {
            return;
        }
        entry.nomination = None;
        let uid = entry.facts.uid.clone();
        if entry.reservation.is_some() {
            let check = entry.check().cloned();
            let flavors_matter = self.depends_on_flavors(entry);
            entry.reservation = None;
            let retry_at = self.retry_at(entry, flavors_matter, now);
            self.parked.insert(uid.clone(), ParkedWorkload { facts: entry.facts.clone(), check });
            out.push(DispatchAction::ReturnReservation { uid, message, retry_at });
        } else {
            // The delay begins with the next reservation in memory: only that one is requeued when
            // a cluster becomes available.
            entry.start_write(WorkloadWrite::Retry { message, retried: None }, out);
        }
    }

    /// When to try again a workload that no cluster can take: when the first refusal ends, or after
    /// a delay that doubles each time. If a cluster could take it in other flavors, the hub does not
    /// wait for the end of a refusal: it may charge those at any time.
    fn retry_at(
        &self,
        entry: &mut TrackedWorkload,
        flavors_matter: bool,
        now: UnixMillis,
    ) -> UnixMillis {
        let (first, longest) = self.settings.return_backoff;
        // A later replica is requeued when the first one has quota.
        if entry.facts.lacks_first_quota() {
            return now + longest;
        }
        let refusal = self.next_retry(entry, now).map(|at| at.min(now + longest));
        if let Some(at) = refusal.filter(|_| !flavors_matter) {
            return at;
        }
        let delay = first.saturating_mul(1 << entry.returned_in_a_row.min(10)).min(longest);
        entry.returned_in_a_row = entry.returned_in_a_row.saturating_add(1);
        refusal.unwrap_or(i64::MAX).min(now + delay)
    }

    /// Requeues workloads that a new or larger cluster may take.
    pub(super) fn wake_parked(
        &mut self,
        name: &Name,
        now: UnixMillis,
        out: &mut Vec<DispatchAction>,
    ) {
        let Some(cluster) = self.clusters.get(name).filter(|cluster| cluster.is_usable()) else {
            return;
        };
        let mut woken = Vec::new();
        for (uid, ParkedWorkload { facts, check }) in
            self.parked.iter().filter(|(_, parked)| !parked.facts.lacks_first_quota())
        {
            let refused =
                self.entries.get(uid).is_some_and(|entry| self.refusal(entry, name, now).is_some());
            // A later replica follows the first one and no other cluster helps it.
            let is_elsewhere =
                matches!(&facts.replica, Some(Replica::FirstOnCluster(at)) if at != name);
            let refused = refused || is_elsewhere || self.ruled_out(facts, name).is_some();
            let pins = self.cluster_pins(facts, check.as_ref(), name);
            let verdict =
                cluster.capacity.fit(&facts.namespace, &facts.queue, &facts.pod_sets, pins);
            if !refused && !matches!(verdict, Fit::Never(_)) {
                woken.push(uid.clone());
            }
        }
        for uid in woken {
            self.parked.remove(&uid);
            out.push(DispatchAction::Requeue { uid });
        }
    }
}
