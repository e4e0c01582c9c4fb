//! `cargo xtask bench`: builds for release, then measures what it built beside its peers.

use crate::{figures, run};

#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Args {
    /// `burst [--jobs N] [--forms dispatch,finish] [--systems floor,ours,stock-raised,stock] [--limit SECONDS] [--json FILE]`.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<String>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let mut bench = figures::released("switchyard-bench")?;
    bench.args(&args.args);
    run::step("bench", bench)
}
