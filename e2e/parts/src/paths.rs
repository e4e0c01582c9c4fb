//! The repository and the user's cache.

use std::path::{Path, PathBuf};

use anyhow::Context;

/// The repository's root.
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).to_owned()
}

/// `$SWITCHYARD_CACHE`, or `switchyard` in the user's cache directory. Programs that are built once per machine are
/// kept there.
///
/// # Errors
/// When neither `SWITCHYARD_CACHE` nor `HOME` is set.
pub fn cache() -> anyhow::Result<PathBuf> {
    if let Some(dir) = std::env::var_os("SWITCHYARD_CACHE") {
        return Ok(dir.into());
    }
    if let Some(dir) = std::env::var_os("XDG_CACHE_HOME") {
        return Ok(PathBuf::from(dir).join("switchyard"));
    }
    let home = std::env::var_os("HOME").context("set HOME or SWITCHYARD_CACHE: built programs are kept there")?;
    Ok(PathBuf::from(home).join(".cache/switchyard"))
}
