//! Preemption candidates: which workloads the policy allows to preempt, and their order.

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::time::Duration;

use crate::afs::WeightedUsage;
use crate::cluster_queue::ClusterQueueEntry;
use crate::flavor_resource::FlavorResource;
use crate::flavors::PlacementContext;
use crate::ids::{LocalQueueId, NodeId, WorkloadId};
use crate::preemption_order::{RankedWorkload, UpTo};
use crate::queue::equivalence::EquivalenceClass;
use crate::tree::QuotaTree;
use crate::workloads::{QuotaReservation, WorkloadEntry, Workloads};
use crate::{EngineGates, PreemptionPolicy, Time};

/// The workload that preempts, with the state of all queues.
#[derive(Clone, Copy)]
pub(crate) struct Preemptor<'a> {
    pub(crate) cluster_queues: &'a BTreeMap<NodeId, ClusterQueueEntry>,
    pub(crate) workloads: &'a Workloads,
    pub(crate) cq: &'a ClusterQueueEntry,
    pub(crate) class: &'a EquivalenceClass,
    pub(crate) queue_time: Time,
    /// The workload slice that it replaces. The slice's usage belongs to the preemptor, so the
    /// slice is no candidate.
    pub(crate) replaced: Option<WorkloadId>,
    /// Set with topology-aware scheduling.
    pub(crate) placement: Option<&'a PlacementContext<'a>>,
    pub(crate) gates: EngineGates,
}

/// With the gate, a victim of equal priority must be newer than the preemptor by this.
const TIMESTAMP_BUFFER: Duration = Duration::from_secs(5 * 60);

#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate<'a> {
    pub(crate) id: WorkloadId,
    pub(crate) cq: NodeId,
    pub(crate) reservation: &'a QuotaReservation,
    pub(super) evicted: bool,
    priority: i32,
    holder: &'a RankedWorkload,
}

impl<'a> Candidate<'a> {
    /// Workloads being evicted first, then those of other queues, then low priority, then the
    /// newest. Kueue: `CandidatesOrdering` in `pkg/scheduler/preemption/common/ordering.go`.
    pub(super) fn order(&self, is_own: bool) -> impl Ord + use<'a> {
        (!self.evicted, is_own, self.priority, self.holder)
    }

    pub(crate) fn priority(&self) -> i32 {
        self.priority
    }
}

