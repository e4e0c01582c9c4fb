//! `cargo xtask bench`: builds for release, then measures what it built beside its peers.

use std::process::Command;

use crate::{figures, run};

#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Args {
    /// `burst [--jobs N] [--forms dispatch,finish] [--systems floor,ours,stock-raised,stock] [--limit SECONDS] [--json FILE]`.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<String>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    // All of them in one build: the measuring program starts the hub and the agents that lie beside it.
    run::step("build for release", run::cargo(&["build", "--release", "--workspace", "--bins"]))?;
    let mut bench = Command::new(figures::release("switchyard-bench"));
    bench.args(&args.args).current_dir(run::root());
    run::step("bench", bench)
}
