//! Runs other programs.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, bail};

use crate::times;

/// The workspace's root.
pub(crate) fn root() -> PathBuf {
    switchyard_parts::paths::root()
}

/// Cargo's target directory.
pub(crate) fn target() -> PathBuf {
    switchyard_parts::paths::target()
}

/// `cargo` with these arguments, in the workspace's root.
pub(crate) fn cargo(args: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(args).current_dir(root());
    command
}

/// The arguments of this process after the name of the xtask command.
pub(crate) fn typed() -> impl Iterator<Item = OsString> {
    std::env::args_os().skip(2)
}

/// Prints that a step begins, with its last duration, or else its usual duration on two cores.
pub(crate) fn announce(title: &str, usually: &str) {
    match times::last(title) {
        Some(seconds) => eprintln!("==> {title} (last time {seconds:.0} s)"),
        None if usually.is_empty() => eprintln!("==> {title}"),
        None => eprintln!("==> {title} (the first time {usually})"),
    }
}

/// Runs a command with its output shown, and prints how long it took.
///
/// # Errors
/// When the command cannot be started, or fails.
pub(crate) fn step(title: &str, command: Command) -> anyhow::Result<()> {
    long_step(title, "", command)
}

/// As [`step`], with the usual duration of a first run, such as `about 4 minutes`.
pub(crate) fn long_step(title: &str, usually: &str, mut command: Command) -> anyhow::Result<()> {
    announce(title, usually);
    let start = Instant::now();
    let status = command
        .status()
        .with_context(|| format!("{title}: cannot start {:?}", command.get_program()))?;
    if !status.success() {
        bail!("{title}: failed ({status})");
    }
    let seconds = start.elapsed().as_secs_f64();
    times::keep(title, seconds);
    eprintln!("    {title}: {seconds:.1} s");
    Ok(())
}

/// A command's standard output.
///
/// # Errors
/// When the command cannot be started, or fails.
pub(crate) fn output(mut command: Command) -> anyhow::Result<String> {
    let output = command
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("cannot start {command:?}"))?;
    if !output.status.success() {
        bail!("{command:?}: {}", output.status);
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The files of the repository with one of these extensions, by their paths from its root. Hidden directories and build
/// output are left out.
pub(crate) fn files(extensions: &[&str]) -> Vec<PathBuf> {
    let (root, mut dirs, mut files) = (root(), vec![root()], Vec::new());
    while let Some(dir) = dirs.pop() {
        for path in std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path())
        {
            let is_source = path
                .file_name()
                .is_some_and(|name| name != "target" && !name.as_encoded_bytes().starts_with(b"."));
            if path.is_dir() && is_source {
                dirs.push(path);
            } else if path
                .extension()
                .is_some_and(|it| extensions.iter().any(|wanted| it == *wanted))
            {
                files.extend(path.strip_prefix(&root).map(PathBuf::from));
            }
        }
    }
    files.sort();
    files
}

/// The Rust files of the repository.
pub(crate) fn rust_files() -> Vec<PathBuf> {
    files(&["rs"])
}

/// Whether a program is installed: it succeeds with this argument.
pub(crate) fn has(program: &str, argument: &str) -> bool {
    let mut command = Command::new(program);
    command.arg(argument).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}
