//! Admission fair sharing: past use of LocalQueues decides whose workload is tried next. Kueue's `cache/queue/afs` and
//! `util/admissionfairsharing` are the rule.
//!
//! Past use follows what is in use, with a half-life. Whoever is given quota is charged at once for what the next
//! sampling interval will bring (the entry penalty), so that a queue cannot empty itself between two samples; when the
//! workload is admitted, the penalty becomes past use.

#[cfg(test)]
mod tests;
mod usage;

use std::collections::BTreeMap;
use std::time::Duration;

pub(crate) use usage::{Usage, weighted};

use crate::workloads::{LqId, WlId};
use crate::{Amount, Name, Time};

/// Billionths of a unit: cores, bytes, devices. What use decays to is rounded down to these, as Kueue's is.
pub(crate) type Nanos = i128;

const UNIT: Nanos = 1_000_000_000;

/// `admissionFairSharing` of the configuration.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub struct AdmissionFairSharing {
    /// After how long past use counts half; zero forgets at once.
    pub half_life: Duration,
    /// How often use is reckoned.
    pub sampling_interval: Duration,
    /// How much a resource weighs; one where it is not named.
    #[cfg_attr(feature = "record", serde(with = "crate::serde_forms::bits_by_name"))]
    pub resource_weights: BTreeMap<Name, f64>,
}

/// Past use of a LocalQueue, for its status.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PastUse {
    /// By resource, in billionths of a core, of a byte, of a device.
    pub consumed: BTreeMap<Name, i128>,
    /// When it was reckoned.
    pub last_update: Time,
}

/// Past use and pending penalties of one LocalQueue.
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct Entry {
    pub(crate) consumed: BTreeMap<Name, Nanos>,
    penalties: BTreeMap<WlId, BTreeMap<Name, Nanos>>,
    pub(crate) last_update: Time,
    /// What the status said was taken over: once in the life of an engine.
    restored: bool,
}

/// All LocalQueues' past use.
#[derive(Debug)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct Ledger {
    pub(crate) config: AdmissionFairSharing,
    entries: BTreeMap<LqId, Entry>,
    /// When somebody is to be sampled next; past if queues have changed since.
    pub(crate) next: Option<Time>,
}

impl Ledger {
    pub(crate) fn new(config: AdmissionFairSharing) -> Self {
        Self { config, entries: BTreeMap::new(), next: None }
    }

    pub(crate) fn get(&self, queue: LqId) -> Option<&Entry> {
        self.entries.get(&queue)
    }

    pub(crate) fn forget(&mut self, queue: LqId) {
        self.entries.remove(&queue);
    }

    /// The share of the new in `elapsed`: none if nothing is remembered at all.
    fn alpha(&self, elapsed: Duration) -> f64 {
        if self.config.half_life.is_zero() {
            return 0.0;
        }
        1.0 - 0.5_f64.powf(elapsed.as_secs_f64() / self.config.half_life.as_secs_f64())
    }

    /// Takes over what the status says, once.
    pub(crate) fn restore(&mut self, queue: LqId, consumed: &BTreeMap<Name, Nanos>, now: Time) {
        let entry = self
            .entries
            .entry(queue)
            .or_insert_with(|| Entry { last_update: now, ..Entry::default() });
        if !std::mem::replace(&mut entry.restored, true) {
            add(&mut entry.consumed, consumed);
        }
    }

    /// Brings past use up to `now`, with `current` in use since the last time. A queue's first sample starts its clock.
    pub(crate) fn sample(&mut self, queue: LqId, current: &BTreeMap<Name, Amount>, now: Time) {
        let Some(entry) = self.entries.get(&queue) else {
            // What the status said was told before; there is nothing to take over later.
            self.entries
                .insert(queue, Entry { last_update: now, restored: true, ..Entry::default() });
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

    /// When a queue is due to be sampled; `None` if it never was.
    pub(crate) fn due(&self, queue: LqId) -> Option<Time> {
        self.entries.get(&queue).map(|entry| entry.last_update.plus(self.config.sampling_interval))
    }

    /// Charges a workload that was given quota for what the next interval will bring. Again: instead.
    pub(crate) fn penalise(
        &mut self,
        queue: LqId,
        workload: WlId,
        requests: &BTreeMap<Name, Amount>,
        now: Time,
    ) {
        let penalty = scaled(&nanos(requests), self.alpha(self.config.sampling_interval));
        let entry = self
            .entries
            .entry(queue)
            .or_insert_with(|| Entry { last_update: now, ..Entry::default() });
        entry.penalties.insert(workload, penalty);
    }

    /// Takes a penalty back; answers whether there was one.
    pub(crate) fn absolve(&mut self, queue: LqId, workload: WlId) -> bool {
        self.entries
            .get_mut(&queue)
            .is_some_and(|entry| entry.penalties.remove(&workload).is_some())
    }

    /// A workload is admitted: past use comes up to date, and its penalty becomes part of it.
    pub(crate) fn settle(
        &mut self,
        queue: LqId,
        workload: WlId,
        current: &BTreeMap<Name, Amount>,
        now: Time,
    ) {
        let entry = self
            .entries
            .entry(queue)
            .or_insert_with(|| Entry { last_update: now, ..Entry::default() });
        let restored = entry.restored;
        let penalty = entry.penalties.remove(&workload).unwrap_or_default();
        self.sample(queue, current, now);
        if let Some(entry) = self.entries.get_mut(&queue) {
            entry.restored = restored;
            add(&mut entry.consumed, &penalty);
        }
    }
}

impl Entry {
    /// Past use and pending penalties.
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

/// Cores are counted in thousandths, all else in units.
fn nanos(amounts: &BTreeMap<Name, Amount>) -> BTreeMap<Name, Nanos> {
    let unit = |name: &str| if name == "cpu" { UNIT / 1000 } else { UNIT };
    amounts
        .iter()
        .map(|(name, amount)| (name.clone(), i128::from(amount.get()) * unit(name)))
        .collect()
}

/// Each amount times a factor of at most one, rounded down.
fn scaled(amounts: &BTreeMap<Name, Nanos>, factor: f64) -> BTreeMap<Name, Nanos> {
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        reason = "saturates; a float is exact enough"
    )]
    let times = |amount: Nanos| (amount as f64 * factor).floor() as Nanos;
    amounts.iter().map(|(name, amount)| (name.clone(), times(*amount))).collect()
}
