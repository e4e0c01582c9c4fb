//! `cargo xtask rights`: runs the cluster tests with audit logs, and reports the rights that no test used.

use std::process::{Command, ExitCode};

use anyhow::Context;

use crate::{programs, run};

/// The environment variable that tells the harness the directory of audit logs.
const DIRECTORY: &str = "SWITCHYARD_RIGHTS";

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only cluster tests whose name contains this. Rights that only other tests use then count as unused.
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
