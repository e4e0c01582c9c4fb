//! `cargo xtask bench plot`.

use std::path::PathBuf;

/// Flags of the drawing.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Results of benchmarks, one file for each.
    #[arg(long, value_name = "FILE", num_args = 1.., required = true)]
    pub json: Vec<PathBuf>,
    /// The folder of the pictures, BENCHMARK.svg. What is there is replaced.
    #[arg(long, value_name = "DIR", default_value = "docs/benchmarks")]
    pub into: PathBuf,
}
