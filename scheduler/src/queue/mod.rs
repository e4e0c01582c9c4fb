//! The pending workloads of one ClusterQueue: the heap of those that cycles try, and those that are
//! parked until a trigger. Kueue: `pkg/cache/queue/cluster_queue.go`.

pub(crate) mod equivalence;
mod heap;
mod order;
#[cfg(test)]
mod tests;
pub(crate) mod triggers;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

pub(crate) use heap::{Bucket, Buckets, Heap, Item};

use self::order::InOrder;
use crate::afs::WeightedUsage;
use crate::ids::{ClassId, LocalQueueId, WorkloadId};
use crate::{QueueingStrategy, Reason};

/// Why a head returns to its queue. Decides whether it is retried at once. Kueue: `RequeueReason`
/// in `cluster_queue.go`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequeueReason {
    /// Skipped after its nomination, or its write failed.
    FailedAfterNomination,
    NamespaceMismatch,
    /// Only a change can make it admissible.
    Generic,
    /// Needs preemption, and its preemption gate is closed.
    PreemptionGated,
    /// Its victims are being evicted.
    PendingPreemption,
    NoFit,
    /// Needs preemption, and has no candidates.
    PreemptionNoCandidates,
}

/// The position of a pending workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PendingState {
    /// In the heap: a cycle will try it.
    Heap,
    /// Until a trigger. Kueue: inadmissible.
    Parked,
    /// Until the end of its back-off.
    BackingOff,
}

/// A workload is in at most one of the three states.
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct PendingQueue {
    pub(crate) strategy: QueueingStrategy,
    heap: Heap,
    parked: Buckets,
    backing_off: BTreeMap<WorkloadId, (Bucket, Item)>,
    /// Classes with a failed workload since the last trigger. Their other workloads are parked
    /// without an attempt.
    failed: BTreeMap<ClassId, Arc<Reason>>,
    /// The workload with issued preemptions. It stays the head of a BestEffortFIFO queue. Kueue:
    /// `stickyWorkload`.
    preemptor: Option<(Bucket, Item)>,
    /// The preemptor was skipped or failed after its preemption, and is no longer the head.
    #[cfg_attr(feature = "record", serde(default))]
    was_passed_over: bool,
    pops: u64,
    /// The number of pops at the last trigger.
    triggered_at: Option<u64>,
}

impl PendingQueue {
    pub(crate) fn active_len(&self) -> usize {
        self.heap.len()
    }

    /// Parked, or in a back-off.
    pub(crate) fn parked_len(&self) -> usize {
        self.parked.len() + self.backing_off.len()
    }

    /// The workloads that are parked or in a back-off, by bucket: the bucket, one workload, and the
    /// number of workloads.
    pub(crate) fn parked_groups(&self) -> impl Iterator<Item = (Bucket, WorkloadId, usize)> {
        self.parked
            .sizes()
            .chain(self.backing_off.iter().map(|(id, (bucket, _))| (*bucket, *id, 1)))
    }

    /// All pending workloads, as in [`PendingQueue::parked_groups`].
    pub(crate) fn groups(&self) -> impl Iterator<Item = (Bucket, WorkloadId, usize)> {
        self.heap.sizes().chain(self.parked_groups())
    }

    pub(crate) fn state_of(&self, bucket: Bucket, item: &Item) -> Option<PendingState> {
        if self.heap.contains(bucket, item) {
            Some(PendingState::Heap)
        } else if self.parked.contains(bucket, item) {
            Some(PendingState::Parked)
        } else {
            self.backing_off.contains_key(&item.id).then_some(PendingState::BackingOff)
        }
    }

    /// Adds a new or changed workload. It enters the heap, unless it is in a back-off or its class
    /// has failed. `was_in_heap` keeps it in the heap in any case.
    pub(crate) fn push(
        &mut self,
        bucket: Bucket,
        item: Item,
        backing_off: bool,
        was_in_heap: bool,
    ) {
        if let Some(preemptor) =
            self.preemptor.as_mut().filter(|(_, preemptor)| preemptor.id == item.id)
        {
            *preemptor = (bucket, item.clone());
        }
        if was_in_heap {
            self.heap.insert(bucket, item);
        } else if backing_off {
            self.backing_off.insert(item.id, (bucket, item));
        } else if self.best_effort() && self.failed.contains_key(&bucket.class) {
            self.parked.insert(bucket, item);
        } else {
            self.heap.insert(bucket, item);
        }
    }