impl<'a> Preemptor<'a> {
    /// The workloads of a queue that use a contested pair and that the policy allows to preempt, in
    /// order: those being evicted, then the running ones.
    pub(crate) fn candidates_in<'n>(
        &self,
        cq: &'n ClusterQueueEntry,
        policy: PreemptionPolicy,
        contested: &'n [FlavorResource],
    ) -> CandidateIter<'n>
    where
        'a: 'n,
    {
        let evicted = RankedCandidates::new(*self, cq, policy, contested, false);
        if cq.queue.weighs_usage() {
            let mut all = self.by_usage(cq, evicted.collect());
            let running = RankedCandidates::new(*self, cq, policy, contested, true);
            all.extend(self.by_usage(cq, running.collect()));
            return CandidateIter::Listed(all.into_iter());
        }
        CandidateIter::Ranked(RankedCandidates { then_running: true, ..evicted })
    }

    /// The running ones, or those being evicted.
    pub(super) fn candidates_of<'n>(
        &self,
        cq: &'n ClusterQueueEntry,
        policy: PreemptionPolicy,
        contested: &'n [FlavorResource],
        running: bool,
    ) -> CandidateIter<'n>
    where
        'a: 'n,
    {
        let ranked = RankedCandidates::new(*self, cq, policy, contested, running);
        match cq.queue.weighs_usage() {
            true => CandidateIter::Listed(self.by_usage(cq, ranked.collect()).into_iter()),
            false => CandidateIter::Ranked(ranked),
        }
    }

    /// With admission fair sharing, past usage of LocalQueues takes precedence over priority.
    fn by_usage<'n>(
        &self,
        cq: &ClusterQueueEntry,
        mut all: Vec<Candidate<'n>>,
    ) -> Vec<Candidate<'n>> {
        let queue = |candidate: &Candidate<'_>| self.workloads.get(candidate.id).map(|wl| wl.queue);
        let ranks = Self::ranks(cq, all.iter().filter_map(queue).collect());
        // A stable sort keeps the order within one LocalQueue rank.
        all.sort_by_cached_key(|candidate| {
            queue(candidate).and_then(|queue| ranks.get(&queue)).copied()
        });
        all
    }

    /// LocalQueues by past usage, highest first.
    fn ranks(
        cq: &ClusterQueueEntry,
        queues: BTreeSet<LocalQueueId>,
    ) -> BTreeMap<LocalQueueId, Reverse<WeightedUsage>> {
        queues.into_iter().map(|id| (id, Reverse(cq.queue.usage_of(id)))).collect()
    }

    /// The highest priority that the policy allows to preempt.
    fn highest_priority(&self, policy: PreemptionPolicy) -> Option<i32> {
        let own = self.class.priority;
        match policy {
            PreemptionPolicy::Never => None,
            PreemptionPolicy::LowerPriority => own.checked_sub(1),
            PreemptionPolicy::LowerOrNewerEqualPriority => Some(own),
            PreemptionPolicy::Any => Some(i32::MAX),
        }
    }

    pub(crate) fn allows(&self, policy: PreemptionPolicy, wl: &WorkloadEntry) -> bool {
        let (own, other) = (self.class.priority, wl.class.priority);
        match policy {
            PreemptionPolicy::Never => false,
            PreemptionPolicy::LowerPriority => own > other,
            PreemptionPolicy::LowerOrNewerEqualPriority => {
                own > other || (own == other && self.is_older_than(wl))
            }
            PreemptionPolicy::Any => true,
        }
    }

    fn is_older_than(&self, wl: &WorkloadEntry) -> bool {
        match self.gates.timestamp_buffer {
            true => wl.age().since(self.queue_time) > TIMESTAMP_BUFFER,
            false => self.queue_time < wl.age(),
        }
    }

    /// Adds the usage of the replaced slice to the tree (1) or removes it (-1).
    pub(crate) fn shift_replaced(&self, tree: &mut QuotaTree, sign: i128) {
        if let Some(replaced) = self.replaced {
            self.shift(tree, replaced, sign);
        }
    }

    /// Adds a workload's usage to the tree (1) or removes it (-1).
    pub(crate) fn shift(&self, tree: &mut QuotaTree, id: WorkloadId, sign: i128) {
        if let Some(reservation) = self.workloads.get(id).and_then(|wl| wl.reservation.as_ref()) {
            shift(tree, reservation, sign);
        }
    }
}

/// The candidates of one queue. A plain value, because a search makes many.
pub(crate) enum CandidateIter<'n> {
    Ranked(RankedCandidates<'n>),
    Listed(std::vec::IntoIter<Candidate<'n>>),
}

impl<'n> Iterator for CandidateIter<'n> {
    type Item = Candidate<'n>;

    fn next(&mut self) -> Option<Candidate<'n>> {
        match self {
            Self::Ranked(ranked) => ranked.next(),
            Self::Listed(listed) => listed.next(),
        }
    }
}

/// The candidates of one queue in preemption order, computed lazily.
pub(crate) struct RankedCandidates<'n> {
    preemptor: Preemptor<'n>,
    cq: &'n ClusterQueueEntry,
    policy: PreemptionPolicy,
    contested: &'n [FlavorResource],
    running: bool,
    /// The running ones follow those being evicted.
    then_running: bool,
    /// None: the policy allows no priority.
    workloads: Option<UpTo<'n>>,
}

