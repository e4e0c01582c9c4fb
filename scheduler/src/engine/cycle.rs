//! One scheduling cycle. Kueue: `pkg/scheduler/scheduler.go`.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Engine;
use super::nominate::CycleEntry;
use super::second_pass::Due;
use super::simulated_removals::{ChargedUsage, SimulatedRemovals, shift_all};
use super::tournament::Tournament;
use crate::flavor_resource::FlavorResource;
use crate::flavors::{AssignmentMode, total_requests};
use crate::ids::{NodeId, WorkloadId};
use crate::queue::{RequeueContext, RequeueReason};
use crate::topology::DomainUsage;
use crate::tree::QuotaTree;
use crate::workloads::QuotaReservation;
use crate::{Amount, Cycle, Decision, Name, Reason, Time, WorkloadKey};

/// The state of a running cycle.
#[derive(Default)]
pub(super) struct CycleProgress {
    pub(super) decisions: Vec<Decision>,
    /// All victims of this cycle.
    pub(super) preempted: BTreeSet<WorkloadId>,
    /// Workloads that this cycle gave quota. Later entries do not preempt them.
    pub(super) admitted: Vec<WorkloadId>,
    /// The reservations of workloads that this cycle moved, with the domains that they keep.
    pub(super) moved: BTreeMap<WorkloadId, Box<QuotaReservation>>,
    /// Victims whose preemption this cycle issued first.
    pub(super) issued: Vec<WorkloadId>,
    /// Simulated usage without the victims of this cycle.
    pub(super) removals: SimulatedRemovals,
    /// Usage for the rest of the cycle only: of preemptors, and of quota that is kept from later
    /// entries.
    pub(super) claims: Vec<(NodeId, FlavorResource, Amount)>,
    /// The same for topology domains.
    pub(super) domain_claims: Vec<DomainUsage>,
    preemption_skips: BTreeMap<Name, usize>,
    /// Cached per tree: whether a workload with an eviction from an earlier cycle is still there.
    pub(super) awaiting: BTreeMap<NodeId, bool>,
    /// The cycle admitted or preempted a workload.
    pub(super) busy: bool,
}

/// Why an entry was not admitted.
pub(super) type Postponed = (RequeueReason, Reason);

/// The entries that the cycle has not processed yet.
enum EntryOrder {
    /// The next entry is the last element.
    Ranked(Vec<CycleEntry>),
    ByShare(Tournament),
}

impl EntryOrder {
    fn next(&mut self, tree: &mut QuotaTree) -> Option<CycleEntry> {
        match self {
            Self::Ranked(entries) => entries.pop(),
            Self::ByShare(tournament) => tournament.next(tree),
        }
    }
}

