//! `cargo xtask bench trickle`.

use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::RangedU64ValueParser;

use super::system::Kind;

/// Flags of the benchmark.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// How many Jobs come one at a time, each when the one before is finished.
    #[arg(long, default_value_t = 200)]
    pub jobs: usize,
    /// Then: how many come in a second.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rate: u32,
    /// For so many seconds.
    #[arg(long, default_value_t = 120)]
    pub seconds: u32,
    /// The longest of their pods, in seconds; how long each runs is random, all lengths from 0.1 s being as likely.
    #[arg(long, default_value_t = 20, value_parser = RangedU64ValueParser::<u64>::new().range(1..))]
    pub longest_pod: u64,
    /// Decides how long each pod runs.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Before: for so many seconds nothing comes.
    #[arg(long, default_value_t = 30, value_parser = RangedU64ValueParser::<u64>::new().range(1..))]
    pub idle: u64,
    /// Which systems, in this order.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Kind::Floor, Kind::Ours, Kind::StockRaised, Kind::Stock])]
    pub systems: Vec<Kind>,
    /// Seconds after which one at a time, and after which the rate, is cut and reported as cut.
    #[arg(long, default_value_t = 300)]
    pub limit: u64,
    /// Where to write what the tables say, and the requests in full, as JSON.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

impl Args {
    /// [`Args::limit`] as a duration.
    pub fn limit_duration(&self) -> Duration {
        Duration::from_secs(self.limit)
    }

    /// The Jobs that come at a rate, numbered after those that come alone.
    pub fn steady(&self) -> Range<usize> {
        self.jobs..self.jobs + self.rate as usize * self.seconds as usize
    }
}
