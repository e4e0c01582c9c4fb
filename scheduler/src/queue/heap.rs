//! Pending workloads in the order of attempts.
//!
//! Buckets hold the workloads of one class; a second order holds the first workload of each bucket.
//! So the head takes logarithmic time, and all workloads of a class move in one step.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::mem;

use crate::afs::WeightedUsage;
use crate::ids::{ClassId, LocalQueueId, WorkloadId};
use crate::{Name, Time};

/// Workloads of one LocalQueue and one class. Only their times differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct Bucket {
    pub(crate) class: ClassId,
    pub(crate) queue: LocalQueueId,
    pub(crate) priority: i32,
}

/// A workload within its bucket.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct Item {
    pub(crate) time: Time,
    pub(crate) uid: Name,
    pub(crate) id: WorkloadId,
}

/// The first workload of a bucket. Order: lower usage of its LocalQueue, higher priority, earlier
/// time, uid.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
struct First {
    usage: WeightedUsage,
    priority: Reverse<i32>,
    item: Item,
    bucket: Bucket,
}

/// Buckets of workloads. Empty buckets are removed.
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct Buckets {
    #[cfg_attr(feature = "record", serde(with = "crate::serde_forms::pairs"))]
    items: BTreeMap<Bucket, BTreeSet<Item>>,
    len: usize,
}

impl Buckets {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn contains(&self, bucket: Bucket, item: &Item) -> bool {
        self.items.get(&bucket).is_some_and(|items| items.contains(item))
    }

    pub(crate) fn insert(&mut self, bucket: Bucket, item: Item) {
        self.len += usize::from(self.items.entry(bucket).or_default().insert(item));
    }

    pub(crate) fn remove(&mut self, bucket: Bucket, item: &Item) -> bool {
        let Some(items) = self.items.get_mut(&bucket) else { return false };
        let removed = items.remove(item);
        if items.is_empty() {
            self.items.remove(&bucket);
        }
        self.len -= usize::from(removed);
        removed
    }

    /// Removes a whole bucket.
    pub(crate) fn take(&mut self, bucket: Bucket) -> BTreeSet<Item> {
        let items = self.items.remove(&bucket).unwrap_or_default();
        self.len -= items.len();
        items
    }

    /// Adds workloads to a bucket, at the cost of the smaller set.
    pub(crate) fn append(&mut self, bucket: Bucket, mut items: BTreeSet<Item>) {
        if items.is_empty() {
            return;
        }
        let here = self.items.entry(bucket).or_default();
        self.len -= here.len();
        if here.len() < items.len() {
            mem::swap(here, &mut items);
        }
        here.extend(items);
        self.len += here.len();
    }

    pub(crate) fn buckets(&self) -> impl Iterator<Item = Bucket> {
        self.items.keys().copied()
    }

    pub(crate) fn of_class(&self, class: ClassId) -> Vec<Bucket> {
        let from = Bucket { class, queue: LocalQueueId::FIRST, priority: i32::MIN };
        self.items
            .range(from..)
            .map(|(bucket, _)| *bucket)
            .take_while(|bucket| bucket.class == class)
            .collect()
    }

    /// Each bucket with one of its workloads and its size.
    pub(crate) fn sizes(&self) -> impl Iterator<Item = (Bucket, WorkloadId, usize)> {
        let size = |(bucket, items): (&Bucket, &BTreeSet<Item>)| {
            Some((*bucket, items.first()?.id, items.len()))
        };
        self.items.iter().filter_map(size)
    }

    pub(crate) fn lists(&self) -> impl Iterator<Item = (&Bucket, &BTreeSet<Item>)> {
        self.items.iter()
    }

    /// In no meaningful order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Bucket, &Item)> {
        self.items.iter().flat_map(|(bucket, items)| items.iter().map(move |item| (*bucket, item)))
    }

    fn first(&self, bucket: Bucket, usage: WeightedUsage) -> Option<First> {
        let item = self.items.get(&bucket)?.first()?.clone();
        Some(First { usage, priority: Reverse(bucket.priority), item, bucket })
    }
}

/// The workloads that cycles will try, in order.
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct Heap {
    buckets: Buckets,
    firsts: BTreeSet<First>,
    /// Past usage by LocalQueue, with admission fair sharing. Absent if zero.
    usages: BTreeMap<LocalQueueId, WeightedUsage>,
}

impl Heap {
    /// [`Buckets::sizes`].
    pub(crate) fn sizes(&self) -> impl Iterator<Item = (Bucket, WorkloadId, usize)> {
        self.buckets.sizes()
    }

    pub(crate) fn len(&self) -> usize {
        self.buckets.len()
    }

    pub(crate) fn contains(&self, bucket: Bucket, item: &Item) -> bool {
        self.buckets.contains(bucket, item)
    }

    pub(crate) fn insert(&mut self, bucket: Bucket, item: Item) {
        self.change(bucket, |buckets| buckets.insert(bucket, item));
    }

    pub(crate) fn remove(&mut self, bucket: Bucket, item: &Item) -> bool {
        self.change(bucket, |buckets| buckets.remove(bucket, item))
    }

    pub(crate) fn take(&mut self, bucket: Bucket) -> BTreeSet<Item> {
        self.change(bucket, |buckets| buckets.take(bucket))
    }

    pub(crate) fn append(&mut self, bucket: Bucket, items: BTreeSet<Item>) {
        self.change(bucket, |buckets| buckets.append(bucket, items));
    }

    pub(crate) fn of_class(&self, class: ClassId) -> Vec<Bucket> {
        self.buckets.of_class(class)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Bucket, &Item)> {
        self.buckets.iter()
    }

    /// [`Buckets::lists`].
    pub(crate) fn lists(&self) -> impl Iterator<Item = (&Bucket, &BTreeSet<Item>)> {
        self.buckets.lists()
    }

    pub(crate) fn peek(&self) -> Option<(Bucket, &Item)> {
        self.firsts.first().map(|first| (first.bucket, &first.item))
    }

    /// The first criterion of the order.
    pub(crate) fn usage_of(&self, queue: LocalQueueId) -> WeightedUsage {
        self.usages.get(&queue).copied().unwrap_or_default()
    }

    /// Whether any LocalQueue has past usage.
    pub(crate) fn weighs_usage(&self) -> bool {
        !self.usages.is_empty()
    }

    /// Returns true on a change.
    pub(crate) fn set_usage(&mut self, queue: LocalQueueId, usage: WeightedUsage) -> bool {
        let before = self.usage_of(queue);
        if before == usage {
            return false;
        }
        for bucket in self.buckets.buckets().filter(|bucket| bucket.queue == queue) {
            if let Some(first) = self.buckets.first(bucket, before) {
                self.firsts.remove(&first);
            }
            self.firsts.extend(self.buckets.first(bucket, usage));
        }
        if usage == WeightedUsage::default() {
            self.usages.remove(&queue);
        } else {
            self.usages.insert(queue, usage);
        }
        true
    }

    fn change<T>(&mut self, bucket: Bucket, change: impl FnOnce(&mut Buckets) -> T) -> T {
        let usage = self.usage_of(bucket.queue);
        let before = self.buckets.first(bucket, usage);
        let result = change(&mut self.buckets);
        let after = self.buckets.first(bucket, usage);
        if before != after {
            if let Some(before) = before {
                self.firsts.remove(&before);
            }
            self.firsts.extend(after);
        }
        result
    }
}
