//! `cargo xtask bench scale`.

use std::path::PathBuf;

use clap::builder::RangedU64ValueParser;

/// Flags of the benchmark.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// How many clusters; several numbers are measured one after the other.
    #[arg(long, value_delimiter = ',', default_values_t = [3, 30, 300], value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    pub clusters: Vec<usize>,
    /// How many jobs run, as many as fit, however many clusters there are.
    #[arg(long, default_value_t = 5000, value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    pub running: usize,
    /// How many more wait on the hub.
    #[arg(long, default_value_t = 10_000)]
    pub queued: usize,
    /// Status changes in a second.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rate: u32,
    /// For how many seconds each of the quiet and the changing hub is measured.
    #[arg(long, default_value_t = 60, value_parser = RangedU64ValueParser::<u64>::new().range(1..))]
    pub seconds: u64,
    /// Seconds after which jobs that do not run are given up, for each number of clusters.
    #[arg(long, default_value_t = 900)]
    pub limit: u64,
    /// Where to write what the table says, as JSON.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}
