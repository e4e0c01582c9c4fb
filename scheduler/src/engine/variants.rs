//! Variants: workloads for one job that request one flavor each. Kueue KEP-8691
//! (`ConcurrentAdmission`).
//!
//! Each variant waits in the queue by itself. The admitted variant on the best flavor runs; the
//! others wait. A variant on a worse flavor is evicted before a better one gets quota, so that a
//! migration never charges a job's quota twice.

use super::Engine;
use super::cycle::{CycleProgress, Postponed};
use super::nominate::CycleEntry;
use crate::cluster_queue::ClusterQueueEntry;
use crate::ids::WorkloadId;
use crate::queue::RequeueReason;
use crate::queue::equivalence::EquivalenceClass;
use crate::workloads::WorkloadEntry;
use crate::{Decision, Name, Reason};

/// The position of a variant's flavor in its ClusterQueue.
fn rank(cq: &ClusterQueueEntry, class: &EquivalenceClass) -> Option<usize> {
    let flavor = class.flavors.as_ref()?.first()?;
    cq.groups.first()?.flavors.iter().position(|other| other.name == *flavor)
}

impl Engine {
    pub(super) fn note_variant(&mut self, id: WorkloadId, parent: Option<&Name>) {
        if let Some(parent) = parent {
            self.variants.entry(parent.clone()).or_default().insert(id);
        }
    }

    pub(super) fn forget_variant(&mut self, id: WorkloadId, parent: Option<&Name>) {
        let Some(parent) = parent else { return };
        let Some(ids) = self.variants.get_mut(parent) else { return };
        ids.remove(&id);
        if ids.is_empty() {
            self.variants.remove(parent);
        }
    }

    /// An admitted variant of the same workload, on a better or on a worse flavor.
    fn admitted_sibling(&self, entry: &CycleEntry, better: bool) -> Option<WorkloadId> {
        if self.variants.is_empty() {
            return None;
        }
        let siblings = self.variants.get(&**self.workloads.get(entry.id)?.parent.as_ref()?)?;
        let cq = self.cluster_queues.get(&entry.cq)?;
        let own = rank(cq, &entry.class)?;
        siblings.iter().copied().filter(|id| *id != entry.id).find(|id| {
            let Some(sibling) = self.workloads.get(*id).filter(|sibling| is_admitted(sibling, cq))
            else {
                return false;
            };
            rank(cq, &sibling.class)
                .is_some_and(|rank| if better { rank < own } else { rank > own })
        })
    }

    /// A variant waits while a better one runs. The end of the better one triggers the queue.
    pub(super) fn yield_to_better_variant(&mut self, entry: &CycleEntry) -> Result<(), Postponed> {
        if self.admitted_sibling(entry, true).is_none() {
            return Ok(());
        }
        // A variant has one flavor, so there is no search to resume.
        self.forget_scan(entry.id);
        Err((RequeueReason::Generic, Reason::BetterVariant))
    }

    /// Evicts the variant on a worse flavor before this one gets quota, if the migration is worth
    /// it.
    pub(super) fn migrate(
        &mut self,
        entry: &CycleEntry,
        progress: &mut CycleProgress,
    ) -> Result<(), Postponed> {
        let Some(worse) = self.admitted_sibling(entry, false) else { return Ok(()) };
        self.forget_scan(entry.id);
        if !self.is_worth_migrating(entry) {
            return Err((RequeueReason::Generic, Reason::NotWorthMigrating));
        }
        self.claim(entry, progress);
        if let Some(wl) = self.workloads.get(worse).filter(|wl| !wl.is_being_evicted()) {
            let (key, uid) = (wl.key.clone(), wl.uid.clone());
            self.edit(worse, |wl| wl.preemption_issued = true);
            progress.decisions.push(Decision::Migrate { key, uid, to_uid: entry.uid.clone() });
            progress.busy = true;
        }
        Err((RequeueReason::PendingPreemption, Reason::Migrating))
    }

    fn is_worth_migrating(&self, entry: &CycleEntry) -> bool {
        let Some(cq) = self.cluster_queues.get(&entry.cq) else { return false };
        let Some(last) = &cq.object.last_acceptable else { return true };
        let flavors = cq.groups.first().map(|group| group.flavors.as_slice()).unwrap_or_default();
        let last = flavors.iter().position(|flavor| flavor.name == *last);
        last.is_none_or(|last| rank(cq, &entry.class).is_some_and(|own| own <= last))
    }
}

/// Whether it runs, or will run once its reservation is written.
fn is_admitted(wl: &WorkloadEntry, cq: &ClusterQueueEntry) -> bool {
    let Some(reservation) =
        wl.reservation.as_ref().filter(|reservation| reservation.charged == Some(cq.node))
    else {
        return false;
    };
    wl.flags.admitted
        || (!reservation.confirmed && cq.checks_for(&reservation.admission).is_empty())
}
