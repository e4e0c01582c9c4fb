//! Numbers from a seed, the same everywhere.

/// Splitmix64.
pub(crate) struct Random(u64);

impl Random {
    /// From the seed in an environment variable, or a fresh one. Prints the seed.
    pub(crate) fn seeded_by(variable: &str) -> (u64, Self) {
        let given = std::env::var(variable).ok().map(|seed| seed.parse().unwrap());
        let fresh = || u64::try_from(jiff::Timestamp::now().as_microsecond()).unwrap() % 1_000_003;
        let seed = given.unwrap_or_else(fresh);
        println!("{variable}={seed}");
        (seed, Self(seed))
    }

    /// A number below a limit.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (word ^ (word >> 31)) % limit
    }

    /// One of several items.
    pub(crate) fn of<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        let count = u64::try_from(items.len()).unwrap();
        &items[usize::try_from(self.below(count)).unwrap()]
    }

    /// True in so many of a hundred cases.
    pub(crate) fn percent(&mut self, cases: u64) -> bool {
        self.below(100) < cases
    }
}
