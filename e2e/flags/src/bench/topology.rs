//! `cargo xtask bench topology`.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// A scenario: nodes, ClusterQueues and pending Workloads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    pub nodes: u32,
    pub queues: u32,
    pub pending: u32,
}

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let numbers: Vec<u32> = text.split('/').filter_map(|part| part.parse().ok()).collect();
        match numbers.as_slice() {
            &[nodes, queues, pending] if nodes > 0 && queues > 0 && pending >= 10 => {
                Ok(Self { nodes, queues, pending })
            }
            _ => Err(format!(
                "{text:?} is no size; write NODES/QUEUES/PENDING, as in 320/10/300, with at least 10 pending"
            )),
        }
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.nodes, self.queues, self.pending)
    }
}

/// Flags of the benchmark.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Scenarios that Kueue's scheduler and the engine play, NODES/QUEUES/PENDING.
    #[arg(long, value_name = "SIZE", value_delimiter = ',', default_values = ["320/10/300", "1280/50/2000"])]
    pub sizes: Vec<Size>,
    /// Scenarios that the engine plays alone.
    #[arg(long, value_name = "SIZE", value_delimiter = ',', default_values = ["10000/100/10000"])]
    pub alone: Vec<Size>,
    /// The seed of the scenarios.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// The directory with Kueue's oracle (a Go test) and tas-bench.py. Default: `../shared/oracle` beside the checkout.
    #[arg(long, value_name = "DIR")]
    pub oracle: Option<PathBuf>,
    /// Where to write what the table says as JSON.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// The compiled oracle. `cargo xtask` names it.
    #[arg(long, value_name = "FILE", hide = true)]
    pub compiled_oracle: Option<PathBuf>,
    /// The compiled example of the engine. `cargo xtask` names it.
    #[arg(long, value_name = "FILE", hide = true)]
    pub compiled_engine: Option<PathBuf>,
}

#[cfg(test)]
mod tests {
    use super::Size;

    #[test]
    fn size_has_three_numbers() {
        assert_eq!("320/10/300".parse(), Ok(Size { nodes: 320, queues: 10, pending: 300 }));
        for wrong in ["", "320", "320/10", "320/10/x", "0/10/300", "320/10/9", "320/10/300/1"] {
            assert!(wrong.parse::<Size>().unwrap_err().contains("NODES/QUEUES/PENDING"), "{wrong}");
        }
    }
}
