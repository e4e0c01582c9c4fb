//! The release that the journeys install.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use switchyard_chart::{ReleasedImages, manifests, package};
use switchyard_e2e::nodes::{NodeImage, write_program};
use switchyard_e2e::{Part, Parts, paths};

use super::TAG;
use crate::common::helm::chart;

/// Names the folder of a release, as `cargo xtask release` makes it.
const VARIABLE: &str = "SWITCHYARD_RELEASE";

/// The folder of a release, with the command line under its own name in `bin`.
pub(super) struct Release {
    folder: PathBuf,
    bin: tempfile::TempDir,
    /// Holds a release that was made here.
    _made: Option<tempfile::TempDir>,
}

impl Release {
    /// The release that the environment names. Otherwise one with the programs as built for tests,
    /// and without what no cluster needs. Tests that run at the same time share it.
    pub(super) fn find() -> Arc<Self> {
        static LAST: Mutex<Weak<Release>> = Mutex::new(Weak::new());
        let mut last = LAST.lock();
        last.upgrade().unwrap_or_else(|| {
            let release = Arc::new(Self::make());
            *last = Arc::downgrade(&release);
            release
        })
    }

    fn make() -> Self {
        let bin = tempfile::tempdir().unwrap();
        let (folder, made) = match std::env::var_os(VARIABLE) {
            Some(folder) => (fs::canonicalize(folder).unwrap(), None),
            None => {
                let dir = tempfile::tempdir().unwrap();
                write_files(dir.path());
                (dir.path().to_owned(), Some(dir))
            }
        };
        let architecture = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
        let program = folder.join(format!("switchyard-linux-{architecture}"));
        symlink(program, bin.path().join("switchyard")).unwrap();
        Self { folder, bin, _made: made }
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Where the command line is.
    pub(super) fn programs(&self) -> &Path {
        self.bin.path()
    }

    pub(super) fn image(&self, program: &str) -> NodeImage {
        NodeImage::Archive(self.folder.join(format!("{program}-image.tar")))
    }
}

/// Writes the files that the pages name.
fn write_files(dir: &Path) {
    let digest = |program| write_program(program, TAG, dir).unwrap().digest;
    let images = ReleasedImages {
        registry: String::new(),
        hub: digest("switchyard-hub"),
        agent: digest("switchyard-agent"),
    };
    let packed = package(Path::new(&chart()), &images, jiff::Timestamp::UNIX_EPOCH).unwrap();
    let file = dir.join(format!("switchyard-{TAG}.tgz"));
    fs::write(&file, packed).unwrap();
    let helm = Parts::new().unwrap().binary(Part::Helm).unwrap();
    for manifest in manifests(&helm, &file).unwrap() {
        fs::write(dir.join(manifest.name), manifest.yaml).unwrap();
    }
    for architecture in ["amd64", "arm64"] {
        let name = format!("switchyard-linux-{architecture}");
        symlink(paths::binary("switchyard").unwrap(), dir.join(name)).unwrap();
    }
}
