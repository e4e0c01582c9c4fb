//! Measurements for programs: the figures, and the machine.

use std::path::Path;
use std::process::Command;

use anyhow::Context;
use serde_json::{Map, Value, json};
use switchyard_e2e::{Part, Parts, paths};

/// One run of a benchmark, as a JSON document that grows with each report.
pub(super) struct Document {
    head: Value,
    reports: Vec<Value>,
}

impl Document {
    /// Begins one; `settings` are the flags.
    ///
    /// # Errors
    /// When the versions of the systems cannot be read.
    pub(super) fn new(benchmark: &str, settings: &Value) -> anyhow::Result<Self> {
        let seconds = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap_or_default()
            .as_secs();
        let head = json!({
            "benchmark": benchmark, "unixSeconds": seconds, "debugBuild": cfg!(debug_assertions),
            "machine": machine(), "versions": all_versions()?, "settings": settings,
        });
        Ok(Self { head, reports: Vec::new() })
    }

    /// Adds a report. With a path, writes all reports so far, so that an aborted run keeps them.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub(super) fn add(&mut self, report: Value, path: Option<&Path>) -> anyhow::Result<()> {
        self.reports.push(report);
        let Some(path) = path else { return Ok(()) };
        let mut document = self.head.clone();
        document["reports"] = self.reports.clone().into();
        let text = serde_json::to_string_pretty(&document)? + "\n";
        std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
        eprintln!("    written to {}", path.display());
        Ok(())
    }
}

/// The machine, as its kernel tells it.
fn machine() -> Value {
    json!({
        "processors": processors(),
        "model": kernel_field("/proc/cpuinfo", "model name").unwrap_or_default(),
        "memoryKiB": memory_kib(),
        "loadAverage": load(),
    })
}

/// Processors of the machine.
pub(super) fn processors() -> usize {
    std::thread::available_parallelism().map_or(0, usize::from)
}

/// Memory of the machine in KiB.
pub(super) fn memory_kib() -> u64 {
    let memory = kernel_field("/proc/meminfo", "MemTotal").unwrap_or_default();
    memory.trim_end_matches(" kB").parse().unwrap_or_default()
}

/// The value of the first line of a kernel's file that begins with `name`.
fn kernel_field(file: &str, name: &str) -> Option<String> {
    let text = std::fs::read_to_string(file).ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// The load of the machine at the start, by the kernel's load averages.
fn load() -> String {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    load.split_whitespace().take(3).collect::<Vec<_>>().join(" ")
}

/// Versions of Switchyard and of all programs beside it, by lower-case name.
fn all_versions() -> anyhow::Result<Value> {
    let mut all = Map::new();
    all.insert("switchyard".to_owned(), ours().into());
    all.extend(versions()?.map(|(name, version)| (name.to_lowercase(), version.into())));
    Ok(all.into())
}

/// Names and versions of the programs beside Switchyard.
///
/// # Errors
/// When the versions cannot be read.
pub(super) fn versions() -> anyhow::Result<[(&'static str, String); 3]> {
    let parts = Parts::new()?;
    Ok([
        ("Kubernetes", parts.version(Part::ApiServer)?),
        ("etcd", parts.version(Part::Etcd)?),
        ("Kueue", parts.version(Part::Kueue)?),
    ])
}

/// The version, and the commit where there is a repository.
fn ours() -> String {
    let version = env!("CARGO_PKG_VERSION");
    let git = Command::new("git")
        .args(["describe", "--always", "--dirty"])
        .current_dir(paths::root())
        .output();
    let commit = git.ok().filter(|output| output.status.success());
    let commit = commit.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    commit
        .filter(|commit| !commit.is_empty())
        .map_or(version.to_owned(), |commit| format!("{version} ({commit})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_there_is_is_written_with_each_report() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run.json");
        let mut document = Document { head: json!({"benchmark": "burst"}), reports: Vec::new() };
        let read =
            || serde_json::from_str::<Value>(&std::fs::read_to_string(&path).unwrap()).unwrap();
        document.add(json!(1), Some(&path)).unwrap();
        assert_eq!(read(), json!({"benchmark": "burst", "reports": [1]}));
        document.add(json!(2), Some(&path)).unwrap();
        assert_eq!(read()["reports"], json!([1, 2]));
    }

    #[test]
    fn the_machine_has_processors_and_memory() {
        let machine = machine();
        assert!(
            machine["processors"].as_u64() > Some(0) && machine["memoryKiB"].as_u64() > Some(0),
            "{machine}"
        );
    }
}
