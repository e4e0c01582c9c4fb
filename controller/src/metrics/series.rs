//! Metric families whose series can be removed by queue.

use std::{
    collections::{BTreeMap, HashSet},
    hash::Hash,
};

use parking_lot::Mutex;
use prometheus_client::metrics::{
    counter::Counter, family::Family, gauge::Gauge, histogram::Histogram,
};

use switchyard_platform::store::Key;

/// Labels of one queue: a LocalQueue, or a ClusterQueue or Cohort, whose key has no namespace.
pub(super) trait BelongsToQueue {
    fn queue(&self) -> Key;
}

/// A metric family that knows which series belong to which queue.
pub(super) struct Series<L, M> {
    family: Family<L, M, fn() -> M>,
    known: Mutex<BTreeMap<Key, HashSet<L>>>,
}

impl<L: BelongsToQueue + Clone + Hash + Eq, M: Clone> Series<L, M> {
    pub(super) fn new(constructor: fn() -> M) -> Self {
        Self { family: Family::new_with_constructor(constructor), known: Mutex::default() }
    }

    /// The family to register.
    pub(super) fn family(&self) -> Family<L, M, fn() -> M> {
        self.family.clone()
    }

    /// Removes all series of a queue.
    pub(super) fn remove(&self, queue: &Key) {
        let mut known = self.known.lock();
        for labels in known.remove(queue).unwrap_or_default() {
            self.family.remove(&labels);
        }
    }

    fn with(&self, labels: &L, act: impl FnOnce(&M)) {
        // Held to the end, so that [`Self::remove`] cannot miss a series created meanwhile.
        let mut known = self.known.lock();
        let of_queue = known.entry(labels.queue()).or_default();
        if !of_queue.contains(labels) {
            of_queue.insert(labels.clone());
        }
        act(&self.family.get_or_create(labels));
    }
}

impl<L: BelongsToQueue + Clone + Hash + Eq> Series<L, Counter> {
    pub(super) fn inc(&self, labels: &L) {
        self.with(labels, |counter| {
            counter.inc();
        });
    }
}

impl<L: BelongsToQueue + Clone + Hash + Eq> Series<L, Gauge> {
    pub(super) fn set(&self, labels: &L, value: usize) {
        self.with(labels, |gauge| {
            gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
        });
    }
}

impl<L: BelongsToQueue + Clone + Hash + Eq> Series<L, Histogram> {
    pub(super) fn observe(&self, labels: &L, time: std::time::Duration) {
        self.with(labels, |histogram| histogram.observe(time.as_secs_f64()));
    }
}
