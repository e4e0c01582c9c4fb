//! Debian's packages, fetched by apt and unpacked. They are not installed, so no service starts and the machine stays as it is.

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, ensure};

use crate::{command, paths};

/// How long one command may take.
const TIME: Duration = Duration::from_secs(300);

/// Unpacks packages into the folder `root`, unless it exists. Blocks, also while another process does it.
///
/// # Errors
/// When the packages cannot be fetched.
pub fn unpack(packages: &[&str], root: &Path) -> anyhow::Result<()> {
    if root.is_dir() {
        return Ok(());
    }
    let dir = root.parent().context("packages are unpacked into a folder of the cache")?;
    fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
    let lock = File::create(dir.join("lock"))?;
    lock.lock()?;
    if !root.is_dir() {
        let unfinished = dir.join("unfinished");
        let _ = fs::remove_dir_all(&unfinished);
        fs::create_dir_all(&unfinished)?;
        fetch(packages, &unfinished)?;
        // The unpacked packages appear whole.
        fs::rename(unfinished.join("root"), root)?;
        let _ = fs::remove_dir_all(&unfinished);
    }
    Ok(())
}

/// Downloads the packages and unpacks them into `root`. If that fails, updates the package lists first.
fn fetch(packages: &[&str], dir: &Path) -> anyhow::Result<()> {
    ensure!(paths::has("apt-get"), "there is no apt-get to fetch {} with", packages.join(", "));
    eprintln!("==> fetch {} (once per machine)", packages.join(", "));
    let apt = |words: &[&str]| -> anyhow::Result<String> {
        let mut command = Command::new("apt-get");
        command.args(["-qq", "-o", "APT::Sandbox::User=root"]).args(words).current_dir(dir);
        command::output(&mut command, TIME)
    };
    let download = || apt(&[&["download"][..], packages].concat());
    if download().is_err() {
        apt(&["update"])?;
        download()?;
    }
    for entry in fs::read_dir(dir)? {
        let package = entry?.path();
        if package.extension().is_some_and(|it| it == "deb") {
            let mut extract = Command::new("dpkg-deb");
            extract.arg("--extract").arg(&package).arg(dir.join("root"));
            command::output(&mut extract, TIME)?;
        }
    }
    Ok(())
}
