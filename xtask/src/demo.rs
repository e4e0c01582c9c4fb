//! `cargo xtask demo`: builds what is missing, then hands over to the demo itself.

use crate::run;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Keep everything running, and print how to reach it with kubectl.
    #[arg(long)]
    stay: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    run::step("build hub, agent, command line", run::cargo(&["build", "--workspace", "--bins"]))?;
    let mut demo = run::cargo(&["run", "--quiet", "--package", "switchyard-e2e", "--bin", "switchyard-demo", "--"]);
    if args.stay {
        demo.arg("--stay");
    }
    let status = demo.status()?;
    std::process::exit(status.code().unwrap_or(1));
}
