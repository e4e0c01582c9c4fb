//! One scheduling cycle, step by step. Kueue's `scheduler.go` is the rule.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Engine;
use super::nominate::Entry;
use super::second_pass::Due;
use super::simulated_removals::{Going, Usage, shift_all};
use super::tournament::Tournament;
use crate::flavor_resource::Fr;
use crate::flavors::{Fitness, total_requests};
use crate::preemption::{Target, can_always_reclaim, path};
use crate::queue::{Requeue, Requeued};
use crate::topology::PlaceUse;
use crate::tree::{NodeId, Tree};
use crate::workloads::{Hold, Wl, WlId};
use crate::{Amount, Cycle, Decision, Name, Reason, Time, WorkloadKey};

/// What a cycle has done so far.
#[derive(Default)]
pub(super) struct Progress {
    pub(super) decisions: Vec<Decision>,
    /// Workloads that were told to go.
    pub(super) preempted: BTreeSet<WlId>,
    /// Those of them who had not been told before.
    pub(super) told: Vec<WlId>,
    /// What would be without them.
    going: Going,
    /// Usage that only this cycle sees: what preemptors will use, and what is held against lesser workloads.
    claims: Vec<(NodeId, Fr, Amount)>,
    /// The same of places.
    place_claims: Vec<PlaceUse>,
    /// [`Cycle::preemption_skips`].
    preemption_skips: BTreeMap<Name, usize>,
    /// The trees in which somebody that was told to go before this cycle has not gone yet, as far as that was asked.
    awaiting: BTreeMap<NodeId, bool>,
    /// Something was admitted or preempted.
    pub(super) busy: bool,
}

/// What became of an entry that was not admitted.
pub(super) type Postponed = (Requeue, Reason);

/// The entries that are left.
enum Order {
    /// The next one is the last.
    Ranked(Vec<Entry>),
    ByShare(Tournament),
}

impl Order {
    fn next(&mut self, tree: &mut Tree) -> Option<Entry> {
        match self {
            Self::Ranked(entries) => entries.pop(),
            Self::ByShare(tournament) => tournament.next(tree),
        }
    }
}

