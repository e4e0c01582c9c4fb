//! Selects the tests that a change can have broken.
//!
//! A changed file belongs to a package, and the package and all that depend on it are tested. If a change touches only files of
//! cluster tests, only these run, and those that use them. A file that affects every build, such as `Cargo.lock`, selects all
//! packages.
//!
//! A source that names a file or its directory, as in `include_str!("../../deploy/Dockerfile")`, reads it when it is built or
//! run. So the source counts as changed with that file, whatever package has the file.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};

use super::workspace::Workspace;
use crate::run;

/// The package of the cluster tests, and their directory.
const PACKAGE: &str = "switchyard-cluster-tests";
const CLUSTER_TESTS: &str = "e2e/tests/cluster";

/// The root module of the cluster tests.
const MAIN: &str = "main";

/// Files and directories that affect every build or run.
const EVERYTHING: [&str; 6] =
    ["Cargo.toml", "Cargo.lock", ".cargo", "rustfmt.toml", "clippy.toml", "rust-toolchain.toml"];

/// The tests to run.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Selection {
    /// Packages with unit tests to run.
    pub(super) packages: Vec<String>,
    pub(super) cluster: ClusterTests,
}

/// The files of cluster tests to run.
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

    /// Whether it selects any file but this one.
    pub(super) fn wants_other_than(&self, file: &str) -> bool {
        match self {
            Self::None => false,
            Self::Files(files) => files.iter().any(|name| name != file),
            Self::All => true,
        }
    }
}

