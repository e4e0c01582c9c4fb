//! The directory of a release.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

/// The list of digests, as `sha256sum --check` reads it.
pub(crate) const SUMS: &str = "SHA256SUMS";

/// Files, with their sizes and digests.
pub(crate) struct Files {
    dir: PathBuf,
    written: BTreeMap<String, (usize, String)>,
}

impl Files {
    /// Makes an empty directory, or empties one with an earlier release. Any other directory is an error.
    pub(crate) fn empty(dir: &Path) -> anyhow::Result<Self> {
        if dir.exists() {
            let is_empty =
                fs::read_dir(dir).with_context(|| dir.display().to_string())?.next().is_none();
            if !is_empty && !dir.join(SUMS).exists() {
                bail!("{} is there, and holds no release: name an empty directory", dir.display());
            }
            fs::remove_dir_all(dir).with_context(|| format!("cannot empty {}", dir.display()))?;
        }
        fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
        Ok(Self { dir: dir.to_owned(), written: BTreeMap::new() })
    }

    /// Writes a file and returns its path.
    pub(crate) fn add(&mut self, name: &str, bytes: &[u8]) -> anyhow::Result<PathBuf> {
        let path = self.dir.join(name);
        fs::write(&path, bytes).with_context(|| format!("cannot write {}", path.display()))?;
        self.written.insert(name.to_owned(), (bytes.len(), switchyard_images::hex(bytes)));
        Ok(path)
    }

    /// As [`Files::add`], of a program.
    pub(crate) fn add_program(&mut self, name: &str, bytes: &[u8]) -> anyhow::Result<PathBuf> {
        let path = self.add(name, bytes)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
        Ok(path)
    }

    /// Writes the digests of all files.
    pub(crate) fn finish(&self) -> anyhow::Result<()> {
        let sums: String =
            self.written.iter().map(|(name, (_, digest))| format!("{digest}  {name}\n")).collect();
        let path = self.dir.join(SUMS);
        fs::write(&path, sums).with_context(|| format!("cannot write {}", path.display()))
    }

    /// Lists the files with their sizes.
    pub(crate) fn print(&self) {
        println!("{}:", self.dir.display());
        for (name, (size, _)) in &self.written {
            println!("  {:>8} kB  {name}", size.div_ceil(1000));
        }
    }
}
