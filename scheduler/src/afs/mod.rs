//! Admission fair sharing: past usage of LocalQueues decides which workload is tried next. Kueue
//! KEP-4136, `pkg/cache/queue/afs` and `pkg/util/admissionfairsharing`.
//!
//! Past usage follows present usage with a half-life. A workload that gets quota adds an entry
//! penalty at once: the usage of the next sampling interval. So a queue cannot admit all its
//! workloads between two samples. At the workload's admission, the penalty becomes past usage.

#[cfg(test)]
mod tests;
mod usage;

use std::collections::BTreeMap;
use std::time::Duration;

pub(crate) use usage::{WeightedUsage, weighted};

use crate::ids::{LocalQueueId, WorkloadId};
use crate::{Amount, Name, Time};

/// Billionths of a core, byte or device. Decayed usage is rounded down to these, as in Kueue.
pub(crate) type Nanos = i128;

const UNIT: Nanos = 1_000_000_000;

/// `admissionFairSharing` of the configuration.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub struct AdmissionFairSharing {
    /// Zero forgets past usage at once.
    pub half_life: Duration,
    pub sampling_interval: Duration,
    /// 1 for resources without an entry.
    #[cfg_attr(feature = "record", serde(with = "crate::serde_forms::bits_by_name"))]
    pub resource_weights: BTreeMap<Name, f64>,
}

/// For the LocalQueue's status.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PastUsage {
    /// By resource, in billionths of a core, byte or device.
    pub consumed: BTreeMap<Name, i128>,
    pub last_update: Time,
}

/// Past usage and entry penalties of one LocalQueue.
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct TrackedUsage {
    pub(crate) consumed: BTreeMap<Name, Nanos>,
    penalties: BTreeMap<WorkloadId, BTreeMap<Name, Nanos>>,
    pub(crate) last_update: Time,
    /// The status was taken over. This happens once per engine.
    restored: bool,
}

/// Past usage of all LocalQueues.
#[derive(Debug)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct UsageTracker {
    pub(crate) config: AdmissionFairSharing,
    entries: BTreeMap<LocalQueueId, TrackedUsage>,
    /// The next sampling time. Past if queues changed since.
    pub(crate) next: Option<Time>,
}

impl UsageTracker {
    pub(crate) fn new(config: AdmissionFairSharing) -> Self {
        Self { config, entries: BTreeMap::new(), next: None }
    }

    pub(crate) fn get(&self, queue: LocalQueueId) -> Option<&TrackedUsage> {
        self.entries.get(&queue)
    }

    pub(crate) fn forget(&mut self, queue: LocalQueueId) {
        self.entries.remove(&queue);
    }

    /// The weight of new usage after `elapsed`; 0 with a half-life of zero.
    fn alpha(&self, elapsed: Duration) -> f64 {
        if self.config.half_life.is_zero() {
            return 0.0;
        }
        1.0 - 0.5_f64.powf(elapsed.as_secs_f64() / self.config.half_life.as_secs_f64())
    }

    /// Takes over the past usage of the status, once.
    pub(crate) fn restore(
        &mut self,
        queue: LocalQueueId,
        consumed: &BTreeMap<Name, Nanos>,
        now: Time,
    ) {
        let entry = self
            .entries
            .entry(queue)
            .or_insert_with(|| TrackedUsage { last_update: now, ..TrackedUsage::default() });
        if !std::mem::replace(&mut entry.restored, true) {
            add(&mut entry.consumed, consumed);
        }
    }

