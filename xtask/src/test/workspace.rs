//! The packages of the workspace, and their dependencies on each other.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde_json::Value;

use crate::run;

/// The packages of the workspace.
#[derive(Debug)]
pub(super) struct Workspace {
    root: PathBuf,
    packages: BTreeMap<String, Package>,
}

#[derive(Debug)]
struct Package {
    directory: PathBuf,
    /// The workspace's packages that it depends on directly, also for tests or for its build script.
    uses: BTreeSet<String>,
}

impl Workspace {
    /// Reads the packages from `cargo metadata`.
    pub(super) fn read() -> anyhow::Result<Self> {
        let metadata = run::output(run::cargo(&[
            "metadata",
            "--no-deps",
            "--offline",
            "--format-version",
            "1",
        ]))?;
        Self::parse(&serde_json::from_str(&metadata).context("cargo metadata is no JSON")?)
    }

    fn parse(metadata: &Value) -> anyhow::Result<Self> {
        let all = metadata["packages"].as_array().context("cargo metadata has no packages")?;
        let name = |value: &Value| {
            value["name"].as_str().map(str::to_owned).context("a package without a name")
        };
        let names: BTreeSet<String> = all.iter().map(name).collect::<anyhow::Result<_>>()?;
        let mut packages = BTreeMap::new();
        for package in all {
            let manifest =
                package["manifest_path"].as_str().context("a package without a manifest")?;
            let directory = Path::new(manifest).parent().unwrap_or(Path::new("")).to_owned();
            let dependencies =
                package["dependencies"].as_array().map(Vec::as_slice).unwrap_or_default();
            let uses = dependencies.iter().filter_map(|it| it["name"].as_str()).map(str::to_owned);
            let uses = uses.filter(|used| names.contains(used)).collect();
            packages.insert(name(package)?, Package { directory, uses });
        }
        let root =
            metadata["workspace_root"].as_str().context("cargo metadata has no root")?.into();
        Ok(Self { root, packages })
    }

    /// The directory of a package.
    pub(super) fn directory(&self, package: &str) -> Option<PathBuf> {
        self.packages.get(package).map(|package| package.directory.clone())
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.packages.keys().map(String::as_str)
    }

    /// The package of a file, whose path is relative to the root. The innermost counts: `hub/pki` lies in `hub`.
    pub(super) fn owner(&self, file: &Path) -> Option<&str> {
        let file = self.root.join(file);
        let owners =
            self.packages.iter().filter(|(_, package)| file.starts_with(&package.directory));
        owners
            .max_by_key(|(_, package)| package.directory.components().count())
            .map(|(name, _)| name.as_str())
    }

    /// These packages, and all that depend on them, directly or not.
    pub(super) fn dependents(&self, of: BTreeSet<String>) -> BTreeSet<String> {
        let mut found = of;
        loop {
            let more: Vec<String> = self
                .packages
                .iter()
                .filter(|(name, package)| {
                    !found.contains(*name) && !package.uses.is_disjoint(&found)
                })
                .map(|(name, _)| name.clone())
                .collect();
            if more.is_empty() {
                return found;
            }
            found.extend(more);
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use serde_json::{Value, json};

    use super::Workspace;

    /// `cli` uses `hub`, which uses `api` and `pki`, which lies in it; cluster tests use `cli`.
    pub(in super::super) fn sample(root: &Path) -> Workspace {
        let package = |name: &str, directory: &str, uses: &[&str]| {
            let uses: Vec<Value> = uses.iter().map(|name| json!({"name": name})).collect();
            let manifest = root.join(directory).join("Cargo.toml");
            json!({"name": name, "manifest_path": manifest.to_str().unwrap(), "dependencies": uses})
        };
        let packages = [
            package("api", "api", &["serde"]),
            package("hub", "hub", &["api", "pki", "tokio"]),
            package("cli", "cli", &["hub"]),
            package("pki", "hub/pki", &[]),
            package("switchyard-cluster-tests", "e2e/tests", &["cli"]),
        ];
        Workspace::parse(&json!({"workspace_root": root.to_str().unwrap(), "packages": packages}))
            .unwrap()
    }

    #[test]
    fn innermost_package_owns_a_file() {
        let workspace = sample(Path::new("/w"));
        for (file, owner) in [
            ("hub/src/lib.rs", Some("hub")),
            ("hub/pki/src/lib.rs", Some("pki")),
            ("e2e/tests/cluster/main.rs", Some("switchyard-cluster-tests")),
            ("README.md", None),
            ("hubs/x", None),
        ] {
            assert_eq!(workspace.owner(Path::new(file)), owner, "{file}");
        }
    }

    #[test]
    fn dependents_are_found_through_others() {
        let dependents =
            |of: &str| sample(Path::new("/w")).dependents(BTreeSet::from([of.to_owned()]));
        assert_eq!(
            dependents("api"),
            ["api", "cli", "hub", "switchyard-cluster-tests"].map(str::to_owned).into()
        );
        assert_eq!(
            dependents("pki"),
            ["cli", "hub", "pki", "switchyard-cluster-tests"].map(str::to_owned).into()
        );
    }
}
