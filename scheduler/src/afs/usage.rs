//! Weighted past usage, which orders LocalQueues.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use super::{Nanos, UNIT};
use crate::Name;

/// Lower usage goes first. Totally ordered; infinite for a queue of weight 0.
#[derive(Clone, Copy, Debug, Default)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct WeightedUsage(
    #[cfg_attr(feature = "record", serde(with = "crate::serde_forms::bits"))] f64,
);

impl WeightedUsage {
    pub(crate) fn get(self) -> f64 {
        self.0
    }
}

impl PartialEq for WeightedUsage {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}
impl Eq for WeightedUsage {}
impl PartialOrd for WeightedUsage {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for WeightedUsage {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

/// The weighted sum over resources, divided by the queue's weight.
#[expect(clippy::cast_precision_loss, reason = "Kueue compares floats, too")]
pub(crate) fn weighted(
    use_of: &BTreeMap<Name, Nanos>,
    weights: &BTreeMap<Name, f64>,
    queue_weight_milli: i64,
) -> WeightedUsage {
    if queue_weight_milli <= 0 {
        return WeightedUsage(f64::INFINITY);
    }
    let units = |amount: Nanos| amount as f64 / UNIT as f64;
    let sum: f64 = (use_of.iter())
        .map(|(name, amount)| weights.get(name).copied().unwrap_or(1.0) * units(*amount))
        .sum();
    let usage = sum / (queue_weight_milli as f64 / 1000.0);
    // A negative zero or a NaN would order before zero usage.
    WeightedUsage(if usage.is_nan() { f64::INFINITY } else { usage + 0.0 })
}
