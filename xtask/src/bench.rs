//! `cargo xtask bench`: builds for release, then measures what it built beside its peers, or draws what was measured.

use crate::{figures, run};

#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Args {
    /// `burst`, `trickle`, `scale`, `runner` or `plot`, and their flags; each has a `--help`. See docs/benchmarks.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<String>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let mut bench = figures::released("switchyard-bench")?;
    bench.args(&args.args);
    run::step("bench", bench)
}
