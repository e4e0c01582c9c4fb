//! Checks comments, pages, help texts, chart values and alerts by Vale, with the style in `.vale`.

mod examples;
mod extract;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};
use serde_json::Value;

use super::exceptions::Exceptions;
use crate::run;

const KNOWN: Exceptions =
    Exceptions { file: "prose.txt", purpose: "Files whose words Vale does not accept yet." };

/// The page that shows what each rule finds.
const EXAMPLES: &str = ".vale/examples.md";

/// A finding of Vale.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Finding {
    file: PathBuf,
    line: u64,
    /// Without the style's name, such as `Words`.
    rule: String,
    message: String,
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { file, line, rule, message } = self;
        write!(f, "{}:{line}: {rule}: {message}", file.display())
    }
}

/// Checks all files; one on the list of exceptions may have findings.
pub(super) fn check(vale: &Path, update: bool) -> anyhow::Result<()> {
    let mut findings = run_vale(vale, &run::root(), &run::files(&["rs", "md"]))?;
    let extracted = extract::write(&run::target().join("prose"))?;
    findings.extend(run_vale(vale, &extracted.directory, &extracted.files)?.into_iter().map(
        |mut finding| {
            finding.file = extract::original(&finding.file);
            finding
        },
    ));
    let mut by_file: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for finding in findings {
        by_file.entry(finding.file.display().to_string()).or_default().push(finding.to_string());
    }
    let number: usize = by_file.values().map(Vec::len).sum();
    eprintln!("    {number} findings in {} files", by_file.len());
    let found = by_file.into_iter().map(|(file, lines)| (file, lines.join("\n"))).collect();
    KNOWN.check(&found, update)
}

/// Checks that each rule finds exactly its examples.
pub(super) fn check_examples(vale: &Path) -> anyhow::Result<()> {
    let path = run::root().join(EXAMPLES);
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {EXAMPLES}"))?;
    let findings = run_vale(vale, &run::root(), &[EXAMPLES.into()])?;
    let found: BTreeSet<(u64, String)> =
        findings.into_iter().map(|finding| (finding.line, finding.rule)).collect();
    let mut problems = examples::problems(&text, &found);
    problems.extend(examples::missing(&text, &rules()?));
    super::fail_if_any(&problems, &format!("fix the rule, or its section in {EXAMPLES}"))
}

/// The names of the style's rules.
fn rules() -> anyhow::Result<Vec<String>> {
    let directory = run::root().join(".vale/styles/Switchyard");
    let entries =
        fs::read_dir(&directory).with_context(|| format!("cannot read {}", directory.display()))?;
    let stem = |path: PathBuf| path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
    Ok(entries.flatten().filter_map(|entry| stem(entry.path())).collect())
}

/// Runs Vale on files of a directory, by the configuration of the repository.
fn run_vale(vale: &Path, directory: &Path, files: &[PathBuf]) -> anyhow::Result<Vec<Finding>> {
    let mut command = Command::new(vale);
    command.arg("--config").arg(run::root().join(".vale.ini"));
    command.args(["--output=JSON", "--no-exit"]).args(files).current_dir(directory);
    let output = command.output().context("cannot start Vale")?;
    if !output.status.success() {
        bail!("Vale failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    let printed: Value = serde_json::from_slice(&output.stdout).with_context(|| {
        format!("Vale printed no JSON: {}", String::from_utf8_lossy(&output.stdout))
    })?;
    parse(&printed)
}

fn parse(printed: &Value) -> anyhow::Result<Vec<Finding>> {
    let files = printed.as_object().context("Vale printed no object")?;
    let mut findings = Vec::new();
    for (file, its) in files {
        for finding in its.as_array().context("Vale printed no list of findings")? {
            let text = |key: &str| finding[key].as_str().unwrap_or_default().to_owned();
            findings.push(Finding {
                file: file.into(),
                line: finding["Line"].as_u64().unwrap_or_default(),
                rule: text("Check").rsplit('.').next().unwrap_or_default().to_owned(),
                message: text("Message"),
            });
        }
    }
    findings.sort_by(|a, b| (&a.file, a.line).cmp(&(&b.file, b.line)));
    Ok(findings)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn findings_of_vale_are_read() {
        let printed =
            json!({"a.rs": [{"Line": 3, "Check": "Switchyard.Words", "Message": "plain"}]});
        let findings = parse(&printed).unwrap();
        assert_eq!(findings[0].to_string(), "a.rs:3: Words: plain");
    }
}
