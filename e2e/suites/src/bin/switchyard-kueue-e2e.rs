//! `cargo xtask kueue-e2e`, and the system under test that the harness starts.

use clap::Parser as _;
use switchyard_suites::kueue_e2e;

#[derive(clap::Parser)]
#[command(
    name = "cargo xtask kueue-e2e",
    bin_name = "cargo xtask kueue-e2e",
    about = "Kueue's own end-to-end suites against Switchyard, beside Kueue's results"
)]
enum Command {
    /// Run suites and print a table.
    Run(switchyard_flags::kueue_e2e::Args),
    /// Install Switchyard into the cluster of $KUBECONFIG, by the environment of the harness.
    Install,
    /// Be the hub of one pod.
    #[command(disable_help_flag = true)]
    Start {
        /// The container's arguments.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
}

fn main() -> anyhow::Result<()> {
    match Command::parse() {
        Command::Run(args) => kueue_e2e::run(&args),
        Command::Install => kueue_e2e::install(),
        Command::Start { args } => kueue_e2e::start(&args),
    }
}
