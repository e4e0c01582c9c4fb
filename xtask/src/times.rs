//! The last duration of each step, kept in `target/xtask-times.json`. A missing or broken file counts as empty, because the
//! times only order tests and announce durations.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use switchyard_parts::paths;

type Times = BTreeMap<String, f64>;

/// Serializes the writers of this process.
static FILE: Mutex<()> = Mutex::new(());

fn path() -> PathBuf {
    paths::target().join("xtask-times.json")
}

/// The last duration of a step, in seconds.
pub(crate) fn last(title: &str) -> Option<f64> {
    read(&path()).remove(title)
}

/// Stores the duration of a step, in seconds.
pub(crate) fn keep(title: &str, seconds: f64) {
    let _one = FILE.lock();
    keep_in(&path(), title, seconds);
}

fn read(path: &Path) -> Times {
    std::fs::read_to_string(path)
        .ok()
        .and_then(|text| serde_json::from_str(&text).ok())
        .unwrap_or_default()
}

fn keep_in(path: &Path, title: &str, seconds: f64) {
    let mut times = read(path);
    times.insert(title.to_owned(), (seconds * 10.0).round() / 10.0);
    if let Ok(text) = serde_json::to_string_pretty(&times) {
        let _ = std::fs::write(path, text + "\n");
    }
}

#[cfg(test)]
mod tests {
    use super::{keep_in, read};

    #[test]
    fn times_survive_and_a_broken_file_counts_as_empty() {
        let path =
            std::env::temp_dir().join(format!("switchyard-times-{}.json", std::process::id()));
        std::fs::write(&path, "no JSON").unwrap();
        assert!(read(&path).is_empty());
        keep_in(&path, "clippy", 12.34);
        keep_in(&path, "format", 1.0);
        let times = read(&path);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(times, [("clippy".to_owned(), 12.3), ("format".to_owned(), 1.0)].into());
    }
}
