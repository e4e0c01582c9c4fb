//! The repository and the user's cache.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;

/// The file that marks a directory of logs to keep.
const KEPT: &str = "KEPT";

/// The repository's root.
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).to_owned()
}

/// `$SWITCHYARD_CACHE`, or `switchyard` in the user's cache directory. Programs that are built once per machine are
/// kept there.
///
/// # Errors
/// When none of `SWITCHYARD_CACHE`, `XDG_CACHE_HOME` and `HOME` is set.
pub fn cache() -> anyhow::Result<PathBuf> {
    if let Some(dir) = std::env::var_os("SWITCHYARD_CACHE") {
        return Ok(dir.into());
    }
    if let Some(dir) = std::env::var_os("XDG_CACHE_HOME") {
        return Ok(PathBuf::from(dir).join("switchyard"));
    }
    let home = std::env::var_os("HOME")
        .context("set HOME or SWITCHYARD_CACHE: built programs are kept there")?;
    Ok(PathBuf::from(home).join(".cache/switchyard"))
}

/// The directory with an oracle of Kueue's decisions, beside the checkout, unless a flag names another.
pub fn oracle() -> PathBuf {
    root().join("../shared/oracle")
}

/// Whether `PATH` has a program of this name.
pub fn has(program: &str) -> bool {
    std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|dir| dir.join(program).is_file()))
}

/// Where cargo builds.
pub fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// Where environments keep their logs and state: `target/e2e-logs`.
pub fn logs() -> PathBuf {
    target().join("e2e-logs")
}

/// Marks a directory of logs, so that they are kept even if their process is killed.
pub fn keep(dir: &Path) {
    let _ = fs::write(dir.join(KEPT), "");
}

/// Whether the logs in this directory are kept.
pub fn is_kept(dir: &Path) -> bool {
    dir.join(KEPT).exists()
}

/// The process that made a directory of logs.
pub fn owner_pid(dir: &Path) -> Option<u32> {
    dir.file_name()?.to_str()?.rsplit_once('-')?.1.parse().ok()
}

/// Keeps the logs of everything that a process has started. Returns the directories that were not kept before.
pub fn keep_logs_of(pid: u32) -> Vec<PathBuf> {
    let dirs = fs::read_dir(logs()).into_iter().flatten().flatten().map(|entry| entry.path());
    let dirs: Vec<PathBuf> =
        dirs.filter(|dir| owner_pid(dir) == Some(pid) && !is_kept(dir)).collect();
    dirs.iter().for_each(|dir| keep(dir));
    dirs
}
