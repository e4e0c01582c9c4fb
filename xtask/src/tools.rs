//! Tools that a new machine does not have, installed once into the project's cache.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Context;

use crate::run;

/// The version of cargo-deny that reads our lock file and `deny.toml`.
const CARGO_DENY: &str = "0.20.2";

/// `$SWITCHYARD_CACHE`, or `switchyard` in the user's cache directory.
pub(crate) fn cache() -> anyhow::Result<PathBuf> {
    if let Some(dir) = std::env::var_os("SWITCHYARD_CACHE") {
        return Ok(dir.into());
    }
    if let Some(dir) = std::env::var_os("XDG_CACHE_HOME") {
        return Ok(PathBuf::from(dir).join("switchyard"));
    }
    let home = std::env::var_os("HOME").context("set HOME or SWITCHYARD_CACHE: tools need a place to be kept")?;
    Ok(PathBuf::from(home).join(".cache/switchyard"))
}

/// Where cargo-deny is, installed first if it has to be.
pub(crate) fn cargo_deny() -> anyhow::Result<PathBuf> {
    let tools = cache()?.join("tools");
    let binary = tools.join("bin/cargo-deny");
    let present = Command::new(&binary).arg("--version").output();
    if present.is_ok_and(|out| String::from_utf8_lossy(&out.stdout).contains(CARGO_DENY)) {
        return Ok(binary);
    }
    let mut install = run::cargo(&["install", "cargo-deny", "--version", CARGO_DENY, "--locked", "--force", "--root"]);
    install.arg(&tools);
    run::step("install cargo-deny (once per machine, some minutes)", install)?;
    Ok(binary)
}
