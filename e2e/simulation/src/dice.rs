//! Randomness of a run: independent streams by seed and number. A smaller plan then changes little
//! else.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

#[derive(Debug)]
pub(crate) struct Dice(SmallRng);

impl Dice {
    pub(crate) fn new(seed: u64, stream: u64) -> Self {
        Self(SmallRng::seed_from_u64(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(stream)))
    }

    /// Both ends included.
    pub(crate) fn between(&mut self, low: u64, high: u64) -> u64 {
        self.0.random_range(low..=high.max(low))
    }

    /// True with `permille` in a thousand.
    pub(crate) fn chance(&mut self, permille: u32) -> bool {
        permille > 0 && self.0.random_range(0..1000) < permille
    }

    /// Below `length`, which must be positive.
    pub(crate) fn index(&mut self, length: usize) -> usize {
        self.0.random_range(0..length.max(1))
    }
}