impl Engine {
    /// One scheduling cycle: the head of every active ClusterQueue is admitted, or told why not.
    pub fn cycle(&mut self, now: Time) -> Cycle {
        // 1. What is due comes back.
        self.flush_inadmissible(now);
        // 2. The heads.
        let heads = self.take_heads();
        let again = self.take_second_pass(now);
        if heads.is_empty() && again.is_empty() {
            return Cycle { number: self.cycles, idle: true, ..Cycle::default() };
        }
        self.cycles += 1;
        let mut progress = Progress::default();
        // 3. What could be done for each by itself.
        let (mut entries, mut postponed) = (Vec::new(), Vec::new());
        self.forest.begin_cycle();
        let mut tries = BTreeMap::new();
        for Due { id, cq, tries: before, facts } in again {
            tries.insert(id, (before, facts.clone()));
            match self.nominate(id, cq, Some(Box::new(facts))) {
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
        // 4. Their order: the least borrowing, then priority, then time. Fair sharing has its own.
        let gates = self.settings.gates;
        // Those that hold quota already come before all others.
        let mut first: Vec<Entry> = entries.extract_if(.., |entry| entry.again.is_some()).collect();
        first.sort_by_cached_key(|e| {
            (Reverse(e.priority_in(gates)), e.queue_time, e.uid.clone(), e.id)
        });
        let mut first = first.into_iter();
        let mut order = if self.settings.fair_sharing {
            Order::ByShare(Tournament::new(entries, gates))
        } else {
            let rank = |e: &Entry| {
                let (borrow, priority) = (e.assignment.borrow, e.priority_in(gates));
                (!e.is_preemptor, borrow, Reverse(priority), e.queue_time, e.uid.clone(), e.id)
            };
            entries.sort_by_cached_key(|entry| Reverse(rank(entry)));
            Order::Ranked(entries)
        };
        // 5. One after the other, each seeing what those before it took.
        let mut skipped = Vec::new();
        while let Some(mut entry) = first.next().or_else(|| order.next(&mut self.tree)) {
            if let Err(why) = self.process(&mut entry, &mut progress, now) {
                self.count_preemption_skip(&entry, &why.1, &mut progress);
                skipped.push((entry.id, entry.cq, why));
            }
        }
        for (node, fr, amount) in progress.claims.drain(..) {
            self.tree.shift(node, fr, -i128::from(amount.get()));
        }
        for place in progress.place_claims.drain(..) {
            self.forest.simulate(&place, -1);
        }
        self.forest.end_cycle();
        for id in std::mem::take(&mut progress.preempted) {
            self.file_holder(id, true);
        }
        // 6. The others go back to their queues.
        for (id, cq, why) in skipped.into_iter().chain(postponed) {
            let decision = match tries.remove(&id) {
                Some((tries, facts)) => self.postpone_second_pass(id, facts, tries, why.1, now),
                None => self.postpone(id, cq, why, now),
            };
            progress.decisions.extend(decision);
        }
        let Progress { decisions, preemption_skips, busy, .. } = progress;
        Cycle { number: self.cycles, decisions, preemption_skips, idle: !busy }
    }

    fn count_preemption_skip(&self, entry: &Entry, why: &Reason, progress: &mut Progress) {
        let preempts = entry.assignment.fitness == Fitness::Preempt;
        let skipped =
            matches!(why, Reason::VictimsTaken) || preempts && matches!(why, Reason::Overtaken);
        if let Some(cq) = self.cqs.get(&entry.cq).filter(|_| skipped) {
            *progress.preemption_skips.entry(cq.object.name.clone()).or_default() += 1;
        }
    }

    fn take_heads(&mut self) -> Vec<(WlId, NodeId)> {
        let mut heads = Vec::new();
        for id in self.ready.queues() {
            let Some(cq) = self.cqs.get_mut(&id) else { continue };
            heads.extend(cq.queue.pop().map(|head| (head, id)));
            self.ready.note(cq);
        }
        heads
    }

    /// Admits an entry, starts its preemptions, or says why neither.
    fn process(
        &mut self,
        entry: &mut Entry,
        progress: &mut Progress,
        now: Time,
    ) -> Result<(), Postponed> {
        if entry.replaced.is_some_and(|id| progress.preempted.contains(&id)) {
            return Err((Requeue::FailedAfterNomination, Reason::VictimsTaken));
        }
        self.yield_to_better_variant(entry)?;
        let overlaps = entry.targets.iter().any(|target| progress.preempted.contains(&target.id));
        if overlaps
            && self.preemption.as_ref().is_some_and(|preemption| preemption.recompute_overlaps)
        {
            self.search_again(entry, progress);
        } else if self.lost_its_places(entry, progress) {
            self.place_again(entry, progress);
        }
        if self.lacks_replacement(entry) {
            return self.evict(entry, progress);
        }
        match entry.assignment.fitness {
            Fitness::NoFit => {
                let kind = entry.assignment.no_fit_kind();
                return Err((
                    Requeue::NoFit,
                    Reason::NoFit { kind, pod_sets: entry.assignment.reasons() },
                ));
            }
            Fitness::Preempt if entry.targets.is_empty() => {
                self.reserve_unreclaimable(entry, progress);
                let pod_sets = entry.assignment.reasons();
                return Err((Requeue::PreemptionNoCandidates, Reason::NoCandidates { pod_sets }));
            }
            Fitness::Preempt
                if self.workloads.get(entry.id).is_some_and(|wl| wl.flags.gates_closed) =>
            {
                self.forget_scan(entry.id);
                return Err((Requeue::PreemptionGated, Reason::PreemptionGated));
            }
            Fitness::DeferredFit => {
                self.forget_scan(entry.id);
                self.claim(entry, progress);
                return Err((Requeue::PendingPreemption, Reason::VictimsShared));
            }
            Fitness::Preempt | Fitness::Fit => {}
        }
        if entry.targets.iter().any(|target| progress.preempted.contains(&target.id)) {
            self.keep_room(entry, progress);
            self.forget_unpreserved_scan(entry.id);
            return Err((Requeue::FailedAfterNomination, Reason::VictimsTaken));
        }
        if !self.fits(entry, progress) || !self.has_room(entry, progress) {
            self.keep_room(entry, progress);
            self.forget_unpreserved_scan(entry.id);
            return Err((Requeue::FailedAfterNomination, Reason::Overtaken));
        }
        self.note_targets(entry, progress);
        if entry.assignment.fitness == Fitness::Preempt {
            self.claim(entry, progress);
            return Err(self.preempt(entry, progress));
        }
        if self.settings.block_admission && self.unready > 0 && entry.again.is_none() {
            return Err((Requeue::FailedAfterNomination, Reason::WaitingForPodsReady));
        }
        if entry.again.is_some() {
            progress.decisions.extend(self.reassign(entry));
            progress.busy = true;
            return Ok(());
        }
        self.migrate(entry, progress)?;
        let decision = self.assume(entry, progress, now);
        progress.decisions.extend(decision);
        progress.busy = true;
        Ok(())
    }

    /// Whether the assignment still fits when everybody who was told to go has gone.
    pub(super) fn fits(&mut self, entry: &Entry, progress: &mut Progress) -> bool {
        let own = self.usage_of(entry.targets.iter().map(|target| target.id).chain(entry.replaced));
        let root = self.root_of(entry.cq);
        let tree = match progress.going.without(&self.tree, root) {
            Some(without) => without,
            None => &mut self.tree,
        };
        shift_all(tree, &own, -1);
        let free = |(fr, amount): &(Fr, Amount)| {
            tree.available(entry.cq, *fr).max(Amount::ZERO) >= *amount
        };
        // What holds quota already asks for no more.
        let fits = entry.again.is_some() || entry.assignment.usage.iter().all(free);
        shift_all(tree, &own, 1);
        fits
    }

    fn root_of(&self, cq: NodeId) -> NodeId {
        self.tree.root(cq).unwrap_or(cq)
    }

    pub(super) fn usage_of(&self, ids: impl Iterator<Item = WlId>) -> Usage {
        let mut usage = Usage::new();
        for hold in ids.filter_map(|id| self.workloads.get(id)?.hold.as_ref()) {
            let Some(cq) = hold.charged else { continue };
            for (fr, amount) in &hold.charge {
                *usage.entry((cq, *fr)).or_default() += i128::from(*amount);
            }
        }
        usage
    }

    /// Remembers who was told to go, and that nobody else of this cycle can tell them.
    fn note_targets(&mut self, entry: &Entry, progress: &mut Progress) {
        let new = entry
            .targets
            .iter()
            .map(|target| target.id)
            .filter(|id| progress.preempted.insert(*id));
        let new: Vec<_> = new.collect();
        if new.is_empty() {
            return;
        }
        if new.iter().any(|id| self.workloads.get(*id).is_some_and(Wl::is_leaving)) {
            progress.awaiting.insert(self.root_of(entry.cq), true);
        }
        // Nobody gives way to a workload of another tree.
        progress.going.add(self.root_of(entry.cq), &self.usage_of(new.iter().copied()));
        for id in new {
            self.file_holder(id, false);
        }
    }

    /// Puts a workload among those that may be preempted, or takes it out.
    pub(super) fn file_holder(&mut self, id: WlId, in_cycle: bool) {
        let Some(wl) = self.workloads.get(id) else { return };
        let charged = wl.hold.as_ref().and_then(|hold| hold.charged);
        let Some(cq) = charged.and_then(|cq| self.cqs.get_mut(&cq)) else { return };
        if in_cycle {
            cq.holders.insert(id, wl);
        } else {
            cq.holders.remove(id, wl);
        }
    }

    /// Searches again as if all victims of this cycle were gone already, because an earlier entry took some of ours.
    fn search_again(&mut self, entry: &mut Entry, progress: &mut Progress) {
        let root = self.root_of(entry.cq);
        let Some(without) = progress.going.without(&self.tree, root) else { return };
        let told = self.forest.is_used().then_some(&progress.preempted);
        let told = told.into_iter().flatten();
        let gone: Vec<&Hold> =
            told.filter_map(|id| self.workloads.get(*id)?.hold.as_deref()).collect();
        if self.renominate(without, entry, &gone).is_none() {
            return;
        }
        self.note_search(entry);
        if entry.assignment.fitness == Fitness::Fit {
            entry.assignment.fitness = Fitness::DeferredFit;
        }
    }

    /// Counts an entry's usage for the rest of the cycle.
    pub(super) fn claim(&mut self, entry: &Entry, progress: &mut Progress) {
        for (fr, amount) in &entry.need {
            self.claim_amount(entry.cq, *fr, *amount, progress);
        }
        self.claim_places(entry, progress);
    }

    pub(super) fn claim_places(&mut self, entry: &Entry, progress: &mut Progress) {
        for need in &entry.places {
            self.forest.simulate(&need.place, 1);
            progress.place_claims.push(need.place.clone());
        }
    }

    fn claim_amount(&mut self, node: NodeId, fr: Fr, amount: Amount, progress: &mut Progress) {
        self.tree.shift(node, fr, i128::from(amount.get()));
        progress.going.shift(self.root_of(node), node, fr, i128::from(amount.get()));
        progress.claims.push((node, fr, amount));
    }

    /// An entry for which others were told to go, and that an earlier one overtook, holds what it needs against those after
    /// it until all are gone: a lesser workload that took of the room that is being made would have to go for it in the
    /// next cycle.
    fn keep_room(&mut self, entry: &Entry, progress: &mut Progress) {
        let preempts =
            self.cqs.get(&entry.cq).is_some_and(|cq| cq.queue.preemptor() == Some(entry.id));
        if preempts && self.awaits_leaving(entry.cq, progress) {
            self.claim(entry, progress);
        }
    }

    /// Whether somebody of the tree was told to go before this cycle, or to move to another flavor in it, and has not gone
    /// yet.
    fn awaits_leaving(&self, cq: NodeId, progress: &mut Progress) -> bool {
        let leaving = |cq: &NodeId| self.cqs.get(cq).is_some_and(|cq| cq.holders.any_leaving());
        let root = self.root_of(cq);
        *progress
            .awaiting
            .entry(root)
            .or_insert_with(|| self.tree.queues_of_tree(cq).iter().any(leaving))
    }

    /// An entry that nobody gives way to holds what it could use against the entries after it, so that lesser
    /// workloads of other queues do not take what it waits for. A queue that always gets its own back need not.
    fn reserve_unreclaimable(&mut self, entry: &Entry, progress: &mut Progress) {
        let always =
            self.cqs.get(&entry.cq).is_none_or(|cq| can_always_reclaim(&cq.object.preemption));
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
            // Less than nothing, if the limit was cut below what is used: that frees nothing for others.
            self.claim_amount(entry.cq, *fr, amount.max(Amount::ZERO), progress);
        }
        self.claim_places(entry, progress);
    }

    /// Charges the quota and decides the reservation.
    fn assume(&mut self, entry: &Entry, progress: &mut Progress, now: Time) -> Option<Decision> {
        let cq = self.cqs.get(&entry.cq)?;
        let admission = entry.assignment.admission(&cq.object.name);
        let checks = cq.checks_for(&admission);
        let (charge, places) = (Vec::new(), Vec::new());
        let mut hold = Hold {
            admission: admission.clone(),
            charged: None,
            charge,
            places,
            confirmed: false,
            since: now,
        };
        let wl = self.workloads.get(entry.id)?.clone();
        self.charge(&wl, &mut hold);
        let root = self.root_of(entry.cq);
        for (fr, amount) in &hold.charge {
            progress.going.shift(root, entry.cq, *fr, i128::from(*amount));
        }
        self.edit(entry.id, |wl| {
            // Already out of the queue, which goes on treating it as its preemptor until the API shows the quota.
            wl.queued_in = None;
            wl.flags.evicted = false;
            wl.told_to_go = false;
            wl.hold = Some(Box::new(hold));
            wl.reason = None;
            wl.scan = None;
        });
        self.replace_held(entry, progress, now);
        self.charge_entry(entry.id, entry.cq, now);
        let replaced = entry.replaced.and_then(|id| self.workloads.get(id));
        Some(Decision::Reserve {
            key: wl.key,
            uid: wl.uid,
            admission,
            checks,
            waited_since: wl.queue_time,
            note: entry.assignment.note(),
            replaces: replaced.map(|old| (old.key.clone(), old.uid.clone())),
        })
    }

    /// What an entry was given is in the place of what the replaced workload had.
    fn replace_held(&mut self, entry: &Entry, progress: &mut Progress, now: Time) {
        let root = self.root_of(entry.cq);
        let before = self.usage_of(entry.replaced.into_iter());
        self.recharge_replaced(entry.class.replaces.as_ref(), now);
        let after = self.usage_of(entry.replaced.into_iter());
        for (sign, usage) in [(-1, before), (1, after)] {
            for ((cq, fr), amount) in usage {
                progress.going.shift(root, cq, fr, amount * sign);
            }
        }
    }

    /// Tells the targets to go; the entry waits for them.
    fn preempt(&mut self, entry: &Entry, progress: &mut Progress) -> Postponed {
        self.forget_scan(entry.id);
        let before = progress.decisions.len();
        for target in &entry.targets {
            let Some(decision) = self.tell_to_go(entry, target) else { continue };
            progress.decisions.push(decision);
            progress.told.push(target.id);
        }
        // Waiting for those that were told already is no work: the next cycle would only find the same.
        progress.busy |= progress.decisions.len() > before;
        let (pod_sets, victims) = (entry.assignment.reasons(), entry.targets.len());
        (Requeue::PendingPreemption, Reason::Preempting { pod_sets, victims })
    }

    /// The decision for one victim, unless it was told already and has not answered yet.
    fn tell_to_go(&mut self, entry: &Entry, target: &Target) -> Option<Decision> {
        let preemptor = self.workloads.get(entry.id)?.key.clone();
        let victim = self.workloads.get_mut(target.id)?;
        if victim.flags.evicted || std::mem::replace(&mut victim.told_to_go, true) {
            return None;
        }
        let charged = victim.hold.as_ref().and_then(|hold| hold.charged)?;
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

    /// Another took what it could have had: where its search ended says nothing of flavors, but is not always remembered.
    fn forget_unpreserved_scan(&mut self, id: WlId) {
        if !self.settings.gates.preserve_scan_progress {
            self.forget_scan(id);
        }
    }

    pub(super) fn forget_scan(&mut self, id: WlId) {
        if let Some(wl) = self.workloads.get_mut(id) {
            wl.scan = None;
        }
    }

    /// Puts a head back into its queue and says why it stays pending.
    fn postpone(
        &mut self,
        id: WlId,
        cq: NodeId,
        (requeue, reason): Postponed,
        now: Time,
    ) -> Option<Decision> {
        let reason = Arc::new(reason);
        let wl = self.workloads.get_mut(id)?;
        let cq = self.cqs.get_mut(&cq)?;
        wl.reason = Some(reason.clone());
        let requeued = Requeued {
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

    fn pending_decision(&self, id: WlId) -> Option<Decision> {
        let wl = self.workloads.get(id).filter(|wl| wl.hold.is_none())?;
        let reason = wl.reason.as_deref()?.clone();
        let requests = (wl.class.pod_sets.iter().zip(&wl.class.counts))
            .map(|(pod_set, count)| (pod_set.name.clone(), total_requests(pod_set, *count, false)))
            .collect();
        Some(Decision::Pending { key: wl.key.clone(), uid: wl.uid.clone(), reason, requests })
    }

    /// What is to be said of a workload without quota, outside of a cycle: after its reservation was refused.
    #[must_use]
    pub fn still_pending(&self, key: &WorkloadKey) -> Option<Decision> {
        self.pending_decision(self.workloads.id(key)?)
    }
}
