//! `cargo xtask failover`.

mod fault;

use std::path::PathBuf;

use clap::ValueEnum;

pub use self::fault::Fault;

/// Which system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum System {
    /// Switchyard's hub and agents.
    Agents,
    /// Switchyard's hub, and workers with stock Kueue, by kubeconfig.
    Kubeconfig,
    /// Stock MultiKueue.
    Stock,
}

impl System {
    /// The name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Agents => "Switchyard, agents",
            Self::Kubeconfig => "Switchyard, Kueue in the workers",
            Self::Stock => "stock MultiKueue",
        }
    }

    /// Whether there is what the fault strikes.
    pub fn knows(self, fault: Fault) -> bool {
        self == Self::Agents || fault != Fault::Sleep
    }
}

/// Flags of the faults.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Which systems, in this order.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [System::Agents, System::Kubeconfig, System::Stock])]
    pub systems: Vec<System>,
    /// Which faults, in this order.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Fault::ALL)]
    pub faults: Vec<Fault>,
    /// Jobs of each policy.
    #[arg(long, default_value_t = 4)]
    pub jobs: usize,
    /// Seconds that a fault lasts at most; it ends sooner once all jobs that may go elsewhere run there.
    #[arg(long, default_value_t = 100)]
    pub outage: u64,
    /// Seconds after the end of a fault after which a row is cut, and reported as cut.
    #[arg(long, default_value_t = 180)]
    pub limit: u64,
    /// Where to write the table as JSON.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// A Markdown file whose section between the marks of this command is to hold the table.
    #[arg(long, value_name = "FILE")]
    pub write: Option<PathBuf>,
}
