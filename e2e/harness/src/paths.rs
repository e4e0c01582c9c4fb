//! Paths of the repository, the cache, the logs and Switchyard's binaries.

use std::path::PathBuf;

use anyhow::{Context, bail};

pub use switchyard_parts::paths::{cache, keep_logs_of, logs, oracle, root, target};

/// The path of one of the workspace's binaries: in the directory of the running program, or in the one above.
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
