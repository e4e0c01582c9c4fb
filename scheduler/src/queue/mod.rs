//! One ClusterQueue's pending workloads: the heap of those to be tried, and those parked until something changes.

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

use self::equivalence::ClassId;
use self::order::InOrder;
use crate::afs::Usage;
use crate::workloads::{LqId, WlId};
use crate::{QueueingStrategy, Reason};

/// Why a head goes back to its queue. Decides whether it is tried again at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Requeue {
    /// It was nominated and then skipped, or its write failed.
    FailedAfterNomination,
    /// Its namespace does not match.
    NamespaceMismatch,
    /// Anything that only a change can mend.
    Generic,
    /// It would have to preempt and must not.
    PreemptionGated,
    /// It preempts others and waits for them to go.
    PendingPreemption,
    /// It fits on no flavor.
    NoFit,
    /// It would fit if others gave way, but none may be preempted for it.
    PreemptionNoCandidates,
}

/// Where a pending workload of this queue is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spot {
    /// It will be tried.
    Heap,
    /// It waits for a trigger.
    Parked,
    /// It waits for its back-off to end.
    BackingOff,
}

/// The pending workloads of one ClusterQueue. A workload is in one spot at most.
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct Queue {
    pub(crate) strategy: QueueingStrategy,
    heap: Heap,
    parked: Buckets,
    backing_off: BTreeMap<WlId, (Bucket, Item)>,
    /// Classes of which one member failed since the last trigger: the others are parked untried.
    failed: BTreeMap<ClassId, Arc<Reason>>,
    /// The workload that preempts others for itself; it stays the head of a BestEffortFIFO queue.
    preemptor: Option<(Bucket, Item)>,
    /// Whether the preemptor was skipped or failed after its preemption: it is no longer the head on that account.
    #[cfg_attr(feature = "record", serde(default))]
    was_passed_over: bool,
    pops: u64,
    /// The count of pops when the last trigger came.
    triggered_at: Option<u64>,
}

impl Queue {
    /// How many will be tried.
    pub(crate) fn active_len(&self) -> usize {
        self.heap.len()
    }

    /// How many wait for a trigger or for the end of their back-off.
    pub(crate) fn parked_len(&self) -> usize {
        self.parked.len() + self.backing_off.len()
    }

    /// The workloads that wait for a trigger or for the end of their back-off, in groups of those that only time tells
    /// apart: a group's bucket, one of them, and how many they are.
    pub(crate) fn parked_groups(&self) -> impl Iterator<Item = (Bucket, WlId, usize)> {
        self.parked
            .sizes()
            .chain(self.backing_off.iter().map(|(id, (bucket, _))| (*bucket, *id, 1)))
    }

    /// All workloads here, in groups as in [`Queue::parked_groups`].
    pub(crate) fn groups(&self) -> impl Iterator<Item = (Bucket, WlId, usize)> {
        self.heap.sizes().chain(self.parked_groups())
    }

    /// Where a workload is, if it is here.
    pub(crate) fn spot(&self, bucket: Bucket, item: &Item) -> Option<Spot> {
        if self.heap.contains(bucket, item) {
            Some(Spot::Heap)
        } else if self.parked.contains(bucket, item) {
            Some(Spot::Parked)
        } else {
            self.backing_off.contains_key(&item.id).then_some(Spot::BackingOff)
        }
    }

    /// A workload that is not here comes, or one that was changed comes back: to the heap, unless it is backing off
    /// or its class has failed. `was_in_heap` keeps a workload there that only changed its place in it.
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

    /// Puts a workload back that was taken out for a moment.
    pub(crate) fn put_back(&mut self, bucket: Bucket, item: Item, spot: Spot) {
        match spot {
            Spot::Heap => self.heap.insert(bucket, item),
            Spot::Parked => self.parked.insert(bucket, item),
            Spot::BackingOff => {
                self.backing_off.insert(item.id, (bucket, item));
            }
        }
    }

    /// The workloads whose back-off has not ended.
    pub(crate) fn backing_off(&self) -> Vec<WlId> {
        self.backing_off.keys().copied().collect()
    }

    /// Takes a workload out, wherever it is.
    pub(crate) fn remove(&mut self, bucket: Bucket, item: &Item) -> Option<Spot> {
        if self.heap.remove(bucket, item) {
            Some(Spot::Heap)
        } else if self.parked.remove(bucket, item) {
            Some(Spot::Parked)
        } else {
            self.backing_off.remove(&item.id).map(|_| Spot::BackingOff)
        }
    }

    /// The workload is gone or has quota: it is nobody's preemptor any more.
    pub(crate) fn forget(&mut self, id: WlId) {
        if self.preemptor.as_ref().is_some_and(|(_, preemptor)| preemptor.id == id) {
            self.preemptor = None;
        }
    }

    /// Nobody is on the way out for the preemptor any more.
    pub(crate) fn pass_over_preemptor(&mut self) {
        self.was_passed_over = true;
    }

    /// The workload that others were told to go for, until it has quota.
    pub(crate) fn preemptor(&self) -> Option<WlId> {
        self.preemptor.as_ref().map(|(_, item)| item.id)
    }

    /// The workload that is tried next.
    pub(crate) fn head(&self) -> Option<WlId> {
        self.sticky().or_else(|| self.heap.peek()).map(|(_, item)| item.id)
    }