    /// Puts a workload back that was removed for a change.
    pub(crate) fn put_back(&mut self, bucket: Bucket, item: Item, state: PendingState) {
        match state {
            PendingState::Heap => self.heap.insert(bucket, item),
            PendingState::Parked => self.parked.insert(bucket, item),
            PendingState::BackingOff => {
                self.backing_off.insert(item.id, (bucket, item));
            }
        }
    }

    pub(crate) fn backing_off(&self) -> Vec<WorkloadId> {
        self.backing_off.keys().copied().collect()
    }

    /// Removes a workload from wherever it is.
    pub(crate) fn remove(&mut self, bucket: Bucket, item: &Item) -> Option<PendingState> {
        if self.heap.remove(bucket, item) {
            Some(PendingState::Heap)
        } else if self.parked.remove(bucket, item) {
            Some(PendingState::Parked)
        } else {
            self.backing_off.remove(&item.id).map(|_| PendingState::BackingOff)
        }
    }

    /// The workload is gone or has quota, and is no longer a preemptor.
    pub(crate) fn forget(&mut self, id: WorkloadId) {
        if self.preemptor.as_ref().is_some_and(|(_, preemptor)| preemptor.id == id) {
            self.preemptor = None;
        }
    }

    /// No victim of the preemptor is being evicted any more.
    pub(crate) fn pass_over_preemptor(&mut self) {
        self.was_passed_over = true;
    }

    /// The workload with issued preemptions, until it has quota.
    pub(crate) fn preemptor(&self) -> Option<WorkloadId> {
        self.preemptor.as_ref().map(|(_, item)| item.id)
    }

    /// The workload of the next attempt.
    pub(crate) fn head(&self) -> Option<WorkloadId> {
        self.sticky().or_else(|| self.heap.peek()).map(|(_, item)| item.id)
    }

    /// Takes the head for a cycle. It is in no state until it returns.
    pub(crate) fn pop(&mut self) -> Option<WorkloadId> {
        self.pops += 1;
        let (bucket, item) = self.sticky().or_else(|| self.heap.peek())?;
        let item = item.clone();
        self.heap.remove(bucket, &item);
        Some(item.id)
    }

    /// The preemptor that precedes all workloads of equal past usage.
    fn sticky_preemptor(&self) -> Option<&(Bucket, Item)> {
        self.preemptor.as_ref().filter(|_| self.best_effort() && !self.was_passed_over)
    }

    /// The preemptor, unless a LocalQueue of lower past usage has a workload in the heap.
    fn sticky(&self) -> Option<(Bucket, &Item)> {
        let (bucket, item) = self.sticky_preemptor()?;
        let least = self.heap.peek().map(|(first, _)| self.heap.usage_of(first.queue));
        let first = least.is_none_or(|least| self.heap.usage_of(bucket.queue) <= least);
        (first && self.heap.contains(*bucket, item)).then_some((*bucket, item))
    }

    /// Weighted past usage: the first criterion of the order.
    pub(crate) fn usage_of(&self, queue: LocalQueueId) -> WeightedUsage {
        self.heap.usage_of(queue)
    }

    /// Whether any LocalQueue has past usage.
    pub(crate) fn weighs_usage(&self) -> bool {
        self.heap.weighs_usage()
    }

    /// Returns true on a change.
    pub(crate) fn set_usage(&mut self, queue: LocalQueueId, usage: WeightedUsage) -> bool {
        self.heap.set_usage(queue, usage)
    }

