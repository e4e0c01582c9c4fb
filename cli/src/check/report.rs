//! The report of a check, as text and JSON.

use serde::Serialize;

use super::explain::{self, CheckName};
use crate::output::counted;

/// Result of a check.
#[derive(Serialize, Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[serde(rename_all = "camelCase")]
pub enum Outcome {
    Ok,
    /// Unknown, or harmless so far.
    Warning,
    /// Jobs suffer, or will.
    Failure,
}

#[derive(Serialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Line {
    pub check: CheckName,
    pub outcome: Outcome,
    pub message: String,
    /// Advice, printed as `mend`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mend: Option<String>,
    /// The command that prints more about the check.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub explain: Option<String>,
    /// The section of the repository that it prints.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link: Option<String>,
}

impl Line {
    /// A passed check.
    pub fn ok(check: CheckName, message: impl Into<String>) -> Self {
        Self {
            check,
            outcome: Outcome::Ok,
            message: message.into(),
            mend: None,
            explain: None,
            link: None,
        }
    }

    /// A check that could not be made, or found something harmless so far.
    pub fn warning(check: CheckName, message: impl Into<String>, mend: impl Into<String>) -> Self {
        Self::not_ok(check, Outcome::Warning, message.into(), mend.into())
    }

    /// A failed check.
    pub fn failure(check: CheckName, message: impl Into<String>, mend: impl Into<String>) -> Self {
        Self::not_ok(check, Outcome::Failure, message.into(), mend.into())
    }

    fn not_ok(check: CheckName, outcome: Outcome, message: String, mend: String) -> Self {
        Self {
            check,
            outcome,
            message,
            mend: Some(mend),
            explain: Some(explain::command(check)),
            link: Some(format!("docs/checks.md#{check}")),
        }
    }

    /// A check whose objects the caller may not read.
    pub fn unread(check: CheckName, why: &str) -> Self {
        Self::warning(
            check,
            format!("not checked: {why}"),
            "run this as an administrator of the cluster",
        )
    }
}

/// The checks of one cluster.
#[derive(Serialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Section {
    /// A cluster, or a worker compared with the hub.
    pub name: String,
    pub lines: Vec<Line>,
}

#[derive(Serialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// Version of this program.
    pub version: &'static str,
    /// Number of failed checks.
    pub failures: usize,
    /// Number of warnings.
    pub warnings: usize,
    pub sections: Vec<Section>,
}

impl Report {
    /// Counts failures and warnings.
    #[must_use]
    pub fn new(sections: Vec<Section>) -> Self {
        let count = |outcome| {
            sections
                .iter()
                .flat_map(|section| &section.lines)
                .filter(|line| line.outcome == outcome)
                .count()
        };
        let (failures, warnings) = (count(Outcome::Failure), count(Outcome::Warning));
        Self { version: switchyard_api::build::VERSION, failures, warnings, sections }
    }

    #[must_use]
    pub fn text(&self) -> String {
        let mut out = String::new();
        for section in &self.sections {
            out.push_str(&section.name);
            out.push('\n');
            for line in &section.lines {
                out.push_str(&text(line));
            }
            out.push('\n');
        }
        out.push_str(&match (self.failures, self.warnings) {
            (0, 0) => "All checks passed.\n".to_owned(),
            (0, warnings) => format!("No failures, {}.\n", counted(warnings, "warning")),
            (failures, warnings) => {
                format!("{}, {}.\n", counted(failures, "failure"), counted(warnings, "warning"))
            }
        });
        out
    }
}

fn text(line: &Line) -> String {
    let word = match line.outcome {
        Outcome::Ok => "ok     ",
        Outcome::Warning => "warning",
        Outcome::Failure => "FAILURE",
    };
    let mut out = format!("  {word}  {}: {}\n", line.check, line.message);
    if let Some(mend) = &line.mend {
        out.push_str(&format!("           mend: {mend}\n"));
    }
    if let Some(explain) = &line.explain {
        out.push_str(&format!("           more: {explain}\n"));
    }
    out
}
