//! The archive: tar, compressed with gzip.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;

/// An archive that is being written.
pub(super) struct Archive(tar::Builder<GzEncoder<File>>);

impl Archive {
    /// An empty one. An older file of the name is replaced.
    pub(super) fn create(path: &Path) -> io::Result<Self> {
        // Logs may hold anything: the caller alone may read them.
        let file =
            OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
        Ok(Self(tar::Builder::new(GzEncoder::new(file, Compression::default()))))
    }

    /// Adds a file that its owner alone may read.
    pub(super) fn add(&mut self, path: &str, text: &str) -> io::Result<()> {
        let mut header = tar::Header::new_gnu();
        header.set_size(text.len() as u64);
        header.set_mode(0o600);
        header.set_cksum();
        self.0.append_data(&mut header, Path::new("switchyard-bundle").join(path), text.as_bytes())
    }

    /// Writes what is left.
    pub(super) fn finish(self) -> io::Result<()> {
        self.0.into_inner()?.finish().map(drop)
    }
}