    /// Takes the head for a cycle. It is nowhere until it is put back.
    pub(crate) fn pop(&mut self) -> Option<WlId> {
        self.pops += 1;
        let (bucket, item) = self.sticky().or_else(|| self.heap.peek())?;
        let item = item.clone();
        self.heap.remove(bucket, &item);
        Some(item.id)
    }

    /// The preemptor that goes before all others whose LocalQueues used as little.
    fn sticky_preemptor(&self) -> Option<&(Bucket, Item)> {
        self.preemptor.as_ref().filter(|_| self.best_effort() && !self.was_passed_over)
    }

    /// The preemptor, unless a LocalQueue that used less has something to try.
    fn sticky(&self) -> Option<(Bucket, &Item)> {
        let (bucket, item) = self.sticky_preemptor()?;
        let least = self.heap.peek().map(|(first, _)| self.heap.usage_of(first.queue));
        let first = least.is_none_or(|least| self.heap.usage_of(bucket.queue) <= least);
        (first && self.heap.contains(*bucket, item)).then_some((*bucket, item))
    }

    /// What orders a LocalQueue's workloads before all else: weighted past use.
    pub(crate) fn usage_of(&self, queue: LqId) -> Usage {
        self.heap.usage_of(queue)
    }

    /// Whether past use orders any of its LocalQueues.
    pub(crate) fn weighs_use(&self) -> bool {
        self.heap.weighs_use()
    }

    /// Sets it; answers whether that is news.
    pub(crate) fn set_usage(&mut self, queue: LqId, usage: Usage) -> bool {
        self.heap.set_usage(queue, usage)
    }

    /// Puts a head back that was not admitted. `pending_flavors`: its last scan ended before the last flavor.
    pub(crate) fn requeue(&mut self, bucket: Bucket, item: Item, why: &Requeued<'_>) {
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
        let equivalent = matches!(why.requeue, Requeue::NoFit | Requeue::PreemptionNoCandidates);
        if let Some(reason) = why.reason.filter(|_| equivalent && self.best_effort()) {
            self.failed.insert(bucket.class, reason.clone());
            for bucket in self.heap.of_class(bucket.class) {
                let items = self.heap.take(bucket);
                self.parked.append(bucket, items);
            }
        }
    }

    /// With the gate, only a workload whose victims are still to go keeps the head of its queue. A preemptor that was passed over in a
    /// cycle goes on in the queue's order, and stays known as the one for which room is kept.
    fn note_preemptor(&mut self, bucket: Bucket, item: &Item, why: &Requeued<'_>) {
        let is_failed = why.releases_failed_preemptors && self.preemptor() == Some(item.id);
        match why.requeue {
            Requeue::PendingPreemption => {
                self.preemptor = Some((bucket, item.clone()));
                self.was_passed_over = false;
            }
            Requeue::FailedAfterNomination if is_failed => self.was_passed_over = true,
            _ if is_failed => self.preemptor = None,
            _ => {}
        }
    }

    fn immediate(&self, requeue: Requeue) -> bool {
        match self.strategy {
            QueueingStrategy::StrictFIFO => requeue != Requeue::NamespaceMismatch,
            QueueingStrategy::BestEffortFIFO => {
                matches!(requeue, Requeue::FailedAfterNomination | Requeue::PendingPreemption)
            }
        }
    }

    fn best_effort(&self) -> bool {
        self.strategy == QueueingStrategy::BestEffortFIFO
    }

    /// Something changed that may let parked workloads in: those that `eligible` allows go back to the heap.
    /// Answers whether any did.
    pub(crate) fn unpark(&mut self, mut eligible: impl FnMut(LqId) -> bool) -> bool {
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

    /// Moves one workload back to the heap, from wherever it waits.
    pub(crate) fn retry(&mut self, bucket: Bucket, item: Item) {
        if self.remove(bucket, &item).is_some() {
            self.heap.insert(bucket, item);
        }
    }

    /// The failure of an equal workload that parked this class.
    pub(crate) fn failure_of(&self, class: ClassId) -> Option<&Arc<Reason>> {
        self.failed.get(&class)
    }

    /// Everything that is pending, with where it is, in queue order. Beginning costs as much as there are kinds of workloads
    /// and workloads that back off; each next one costs the logarithm of that.
    pub(crate) fn in_order(&self) -> impl Iterator<Item = (WlId, Spot)> {
        InOrder::new(self)
    }

    /// How many will be tried before this one.
    pub(crate) fn ahead_of(&self, bucket: Bucket, item: &Item) -> usize {
        let rank = |bucket: Bucket| (self.usage_of(bucket.queue), Reverse(bucket.priority));
        let own = rank(bucket);
        self.heap.iter().filter(|(b, i)| (rank(*b), *i) < (own, item)).count()
    }
}

/// What is known about a head that goes back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Requeued<'a> {
    pub(crate) requeue: Requeue,
    /// Whether a preemptor that fails loses the head of its queue.
    pub(crate) releases_failed_preemptors: bool,
    /// Its back-off has not ended.
    pub(crate) backing_off: bool,
    /// Its last scan ended before the last flavor.
    pub(crate) pending_flavors: bool,
    /// Why it failed; `None` if equals must not be parked with it.
    pub(crate) reason: Option<&'a Arc<Reason>>,
}
