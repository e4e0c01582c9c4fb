//! The files that the checks read: Rust sources with their tokens, and pages.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::Context;
use proc_macro2::TokenStream;

use crate::run;

/// A Rust source.
pub(super) struct Source {
    /// From the repository's root.
    pub(super) path: PathBuf,
    pub(super) text: String,
    pub(super) tokens: TokenStream,
}

/// All Rust sources and pages of the repository.
pub(super) struct Sources {
    pub(super) rust: Vec<Source>,
    /// Markdown files with their texts.
    pub(super) pages: Vec<(PathBuf, String)>,
    /// Directories with a `Cargo.toml`, from the root.
    crates: BTreeSet<PathBuf>,
}

impl Sources {
    pub(super) fn read() -> anyhow::Result<Self> {
        let root = run::root();
        let read = |path: &Path| {
            fs::read_to_string(root.join(path))
                .with_context(|| format!("cannot read {}", path.display()))
        };
        let mut rust = Vec::new();
        for path in run::files(&["rs"]) {
            let text = read(&path)?;
            let tokens = TokenStream::from_str(&text)
                .map_err(|error| anyhow::anyhow!("{}: {error}", path.display()))?;
            rust.push(Source { path, text, tokens });
        }
        let pages = run::files(&["md"])
            .into_iter()
            .map(|path| read(&path).map(|text| (path, text)))
            .collect::<anyhow::Result<_>>()?;
        let crates = run::files(&["toml"])
            .iter()
            .filter(|path| path.ends_with("Cargo.toml"))
            .filter_map(|path| path.parent().map(Path::to_owned))
            .collect();
        Ok(Self { rust, pages, crates })
    }

    /// The crate to which a source belongs, and its path from the crate's `src`.
    pub(super) fn place<'a>(&'a self, source: &'a Source) -> Option<(&'a Path, &'a Path)> {
        let home = source.path.ancestors().find(|path| self.crates.contains(*path))?;
        let below = source.path.strip_prefix(home).ok()?.strip_prefix("src").ok()?;
        Some((home, below))
    }
}

/// Whether a source contains only tests.
pub(super) fn is_test(path: &Path) -> bool {
    path.components()
        .any(|part| ["tests", "tests.rs", "benches"].iter().any(|name| part.as_os_str() == *name))
}
