//! What orders LocalQueues: weighted past use.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use super::{Nanos, UNIT};
use crate::Name;

/// Weighted past use of a LocalQueue: who used less goes first. Ordered as numbers are; infinite for a queue that weighs
/// nothing.
#[derive(Clone, Copy, Debug, Default)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct Usage(
    #[cfg_attr(feature = "record", serde(with = "crate::serde_forms::bits"))] f64,
);

impl Usage {
    /// The number.
    pub(crate) fn get(self) -> f64 {
        self.0
    }
}

impl PartialEq for Usage {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}
impl Eq for Usage {}
impl PartialOrd for Usage {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Usage {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

/// The sum of use over resources, each by its weight, divided by the queue's weight.
#[expect(clippy::cast_precision_loss, reason = "Kueue compares floats, too")]
pub(crate) fn weighted(
    use_of: &BTreeMap<Name, Nanos>,
    weights: &BTreeMap<Name, f64>,
    queue_weight_milli: i64,
) -> Usage {
    if queue_weight_milli <= 0 {
        return Usage(f64::INFINITY);
    }
    let units = |amount: Nanos| amount as f64 / UNIT as f64;
    let sum: f64 = (use_of.iter())
        .map(|(name, amount)| weights.get(name).copied().unwrap_or(1.0) * units(*amount))
        .sum();
    let usage = sum / (queue_weight_milli as f64 / 1000.0);
    // A negative zero and a NaN of weights would order before nothing at all.
    Usage(if usage.is_nan() { f64::INFINITY } else { usage + 0.0 })
}
