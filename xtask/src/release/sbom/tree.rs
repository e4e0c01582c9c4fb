//! The crates of a program, as `cargo tree` prints them.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, ensure};

/// The format of a crate in `cargo tree`, after its depth.
pub(super) const FORMAT: &str = " {p}|{l}";

/// A crate, by name and version.
type Id = (String, String);

/// A crate of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Crate {
    pub(super) name: String,
    pub(super) version: String,
    /// An SPDX expression.
    pub(super) license: String,
    /// The SHA-256 of its archive in the registry. `None` for a crate of the workspace.
    pub(super) checksum: Option<String>,
}

/// A program's crates with their dependencies.
pub(super) struct Tree {
    root: Id,
    crates: BTreeMap<Id, Crate>,
    edges: BTreeMap<Id, BTreeSet<Id>>,
}

impl Tree {
    /// Parses the output of `cargo tree --prefix depth` for several programs, and keeps the crates of one.
    pub(super) fn parse(
        printed: &str,
        root: &str,
        checksums: &BTreeMap<Id, String>,
    ) -> anyhow::Result<Self> {
        let (mut path, mut root_id): (Vec<Id>, Option<Id>) = (Vec::new(), None);
        let (mut crates, mut edges) = (BTreeMap::new(), BTreeMap::<Id, BTreeSet<Id>>::new());
        for line in printed.lines().filter(|line| !line.is_empty()) {
            let (depth, mut it) =
                parse_line(line).with_context(|| format!("cargo tree printed {line:?}"))?;
            let id = (it.name.clone(), it.version.clone());
            it.checksum = checksums.get(&id).cloned();
            path.truncate(depth);
            if let Some(parent) = path.last() {
                edges.entry(parent.clone()).or_default().insert(id.clone());
            } else if it.name == root {
                root_id = Some(id.clone());
            }
            path.push(id.clone());
            crates.insert(id, it);
        }
        let root = root_id.with_context(|| format!("cargo tree printed no {root}"))?;
        let mut reached = BTreeSet::new();
        let mut next = vec![root.clone()];
        while let Some(id) = next.pop() {
            if reached.insert(id.clone()) {
                next.extend(edges.get(&id).into_iter().flatten().cloned());
            }
        }
        ensure!(reached.len() > 1, "{} depends on nothing", root.0);
        crates.retain(|id, _| *id != root && reached.contains(id));
        Ok(Self { root, crates, edges })
    }

    /// All crates but the program's own, by name.
    pub(super) fn crates(&self) -> impl Iterator<Item = &Crate> {
        self.crates.values()
    }

    /// The dependencies of a crate.
    pub(super) fn of<T>(&self, it: &Crate, show: impl Fn(&Crate) -> T) -> Vec<T> {
        self.after(&(it.name.clone(), it.version.clone()), show)
    }

    /// The dependencies of the program itself.
    pub(super) fn of_root<T>(&self, show: impl Fn(&Crate) -> T) -> Vec<T> {
        self.after(&self.root, show)
    }

    fn after<T>(&self, id: &Id, show: impl Fn(&Crate) -> T) -> Vec<T> {
        self.edges
            .get(id)
            .into_iter()
            .flatten()
            .filter_map(|id| self.crates.get(id))
            .map(show)
            .collect()
    }
}

/// `2 serde v1.0.229|MIT OR Apache-2.0 (*)`: the depth, and the crate.
fn parse_line(line: &str) -> Option<(usize, Crate)> {
    let (depth, rest) = line.split_once(' ')?;
    let (package, license) = rest.split_once('|')?;
    let mut words = package.split(' ');
    let (name, version) = (words.next()?, words.next()?.strip_prefix('v')?);
    // Old crates have a slash between alternatives, which is no SPDX expression.
    let license = license.trim_end_matches(" (*)").replace('/', " OR ");
    let license = license.split_whitespace().collect::<Vec<_>>().join(" ");
    let it = Crate { name: name.to_owned(), version: version.to_owned(), license, checksum: None };
    Some((depth.parse().ok()?, it))
}

/// The digests of the registry's archives, from Cargo.lock.
pub(super) fn checksums(lock: &str) -> BTreeMap<Id, String> {
    let value = |block: &str, key: &str| {
        let line = block.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(" = \""))?;
        Some(line.trim_end_matches('"').to_owned())
    };
    let blocks = lock.split("[[package]]").skip(1);
    let entry = |block| {
        Some(((value(block, "name")?, value(block, "version")?), value(block, "checksum")?))
    };
    blocks.filter_map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::{Tree, checksums};

    const PRINTED: &str = "0 hub v0.1.0 (/src/hub)|Apache-2.0
1 serde v1.0.2|MIT/Apache-2.0
2 core v0.3.0|MIT
1 core v0.3.0|MIT (*)

0 tool v0.1.0 (/src/tool)|Apache-2.0
1 serde v1.0.2|MIT/Apache-2.0 (*)
1 clap v4.0.0|MIT
";

    #[test]
    fn a_program_has_what_it_reaches_and_nothing_else() {
        let lock = "version = 4\n\n[[package]]\nname = \"serde\"\nversion = \"1.0.2\"\nchecksum = \"abc\"\n";
        let checksums = checksums(lock);
        let names = |root: &str| {
            let tree = Tree::parse(PRINTED, root, &checksums).unwrap();
            let crates: Vec<String> = tree.crates().map(|it| it.name.clone()).collect();
            (crates, tree.of_root(|it| it.name.clone()))
        };
        assert_eq!(
            names("hub"),
            (vec!["core".into(), "serde".into()], vec!["core".into(), "serde".into()])
        );
        let tool = (
            vec!["clap".into(), "core".into(), "serde".into()],
            vec!["clap".into(), "serde".into()],
        );
        assert_eq!(
            names("tool"),
            tool,
            "what was printed with the first program counts for the second"
        );
        let tree = Tree::parse(PRINTED, "hub", &checksums).unwrap();
        let serde = tree.crates().find(|it| it.name == "serde").unwrap();
        assert_eq!(
            (serde.license.as_str(), serde.checksum.as_deref()),
            ("MIT OR Apache-2.0", Some("abc"))
        );
        assert!(Tree::parse(PRINTED, "other", &checksums).is_err());
    }
}