impl Engine {
    /// Admits the head of each active ClusterQueue, or says why it stays pending.
    pub fn cycle(&mut self, now: Time) -> Cycle {
        // 1. Return workloads to their queues if a trigger or a back-off is due.
        self.flush_inadmissible(now);
        // 2. Take the heads.
        let heads = self.take_heads();
        let again = self.take_second_pass(now);
        if heads.is_empty() && again.is_empty() {
            return Cycle { number: self.cycles, idle: true, ..Cycle::default() };
        }
        self.cycles += 1;
        let mut progress = CycleProgress::default();
        // 3. Nominate each head by itself.
        let (mut entries, mut postponed) = (Vec::new(), Vec::new());
        self.forest.begin_cycle();
        let mut tries = BTreeMap::new();
        for Due { id, cq, tries: before, placement_inputs } in again {
            tries.insert(id, (before, placement_inputs.clone()));
            match self.nominate(id, cq, Some(Box::new(placement_inputs))) {
                Ok(entry) => entries.push(entry),
                Err(why) => postponed.push((id, cq, why)),
            }
        }
        for (id, cq) in heads {
            match self.nominate(id, cq, None) {
                Ok(entry) => entries.push(entry),
                Err(why) => postponed.push((id, cq, why)),
            }
        }
        // 4. Order the entries: least borrowing first, then priority, then time. Fair sharing has
        //   its own order.
        let gates = self.settings.gates;
        // Workloads of the second pass already have quota and go first.
        let mut first: Vec<CycleEntry> =
            entries.extract_if(.., |entry| entry.again.is_some()).collect();
        first.sort_by_cached_key(|e| {
            (Reverse(e.priority_in(gates)), e.queue_time, e.uid.clone(), e.id)
        });
        let mut first = first.into_iter();
        let mut order = if self.settings.fair_sharing {
            EntryOrder::ByShare(Tournament::new(entries, gates))
        } else {
            let rank = |e: &CycleEntry| {
                let (borrow, priority) = (e.assignment.borrow, e.priority_in(gates));
                (!e.is_preemptor, borrow, Reverse(priority), e.queue_time, e.uid.clone(), e.id)
            };
            entries.sort_by_cached_key(|entry| Reverse(rank(entry)));
            EntryOrder::Ranked(entries)
        };
        // 5. Process the entries in order. Each one sees the usage of the entries before it.
        let mut skipped = Vec::new();
        while let Some(mut entry) = first.next().or_else(|| order.next(&mut self.tree)) {
            if let Err(why) = self.process(&mut entry, &mut progress, now) {
                self.count_preemption_skip(&entry, &why.1, &mut progress);
                skipped.push((entry.id, entry.cq, why));
            }
        }
        self.shift_claims(&progress, -1);
        self.forest.end_cycle();
        let victims = std::mem::take(&mut progress.preempted);
        for id in victims.into_iter().chain(progress.admitted.drain(..)) {
            self.set_preemptable(id, true);
        }
        // 6. Return the other heads to their queues.
        for (id, cq, why) in skipped.into_iter().chain(postponed) {
            let decision = match tries.remove(&id) {
                Some((tries, placement_inputs)) => {
                    self.postpone_second_pass(id, placement_inputs, tries, why.1, now)
                }
                None => self.postpone(id, cq, why, now),
            };
            progress.decisions.extend(decision);
        }
        let CycleProgress { decisions, preemption_skips, busy, .. } = progress;
        Cycle { number: self.cycles, decisions, preemption_skips, idle: !busy }
    }

    fn count_preemption_skip(
        &self,
        entry: &CycleEntry,
        why: &Reason,
        progress: &mut CycleProgress,
    ) {
        let preempts = entry.assignment.fitness == AssignmentMode::Preempt;
        let skipped =
            matches!(why, Reason::VictimsTaken) || preempts && matches!(why, Reason::Overtaken);
        if let Some(cq) = self.cluster_queues.get(&entry.cq).filter(|_| skipped) {
            *progress.preemption_skips.entry(cq.object.name.clone()).or_default() += 1;
        }
    }

    fn take_heads(&mut self) -> Vec<(WorkloadId, NodeId)> {
        let mut heads = Vec::new();
        for id in self.ready.queues() {
            let Some(cq) = self.cluster_queues.get_mut(&id) else { continue };
            heads.extend(cq.queue.pop().map(|head| (head, id)));
            self.ready.note(cq);
        }
        heads
    }

    /// Admits an entry or starts its preemptions.
    fn process(
        &mut self,
        entry: &mut CycleEntry,
        progress: &mut CycleProgress,
        now: Time,
    ) -> Result<(), Postponed> {
        if entry.replaced.is_some_and(|id| progress.preempted.contains(&id)) {
            return Err((RequeueReason::FailedAfterNomination, Reason::VictimsTaken));
        }
        self.yield_to_better_variant(entry)?;
        let overlaps = entry.targets.iter().any(|target| progress.preempted.contains(&target.id));
        if overlaps
            && self.preemption.as_ref().is_some_and(|preemption| preemption.recompute_overlaps)
        {
            self.search_again(entry, progress);
        } else if self.lost_its_domains(entry, progress) {
            self.place_again(entry, progress);
        }
        if self.lacks_replacement(entry) {
            return self.evict(entry, progress);
        }
        match entry.assignment.fitness {
            AssignmentMode::NoFit => {
                let kind = entry.assignment.no_fit_kind();
                return Err((
                    RequeueReason::NoFit,
                    Reason::NoFit { kind, pod_sets: entry.assignment.reasons() },
                ));
            }
            AssignmentMode::Preempt if entry.targets.is_empty() => {
                self.reserve_unreclaimable(entry, progress);
                let pod_sets = entry.assignment.reasons();
                return Err((
                    RequeueReason::PreemptionNoCandidates,
                    Reason::NoCandidates { pod_sets },
                ));
            }
            AssignmentMode::Preempt
                if self.workloads.get(entry.id).is_some_and(|wl| wl.flags.gates_closed) =>
            {
                self.forget_scan(entry.id);
                return Err((RequeueReason::PreemptionGated, Reason::PreemptionGated));
            }
            AssignmentMode::DeferredFit => {
                self.forget_scan(entry.id);
                self.claim(entry, progress);
                return Err((RequeueReason::PendingPreemption, Reason::VictimsShared));
            }
            AssignmentMode::Preempt | AssignmentMode::Fit => {}
        }
        if entry.targets.iter().any(|target| progress.preempted.contains(&target.id)) {
            self.reserve_for_preemptor(entry, progress);
            self.forget_unpreserved_scan(entry.id);
            return Err((RequeueReason::FailedAfterNomination, Reason::VictimsTaken));
        }
        if !self.fits(entry, progress)
            || !self.has_capacity(entry, progress)
            || !self.fits_beside_victims(entry, progress)
        {
            self.reserve_for_preemptor(entry, progress);
            self.forget_unpreserved_scan(entry.id);
            return Err((RequeueReason::FailedAfterNomination, Reason::Overtaken));
        }
        self.note_targets(entry, progress);
        if entry.assignment.fitness == AssignmentMode::Preempt {
            self.claim(entry, progress);
            return Err(self.preempt(entry, progress));
        }
        if self.settings.block_admission && self.unready > 0 && entry.again.is_none() {
            return Err((RequeueReason::FailedAfterNomination, Reason::WaitingForPodsReady));
        }
        if entry.again.is_some() {
            let decision = self.reassign(entry, progress);
            progress.decisions.extend(decision);
            progress.busy = true;
            return Ok(());
        }
        self.migrate(entry, progress)?;
        let decision = self.assume(entry, progress, now);
        progress.decisions.extend(decision);
        progress.busy = true;
        Ok(())
    }

