//! Checks the book: `docs/SUMMARY.md` lists each page of `docs` once, and a mark before each block of
//! commands says whether a test runs it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use sha2::{Digest as _, Sha256};

use super::fail_if_any;
use super::files::Sources;
use crate::run;

const SUMMARY: &str = "docs/SUMMARY.md";
/// Sources of diagrams, `.mmd` of Mermaid, and the pictures made from them.
const DIAGRAMS: &str = "docs/diagrams";
/// Comment of pages that a program writes; a test keeps them fresh.
const GENERATED: &str = "<!-- Made from ";
/// The comment before a block that a test runs, with the test's name.
const RUN_BY: &str = "<!-- run by: ";
const SAME_STEPS_IN: &str = "<!-- same steps in: ";
/// The comment before a block that no test runs, with the reason.
const NOT_RUN: &str = "<!-- not run: ";
/// A code block that starts with one of these programs needs a mark.
const PROGRAMS: [&str; 16] = [
    "kubectl",
    "helm",
    "switchyard",
    "switchyard-hub",
    "switchyard-agent",
    "cargo",
    "docker",
    "ctr",
    "kind",
    "git",
    "kill",
    "for",
    "source",
    "sha256sum",
    "examples/kind/fleet.sh",
    "mdbook",
];

/// Checks that the summary lists exactly the existing pages.
pub(super) fn check_summary(sources: &Sources) -> anyhow::Result<()> {
    let text = |path: &str| {
        let page = sources.pages.iter().find(|(at, _)| at == Path::new(path));
        page.map(|(_, text)| text.as_str()).unwrap_or_default()
    };
    let listed = listed(text(SUMMARY));
    let pages: BTreeSet<PathBuf> = sources
        .pages
        .iter()
        .map(|(path, _)| path.clone())
        .filter(|path| path.starts_with("docs") && path != Path::new(SUMMARY))
        .collect();
    let mut findings = Vec::new();
    let mut seen: BTreeMap<&PathBuf, usize> = BTreeMap::new();
    for path in &listed {
        *seen.entry(path).or_default() += 1;
    }
    for (path, times) in seen {
        if times > 1 {
            findings.push(format!("{SUMMARY}: {} is listed {times} times", path.display()));
        }
        if !pages.contains(path) {
            findings.push(format!("{SUMMARY}: there is no page {}", path.display()));
        }
    }
    let listed: BTreeSet<PathBuf> = listed.into_iter().collect();
    for page in pages.difference(&listed) {
        findings.push(format!("{}: {SUMMARY} does not list it", page.display()));
    }
    fail_if_any(&findings, "the book has the pages that its summary lists")
}

/// Each diagram is made from its source, which the comment at its end names by a digest.
pub(super) fn check_diagrams() -> anyhow::Result<()> {
    let dir = run::root().join(DIAGRAMS);
    let entries = fs::read_dir(&dir).with_context(|| format!("cannot read {DIAGRAMS}"))?;
    let mut findings = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_some_and(|it| it == "mmd") {
            let source = fs::read(&path)?;
            let picture = path.with_extension("svg");
            let text = fs::read_to_string(&picture).unwrap_or_default();
            let digest: String =
                Sha256::digest(source).iter().map(|it| format!("{it:02x}")).collect();
            if !text.contains(&digest) {
                findings.push(format!("{}: not made from {}", picture.display(), path.display()));
            }
        }
    }
    fail_if_any(&findings, "docs/style.md has the command")
}

/// The pages of a summary, from the repository's root.
fn listed(summary: &str) -> Vec<PathBuf> {
    let links = summary.lines().filter_map(|line| {
        let (_, link) = line.split_once("](")?;
        link.split_once(')').map(|(link, _)| link)
    });
    links.filter(|link| !link.is_empty()).map(|link| Path::new("docs").join(link)).collect()
}

