//! The archive: tar, compressed with gzip.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;

/// An archive that is being written, under a name of its own until it is whole.
pub(super) struct Archive {
    tar: tar::Builder<GzEncoder<File>>,
    partial: Partial,
    path: PathBuf,
}

/// A file that is removed unless it is renamed.
struct Partial(PathBuf);

impl Drop for Partial {
    fn drop(&mut self) {
        // After a rename, nothing is there.
        let _ = fs::remove_file(&self.0);
    }
}

impl Archive {
    /// An empty one.
    pub(super) fn create(path: &Path) -> io::Result<Self> {
        // A rename would replace a device, such as /dev/stdout.
        if fs::metadata(path).is_ok_and(|found| !found.is_file()) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file"));
        }
        let Some(name) = path.file_name() else {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it names no file"));
        };
        let mut partial = std::ffi::OsString::from(".");
        partial.push(name);
        partial.push(format!(".{}", std::process::id()));
        let partial = path.with_file_name(partial);
        // Logs may hold anything: the caller alone may read them. The mode counts only for a file of
        // this call, which follows no link of another user.
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&partial)?;
        let tar = tar::Builder::new(GzEncoder::new(file, Compression::default()));
        Ok(Self { tar, partial: Partial(partial), path: path.to_owned() })
    }

    /// Adds a file that its owner alone may read.
    pub(super) fn add(&mut self, path: &str, text: &str) -> io::Result<()> {
        let mut header = tar::Header::new_gnu();
        header.set_size(text.len() as u64);
        header.set_mode(0o600);
        header.set_cksum();
        let path = Path::new("switchyard-bundle").join(path);
        self.tar.append_data(&mut header, path, text.as_bytes())
    }

    /// Writes what is left, and replaces an older file of the name.
    pub(super) fn finish(self) -> io::Result<()> {
        let Self { tar, partial, path } = self;
        tar.into_inner()?.finish()?;
        fs::rename(&partial.0, path)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn older_file_and_its_mode_are_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("bundle.tar.gz");
        fs::write(&path, "older").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        let mut archive = Archive::create(&path).unwrap();
        archive.add("a.txt", "text").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "older", "until the new one is whole");
        archive.finish().unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "no other file is left");
    }

    #[test]
    fn link_at_the_name_is_replaced_and_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let (path, other) = (dir.path().join("bundle.tar.gz"), dir.path().join("other"));
        fs::write(&other, "other").unwrap();
        std::os::unix::fs::symlink(&other, &path).unwrap();
        Archive::create(&path).unwrap().finish().unwrap();
        assert_eq!(fs::read_to_string(&other).unwrap(), "other");
        assert!(!fs::symlink_metadata(&path).unwrap().is_symlink());
    }

    #[test]
    fn broken_off_archive_leaves_no_file() {
        let dir = tempfile::tempdir().unwrap();
        drop(Archive::create(&dir.path().join("bundle.tar.gz")).unwrap());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        assert!(Archive::create(dir.path()).is_err(), "a directory");
    }
}