    /// Whether the assignment still fits once all victims of the cycle are gone.
    pub(super) fn fits(&mut self, entry: &CycleEntry, progress: &mut CycleProgress) -> bool {
        let own = entry.targets.iter().map(|target| target.id).chain(entry.replaced);
        // The victims of the cycle are gone already.
        let own = self.usage_of(own.filter(|id| !progress.preempted.contains(id)));
        let root = self.root_of(entry.cq);
        let tree = match progress.removals.without_victims(&self.tree, root) {
            Some(without_victims) => without_victims,
            None => &mut self.tree,
        };
        shift_all(tree, &own, -1);
        // A workload of the second pass already has its quota.
        let fits = entry.again.is_some() || entry.fits_in(tree);
        shift_all(tree, &own, 1);
        fits
    }

    pub(super) fn root_of(&self, cq: NodeId) -> NodeId {
        self.tree.root(cq).unwrap_or(cq)
    }

    pub(super) fn usage_of(&self, ids: impl Iterator<Item = WorkloadId>) -> ChargedUsage {
        let mut usage = ChargedUsage::new();
        for reservation in ids.filter_map(|id| self.workloads.get(id)?.reservation.as_ref()) {
            let Some(cq) = reservation.charged else { continue };
            for (fr, amount) in &reservation.charge {
                *usage.entry((cq, *fr)).or_default() += i128::from(*amount);
            }
        }
        usage
    }

    /// Searches again without all victims of this cycle, because an earlier entry took some of this
    /// entry's victims.
    fn search_again(&mut self, entry: &mut CycleEntry, progress: &mut CycleProgress) {
        let root = self.root_of(entry.cq);
        let Some(without_victims) = progress.removals.without_victims(&self.tree, root) else {
            return;
        };
        let issued = self.forest.is_used().then_some(&progress.preempted);
        let issued = issued.into_iter().flatten();
        let gone: Vec<&QuotaReservation> =
            issued.filter_map(|id| self.workloads.get(*id)?.reservation.as_deref()).collect();
        if self.renominate(without_victims, entry, &gone).is_none() {
            return;
        }
        self.record_search(entry);
        if entry.assignment.fitness == AssignmentMode::Fit {
            entry.assignment.fitness = AssignmentMode::DeferredFit;
        }
    }

