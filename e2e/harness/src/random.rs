//! Numbers from a seed, for tests and random life.

use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

/// The seed determines the sequence.
#[derive(Clone, Debug)]
pub struct Random(SmallRng);

impl Random {
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(SmallRng::seed_from_u64(seed))
    }

    /// A number below a positive limit.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0.random_range(0..limit.max(1))
    }

    /// A number from `low` to `high`, both included.
    pub fn between(&mut self, low: u32, high: u32) -> u32 {
        self.0.random_range(low..=high.max(low))
    }

    /// True in so many of a hundred cases.
    pub fn percent(&mut self, cases: u32) -> bool {
        self.below(100) < u64::from(cases)
    }

    pub fn millis(&mut self, low: u32, high: u32) -> Duration {
        Duration::from_millis(self.between(low, high).into())
    }

    /// One of several items.
    ///
    /// # Panics
    /// If there is no item.
    pub fn of<T: Copy>(&mut self, items: &[T]) -> T {
        *self.pick(items)
    }

    /// A reference to one of several items.
    ///
    /// # Panics
    /// If there is no item.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.0.random_range(0..items.len())]
    }
}
