//! Iterates over the pending workloads of a queue in order. The first few cost little.

use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, btree_set};

use super::heap::{Bucket, Item};
use super::{PendingQueue, PendingState};
use crate::afs::WeightedUsage;
use crate::ids::WorkloadId;

/// The next workload of one sorted source.
struct Next<'a> {
    usage: WeightedUsage,
    /// The preemptor precedes all other workloads of equal past usage.
    preemptor: bool,
    priority: i32,
    item: &'a Item,
    state: PendingState,
    rest: Option<btree_set::Iter<'a, Item>>,
}

impl Next<'_> {
    fn rank(&self) -> (WeightedUsage, bool, Reverse<i32>, &Item) {
        (self.usage, !self.preemptor, Reverse(self.priority), self.item)
    }
}

impl PartialEq for Next<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Next<'_> {}

impl PartialOrd for Next<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Next<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.rank().cmp(&other.rank())
    }
}

/// See [`PendingQueue::in_order`].
pub(super) struct InOrder<'a> {
    next: BinaryHeap<Reverse<Next<'a>>>,
    preemptor: Option<WorkloadId>,
}

impl<'a> InOrder<'a> {
    pub(super) fn new(queue: &'a PendingQueue) -> Self {
        let sticky = queue.sticky_preemptor();
        let mut order =
            Self { next: BinaryHeap::new(), preemptor: sticky.map(|(_, item)| item.id) };
        let one = |bucket: &Bucket, preemptor, item, state, rest| Next {
            usage: queue.usage_of(bucket.queue),
            preemptor,
            priority: bucket.priority,
            item,
            state,
            rest,
        };
        if let Some((bucket, item)) = sticky
            && let Some(state) = queue.state_of(*bucket, item)
        {
            order.next.push(Reverse(one(bucket, true, item, state, None)));
        }
        let lists = queue.heap.lists().map(|list| (list, PendingState::Heap));
        for ((bucket, items), state) in
            lists.chain(queue.parked.lists().map(|list| (list, PendingState::Parked)))
        {
            let mut rest = items.iter();
            if let Some(item) = order.after(&mut rest) {
                order.next.push(Reverse(one(bucket, false, item, state, Some(rest))));
            }
        }
        for (bucket, item) in
            queue.backing_off.values().filter(|(_, item)| order.preemptor != Some(item.id))
        {
            order.next.push(Reverse(one(bucket, false, item, PendingState::BackingOff, None)));
        }
        order
    }

    /// The next workload except the preemptor, which is a source of its own.
    fn after(&self, rest: &mut btree_set::Iter<'a, Item>) -> Option<&'a Item> {
        rest.find(|item| self.preemptor != Some(item.id))
    }
}

impl Iterator for InOrder<'_> {
    type Item = (WorkloadId, PendingState);

    fn next(&mut self) -> Option<Self::Item> {
        let Reverse(first) = self.next.pop()?;
        let found = (first.item.id, first.state);
        if let Some(mut rest) = first.rest
            && let Some(item) = self.after(&mut rest)
        {
            self.next.push(Reverse(Next { item, rest: Some(rest), ..first }));
        }
        Some(found)
    }
}