    /// Charges the quota and decides the reservation.
    fn assume(
        &mut self,
        entry: &CycleEntry,
        progress: &mut CycleProgress,
        now: Time,
    ) -> Option<Decision> {
        let cq = self.cluster_queues.get(&entry.cq)?;
        let admission = entry.assignment.admission(&cq.object.name);
        let checks = cq.checks_for(&admission);
        let (charge, places) = (Vec::new(), Vec::new());
        let mut reservation = QuotaReservation {
            admission: admission.clone(),
            charged: None,
            charge,
            places,
            confirmed: false,
            cycle: Some(self.cycles),
            since: now,
        };
        let wl = self.workloads.get(entry.id)?.clone();
        self.charge(&wl, &mut reservation);
        let root = self.root_of(entry.cq);
        for (fr, amount) in &reservation.charge {
            progress.removals.shift(root, entry.cq, *fr, i128::from(*amount));
        }
        self.edit(entry.id, |wl| {
            // Already out of the queue. The queue still treats it as its preemptor until an event
            // shows the reservation.
            wl.queued_in = None;
            wl.flags.evicted = false;
            wl.preemption_issued = false;
            wl.reservation = Some(Box::new(reservation));
            wl.reason = None;
            wl.scan = None;
        });
        self.set_preemptable(entry.id, false);
        progress.admitted.push(entry.id);
        self.release_replaced_charge(entry, progress, now);
        self.add_entry_penalty(entry.id, entry.cq, now);
        let replaced = entry.replaced.and_then(|id| self.workloads.get(id));
        Some(Decision::Reserve {
            key: wl.key,
            uid: wl.uid,
            cycle: self.cycles,
            admission,
            checks,
            waited_since: wl.queue_time,
            note: entry.assignment.note(),
            replaces: replaced.map(|old| (old.key.clone(), old.uid.clone())),
        })
    }

    /// Reduces the charge of the replaced slice by the quota of the entry.
    fn release_replaced_charge(
        &mut self,
        entry: &CycleEntry,
        progress: &mut CycleProgress,
        now: Time,
    ) {
        let root = self.root_of(entry.cq);
        let before = self.usage_of(entry.replaced.into_iter());
        self.recharge_replaced(entry.class.replaces.as_ref(), now);
        let after = self.usage_of(entry.replaced.into_iter());
        for (sign, usage) in [(-1, before), (1, after)] {
            for ((cq, fr), amount) in usage {
                progress.removals.shift(root, cq, fr, amount * sign);
            }
        }
    }

    /// Forgets the position of a workload's search that was overtaken, because it says nothing about
    /// the flavors. The gate `FlavorFungibilityPreserveScanProgress` keeps the position.
    fn forget_unpreserved_scan(&mut self, id: WorkloadId) {
        if !self.settings.gates.preserve_scan_progress {
            self.forget_scan(id);
        }
    }

    pub(super) fn forget_scan(&mut self, id: WorkloadId) {
        if let Some(wl) = self.workloads.get_mut(id) {
            wl.scan = None;
        }
    }

    /// Returns a head to its queue and records the reason.
    fn postpone(
        &mut self,
        id: WorkloadId,
        cq: NodeId,
        (requeue, reason): Postponed,
        now: Time,
    ) -> Option<Decision> {
        let reason = Arc::new(reason);
        let wl = self.workloads.get_mut(id)?;
        let cq = self.cluster_queues.get_mut(&cq)?;
        wl.reason = Some(reason.clone());
        let requeued = RequeueContext {
            requeue,
            releases_failed_preemptors: self.settings.gates.release_failed_preemptors,
            backing_off: wl.is_backing_off(now),
            pending_flavors: wl.scan.is_some(),
            reason: self.settings.equivalence_hashing.then_some(&reason),
        };
        cq.queue.requeue(wl.bucket(), wl.item(id), &requeued);
        self.ready.note(cq);
        self.changed.cluster_queues.insert(cq.object.name.clone());
        self.schedule_wakeup(id, now);
        self.pending_decision(id)
    }

    fn pending_decision(&self, id: WorkloadId) -> Option<Decision> {
        let wl = self.workloads.get(id).filter(|wl| wl.reservation.is_none())?;
        let reason = wl.reason.as_deref()?.clone();
        let requests = (wl.class.pod_sets.iter().zip(&wl.class.counts))
            .map(|(pod_set, count)| (pod_set.name.clone(), total_requests(pod_set, *count, false)))
            .collect();
        Some(Decision::Pending { key: wl.key.clone(), uid: wl.uid.clone(), reason, requests })
    }

    /// The `Pending` decision of a workload outside a cycle, after its reservation was refused.
    #[must_use]
    pub fn pending_decision_of(&self, key: &WorkloadKey) -> Option<Decision> {
        self.pending_decision(self.workloads.id(key)?)
    }
}
