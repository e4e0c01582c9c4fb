//! Random numbers whose seed a test prints.

use switchyard_e2e::random::Random;

/// From the seed in an environment variable, or a fresh one. Prints the seed.
pub(crate) fn seeded_by(variable: &str) -> (u64, Random) {
    let given = std::env::var(variable).ok().map(|seed| seed.parse().unwrap());
    let fresh = || u64::try_from(jiff::Timestamp::now().as_microsecond()).unwrap() % 1_000_003;
    let seed = given.unwrap_or_else(fresh);
    println!("{variable}={seed}");
    (seed, Random::new(seed))
}
