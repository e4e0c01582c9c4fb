//! `cargo xtask rights`: runs the cluster tests with audit logs, and reports the rights that none of them used.

use std::process::{Command, ExitCode};

use anyhow::Context;

use crate::{programs, run};

/// The variable by which the harness knows where audit logs go.
const DIRECTORY: &str = "SWITCHYARD_RIGHTS";

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only cluster tests whose name contains this. A right that the others use then counts as never used.
    filter: Option<String>,
}

/// # Errors
/// When the tests cannot be started, or have left no log.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let logs = run::target().join("rights");
    // Logs of an earlier run.
    let _ = std::fs::remove_dir_all(&logs);
    std::fs::create_dir_all(&logs).with_context(|| format!("cannot create {}", logs.display()))?;
    let mut tests = Command::new(std::env::current_exe()?);
    tests
        .args(["test", "--only", "cluster"])
        .args(&args.filter)
        .env(DIRECTORY, &logs)
        .current_dir(run::root());
    if !tests.status().context("cannot start the tests")?.success() {
        eprintln!("Not all tests passed. What they did counts all the same.");
    }
    let report = programs::command("debug", "switchyard-rights").arg(&logs).status();
    let passed = report.context("cannot start the report")?.success();
    Ok(if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
