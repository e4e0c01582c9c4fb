//! Running other programs, with their time told.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, bail};

/// The workspace's root.
pub(crate) fn root() -> PathBuf {
    let mut path = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    path.pop();
    path
}

/// Where cargo builds.
pub(crate) fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// `cargo` with these arguments, in the workspace's root.
pub(crate) fn cargo(args: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(args).current_dir(root());
    command
}

/// Runs a command, its output shown, and says how long it took. Fails when the command does.
pub(crate) fn step(title: &str, mut command: Command) -> anyhow::Result<()> {
    eprintln!("==> {title}");
    let start = Instant::now();
    let status = command.status().with_context(|| format!("{title}: cannot start {:?}", command.get_program()))?;
    if !status.success() {
        bail!("{title}: failed ({status})");
    }
    eprintln!("    {title}: {:.1} s", start.elapsed().as_secs_f64());
    Ok(())
}

/// A command's standard output. Fails when the command does.
pub(crate) fn output(mut command: Command) -> anyhow::Result<String> {
    let output = command.stderr(Stdio::inherit()).output().with_context(|| format!("cannot start {command:?}"))?;
    if !output.status.success() {
        bail!("{command:?}: {}", output.status);
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
