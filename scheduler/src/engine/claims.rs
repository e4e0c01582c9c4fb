//! Claims: usage that counts for the rest of one cycle only.

use super::Engine;
use super::cycle::CycleProgress;
use super::nominate::CycleEntry;
use crate::Amount;
use crate::flavor_resource::FlavorResource;
use crate::ids::NodeId;
use crate::preemption::can_always_reclaim;

impl Engine {
    /// Counts the entry's usage for the rest of the cycle.
    pub(super) fn claim(&mut self, entry: &CycleEntry, progress: &mut CycleProgress) {
        for (fr, amount) in &entry.need {
            self.claim_amount(entry.cq, *fr, *amount, progress);
        }
        self.claim_domains(entry, progress);
    }

    pub(super) fn claim_domains(&mut self, entry: &CycleEntry, progress: &mut CycleProgress) {
        for need in &entry.places {
            self.forest.simulate(&need.place, 1);
            progress.domain_claims.push(need.place.clone());
        }
    }

    /// Adds the claims of the cycle (1) or removes them (-1).
    pub(super) fn shift_claims(&mut self, progress: &CycleProgress, sign: i128) {
        for (node, fr, amount) in &progress.claims {
            self.tree.shift(*node, *fr, i128::from(amount.get()) * sign);
        }
        for place in &progress.domain_claims {
            self.forest.simulate(place, sign);
        }
    }

    fn claim_amount(
        &mut self,
        node: NodeId,
        fr: FlavorResource,
        amount: Amount,
        progress: &mut CycleProgress,
    ) {
        self.tree.shift(node, fr, i128::from(amount.get()));
        progress.removals.shift(self.root_of(node), node, fr, i128::from(amount.get()));
        progress.claims.push((node, fr, amount));
    }

    /// Keeps quota for an overtaken entry whose victims are still being evicted. Otherwise a lesser
    /// workload could take the freed quota, and the next cycle would have to preempt it.
    pub(super) fn reserve_for_preemptor(
        &mut self,
        entry: &CycleEntry,
        progress: &mut CycleProgress,
    ) {
        let preempts = self
            .cluster_queues
            .get(&entry.cq)
            .is_some_and(|cq| cq.queue.preemptor() == Some(entry.id));
        if preempts && self.awaits_eviction(entry.cq, progress) {
            self.claim(entry, progress);
        }
    }

    /// Whether a workload of the tree still has quota although its eviction or migration was decided
    /// in an earlier cycle.
    fn awaits_eviction(&self, cq: NodeId, progress: &mut CycleProgress) -> bool {
        let leaving = |cq: &NodeId| {
            self.cluster_queues.get(cq).is_some_and(|cq| cq.preemption_order.has_evicting())
        };
        let root = self.root_of(cq);
        *progress
            .awaiting
            .entry(root)
            .or_insert_with(|| self.tree.queues_of_tree(cq).iter().any(leaving))
    }

    /// Keeps quota for an entry without candidates, so that lesser workloads of other queues do not
    /// take it. A queue that can always reclaim its quota does not need this. Kueue:
    /// `reserveCapacityForUnreclaimablePreempt` in `scheduler.go`.
    pub(super) fn reserve_unreclaimable(
        &mut self,
        entry: &CycleEntry,
        progress: &mut CycleProgress,
    ) {
        let always = self
            .cluster_queues
            .get(&entry.cq)
            .is_none_or(|cq| can_always_reclaim(&cq.object.preemption));
        if always && !entry.is_preemptor {
            return;
        }
        for (fr, usage) in &entry.need {
            let quota = self.tree.quota(entry.cq, *fr);
            let used = self.tree.usage(entry.cq, *fr);
            let amount = match (entry.assignment.borrow > 0, quota.borrowing_limit) {
                (true, None) => *usage,
                (true, Some(limit)) => (*usage).min(quota.nominal + limit - used),
                (false, _) => (*usage).min(quota.nominal - used),
            };
            // A limit below the usage would be negative here, and must not free quota for other
            // entries.
            self.claim_amount(entry.cq, *fr, amount.max(Amount::ZERO), progress);
        }
        self.claim_domains(entry, progress);
    }
}
