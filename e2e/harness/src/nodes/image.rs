//! The images of a node: archives that are made here, because there is no registry.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};
use switchyard_images::packed::{Compression, Entry};
use switchyard_images::{Image, NON_ROOT, Platform};
use switchyard_parts::containers::Containers;
use switchyard_parts::{Part, Parts};

use crate::paths;

/// The container that keeps a pod's namespaces.
pub(super) const PAUSE: &str = "docker.io/library/switchyard-pause:1";
/// An image with `/bin/sh` and its tools, for jobs. `examples` names it, too.
pub const BUSYBOX: &str = "docker.io/library/busybox:1.37";

/// The image of stock Kueue by its published name.
pub const KUEUE: &str = "registry.k8s.io/kueue/kueue:v0.19.2";

/// The programs of [`BUSYBOX`]. Its shell has all the others built in.
const APPLETS: [&str; 3] = ["bin/sh", "bin/busybox", "bin/sleep"];

/// An image that a node has from its start, besides that of pod sandboxes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeImage {
    /// [`BUSYBOX`].
    Busybox,
    /// [`KUEUE`], for pods of Kueue's own chart.
    Kueue,
    /// `REPOSITORY:TAG` with one of the workspace's programs as built for tests. The program is linked dynamically, so the image
    /// contains its libraries.
    Program {
        /// The name of image and program, such as `switchyard-hub`.
        name: String,
        /// The tag.
        tag: String,
    },
    /// An archive that is there already, such as one of a release.
    Archive(PathBuf),
}

impl NodeImage {
    /// A program of the workspace.
    pub fn program(name: &str, tag: &str) -> Self {
        Self::Program { name: name.to_owned(), tag: tag.to_owned() }
    }

    /// The archive. If it is not there, writes it into a folder.
    pub(super) fn archive(&self, containers: &Containers, dir: &Path) -> anyhow::Result<PathBuf> {
        match self {
            Self::Busybox => {
                let content = fs::read(containers.busybox()?)?;
                let files = APPLETS.map(|path| Entry::program(path, content.clone()));
                Ok(write(BUSYBOX, files.into(), &[], dir)?.path)
            }
            Self::Kueue => {
                let manager = fs::read(Parts::new()?.binary(Part::Kueue)?)?;
                let files = vec![Entry::program("manager", manager)];
                Ok(write(KUEUE, files, &["/manager"], dir)?.path)
            }
            Self::Program { name, tag } => Ok(write_program(name, tag, dir)?.path),
            Self::Archive(path) => Ok(path.clone()),
        }
    }
}

/// The archive of an image.
#[derive(Clone, Debug)]
pub struct ImageArchive {
    /// The file, `NAME-image.tar` as in a release.
    pub path: PathBuf,
    /// The image's digest, as `sha256:...`.
    pub digest: String,
}

/// Writes the archive of [`NodeImage::Program`] into a folder.
///
/// # Errors
/// When the program or one of its libraries cannot be read, or the archive not be written.
pub fn write_program(name: &str, tag: &str, dir: &Path) -> anyhow::Result<ImageArchive> {
    let program = paths::binary(name)?;
    let mut files = vec![Entry::program(name, stripped(&program, dir)?)];
    files.extend(libraries(&program)?);
    write(&format!("{name}:{tag}"), files, &[format!("/{name}").as_str()], dir)
}

/// The image of sandboxes.
pub(super) fn write_pause(containers: &Containers, dir: &Path) -> anyhow::Result<PathBuf> {
    let busybox = Entry::program("bin/busybox", fs::read(containers.busybox()?)?);
    Ok(write(PAUSE, vec![busybox], &["/bin/busybox", "sleep", "2147483647"], dir)?.path)
}

fn write(
    name: &str,
    files: Vec<Entry>,
    entrypoint: &[&str],
    dir: &Path,
) -> anyhow::Result<ImageArchive> {
    let (repository, tag) = name.rsplit_once(':').context("an image has a tag")?;
    let image = Image {
        repository: repository.to_owned(),
        tag: tag.to_owned(),
        created: jiff::Timestamp::UNIX_EPOCH,
        labels: std::collections::BTreeMap::new(),
        platforms: vec![Platform {
            architecture: architecture().to_owned(),
            files,
            entrypoint: entrypoint.iter().map(|&word| word.to_owned()).collect(),
            user: NON_ROOT.to_owned(),
        }],
        compression: Compression::None,
    };
    let file = repository.rsplit('/').next().unwrap_or(repository);
    let path = dir.join(format!("{file}-image.tar"));
    let archive = image.archive()?;
    fs::write(&path, archive.bytes).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(ImageArchive { path, digest: archive.digest })
}

/// This machine's architecture by its Go name.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// The program without debug information, which is two thirds of it. Unchanged if the machine has no `strip`.
fn stripped(program: &Path, dir: &Path) -> anyhow::Result<Vec<u8>> {
    let small = dir.join("stripped");
    let strip =
        Command::new("strip").arg("--strip-debug").arg("-o").arg(&small).arg(program).output();
    let path = if strip.is_ok_and(|it| it.status.success()) { &small } else { program };
    let content = fs::read(path).with_context(|| format!("cannot read {}", path.display()));
    let _ = fs::remove_file(&small);
    content
}

/// The libraries of a program, at the paths where its loader finds them on this machine.
fn libraries(program: &Path) -> anyhow::Result<Vec<Entry>> {
    let output = Command::new("ldd").arg(program).output().context("cannot start ldd")?;
    ensure!(
        output.status.success(),
        "ldd {}: {}",
        program.display(),
        String::from_utf8_lossy(&output.stderr)
    );
    let listed = String::from_utf8_lossy(&output.stdout).into_owned();
    let read = |path: &String| -> anyhow::Result<Entry> {
        let content = fs::read(path).with_context(|| format!("cannot read {path}"))?;
        Ok(Entry::program(path.trim_start_matches('/'), content))
    };
    listed_paths(&listed).iter().map(read).collect()
}

/// Parses lines such as `libc.so.6 => /lib/libc.so.6 (0x7f)` and `/lib64/ld-linux-x86-64.so.2 (0x7f)`.
fn listed_paths(listed: &str) -> BTreeSet<String> {
    let paths = listed
        .lines()
        .filter_map(|line| line.split_whitespace().find(|word| word.starts_with('/')));
    paths.map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::listed_paths;

    #[test]
    fn ldd_lists_libraries_by_their_paths() {
        let listed = "\tlinux-vdso.so.1 (0x00007f)\n\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f)\n\t\
                      /lib64/ld-linux-x86-64.so.2 (0x00007f)\n";
        let paths: Vec<String> = listed_paths(listed).into_iter().collect();
        assert_eq!(paths, ["/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2"]);
    }
}
