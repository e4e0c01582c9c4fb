//! The harness's programs: built first, then started with the flags that were typed.

use std::ffi::OsString;
use std::process::{Command, ExitCode};

use anyhow::Context;

use crate::run;

/// Builds all programs for release, since the harness starts the hub and the agents that lie beside it. Then starts
/// the named one.
pub(crate) fn released(name: &str) -> anyhow::Result<ExitCode> {
    released_with(name, &[])
}

/// [`released`]. `after` comes after the flags that were typed.
pub(crate) fn released_with(name: &str, after: &[OsString]) -> anyhow::Result<ExitCode> {
    let build = run::cargo(&["build", "--release", "--workspace", "--bins"]);
    run::long_step("build all programs for release", "about 10 minutes", build)?;
    start(command("release", name).args(run::typed()).args(after))
}

/// [`released`], built as tests are. `before` comes before the flags that were typed.
pub(crate) fn debug(name: &str, before: &[&str]) -> anyhow::Result<ExitCode> {
    let build = run::cargo(&["build", "--workspace", "--bins"]);
    run::long_step("build all programs", "about 4 minutes", build)?;
    start(command("debug", name).args(before).args(run::typed()))
}

/// The simulation, which needs no other program.
pub(crate) fn simulation() -> anyhow::Result<ExitCode> {
    let build = run::cargo(&["build", "--release", "--package", "switchyard-simulation"]);
    run::long_step("build the simulation for release", "about 5 minutes", build)?;
    start(command("release", "switchyard-simulate").args(run::typed()))
}

/// A program that was built.
pub(crate) fn command(profile: &str, name: &str) -> Command {
    let mut program = Command::new(run::target().join(profile).join(name));
    program.current_dir(run::root());
    program
}

/// Runs a program to its end and passes its exit code on.
fn start(program: &mut Command) -> anyhow::Result<ExitCode> {
    let status =
        program.status().with_context(|| format!("cannot start {:?}", program.get_program()))?;
    Ok(ExitCode::from(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1)))
}
