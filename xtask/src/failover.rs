//! `cargo xtask failover`: builds for release, then strikes what it built, and its peers.

use crate::{figures, run};

#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Args {
    /// `[--systems agents,kubeconfig,stock] [--faults cut,silence,...] [--jobs N] [--outage SECONDS] [--limit SECONDS]
    /// [--json FILE] [--write docs/failover.md]`.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<String>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let mut failover = figures::released("switchyard-failover")?;
    failover.args(&args.args);
    run::step("failover", failover)
}