    /// Decays past usage to `now`, with `current` as usage since the last sample. The first sample
    /// of a queue only sets its time.
    pub(crate) fn sample(
        &mut self,
        queue: LocalQueueId,
        current: &BTreeMap<Name, Amount>,
        now: Time,
    ) {
        let Some(entry) = self.entries.get(&queue) else {
            // A status event would have come before the first sample, so none is taken over later.
            self.entries.insert(
                queue,
                TrackedUsage { last_update: now, restored: true, ..TrackedUsage::default() },
            );
            return;
        };
        let alpha = self.alpha(now.since(entry.last_update));
        let forget = self.config.half_life.is_zero();
        let Some(entry) = self.entries.get_mut(&queue) else { return };
        entry.restored = true;
        entry.last_update = entry.last_update.max(now);
        if forget {
            entry.consumed.clear();
            return;
        }
        let mut consumed = scaled(&entry.consumed, 1.0 - alpha);
        add(&mut consumed, &scaled(&nanos(current), alpha));
        entry.consumed = consumed;
    }

    /// The next sampling time of a queue; `None` before its first sample.
    pub(crate) fn due(&self, queue: LocalQueueId) -> Option<Time> {
        self.entries.get(&queue).map(|entry| entry.last_update.plus(self.config.sampling_interval))
    }

    /// Sets the entry penalty of a workload that got quota: its usage over the next sampling
    /// interval.
    pub(crate) fn add_penalty(
        &mut self,
        queue: LocalQueueId,
        workload: WorkloadId,
        requests: &BTreeMap<Name, Amount>,
        now: Time,
    ) {
        let penalty = scaled(&nanos(requests), self.alpha(self.config.sampling_interval));
        let entry = self
            .entries
            .entry(queue)
            .or_insert_with(|| TrackedUsage { last_update: now, ..TrackedUsage::default() });
        entry.penalties.insert(workload, penalty);
    }

    /// Returns whether the workload had a penalty.
    pub(crate) fn remove_penalty(&mut self, queue: LocalQueueId, workload: WorkloadId) -> bool {
        self.entries
            .get_mut(&queue)
            .is_some_and(|entry| entry.penalties.remove(&workload).is_some())
    }

    /// A workload was admitted: samples its queue and turns the penalty into past usage.
    pub(crate) fn settle(
        &mut self,
        queue: LocalQueueId,
        workload: WorkloadId,
        current: &BTreeMap<Name, Amount>,
        now: Time,
    ) {
        let entry = self
            .entries
            .entry(queue)
            .or_insert_with(|| TrackedUsage { last_update: now, ..TrackedUsage::default() });
        let restored = entry.restored;
        let penalty = entry.penalties.remove(&workload).unwrap_or_default();
        self.sample(queue, current, now);
        if let Some(entry) = self.entries.get_mut(&queue) {
            entry.restored = restored;
            add(&mut entry.consumed, &penalty);
        }
    }
}

impl TrackedUsage {
    /// Past usage plus entry penalties.
    pub(crate) fn total(&self) -> BTreeMap<Name, Nanos> {
        let mut total = self.consumed.clone();
        for penalty in self.penalties.values() {
            add(&mut total, penalty);
        }
        total
    }
}

fn add(sums: &mut BTreeMap<Name, Nanos>, more: &BTreeMap<Name, Nanos>) {
    for (name, amount) in more {
        let sum = sums.entry(name.clone()).or_default();
        *sum = sum.saturating_add(*amount);
    }
}

/// `cpu` amounts are in thousandths, all others in units.
fn nanos(amounts: &BTreeMap<Name, Amount>) -> BTreeMap<Name, Nanos> {
    let unit = |name: &str| if name == "cpu" { UNIT / 1000 } else { UNIT };
    amounts
        .iter()
        .map(|(name, amount)| (name.clone(), i128::from(amount.get()) * unit(name)))
        .collect()
}

/// Multiplies by a factor of at most 1 and rounds down.
fn scaled(amounts: &BTreeMap<Name, Nanos>, factor: f64) -> BTreeMap<Name, Nanos> {
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        reason = "saturates; a float is exact enough"
    )]
    let times = |amount: Nanos| (amount as f64 * factor).floor() as Nanos;
    amounts.iter().map(|(name, amount)| (name.clone(), times(*amount))).collect()
}