/// Checks the marks of blocks of commands: each block has one, its test exists, and the test of a
/// `run by` mark reads the page.
pub(super) fn check_commands(sources: &Sources) -> anyhow::Result<()> {
    let mut files: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for source in &sources.rust {
        for line in source.text.lines() {
            let line = line.trim();
            let name = line.strip_prefix("async fn ").or_else(|| line.strip_prefix("fn "));
            if let Some(name) = name.and_then(|name| name.split('(').next()) {
                files.entry(name).or_default().push(&source.text);
            }
        }
    }
    let files_of = |test: &str| files.get(test.rsplit("::").next().unwrap_or(test));
    let mut findings = Vec::new();
    for (page, text) in &sources.pages {
        if !needs_marks(page, text) {
            continue;
        }
        let name = format!("\"{}\"", page.display());
        for block in blocks(text) {
            let at = format!("{}:{}", page.display(), block.line);
            match block.mark {
                None => findings.push(format!("{at}: `{}` has no mark", block.first)),
                Some(Mark::RunBy(test) | Mark::SameStepsIn(test)) if files_of(&test).is_none() => {
                    findings.push(format!("{at}: there is no test {test}"));
                }
                Some(Mark::RunBy(test)) => {
                    if !files_of(&test).into_iter().flatten().any(|file| file.contains(&name)) {
                        findings.push(format!(
                            "{at}: the file of {test} does not read this page: write `same steps in:`"
                        ));
                    }
                }
                Some(Mark::NotRun(reason)) if reason.is_empty() => {
                    findings.push(format!("{at}: say why it is not run"));
                }
                Some(Mark::SameStepsIn(_) | Mark::NotRun(_)) => {}
            }
        }
    }
    fail_if_any(
        &findings,
        "write `<!-- run by: MODULE::TEST -->`, `<!-- same steps in: MODULE::TEST -->` or `<!-- not run: REASON -->` before the block",
    )
}

/// Whether a page's blocks of commands need marks.
fn needs_marks(page: &Path, text: &str) -> bool {
    !page.starts_with(".github") && !text.lines().any(|line| line.starts_with(GENERATED))
}

/// Prints the first line of each block of commands, with its mark.
///
/// # Errors
/// When the pages cannot be read.
pub(crate) fn list_commands() -> anyhow::Result<()> {
    let sources = Sources::read()?;
    let (mut run, mut same, mut not_run) = (0, 0, 0);
    for (page, text) in &sources.pages {
        if !needs_marks(page, text) {
            continue;
        }
        for block in blocks(text) {
            let mark = match block.mark {
                Some(Mark::RunBy(test)) => {
                    run += 1;
                    format!("run by {test}")
                }
                Some(Mark::SameStepsIn(test)) => {
                    same += 1;
                    format!("same steps in {test}")
                }
                Some(Mark::NotRun(why)) => {
                    not_run += 1;
                    format!("NOT RUN: {why}")
                }
                None => "without a mark".to_owned(),
            };
            println!("{}:{}: {}\n    {mark}", page.display(), block.line, block.first);
        }
    }
    println!(
        "{run} blocks of commands are run by a test as they are, a test takes the same steps as {same}, {not_run} are not run"
    );
    Ok(())
}

#[derive(Debug, PartialEq, Eq)]
enum Mark {
    /// This test reads the commands from the page.
    RunBy(String),
    /// This test takes the same steps in its own words.
    SameStepsIn(String),
    /// With the reason.
    NotRun(String),
}

/// A code block whose first line is a command.
#[derive(Debug, PartialEq, Eq)]
struct Block {
    /// From 1.
    line: usize,
    first: String,
    mark: Option<Mark>,
}

