//! Builds the harness's programs, then starts one with the flags from the command line.

use std::ffi::OsString;
use std::process::{Command, ExitCode};

use anyhow::Context;

use crate::run;

/// Builds all programs for release, because the harness starts hub and agents from its own directory. Then starts the named
/// one.
pub(crate) fn released(name: &str) -> anyhow::Result<ExitCode> {
    released_with(name, &[])
}

/// As [`released`], with `after` behind the flags from the command line.
pub(crate) fn released_with(name: &str, after: &[OsString]) -> anyhow::Result<ExitCode> {
    let build = run::cargo(&["build", "--release", "--workspace", "--bins"]);
    run::long_step("build all programs for release", "about 10 minutes", build)?;
    start(command("release", name).args(run::typed()).args(after))
}

/// As [`released`], with the profile of tests, and with `before` ahead of the flags from the command line.
pub(crate) fn debug(name: &str, before: &[&str]) -> anyhow::Result<ExitCode> {
    let build = run::cargo(&["build", "--workspace", "--bins"]);
    run::long_step("build all programs", "about 4 minutes", build)?;
    start(command("debug", name).args(before).args(run::typed()))
}

/// Builds and starts the simulation, which needs no other program.
pub(crate) fn simulation() -> anyhow::Result<ExitCode> {
    let build = run::cargo(&["build", "--release", "--package", "switchyard-simulation"]);
    run::long_step("build the simulation for release", "about 5 minutes", build)?;
    start(command("release", "switchyard-simulate").args(run::typed()))
}

/// A command for a built program.
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
