//! Pending workloads in the order they are tried.
//!
//! Workloads are kept by class, in buckets; a second order knows the first of each bucket. So the head is found in
//! logarithmic time, and all workloads of a class leave or come back in one step however many they are.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::mem;

use super::equivalence::ClassId;
use crate::afs::Usage;
use crate::workloads::{LqId, WlId};
use crate::{Name, Time};

/// Workloads that only time tells apart: of one LocalQueue and one class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct Bucket {
    pub(crate) class: ClassId,
    pub(crate) queue: LqId,
    pub(crate) priority: i32,
}

/// A workload within its bucket.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct Item {
    pub(crate) time: Time,
    pub(crate) uid: Name,
    pub(crate) id: WlId,
}

/// The first workload of a bucket: of the LocalQueue that used less, then higher priority, then earlier, then by uid.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
struct First {
    usage: Usage,
    priority: Reverse<i32>,
    item: Item,
    bucket: Bucket,
}

/// Buckets of workloads. A bucket without workloads is not kept.
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

    /// Takes a whole bucket out.
    pub(crate) fn take(&mut self, bucket: Bucket) -> BTreeSet<Item> {
        let items = self.items.remove(&bucket).unwrap_or_default();
        self.len -= items.len();
        items
    }

    /// Puts many into a bucket; costs as much as the smaller side is large.
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

    /// The buckets of one class.
    pub(crate) fn of_class(&self, class: ClassId) -> Vec<Bucket> {
        let from = Bucket { class, queue: LqId::FIRST, priority: i32::MIN };
        self.items
            .range(from..)
            .map(|(bucket, _)| *bucket)
            .take_while(|bucket| bucket.class == class)
            .collect()
    }

    /// Each bucket with one of its workloads and how many there are.
    pub(crate) fn sizes(&self) -> impl Iterator<Item = (Bucket, WlId, usize)> {
        let size = |(bucket, items): (&Bucket, &BTreeSet<Item>)| {
            Some((*bucket, items.first()?.id, items.len()))
        };
        self.items.iter().filter_map(size)
    }

    /// Each bucket with its workloads in their order.
    pub(crate) fn lists(&self) -> impl Iterator<Item = (&Bucket, &BTreeSet<Item>)> {
        self.items.iter()
    }

    /// Everything with its bucket, in no order that means anything.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Bucket, &Item)> {
        self.items.iter().flat_map(|(bucket, items)| items.iter().map(move |item| (*bucket, item)))
    }

    fn first(&self, bucket: Bucket, usage: Usage) -> Option<First> {
        let item = self.items.get(&bucket)?.first()?.clone();
        Some(First { usage, priority: Reverse(bucket.priority), item, bucket })
    }
}

/// The workloads that will be tried, in order.
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct Heap {
    buckets: Buckets,
    firsts: BTreeSet<First>,
    /// Past use by LocalQueue, where it counts; none elsewhere.
    usages: BTreeMap<LqId, Usage>,
}

impl Heap {
    /// [`Buckets::sizes`].
    pub(crate) fn sizes(&self) -> impl Iterator<Item = (Bucket, WlId, usize)> {
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

    /// The head.
    pub(crate) fn peek(&self) -> Option<(Bucket, &Item)> {
        self.firsts.first().map(|first| (first.bucket, &first.item))
    }

    /// What orders a LocalQueue's workloads before all else.
    pub(crate) fn usage_of(&self, queue: LqId) -> Usage {
        self.usages.get(&queue).copied().unwrap_or_default()
    }

    /// Whether any LocalQueue has such a use.
    pub(crate) fn weighs_use(&self) -> bool {
        !self.usages.is_empty()
    }

    /// Sets it; answers whether that is news.
    pub(crate) fn set_usage(&mut self, queue: LqId, usage: Usage) -> bool {
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
        if usage == Usage::default() {
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
