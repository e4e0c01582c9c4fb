//! `cargo xtask simulate`: hub, agents and clusters under seeded faults.

use crate::run;

#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Args {
    /// `--seeds N`, `--seed S`, `--mutate NAME`, `--all`, `--whole`.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<String>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let mut simulate = run::cargo(&["run", "--quiet", "--release", "--package", "switchyard-simulation", "--"]);
    let status = simulate.args(&args.args).status()?;
    std::process::exit(status.code().unwrap_or(1));
}
