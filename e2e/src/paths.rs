//! Where things are: the repository, the cache, the logs, our own binaries.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

/// The repository's root.
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_owned()
}

/// `$SWITCHYARD_CACHE`, or `switchyard` in the user's cache directory: what is built once per machine.
pub fn cache() -> anyhow::Result<PathBuf> {
    if let Some(dir) = std::env::var_os("SWITCHYARD_CACHE") {
        return Ok(dir.into());
    }
    if let Some(dir) = std::env::var_os("XDG_CACHE_HOME") {
        return Ok(PathBuf::from(dir).join("switchyard"));
    }
    let home = std::env::var_os("HOME").context("set HOME or SWITCHYARD_CACHE: built parts need a place to be kept")?;
    Ok(PathBuf::from(home).join(".cache/switchyard"))
}

/// Where environments keep their logs and state: `target/e2e-logs`.
pub fn logs() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    target.join("e2e-logs")
}

/// One of the workspace's binaries: beside the running program, or beside the directory that tests run from.
pub fn binary(name: &str) -> anyhow::Result<PathBuf> {
    let current = std::env::current_exe().context("where is the running program?")?;
    let places = current.ancestors().skip(1).take(2).map(|dir| dir.join(name));
    let tried: Vec<PathBuf> = places.collect();
    if let Some(found) = tried.iter().find(|path| path.is_file()) {
        return Ok(found.clone());
    }
    let tried = tried.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ");
    bail!("no {name} here ({tried}); build it first: cargo build --workspace --bins")
}
