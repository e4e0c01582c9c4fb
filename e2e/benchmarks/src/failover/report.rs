//! The table.

use std::fmt;
use std::path::Path;

use anyhow::Context;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::row::Row;
use crate::document;

/// The report replaces the text between these lines of a file.
const BEGIN: &str = "<!-- measured by cargo xtask failover: begin -->";
const END: &str = "<!-- measured by cargo xtask failover: end -->";

/// The measurements, and the machine.
pub(super) struct Report {
    began: Timestamp,
    versions: [(&'static str, String); 3],
    pub(super) rows: Vec<Row>,
}

impl Report {
    pub(super) fn begin() -> anyhow::Result<Self> {
        Ok(Self { began: Timestamp::now(), versions: document::versions()?, rows: Vec::new() })
    }

    pub(super) fn json(&self) -> Value {
        let versions: serde_json::Map<String, Value> = self
            .versions
            .iter()
            .map(|(name, version)| ((*name).to_owned(), json!(version)))
            .collect();
        json!({
            "measurement": "failover", "began": self.began.to_string(), "versions": versions,
            "ours": env!("CARGO_PKG_VERSION"), "debugBuild": cfg!(debug_assertions),
            "machine": {"processors": document::processors(), "memoryGiB": memory()},
            "rows": self.rows.iter().map(Row::json).collect::<Vec<_>>(),
        })
    }
}

/// Memory of the machine in GiB, rounded.
fn memory() -> u64 {
    (document::memory_kib() + (1 << 19)) >> 20
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let versions: Vec<String> =
            self.versions.iter().map(|(name, version)| format!("{name} {version}")).collect();
        let build = if cfg!(debug_assertions) { "debug build" } else { "release build" };
        writeln!(
            f,
            "Measured on {} with {}, Switchyard a {build}, on {} processors and {} GiB of memory.",
            self.began.strftime("%Y-%m-%d"),
            versions.join(", "),
            document::processors(),
            memory(),
        )?;
        let mut fault = None;
        let mut rows: Vec<&Row> = self.rows.iter().collect();
        rows.sort_by_key(|row| (row.fault, row.system));
        for row in rows {
            if fault != Some(row.fault) {
                fault = Some(row.fault);
                writeln!(f, "\n### {}\n", row.fault.name())?;
                writeln!(f, "| {} |", Row::HEAD.join(" | "))?;
                writeln!(f, "|{}", "---|".repeat(Row::HEAD.len()))?;
            }
            writeln!(f, "| {} |", row.cells().join(" | "))?;
        }
        Ok(())
    }
}

/// Puts the table between the marks of a file.
pub(super) fn write(path: &Path, table: &str) -> anyhow::Result<()> {
    let text =
        std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let text = marked(&text, table)
        .with_context(|| format!("{}: no lines {BEGIN:?} and {END:?}", path.display()))?;
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

fn marked(text: &str, table: &str) -> Option<String> {
    let (before, rest) = text.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}\n\n{}\n\n{END}{after}", table.trim()))
}

#[cfg(test)]
mod tests {
    use super::super::Fault;
    use super::super::System;
    use super::*;

    #[test]
    fn only_what_is_between_the_marks_changes() {
        let text = format!("# Title\n\n{BEGIN}\nold\n{END}\n\nrest\n");
        assert_eq!(
            marked(&text, "new\n").unwrap(),
            format!("# Title\n\n{BEGIN}\n\nnew\n\n{END}\n\nrest\n")
        );
        assert_eq!(marked("no marks", "new"), None);
    }

    #[test]
    fn fault_table_has_a_row_for_each_system() {
        let row = |system, policy, fault| Row {
            jobs: 4,
            seen: Some(0.25),
            moved: Some(50.0),
            healed: Some(3.04),
            twice: 4,
            still: 12.0,
            cut: false,
            failed: false,
            ..Row::failed(system, policy, fault, 4)
        };
        let versions = [
            ("Kubernetes", "v1".to_owned()),
            ("etcd", "v2".to_owned()),
            ("Kueue", "v3".to_owned()),
        ];
        let stayed = Row {
            moved: None,
            healed: None,
            twice: 0,
            still: 0.2,
            ..row(System::Agents, "Hold", Fault::KillHub)
        };
        let rows = vec![
            row(System::Stock, "20 s", Fault::Cut),
            stayed,
            row(System::Agents, "Hold", Fault::Cut),
        ];
        let rows = [rows, vec![Row::failed(System::Stock, "20 s", Fault::KillHub, 4)]].concat();
        let text = Report { began: Timestamp::UNIX_EPOCH, versions, rows }.to_string();
        let (head, tables) = text.split_once("\n\n").unwrap();
        assert!(
            head.starts_with(
                "Measured on 1970-01-01 with Kubernetes v1, etcd v2, Kueue v3, Switchyard a "
            ),
            "{head}"
        );
        let expected = "### Connections between hub and worker cut\n
| system | policy | seen by the hub | runs elsewhere | healed | ran twice at once | restarted | stood still | lost |
|---|---|---|---|---|---|---|---|---|
| Switchyard, agents | Hold | 0.2 s | 50.0 s | 3.0 s | 4 of 4 | 0 | 12.0 s | 0 |
| stock MultiKueue | 20 s | 0.2 s | 50.0 s | 3.0 s | 4 of 4 | 0 | 12.0 s | 0 |

### `kill -9` of the hub's controller

| system | policy | seen by the hub | runs elsewhere | healed | ran twice at once | restarted | stood still | lost |
|---|---|---|---|---|---|---|---|---|
| Switchyard, agents | Hold | — | stayed | cut | 0 | 0 | — | 0 |
| stock MultiKueue | 20 s | not measured | — | — | — | — | — | — |
";
        assert_eq!(tables, expected);
    }
}
