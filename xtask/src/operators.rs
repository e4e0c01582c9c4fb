//! `cargo xtask operators`: builds ours, then runs kinds of jobs with their real operators.

use crate::{figures, run};

#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Args {
    /// `[--only jobset,lws,training-operator,kuberay,mpi-operator]`.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<String>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let mut operators = figures::debug("switchyard-operators")?;
    operators.args(&args.args);
    run::step("kinds with their operators", operators)
}
