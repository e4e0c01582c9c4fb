//! The directory of an environment: logs, certificates, the store's data.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::Context;
use rustix::process::{Pid, test_kill_process};
use switchyard_parts::paths;

/// The directory `target/e2e-logs/NAME-PID`. Dropping it deletes the directory, or only the state if the logs are kept.
#[derive(Debug)]
pub(crate) struct WorkDir {
    path: PathBuf,
}

impl WorkDir {
    /// Makes the directory for an environment of this process, and removes the directories of dead processes.
    pub(crate) fn create(name: &str) -> anyhow::Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let logs = paths::logs();
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let number = if number == 0 { String::new() } else { format!(".{number}") };
        let path = logs.join(format!("{name}{number}-{}", std::process::id()));
        // An earlier process with the same process id may have left it.
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(path.join("state"))
            .with_context(|| format!("cannot create {}", path.display()))?;
        sweep(&logs);
        let keep = std::env::var_os("SWITCHYARD_KEEP").is_some_and(|value| !value.is_empty());
        let dir = Self { path };
        if keep {
            dir.keep();
        }
        Ok(dir)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The directory of data that has no use after the environment's end.
    pub(crate) fn state(&self) -> PathBuf {
        self.path.join("state")
    }

    /// Keeps the logs, even if this process is killed or never drops this.
    pub(crate) fn keep(&self) {
        paths::keep(&self.path);
    }
}

impl Drop for WorkDir {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.keep();
        }
        if paths::is_kept(&self.path) {
            let _ = fs::remove_dir_all(self.state());
            eprintln!("logs kept in {}", self.path.display());
        } else {
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

/// Removes the directories of ended processes: whole, or only their state if the logs are kept.
fn sweep(logs: &Path) {
    for entry in fs::read_dir(logs).into_iter().flatten().flatten() {
        let path = entry.path();
        let pid = paths::owner_pid(&path).and_then(|pid| i32::try_from(pid).ok());
        let Some(pid) = pid.and_then(Pid::from_raw) else { continue };
        if test_kill_process(pid).is_ok() {
            continue;
        }
        let gone = if paths::is_kept(&path) { path.join("state") } else { path };
        let _ = fs::remove_dir_all(gone);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_dead_processes_left_goes_and_their_failures_logs_stay() {
        let logs = tempfile::tempdir().unwrap();
        // No process has this id: it is above Linux's limit.
        let dead = 1 << 23;
        let make = |name: String, failed: bool| {
            let path = logs.path().join(name);
            fs::create_dir_all(path.join("state/etcd")).unwrap();
            fs::write(path.join("etcd.log"), "x").unwrap();
            if failed {
                paths::keep(&path);
            }
            path
        };
        let passed = make(format!("a-{dead}"), false);
        let failed = make(format!("b-{dead}"), true);
        let alive = make(format!("c-{}", std::process::id()), false);
        let other = make("notes".to_owned(), false);
        sweep(logs.path());
        assert!(!passed.exists());
        assert!(failed.join("etcd.log").exists() && !failed.join("state").exists());
        assert!(alive.join("state/etcd").exists() && other.join("state/etcd").exists());
    }
}
