//! `cargo xtask kueue-e2e`: builds the hub, then has Kueue's own end-to-end suites run against it.

use crate::{figures, run};

#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Args {
    /// `[SUITE...] --harness DIR [--focus REGEX] [--skip REGEX] [--stock] [--dispatcher NAME] [--limit SECONDS] [--out DIR] [--json FILE]`;
    /// see docs/compatibility.md.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<String>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let mut suites = figures::debug("switchyard-kueue-e2e")?;
    suites.arg("run").args(&args.args);
    run::step("Kueue's suites", suites)
}