/// Selects tests by the changes since a commit, committed or not.
pub(super) fn since(commit: &str, workspace: &Workspace) -> anyhow::Result<Selection> {
    let mut files = BTreeSet::new();
    for args in [
        &["diff", "--name-only", "--no-renames", "-z", commit, "--"][..],
        &["ls-files", "--others", "--exclude-standard", "-z"],
    ] {
        let mut git = Command::new("git");
        git.args(args).current_dir(run::root());
        let output = git.output().context("cannot start git")?;
        if !output.status.success() {
            bail!("--changed {commit}: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        files.extend(printed.split_terminator('\0').map(PathBuf::from));
    }
    if files.is_empty() {
        bail!(
            "nothing has changed since {commit}; name an earlier commit, as in `--changed {commit}~1`"
        );
    }
    println!("changed since {commit}: {} files", files.len());
    Ok(select(&files, workspace, &Sources::read(workspace)))
}

/// The text of every Rust file, by its path from the root.
#[derive(Debug, Default)]
struct Sources(BTreeMap<PathBuf, String>);

impl Sources {
    fn read(workspace: &Workspace) -> Self {
        let files = run::rust_files().into_iter().filter(|path| workspace.owner(path).is_some());
        let read = |path: PathBuf| {
            std::fs::read_to_string(run::root().join(&path)).ok().map(|text| (path, text))
        };
        Self(files.filter_map(read).collect())
    }

    /// Sources that read a file: they contain its name, or a path that ends with a directory above it.
    fn readers(&self, file: &Path) -> impl Iterator<Item = &Path> {
        let named = |path: &Path| {
            let path = path.display();
            [format!("\"{path}\""), format!("/{path}\"")]
        };
        let above = file.ancestors().filter(|path| !path.as_os_str().is_empty());
        let patterns: Vec<String> = above.flat_map(named).collect();
        let reads =
            move |text: &str| patterns.iter().any(|pattern| text.contains(pattern.as_str()));
        let own = file.to_owned();
        self.0
            .iter()
            .filter(move |(path, text)| **path != own && reads(text))
            .map(|(path, _)| path.as_path())
    }

    /// These modules, and all files of cluster tests that use one of them, directly or not.
    fn users(&self, modules: BTreeSet<String>) -> BTreeSet<String> {
        let mut found = modules;
        loop {
            let uses =
                |text: &str| found.iter().any(|module| text.contains(&format!("crate::{module}")));
            let users = self.0.iter().filter_map(|(path, text)| Some((cluster_file(path)?, text)));
            let more: BTreeSet<String> = users
                .filter(|(file, text)| !found.contains(file) && uses(text))
                .map(|(file, _)| file)
                .collect();
            if more.is_empty() {
                return found;
            }
            found.extend(more);
        }
    }
}

fn select(files: &BTreeSet<PathBuf>, workspace: &Workspace, sources: &Sources) -> Selection {
    let readers = files.iter().flat_map(|file| sources.readers(file)).map(Path::to_owned);
    let files: BTreeSet<PathBuf> = files.iter().cloned().chain(readers).collect();
    let mut changed = BTreeSet::new();
    let mut tests = BTreeSet::new();
    for file in &files {
        let first =
            file.components().next().map(|first| first.as_os_str().to_string_lossy().into_owned());
        if first.is_some_and(|first| EVERYTHING.contains(&first.as_str())) {
            changed.extend(workspace.names().map(str::to_owned));
        } else if let Some(test) = cluster_file(file) {
            tests.insert(test);
        } else if let Some(owner) = workspace.owner(file) {
            changed.insert(owner.to_owned());
        }
    }
    let packages = workspace.dependents(changed);
    let tests = sources.users(tests);
    let cluster = match (packages.contains(PACKAGE) || tests.contains(MAIN), tests) {
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
    // Other files in the directory, such as `seconds.json`, belong to the package.
    let name =
        first.strip_suffix(".rs").or_else(|| (below.components().count() > 1).then_some(first))?;
    Some(name.to_owned())
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::super::workspace::tests::sample;
    use super::{ClusterTests, Sources, select};

    fn sources() -> Sources {
        let texts = [
            ("hub/src/lib.rs", r#"const IMAGE: &str = include_str!("../../deploy/Dockerfile");"#),
            ("cli/src/main.rs", r#"fn page() -> PathBuf { root().join("docs/commands.md") }"#),
            ("e2e/tests/cluster/chart.rs", r#"let chart = root().join("deploy/chart");"#),
            ("e2e/tests/cluster/moves.rs", "use crate::bed::Bed;"),
            ("e2e/tests/cluster/drain/away.rs", "use crate::moves::Site;"),
            ("e2e/tests/cluster/main.rs", "mod bed; mod moves;"),
        ];
        Sources(texts.map(|(path, text)| (path.into(), text.to_owned())).into())
    }

    #[test]
    fn change_selects_what_depends_on_it() {
        let files = |names: &[&str]| {
            ClusterTests::Files(names.iter().map(|name| (*name).to_owned()).collect())
        };
        for (case, changed, packages, cluster) in [
            (
                "a crate",
                "cli/src/other.rs",
                &["cli", "switchyard-cluster-tests"][..],
                ClusterTests::All,
            ),
            ("a file of cluster tests", "e2e/tests/cluster/chart.rs", &[], files(&["chart"])),
            (
                "one that another uses",
                "e2e/tests/cluster/moves/away.rs",
                &[],
                files(&["moves", "drain"]),
            ),
            (
                "what cluster tests share",
                "e2e/tests/cluster/bed/mod.rs",
                &[],
                files(&["bed", "moves", "drain"]),
            ),
            ("their main file", "e2e/tests/cluster/main.rs", &[], ClusterTests::All),
            (
                "a file beside them",
                "e2e/tests/cluster/seconds.json",
                &["switchyard-cluster-tests"],
                ClusterTests::All,
            ),
            (
                "a file that the hub reads",
                "deploy/Dockerfile",
                &["cli", "hub", "switchyard-cluster-tests"],
                ClusterTests::All,
            ),
            (
                "a file in a directory that a test reads",
                "deploy/chart/values.yaml",
                &[],
                files(&["chart"]),
            ),
            ("a page beside one that is read", "docs/x.md", &[], ClusterTests::None),
            (
                "the lock file",
                "Cargo.lock",
                &["api", "cli", "hub", "pki", "switchyard-cluster-tests"],
                ClusterTests::All,
            ),
        ] {
            let changed = [PathBuf::from(changed)].into();
            let selection = select(&changed, &sample(Path::new("/w")), &sources());
            assert_eq!(selection.packages, packages, "{case}");
            assert_eq!(selection.cluster, cluster, "{case}");
        }
    }
}