impl<'n> RankedCandidates<'n> {
    fn new(
        preemptor: Preemptor<'n>,
        cq: &'n ClusterQueueEntry,
        policy: PreemptionPolicy,
        contested: &'n [FlavorResource],
        running: bool,
    ) -> Self {
        let most = preemptor.highest_priority(policy);
        let workloads = most.map(|most| cq.preemption_order.up_to(most, running));
        Self { preemptor, cq, policy, contested, running, then_running: false, workloads }
    }

    fn candidate(&self, priority: i32, holder: &'n RankedWorkload) -> Option<Candidate<'n>> {
        let preemptor = &self.preemptor;
        if preemptor.replaced == Some(holder.id) {
            return None;
        }
        let wl = preemptor.workloads.get(holder.id)?;
        let reservation = wl.reservation.as_deref()?;
        let uses = reservation.charge.iter().any(|(fr, _)| self.contested.contains(fr));
        (uses && preemptor.allows(self.policy, wl)).then_some(Candidate {
            id: holder.id,
            cq: self.cq.node,
            reservation,
            evicted: !self.running,
            priority,
            holder,
        })
    }
}

impl<'n> Iterator for RankedCandidates<'n> {
    type Item = Candidate<'n>;

    fn next(&mut self) -> Option<Candidate<'n>> {
        loop {
            while let Some((priority, holder)) = self.workloads.as_mut()?.next() {
                if let Some(candidate) = self.candidate(priority, holder) {
                    return Some(candidate);
                }
            }
            if !std::mem::take(&mut self.then_running) {
                return None;
            }
            *self = Self::new(self.preemptor, self.cq, self.policy, self.contested, true);
        }
    }
}

/// Adds the usage of a reservation to the tree (1) or removes it (-1).
pub(crate) fn shift(tree: &mut QuotaTree, reservation: &QuotaReservation, sign: i128) {
    let Some(cq) = reservation.charged else { return };
    for (fr, amount) in &reservation.charge {
        tree.shift(cq, *fr, i128::from(*amount) * sign);
    }
}

/// Whether the node's usage is within its quota for all these pairs.
pub(crate) fn within_nominal(
    tree: &QuotaTree,
    node: NodeId,
    flavor_resources: &[FlavorResource],
) -> bool {
    !flavor_resources.iter().any(|fr| tree.exceeds(node, *fr, crate::Amount::ZERO))
}

/// The candidates of several queues, in one order. None may be the preemptor's own queue.
pub(super) struct MergedCandidates<'n, T> {
    fronts: BinaryHeap<Reverse<Front<'n, T>>>,
}

struct Front<'n, T> {
    candidate: Candidate<'n>,
    rest: CandidateIter<'n>,
    of: T,
}

impl<'n, T: Copy> MergedCandidates<'n, T> {
    /// Each candidate comes with the value of its iterator.
    pub(super) fn new(lines: impl IntoIterator<Item = (CandidateIter<'n>, T)>) -> Self {
        let front = |(mut rest, of): (CandidateIter<'n>, T)| {
            Some(Reverse(Front { candidate: rest.next()?, rest, of }))
        };
        Self { fronts: lines.into_iter().filter_map(front).collect() }
    }

    pub(super) fn first(&self) -> Option<(Candidate<'n>, T)> {
        self.fronts.peek().map(|Reverse(front)| (front.candidate, front.of))
    }

    /// Removes the next candidate.
    pub(super) fn pop(&mut self) {
        let Some(mut front) = self.fronts.peek_mut() else { return };
        match front.0.rest.next() {
            Some(candidate) => front.0.candidate = candidate,
            None => drop(std::collections::binary_heap::PeekMut::pop(front)),
        }
    }

    /// Removes all remaining candidates of the next candidate's queue.
    pub(super) fn drop_line(&mut self) {
        self.fronts.pop();
    }
}

impl<T> PartialEq for Front<'_, T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}
impl<T> Eq for Front<'_, T> {}
impl<T> PartialOrd for Front<'_, T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl<T> Ord for Front<'_, T> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.candidate.order(false).cmp(&other.candidate.order(false))
    }
}
