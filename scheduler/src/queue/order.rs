//! All pending workloads of a queue, one after the other: whoever wants the first few pays for those alone.

use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, btree_set};

use super::heap::{Bucket, Item};
use super::{Queue, Spot};
use crate::afs::Usage;
use crate::workloads::WlId;

/// The next workload of some that are in order among themselves.
struct Next<'a> {
    usage: Usage,
    /// The preemptor comes before all others that used as little.
    preemptor: bool,
    priority: i32,
    item: &'a Item,
    spot: Spot,
    rest: Option<btree_set::Iter<'a, Item>>,
}

impl Next<'_> {
    fn rank(&self) -> (Usage, bool, Reverse<i32>, &Item) {
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

/// See [`Queue::in_order`].
pub(super) struct InOrder<'a> {
    next: BinaryHeap<Reverse<Next<'a>>>,
    preemptor: Option<WlId>,
}

impl<'a> InOrder<'a> {
    pub(super) fn new(queue: &'a Queue) -> Self {
        let sticky = queue.sticky_preemptor();
        let mut order =
            Self { next: BinaryHeap::new(), preemptor: sticky.map(|(_, item)| item.id) };
        let one = |bucket: &Bucket, preemptor, item, spot, rest| Next {
            usage: queue.usage_of(bucket.queue),
            preemptor,
            priority: bucket.priority,
            item,
            spot,
            rest,
        };
        if let Some((bucket, item)) = sticky
            && let Some(spot) = queue.spot(*bucket, item)
        {
            order.next.push(Reverse(one(bucket, true, item, spot, None)));
        }
        let lists = queue.heap.lists().map(|list| (list, Spot::Heap));
        for ((bucket, items), spot) in
            lists.chain(queue.parked.lists().map(|list| (list, Spot::Parked)))
        {
            let mut rest = items.iter();
            if let Some(item) = order.after(&mut rest) {
                order.next.push(Reverse(one(bucket, false, item, spot, Some(rest))));
            }
        }
        for (bucket, item) in
            queue.backing_off.values().filter(|(_, item)| order.preemptor != Some(item.id))
        {
            order.next.push(Reverse(one(bucket, false, item, Spot::BackingOff, None)));
        }
        order
    }

    /// The next but the preemptor, which has its own place.
    fn after(&self, rest: &mut btree_set::Iter<'a, Item>) -> Option<&'a Item> {
        rest.find(|item| self.preemptor != Some(item.id))
    }
}

impl Iterator for InOrder<'_> {
    type Item = (WlId, Spot);

    fn next(&mut self) -> Option<Self::Item> {
        let Reverse(first) = self.next.pop()?;
        let found = (first.item.id, first.spot);
        if let Some(mut rest) = first.rest
            && let Some(item) = self.after(&mut rest)
        {
            self.next.push(Reverse(Next { item, rest: Some(rest), ..first }));
        }
        Some(found)
    }
}