    /// Returns a head that was not admitted.
    pub(crate) fn requeue(&mut self, bucket: Bucket, item: Item, why: &RequeueContext<'_>) {
        self.note_preemptor(bucket, &item, why);
        if why.backing_off {
            self.backing_off.insert(item.id, (bucket, item));
            return;
        }
        let triggered = self.triggered_at.is_some_and(|at| at >= self.pops);
        if self.immediate(why.requeue) || triggered || why.pending_flavors {
            self.heap.insert(bucket, item);
            return;
        }
        self.parked.insert(bucket, item);
        let equivalent =
            matches!(why.requeue, RequeueReason::NoFit | RequeueReason::PreemptionNoCandidates);
        if let Some(reason) = why.reason.filter(|_| equivalent && self.best_effort()) {
            self.failed.insert(bucket.class, reason.clone());
            for bucket in self.heap.of_class(bucket.class) {
                let items = self.heap.take(bucket);
                self.parked.append(bucket, items);
            }
        }
    }

    /// With the gate, a workload is the head only while its victims are being evicted. An overtaken
    /// preemptor loses the head, but stays the preemptor for which quota is kept.
    fn note_preemptor(&mut self, bucket: Bucket, item: &Item, why: &RequeueContext<'_>) {
        let is_failed = why.releases_failed_preemptors && self.preemptor() == Some(item.id);
        match why.requeue {
            RequeueReason::PendingPreemption => {
                self.preemptor = Some((bucket, item.clone()));
                self.was_passed_over = false;
            }
            RequeueReason::FailedAfterNomination if is_failed => self.was_passed_over = true,
            _ if is_failed => self.preemptor = None,
            _ => {}
        }
    }

    fn immediate(&self, requeue: RequeueReason) -> bool {
        match self.strategy {
            QueueingStrategy::StrictFIFO => requeue != RequeueReason::NamespaceMismatch,
            QueueingStrategy::BestEffortFIFO => {
                matches!(
                    requeue,
                    RequeueReason::FailedAfterNomination | RequeueReason::PendingPreemption
                )
            }
        }
    }

    fn best_effort(&self) -> bool {
        self.strategy == QueueingStrategy::BestEffortFIFO
    }

    /// Moves parked workloads of the LocalQueues that `eligible` accepts to the heap. Returns true
    /// if it moved any.
    pub(crate) fn unpark(&mut self, mut eligible: impl FnMut(LocalQueueId) -> bool) -> bool {
        self.triggered_at = Some(self.pops);
        self.failed.clear();
        let buckets: Vec<_> =
            self.parked.buckets().filter(|bucket| eligible(bucket.queue)).collect();
        for bucket in &buckets {
            let items = self.parked.take(*bucket);
            self.heap.append(*bucket, items);
        }
        !buckets.is_empty()
    }

    /// Moves one workload to the heap.
    pub(crate) fn retry(&mut self, bucket: Bucket, item: Item) {
        if self.remove(bucket, &item).is_some() {
            self.heap.insert(bucket, item);
        }
    }

    /// Why an equivalent workload failed, so that this class is parked.
    pub(crate) fn failure_of(&self, class: ClassId) -> Option<&Arc<Reason>> {
        self.failed.get(&class)
    }

    /// All pending workloads with their state, in queue order. The start costs as much as there are
    /// classes and workloads in back-off; each step costs the logarithm of that.
    pub(crate) fn in_order(&self) -> impl Iterator<Item = (WorkloadId, PendingState)> {
        InOrder::new(self)
    }

    /// The number of workloads that are tried before this one.
    pub(crate) fn ahead_of(&self, bucket: Bucket, item: &Item) -> usize {
        let rank = |bucket: Bucket| (self.usage_of(bucket.queue), Reverse(bucket.priority));
        let own = rank(bucket);
        self.heap.iter().filter(|(b, i)| (rank(*b), *i) < (own, item)).count()
    }
}

/// Facts about a head that returns to its queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequeueContext<'a> {
    pub(crate) requeue: RequeueReason,
    /// With the gate, a preemptor that fails stops being the head.
    pub(crate) releases_failed_preemptors: bool,
    pub(crate) backing_off: bool,
    /// Its last flavor search ended before the last flavor.
    pub(crate) pending_flavors: bool,
    /// Why it failed; `None` if equivalent workloads must not be parked with it.
    pub(crate) reason: Option<&'a Arc<Reason>>,
}
