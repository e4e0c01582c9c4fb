//! `cargo xtask bench adversary`.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::RangedU64ValueParser;

/// Flags of the benchmark.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// How many Jobs the well-meaning tenant creates in each part, one a second.
    #[arg(long, default_value_t = 120)]
    pub jobs: usize,
    /// Jobs that wait for the clusters of the attacker: what each of its reports could have the hub look through.
    #[arg(long, default_value_t = 1000)]
    pub waiting: usize,
    /// Messages that each flooding agent sends in a second.
    #[arg(long, default_value_t = 900, value_parser = RangedU64ValueParser::<u64>::new().range(1..=10_000))]
    pub rate: u64,
    /// Seconds after which a part is cut and reported as cut.
    #[arg(long, default_value_t = 600)]
    pub limit: u64,
    /// Where to write what the table says as JSON.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

impl Args {
    /// [`Args::limit`] as a duration.
    pub fn limit_duration(&self) -> Duration {
        Duration::from_secs(self.limit)
    }
}
