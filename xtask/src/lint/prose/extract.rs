//! Extracts prose from files that Vale cannot read: comments of YAML and of the protocol, and texts of alerts.
//!
//! Each file becomes a Markdown file with the same number of lines, so that findings keep their lines.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::run;

/// The written files.
pub(super) struct Extracted {
    pub(super) directory: PathBuf,
    /// From the directory.
    pub(super) files: Vec<PathBuf>,
}

/// Writes the prose of all these files below a directory.
///
/// # Errors
/// When a file cannot be read or written.
pub(super) fn write(directory: &Path) -> anyhow::Result<Extracted> {
    let mut files = Vec::new();
    for path in run::files(&["yaml", "proto"]).into_iter().filter(|path| has_prose(path)) {
        let text = fs::read_to_string(run::root().join(&path))
            .with_context(|| format!("cannot read {}", path.display()))?;
        let file = PathBuf::from(format!("{}.md", path.display()));
        let target = directory.join(&file);
        fs::create_dir_all(target.parent().unwrap_or(directory))?;
        fs::write(&target, prose(&text))
            .with_context(|| format!("cannot write {}", target.display()))?;
        files.push(file);
    }
    Ok(Extracted { directory: directory.to_owned(), files })
}

/// The source of an extracted file.
pub(super) fn original(extracted: &Path) -> PathBuf {
    extracted.with_extension("")
}

/// Whether a file is read. CRDs repeat doc comments, the chart's templates are no YAML, and its `files` are links to others in
/// `deploy`.
fn has_prose(path: &Path) -> bool {
    let is_generated = path.starts_with("deploy/crds")
        || path.iter().any(|part| part == "templates" || part == "files");
    let starts = ["deploy", "examples", "proto", "e2e"];
    starts.iter().any(|start| path.starts_with(start)) && !is_generated
}

/// Comments, and the summaries and descriptions of alerts; other lines become empty.
fn prose(text: &str) -> String {
    // The indentation of an alert text of several lines, inside of one.
    let mut open: Option<usize> = None;
    let mut lines = Vec::new();
    for line in text.lines() {
        let trimmed = line.trim_start();
        let indent = line.len() - trimmed.len();
        if open.is_some_and(|above| indent <= above || trimmed.is_empty()) {
            open = None;
        }
        let alert = ["summary: ", "description: "].iter().find_map(|key| trimmed.strip_prefix(key));
        let prose = if let Some(comment) = comment(trimmed) {
            comment.to_owned()
        } else if let Some(start) = alert {
            open = Some(indent);
            // A summary is a sentence without a full stop, so add one.
            let stop = if trimmed.starts_with("summary: ") { "." } else { "" };
            without_templates(start.trim_matches(['\'', '"', '|', '>', '-'])) + stop
        } else if open.is_some() {
            without_templates(trimmed.trim_end_matches(['\'', '"']))
        } else {
            String::new()
        };
        lines.push(prose);
    }
    lines.join("\n") + "\n"
}

fn comment(trimmed: &str) -> Option<&str> {
    let text = trimmed.strip_prefix('#').or_else(|| trimmed.strip_prefix("//"))?;
    // The description of a chart value starts with `# --`.
    let text = text.trim_start_matches(['#', '/']).trim_start();
    Some(text.strip_prefix("-- ").unwrap_or(text))
}

/// The text with its templates as code spans, which Vale ignores.
fn without_templates(text: &str) -> String {
    text.replace("{{", "`{{").replace("}}", "}}`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prose_keeps_its_lines() {
        let text = "# Why.\nkey: value\n  # -- What it is.\n  annotations:\n    description: |-\n      \
                    Look at {{ $x }}.\n      Then wait.\n    other: x\n";
        let expected = "Why.\n\nWhat it is.\n\n\nLook at `{{ $x }}`.\nThen wait.\n\n";
        assert_eq!(prose(text), expected);
        assert_eq!(prose("// A message.\nmessage A {}\n"), "A message.\n\n");
    }
}
