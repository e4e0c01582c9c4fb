//! `cargo xtask bench runner`.

use std::path::PathBuf;

use clap::ValueEnum;

/// Which system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// `switchyard-hub --mode single`, its webhooks registered.
    Ours,
    /// The same without webhooks, as the others run here.
    OursWithoutWebhooks,
    /// The small Kueue that Kueue's performance test comes with: no webhooks, no job controllers, 50 requests a second.
    Minimal,
    /// Kueue's release as shipped: 300 requests a second; its webhooks are not registered.
    Stock,
    /// The same with its client's limit at 1,000.
    StockRaised,
}

impl Kind {
    /// The name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ours => "ours",
            Self::OursWithoutWebhooks => "ours, no webhooks",
            Self::Minimal => "minimal kueue",
            Self::Stock => "stock as shipped",
            Self::StockRaised => "stock raised",
        }
    }
}

/// The generated Workloads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Generator {
    /// 15,000 Workloads in 30 ClusterQueues of 5 cohorts.
    Baseline,
    /// 50,000 Workloads in 1,000 ClusterQueues of 10 cohorts.
    LargeScale,
}

impl Generator {
    /// The name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Baseline => "baseline",
            Self::LargeScale => "large-scale",
        }
    }
}

/// Flags of the benchmark.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The generators, measured one after the other.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Generator::Baseline])]
    pub generator: Vec<Generator>,
    /// Which systems, in this order.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Kind::Ours, Kind::OursWithoutWebhooks, Kind::Minimal, Kind::Stock])]
    pub systems: Vec<Kind>,
    /// A generator's configuration of one's own instead, in the format of Kueue's.
    #[arg(long, value_name = "FILE")]
    pub generator_config: Option<PathBuf>,
    /// Seconds after which a system is cut, and reported as cut.
    #[arg(long, default_value_t = 900)]
    pub limit: u64,
    /// Where to write what the tables say, and the requests in full, as JSON.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}
