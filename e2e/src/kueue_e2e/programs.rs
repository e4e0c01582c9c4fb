//! What the suites need beside ours, in one folder: the control planes, Kueue, its suites, the operators of other projects.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};
use sha2::{Digest, Sha256};

use crate::{Part, Parts, paths};

/// The parts of a cluster.
const CONTROL_PLANE: [Part; 5] = [Part::Etcd, Part::ApiServer, Part::ControllerManager, Part::Scheduler, Part::Kwok];

/// The folder, with everything in it.
#[derive(Debug)]
pub(super) struct Programs {
    dir: PathBuf,
}

impl Programs {
    /// Builds what is missing, once per machine and version of the harness's `go.sum`: half an hour on two cores.
    ///
    /// # Errors
    /// What could not be built.
    pub(super) fn build(harness: &Path, suites: &[&str]) -> anyhow::Result<Self> {
        let dir = paths::cache()?.join("kueue-e2e").join(key(harness)?);
        fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
        let parts = Parts::new()?;
        for part in CONTROL_PLANE {
            let (built, link) = (parts.binary(part)?, dir.join(part.name()));
            if fs::read_link(&link).ok().as_ref() != Some(&built) {
                let _ = fs::remove_file(&link);
                symlink(&built, &link).with_context(|| format!("cannot link {}", link.display()))?;
            }
        }
        let suite_missing = suites.iter().any(|suite| !dir.join(format!("e2e-{suite}")).is_file());
        let others_missing = ["kueue", "kubectl-kueue"].iter().any(|name| !dir.join(name).is_file());
        if suite_missing || others_missing {
            build(&harness.join("build.sh"), &dir)?;
        }
        let extended = suites.iter().any(|suite| suite.ends_with("-extended"));
        if extended && !dir.join("op-jobset").is_file() {
            build(&harness.join("build-operators.sh"), &dir)?;
        }
        Ok(Self { dir })
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }
}

/// Of what decides the versions of all that the harness builds.
fn key(harness: &Path) -> anyhow::Result<String> {
    let path = harness.join("go.sum");
    let sums = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(Sha256::digest(&sums).iter().take(8).map(|byte| format!("{byte:02x}")).collect())
}

fn build(script: &Path, dir: &Path) -> anyhow::Result<()> {
    eprintln!("==> {} (once per machine, many minutes)", script.display());
    let status =
        Command::new(script).arg(dir).status().with_context(|| format!("cannot start {}", script.display()))?;
    if !status.success() {
        bail!("{}: {status}", script.display());
    }
    Ok(())
}
