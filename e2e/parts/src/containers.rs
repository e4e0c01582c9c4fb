//! The programs that run containers: Debian's containerd, runc, CNI plugins and BusyBox.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};
use parking_lot::Mutex;
use serde_json::json;

use crate::{debian, paths};

/// The packages to fetch.
const PACKAGES: [&str; 4] = ["busybox-static", "containerd", "containernetworking-plugins", "runc"];

/// Folders of the machine that a node covers with empty ones of its own.
pub const COVERED: [&str; 3] = ["/run", "/var/lib", "/var/log"];

/// Starts a command in namespaces of its own, whose processes all end with it.
pub const UNSHARE: [&str; 7] = [
    "unshare",
    "--pid",
    "--mount",
    "--fork",
    "--kill-child",
    "--mount-proc",
    "--propagation=private",
];

/// Seconds that the trial of a container may take. It takes a tenth of one.
const TRIAL: &str = "60";

/// The unpacked programs.
#[derive(Clone, Debug)]
pub struct Containers {
    root: PathBuf,
}

impl Containers {
    /// The programs in the user's cache, fetched first if they are not there. Blocks; another process that fetches them is
    /// waited for.
    ///
    /// # Errors
    /// When they cannot be fetched.
    pub fn find() -> anyhow::Result<Self> {
        let root = paths::cache()?.join("containers/root");
        debian::unpack(&PACKAGES, &root)?;
        Ok(Self { root })
    }

    /// Checks that a node can run on this machine. Runs a container with runc, because rights, the kernel and an outer container
    /// decide.
    ///
    /// # Errors
    /// The reason.
    pub fn check(&self) -> anyhow::Result<()> {
        static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
        // Trials of one process have one name.
        let _turn = ONE_AT_A_TIME.lock();
        for dir in [paths::root(), paths::target(), paths::cache()?] {
            let covered = COVERED.iter().find(|covered| dir.starts_with(covered));
            ensure!(
                covered.is_none(),
                "{} lies below {}, which a node covers",
                dir.display(),
                COVERED.join(" or ")
            );
        }
        ensure!(
            paths::has("unshare") && paths::has("mount"),
            "there is no unshare or no mount (package util-linux)"
        );
        let dir = paths::cache()?.join(format!("containers/trial-{}", std::process::id()));
        let result = self.trial(&dir);
        let _ = fs::remove_dir_all(&dir);
        result
    }

    /// Runs `true` in a container.
    fn trial(&self, dir: &Path) -> anyhow::Result<()> {
        fs::create_dir_all(dir.join("rootfs/bin"))?;
        fs::copy(self.busybox()?, dir.join("rootfs/bin/busybox"))?;
        fs::write(dir.join("config.json"), trial_bundle().to_string())?;
        let mut command = Command::new("timeout");
        command
            .args(["--kill-after=5", TRIAL, "unshare", "--net"])
            .args(&UNSHARE[1..])
            .arg(self.runc()?);
        command.arg("--root").arg(dir.join("state")).args(["run", "--bundle"]).arg(dir);
        let output = command.arg(format!("switchyard-trial-{}", std::process::id())).output()?;
        let printed = String::from_utf8_lossy(&output.stderr);
        let last =
            printed.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("no output").trim();
        ensure!(output.status.success(), "a container cannot run here ({}): {last}", output.status);
        Ok(())
    }

    /// The container runtime.
    ///
    /// # Errors
    /// When the package does not hold it, as with all that follow.
    pub fn containerd(&self) -> anyhow::Result<PathBuf> {
        self.one_of(&["usr/bin/containerd"])
    }

    /// The command line of containerd.
    ///
    /// # Errors
    /// When the package does not hold it.
    pub fn ctr(&self) -> anyhow::Result<PathBuf> {
        self.one_of(&["usr/bin/ctr"])
    }

    /// The program that starts containers.
    ///
    /// # Errors
    /// When the package does not hold it.
    pub fn runc(&self) -> anyhow::Result<PathBuf> {
        self.one_of(&["usr/bin/runc", "usr/sbin/runc"])
    }

    /// One static program that is a shell, `sleep`, `wget`, `ip` and more.
    ///
    /// # Errors
    /// When the package does not hold it.
    pub fn busybox(&self) -> anyhow::Result<PathBuf> {
        self.one_of(&["bin/busybox", "usr/bin/busybox"])
    }

    /// The folder of the CNI plugins.
    ///
    /// # Errors
    /// When the package does not hold it.
    pub fn cni(&self) -> anyhow::Result<PathBuf> {
        self.one_of(&["usr/lib/cni"])
    }

    fn one_of(&self, places: &[&str]) -> anyhow::Result<PathBuf> {
        let found = places.iter().map(|place| self.root.join(place)).find(|path| path.exists());
        found.with_context(|| {
            format!("no {} in {}; delete that folder", places.join(" or "), self.root.display())
        })
    }
}

fn trial_bundle() -> serde_json::Value {
    let namespaces = ["pid", "mount", "network", "ipc", "uts"].map(|kind| json!({"type": kind}));
    json!({
        "ociVersion": "1.0.2",
        "process": {"user": {"uid": 0, "gid": 0}, "args": ["/bin/busybox", "true"], "cwd": "/"},
        "root": {"path": "rootfs"},
        "mounts": [{"destination": "/proc", "type": "proc", "source": "proc"}],
        "linux": {"namespaces": namespaces},
    })
}
