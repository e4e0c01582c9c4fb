//! Commands that are programs of their own: built first, then handed their flags as they are.

use std::process::Command;

use crate::run;

// Flags of such a program; its own `--help` lists them. (A doc comment would be shown in the place of the command's.)
#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Flags {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    flags: Vec<String>,
}

impl Flags {
    /// Runs the program with them.
    pub(crate) fn hand_to(&self, title: &str, mut program: Command) -> anyhow::Result<()> {
        program.args(&self.flags);
        run::step(title, program)
    }
}

/// One of the harness, built for release with all others: it starts the hub and the agents that lie beside it.
pub(crate) fn released(name: &str) -> anyhow::Result<Command> {
    run::step("build for release", run::cargo(&["build", "--release", "--workspace", "--bins"]))?;
    Ok(built("release", name))
}

/// [`released`], built as tests are.
pub(crate) fn debug(name: &str) -> anyhow::Result<Command> {
    run::step("build all programs", run::cargo(&["build", "--workspace", "--bins"]))?;
    Ok(built("debug", name))
}

/// The simulation, which needs nothing beside it.
pub(crate) fn simulation() -> Command {
    run::cargo(&["run", "--quiet", "--release", "--package", "switchyard-simulation", "--"])
}

fn built(profile: &str, name: &str) -> Command {
    let mut program = Command::new(run::target().join(profile).join(name));
    program.current_dir(run::root());
    program
}
