//! Numbers from a seed, the same on every machine.

use std::time::Duration;

/// Splitmix64.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Any number.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    /// A number from `low` to `high`, both included.
    pub(crate) fn between(&mut self, low: u32, high: u32) -> u32 {
        let span = u64::from(high.saturating_sub(low)) + 1;
        low + u32::try_from(self.next() % span).unwrap_or_default()
    }

    /// True in so many of a hundred cases.
    pub(crate) fn percent(&mut self, chance: u32) -> bool {
        self.between(1, 100) <= chance
    }

    pub(crate) fn millis(&mut self, low: u32, high: u32) -> Duration {
        Duration::from_millis(self.between(low, high).into())
    }

    /// One of these; the default of an empty list.
    pub(crate) fn of<T: Copy + Default>(&mut self, items: &[T]) -> T {
        let last = u32::try_from(items.len().saturating_sub(1)).unwrap_or(u32::MAX);
        let index = self.between(0, last) as usize;
        items.get(index).copied().unwrap_or_default()
    }
}
