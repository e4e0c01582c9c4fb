//! The other programs of the suites, in one folder: the control planes, Kueue, its suites, operators of other projects.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};
use sha2::{Digest, Sha256};
use switchyard_e2e::{Part, Parts, paths};

/// The parts of a cluster.
const CONTROL_PLANE: [Part; 5] =
    [Part::Etcd, Part::ApiServer, Part::ControllerManager, Part::Scheduler, Part::Kwok];

/// The operators of the extended suites, as `build-operators.sh` calls them. The harness leaves out the tests of those that
/// are not there. Not kuberay: it has no test that could run.
const OPERATORS: [&str; 6] = ["jobset", "lws", "mpi", "appwrapper", "training", "trainer"];

/// The folder, with everything in it.
#[derive(Debug)]
pub(super) struct Programs {
    dir: PathBuf,
}

impl Programs {
    /// Builds what is missing, once per machine and version of what the harness builds: half an hour on two cores. An operator
    /// that cannot be built is named and left out, now and at the next run: it is tried again once its log is removed.
    ///
    /// # Errors
    /// When a program other than the operators cannot be built, or a script cannot be run.
    pub(super) fn build(harness: &Path, suites: &[&str]) -> anyhow::Result<Self> {
        let dir = paths::cache()?.join("kueue-e2e").join(key(harness)?);
        fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
        let parts = Parts::new()?;
        for part in CONTROL_PLANE {
            let (built, link) = (parts.binary(part)?, dir.join(part.name()));
            if fs::read_link(&link).ok().as_ref() != Some(&built) {
                let _ = fs::remove_file(&link);
                symlink(&built, &link)
                    .with_context(|| format!("cannot link {}", link.display()))?;
            }
        }
        let suite_missing = suites.iter().any(|suite| !dir.join(format!("e2e-{suite}")).is_file());
        let others_missing =
            ["kueue", "kubectl-kueue"].iter().any(|name| !dir.join(name).is_file());
        if suite_missing || others_missing {
            build(&harness.join("build.sh"), &dir, &[])?;
        }
        if suites.iter().any(|suite| suite.ends_with("-extended")) {
            operators(harness, &dir)?;
        }
        Ok(Self { dir })
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }
}

/// A digest of the files that decide the versions.
fn key(harness: &Path) -> anyhow::Result<String> {
    let mut all = Sha256::new();
    for name in ["go.mod", "go.sum", "build.sh", "build-operators.sh"] {
        let path = harness.join(name);
        all.update(fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?);
    }
    Ok(all.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect())
}

/// Builds the operators that are missing and have not been tried before. Says which still are: the suites can do without.
fn operators(harness: &Path, dir: &Path) -> anyhow::Result<()> {
    let wanted = untried(dir);
    if !wanted.is_empty() {
        build(&harness.join("build-operators.sh"), dir, &wanted)?;
    }
    for name in missing(dir) {
        let log = log(dir, name);
        let log = log.display();
        eprintln!(
            "    {name} could not be built, so its tests are not run; see {log}, and remove it to try again"
        );
    }
    Ok(())
}

fn missing(dir: &Path) -> Vec<&'static str> {
    OPERATORS.into_iter().filter(|name| !program(dir, name).is_file()).collect()
}

/// Missing operators without a log: one that failed once would fail again, many minutes later.
fn untried(dir: &Path) -> Vec<&'static str> {
    missing(dir).into_iter().filter(|name| !log(dir, name).exists()).collect()
}

fn program(dir: &Path, operator: &str) -> PathBuf {
    dir.join(format!("op-{operator}"))
}

/// The log of its build, beside the program.
fn log(dir: &Path, operator: &str) -> PathBuf {
    program(dir, operator).with_extension("log")
}

fn build(script: &Path, dir: &Path, names: &[&str]) -> anyhow::Result<()> {
    eprintln!("==> {} {} (once per machine, many minutes)", script.display(), names.join(" "));
    let status = Command::new(script).arg(dir).args(names).status();
    let status = status.with_context(|| format!("cannot start {}", script.display()))?;
    if !status.success() {
        bail!("{}: {status}", script.display());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_operator_build_is_retried_once_its_log_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        for built in ["jobset", "mpi", "training", "trainer"] {
            fs::write(program(dir, built), "").unwrap();
            fs::write(log(dir, built), "").unwrap();
        }
        fs::write(log(dir, "appwrapper"), "it does not compile").unwrap();
        assert_eq!((missing(dir), untried(dir)), (vec!["lws", "appwrapper"], vec!["lws"]));
        fs::remove_file(log(dir, "appwrapper")).unwrap();
        assert_eq!(untried(dir), ["lws", "appwrapper"]);
    }
}
