//! Archives whose bytes depend on their content alone.

use std::io::{Read as _, Write as _};

use anyhow::Context as _;
use flate2::bufread::GzDecoder;
use flate2::{Compression as Level, GzBuilder};
use jiff::Timestamp;
use tar::{Builder, EntryType, Header};

/// The compression of an archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// Uncompressed.
    None,
    /// With gzip.
    Gzip,
}

impl Compression {
    /// The ending of a media type or a file name.
    pub(crate) fn suffix(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Gzip => "+gzip",
        }
    }

    pub(crate) fn apply(self, bytes: &[u8]) -> anyhow::Result<Vec<u8>> {
        match self {
            Self::None => Ok(bytes.to_vec()),
            Self::Gzip => gzip(bytes),
        }
    }
}

/// A file of an archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its path, without a leading slash.
    pub path: String,
    pub mode: u32,
    pub content: Vec<u8>,
}

impl Entry {
    /// A file that all may read.
    #[must_use]
    pub fn file(path: &str, content: Vec<u8>) -> Self {
        Self { path: path.to_owned(), mode: 0o644, content }
    }

    /// A file that all may execute.
    #[must_use]
    pub fn program(path: &str, content: Vec<u8>) -> Self {
        Self { mode: 0o755, ..Self::file(path, content) }
    }
}

/// A tar archive of these files and their directories, in this order. All have one time.
///
/// # Errors
/// When a path is too long.
pub fn tar(entries: &[Entry], time: Timestamp) -> anyhow::Result<Vec<u8>> {
    let size = entries.iter().map(|entry| entry.content.len() + 2048).sum();
    let mut builder = Builder::new(Vec::with_capacity(size));
    let mtime = u64::try_from(time.as_second()).unwrap_or_default();
    let mut directories: Vec<String> = Vec::new();
    for entry in entries {
        for (at, _) in entry.path.match_indices('/') {
            let directory = format!("{}/", &entry.path[..at]);
            if !directories.contains(&directory) {
                let mut header = header(EntryType::Directory, 0o755, mtime);
                builder
                    .append_data(&mut header, &directory, &[][..])
                    .with_context(|| directory.clone())?;
                directories.push(directory);
            }
        }
        let mut header = header(EntryType::Regular, entry.mode, mtime);
        header.set_size(entry.content.len() as u64);
        builder
            .append_data(&mut header, &entry.path, &entry.content[..])
            .with_context(|| entry.path.clone())?;
    }
    builder.into_inner().context("cannot end the archive")
}

fn header(kind: EntryType, mode: u32, mtime: u64) -> Header {
    let mut header = Header::new_ustar();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_mtime(mtime);
    header.set_uid(0);
    header.set_gid(0);
    header.set_size(0);
    header
}

/// Compresses bytes with gzip. The header has neither a name nor a time.
///
/// # Errors
/// Never, because writes into memory do not fail.
pub fn gzip(bytes: &[u8]) -> anyhow::Result<Vec<u8>> {
    let mut encoder =
        GzBuilder::new().mtime(0).operating_system(255).write(Vec::new(), Level::best());
    encoder.write_all(bytes)?;
    Ok(encoder.finish()?)
}

/// The files of a tar archive, by their paths; directories are left out.
///
/// # Errors
/// When it is no tar archive, with or without gzip.
pub fn untar(bytes: &[u8]) -> anyhow::Result<Vec<Entry>> {
    let mut plain = Vec::new();
    let bytes = if bytes.starts_with(&[0x1f, 0x8b]) {
        GzDecoder::new(bytes).read_to_end(&mut plain).context("gzip")?;
        &plain
    } else {
        bytes
    };
    let mut entries = Vec::new();
    for entry in tar::Archive::new(bytes).entries()? {
        let mut entry = entry?;
        if entry.header().entry_type() != EntryType::Regular {
            continue;
        }
        let (path, mode) = (entry.path()?.display().to_string(), entry.header().mode()?);
        let mut content = Vec::new();
        entry.read_to_end(&mut content)?;
        entries.push(Entry { path, mode, content });
    }
    Ok(entries)
}
