//! Randomness of a run: streams that depend on the seed and their number only, so that leaving one thing out of a plan
//! changes as little as possible elsewhere.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

/// One stream.
#[derive(Debug)]
pub(crate) struct Dice(SmallRng);

impl Dice {
    /// Stream number `stream` of a seed.
    pub(crate) fn new(seed: u64, stream: u64) -> Self {
        Self(SmallRng::seed_from_u64(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(stream)))
    }

    /// From `low` to `high`, both included.
    pub(crate) fn between(&mut self, low: u64, high: u64) -> u64 {
        self.0.random_range(low..=high.max(low))
    }

    /// True so many times in a thousand.
    pub(crate) fn chance(&mut self, permille: u32) -> bool {
        permille > 0 && self.0.random_range(0..1000) < permille
    }

    /// An index below `length`, which is not zero.
    pub(crate) fn index(&mut self, length: usize) -> usize {
        self.0.random_range(0..length.max(1))
    }
}
