//! What a change can have broken.
//!
//! A changed file belongs to a package, and everything that depends on the package is tested. Where the change touches
//! only files of cluster tests, only those are run. A file outside of all packages concerns the packages whose sources
//! name it or a directory above it, as in `include_str!("../../deploy/Dockerfile")`; a file that decides how everything
//! is built, such as `Cargo.lock`, concerns all.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};

use super::workspace::Workspace;
use crate::run;

/// The package of the cluster tests, and where they lie.
const HARNESS: &str = "switchyard-e2e";
const CLUSTER_TESTS: &str = "e2e/tests/cluster";

/// Modules of the cluster tests that others use.
const SHARED: [&str; 6] = ["main", "bed", "common", "elastic", "serving", "visible"];

/// Decide how everything is built or run.
const EVERYTHING: [&str; 6] =
    ["Cargo.toml", "Cargo.lock", ".cargo", "rustfmt.toml", "clippy.toml", "rust-toolchain.toml"];

/// What is to be tested.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Selection {
    /// Packages with unit tests to run.
    pub(super) packages: Vec<String>,
    pub(super) cluster: ClusterTests,
}

/// Which files of cluster tests are to be run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ClusterTests {
    None,
    Files(BTreeSet<String>),
    All,
}

impl ClusterTests {
    pub(super) fn wants(&self, file: &str) -> bool {
        match self {
            Self::None => false,
            Self::Files(files) => files.contains(file),
            Self::All => true,
        }
    }
}

/// What changed since a commit, committed or not.
pub(super) fn since(commit: &str, workspace: &Workspace) -> anyhow::Result<Selection> {
    let mut files = BTreeSet::new();
    for args in
        [&["diff", "--name-only", "--no-renames", commit, "--"][..], &["ls-files", "--others", "--exclude-standard"]]
    {
        let mut git = Command::new("git");
        git.args(args).current_dir(run::root());
        let output = git.output().context("cannot start git")?;
        if !output.status.success() {
            bail!("--changed {commit}: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        files.extend(String::from_utf8_lossy(&output.stdout).lines().map(PathBuf::from));
    }
    if files.is_empty() {
        bail!("nothing has changed since {commit}; name an earlier commit, as in `--changed {commit}~1`");
    }
    println!("changed since {commit}: {} files", files.len());
    Ok(select(&files, workspace, |package, path| names(workspace, package, path)))
}

/// Whether a package's sources name a file, or a directory in which it lies.
fn names(workspace: &Workspace, package: &str, file: &Path) -> bool {
    let Some(directory) = workspace.directory(package) else { return false };
    let ancestors: Vec<String> =
        file.ancestors().filter(|path| !path.as_os_str().is_empty()).map(|path| path.display().to_string()).collect();
    sources(&directory, workspace).iter().any(|source| {
        let text = std::fs::read_to_string(source).unwrap_or_default();
        ancestors.iter().any(|path| [format!("\"{path}"), format!("/{path}")].iter().any(|named| text.contains(named)))
    })
}

/// The Rust files of a package, without those of packages below it.
fn sources(directory: &Path, workspace: &Workspace) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            let inner = workspace.names().any(|name| workspace.directory(name).as_deref() == Some(&path));
            if !inner {
                found.extend(sources(&path, workspace));
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found
}

fn select(files: &BTreeSet<PathBuf>, workspace: &Workspace, names: impl Fn(&str, &Path) -> bool) -> Selection {
    let mut changed = BTreeSet::new();
    let mut tests = BTreeSet::new();
    for file in files {
        let first = file.components().next().map(|first| first.as_os_str().to_string_lossy().into_owned());
        if first.is_some_and(|first| EVERYTHING.contains(&first.as_str())) {
            changed.extend(workspace.names().map(str::to_owned));
        } else if let Some(test) = cluster_file(file) {
            tests.insert(test);
        } else if let Some(owner) = workspace.owner(file) {
            changed.insert(owner.to_owned());
        } else {
            changed.extend(workspace.names().filter(|package| names(package, file)).map(str::to_owned));
        }
    }
    let packages = workspace.dependents(changed);
    let cluster = match (packages.contains(HARNESS) || tests.iter().any(|it| SHARED.contains(&it.as_str())), tests) {
        (true, _) => ClusterTests::All,
        (false, tests) if tests.is_empty() => ClusterTests::None,
        (false, tests) => ClusterTests::Files(tests),
    };
    Selection { packages: packages.into_iter().collect(), cluster }
}

/// The file of cluster tests to which a path belongs: `moves` for `e2e/tests/cluster/moves/away.rs`.
fn cluster_file(path: &Path) -> Option<String> {
    let below = path.strip_prefix(CLUSTER_TESTS).ok()?;
    let first = below.components().next()?.as_os_str().to_str()?;
    // A file beside the tests that is none, such as `seconds.json`, concerns the package.
    let name = first.strip_suffix(".rs").or_else(|| (below.components().count() > 1).then_some(first))?;
    Some(name.to_owned())
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::super::workspace::tests::sample;
    use super::{ClusterTests, select};

    #[test]
    fn change_selects_what_depends_on_it() {
        let files = |names: &[&str]| ClusterTests::Files(names.iter().map(|name| (*name).to_owned()).collect());
        for (case, changed, packages, cluster) in [
            ("a crate", &["cli/src/main.rs"][..], &["cli", "switchyard-e2e"][..], ClusterTests::All),
            ("a file of cluster tests", &["e2e/tests/cluster/moves.rs"][..], &[][..], files(&["moves"])),
            ("a directory of them", &["e2e/tests/cluster/moves/away.rs"][..], &[][..], files(&["moves"])),
            ("a file beside them", &["e2e/tests/cluster/seconds.json"][..], &["switchyard-e2e"][..], ClusterTests::All),
            ("what cluster tests share", &["e2e/tests/cluster/bed/mod.rs"][..], &[][..], ClusterTests::All),
            (
                "a file that the hub names",
                &["deploy/x.yaml"][..],
                &["cli", "hub", "switchyard-e2e"][..],
                ClusterTests::All,
            ),
            ("a file that nobody names", &["docs/x.md"][..], &[][..], ClusterTests::None),
            (
                "the lock file",
                &["Cargo.lock"][..],
                &["api", "cli", "hub", "parts", "switchyard-e2e"][..],
                ClusterTests::All,
            ),
        ] {
            let changed = changed.iter().map(PathBuf::from).collect();
            let names = |package: &str, file: &Path| package == "hub" && file.starts_with("deploy");
            let selection = select(&changed, &sample(Path::new("/w")), names);
            assert_eq!(selection.packages, packages, "{case}");
            assert_eq!(selection.cluster, cluster, "{case}");
        }
    }
}
