//! Issues preemptions, and keeps the victims of a cycle.

use super::Engine;
use super::cycle::{CycleProgress, Postponed};
use super::nominate::CycleEntry;
use super::simulated_removals::shift_all;
use crate::flavors::{AssignmentMode, has_capacity};
use crate::ids::WorkloadId;
use crate::preemption::{Target, path};
use crate::queue::RequeueReason;
use crate::workloads::WorkloadEntry;
use crate::{Decision, Reason};

impl Engine {
    /// Removes the targets from the simulated usage and from the candidates of later entries.
    pub(super) fn note_targets(&mut self, entry: &CycleEntry, progress: &mut CycleProgress) {
        let new = entry
            .targets
            .iter()
            .map(|target| target.id)
            .filter(|id| progress.preempted.insert(*id));
        let new: Vec<_> = new.collect();
        if new.is_empty() {
            return;
        }
        if new.iter().any(|id| self.workloads.get(*id).is_some_and(WorkloadEntry::is_being_evicted))
        {
            progress.awaiting.insert(self.root_of(entry.cq), true);
        }
        // Victims are always of the preemptor's own tree.
        progress.removals.add(self.root_of(entry.cq), &self.usage_of(new.iter().copied()));
        for id in new {
            self.set_preemptable(id, false);
        }
    }

    /// Whether an entry without victims fits while the victims of the cycle hold their quota and
    /// topology domains. Kueue takes these for free at once, so that two such entries may get the
    /// same quota. The claims of preemptors are no obstacle: they get quota later.
    pub(super) fn fits_beside_victims(
        &mut self,
        entry: &CycleEntry,
        progress: &CycleProgress,
    ) -> bool {
        let waits = entry.assignment.fitness == AssignmentMode::Fit
            && entry.again.is_none()
            && !progress.preempted.is_empty();
        if !self.settings.gates.released_quota_only || !waits {
            return true;
        }
        let own = self.usage_of(entry.replaced.into_iter());
        shift_all(&mut self.tree, &own, -1);
        self.shift_claims(progress, -1);
        let fits = entry.fits_in(&self.tree)
            && (entry.places.is_empty() || has_capacity(&self.forest, &entry.places, &[]));
        self.shift_claims(progress, 1);
        shift_all(&mut self.tree, &own, 1);
        fits
    }

    /// Adds a workload to the preemption candidates, or removes it.
    pub(super) fn set_preemptable(&mut self, id: WorkloadId, in_cycle: bool) {
        let Some(wl) = self.workloads.get(id) else { return };
        let charged = wl.reservation.as_ref().and_then(|reservation| reservation.charged);
        let Some(cq) = charged.and_then(|cq| self.cluster_queues.get_mut(&cq)) else { return };
        if in_cycle {
            cq.preemption_order.insert(id, wl);
        } else {
            cq.preemption_order.remove(id, wl);
        }
    }

    /// Issues the preemption of the targets.
    pub(super) fn preempt(
        &mut self,
        entry: &CycleEntry,
        progress: &mut CycleProgress,
    ) -> Postponed {
        self.forget_scan(entry.id);
        let before = progress.decisions.len();
        for target in &entry.targets {
            let Some(decision) = self.issue_preemption(entry, target) else { continue };
            progress.decisions.push(decision);
            progress.issued.push(target.id);
        }
        // A cycle without a new preemption is idle: the next one would only find the same victims.
        progress.busy |= progress.decisions.len() > before;
        let (pod_sets, victims) = (entry.assignment.reasons(), entry.targets.len());
        (RequeueReason::PendingPreemption, Reason::Preempting { pod_sets, victims })
    }

    /// The decision for one victim; `None` if its eviction is already under way.
    fn issue_preemption(&mut self, entry: &CycleEntry, target: &Target) -> Option<Decision> {
        let preemptor = self.workloads.get(entry.id)?.key.clone();
        let victim = self.workloads.get_mut(target.id)?;
        if victim.flags.evicted || std::mem::replace(&mut victim.preemption_issued, true) {
            return None;
        }
        let charged = victim.reservation.as_ref().and_then(|reservation| reservation.charged)?;
        Some(Decision::Preempt {
            key: victim.key.clone(),
            uid: victim.uid.clone(),
            reason: target.reason,
            preemptor,
            preemptor_uid: entry.uid.clone(),
            preemptor_path: path(&self.tree, entry.cq),
            preemptee_path: path(&self.tree, charged),
        })
    }
}