/// The blocks of commands of a page: indented ones and fenced ones.
fn blocks(text: &str) -> Vec<Block> {
    let mut found = Vec::new();
    let mut mark = None;
    let mut is_fenced = false;
    let mut is_inside = false;
    // Whether the line before was blank, and how far a list's text is indented.
    let (mut after_blank, mut list) = (true, 0);
    for (number, line) in text.lines().enumerate() {
        let trimmed = line.trim();
        let indent = line.len() - line.trim_start().len();
        if trimmed.starts_with("```") {
            is_fenced = !is_fenced;
            is_inside = false;
            continue;
        }
        if trimmed.is_empty() {
            after_blank = true;
            continue;
        }
        if let Some(comment) = read_mark(trimmed) {
            mark = Some(comment);
            is_inside = false;
            continue;
        }
        let starts_code = indent >= list + 4 && (after_blank || is_inside);
        if !is_fenced && !starts_code {
            is_inside = false;
            mark = None;
            if let Some(text_at) = list_text(line) {
                list = text_at;
            } else if indent == 0 {
                list = 0;
            }
            after_blank = false;
            continue;
        }
        if !is_inside && is_command(trimmed) {
            found.push(Block { line: number + 1, first: trimmed.to_owned(), mark: mark.take() });
        }
        is_inside = true;
        after_blank = false;
    }
    found
}

fn read_mark(line: &str) -> Option<Mark> {
    let text = |start: &str| {
        let rest = line.strip_prefix(start)?;
        Some(rest.trim_end_matches("-->").trim().to_owned())
    };
    text(RUN_BY)
        .map(Mark::RunBy)
        .or_else(|| text(SAME_STEPS_IN).map(Mark::SameStepsIn))
        .or_else(|| text(NOT_RUN).map(Mark::NotRun))
}

/// The column at which the text of a list item begins.
fn list_text(line: &str) -> Option<usize> {
    let trimmed = line.trim_start();
    let indent = line.len() - trimmed.len();
    let digits = trimmed.chars().take_while(char::is_ascii_digit).count();
    if digits > 0 && trimmed[digits..].starts_with(". ") {
        return Some(indent + digits + 2);
    }
    trimmed.starts_with("- ").then_some(indent + 2)
}

fn is_command(line: &str) -> bool {
    let words = line.trim_start_matches("$ ").split_whitespace();
    // Variables may come first: `GOGC=400 cargo ...`.
    let mut words = words.skip_while(|word| {
        word.split_once('=').is_some_and(|(name, _)| name.chars().all(|it| it.is_ascii_uppercase()))
    });
    words.next().is_some_and(|program| PROGRAMS.contains(&program))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summary_lists_pages_by_links() {
        let summary = "# Summary\n\n[Start](README.md)\n\n# Tutorials\n\n- [A](a.md)\n  - [B](adr/b.md)\n- [Draft]()\n";
        let paths = listed(summary);
        assert_eq!(paths, ["docs/README.md", "docs/a.md", "docs/adr/b.md"].map(PathBuf::from));
    }

    #[test]
    fn blocks_of_commands_have_their_marks() {
        let text = "Run\n\n    kubectl get jobs\n    kubectl get pods\n\nor\n\n<!-- not run: needs a registry -->\n\n    docker push x\n\n\
                    1. One:\n\n   <!-- run by: a::b -->\n\n       helm install\n\n   more text\n\n    spec: {}\n\n```sh\nswitchyard check\n```\n\n\
                    <!-- same steps in: a::c -->\n\nA=b cargo in text\n\n    cargo test\n";
        let found: Vec<(usize, String, Option<Mark>)> =
            blocks(text).into_iter().map(|it| (it.line, it.first, it.mark)).collect();
        let run = |test: &str| Some(Mark::RunBy(test.to_owned()));
        assert_eq!(
            found,
            [
                (3, "kubectl get jobs".to_owned(), None),
                (10, "docker push x".to_owned(), Some(Mark::NotRun("needs a registry".to_owned()))),
                (16, "helm install".to_owned(), run("a::b")),
                (23, "switchyard check".to_owned(), None),
                (30, "cargo test".to_owned(), None),
            ]
        );
        assert!(is_command("GOGC=400 cargo test") && !is_command("target: kubectl"));
    }
}
