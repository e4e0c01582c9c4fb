//! Checks links between files of the repository: links of pages, with their anchors, and names of pages in sources.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

use anyhow::Context;

use super::fail_if_any;
use super::files::{Sources, is_test};
use crate::run;

pub(super) fn check(sources: &Sources) -> anyhow::Result<()> {
    let anchors: BTreeMap<&Path, BTreeSet<String>> =
        sources.pages.iter().map(|(path, text)| (path.as_path(), anchors(text))).collect();
    let exists = |path: &Path| run::root().join(path).exists();
    let mut findings = Vec::new();
    for (page, text) in &sources.pages {
        for (line, link) in links(text) {
            if let Some(problem) = problem(page, &link, &anchors, &exists) {
                findings.push(format!("{}:{line}: {link}: {problem}", page.display()));
            }
        }
    }
    findings.extend(runbooks(&anchors)?);
    for source in &sources.rust {
        // The selection by changed files names invented pages in its tests.
        if is_test(&source.path) || source.path.starts_with("xtask") {
            continue;
        }
        for (line, name) in named_pages(&source.text) {
            if !exists(Path::new(name)) {
                findings.push(format!("{}:{line}: there is no {name}", source.path.display()));
            }
        }
    }
    fail_if_any(&findings, "links are relative to the page")
}

/// Checks that each alert has a runbook: a heading of the page.
fn runbooks(anchors: &BTreeMap<&Path, BTreeSet<String>>) -> anyhow::Result<Vec<String>> {
    const RULES: &str = "deploy/monitoring/rules.yaml";
    const PAGE: &str = "docs/runbooks.md";
    let text = fs::read_to_string(run::root().join(RULES))
        .with_context(|| format!("cannot read {RULES}"))?;
    let field = |line: &str, name: &str| -> Option<String> {
        Some(line.trim().trim_start_matches("- ").strip_prefix(name)?.trim().to_owned())
    };
    let alerts: Vec<String> = text.lines().filter_map(|line| field(line, "alert:")).collect();
    let links: Vec<String> = text.lines().filter_map(|line| field(line, "runbook_url:")).collect();
    let headings = anchors.get(Path::new(PAGE));
    let has_heading = |slug: &str| headings.is_some_and(|its| its.contains(slug));
    let mut findings = Vec::new();
    for alert in alerts {
        let slug = alert.to_lowercase();
        if !links.contains(&format!("{PAGE}#{slug}")) {
            findings.push(format!("{RULES}: {alert} has no runbook_url {PAGE}#{slug}"));
        }
        if !has_heading(&slug) {
            findings.push(format!("{PAGE}: no heading {alert}"));
        }
    }
    Ok(findings)
}

/// Targets of inline links and pictures with their lines, outside code blocks and code spans.
fn links(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut is_code = false;
    for (number, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        }
        if is_code || line.starts_with("    ") && !line.trim_start().starts_with(['-', '*']) {
            continue;
        }
        let prose: String = line.split('`').step_by(2).collect();
        for part in prose.split("](").skip(1) {
            if let Some((link, _)) = part.split_once(')') {
                found.push((number + 1, link.to_owned()));
            }
        }
    }
    found
}

fn problem(
    page: &Path,
    link: &str,
    anchors: &BTreeMap<&Path, BTreeSet<String>>,
    exists: &dyn Fn(&Path) -> bool,
) -> Option<String> {
    if link.contains("://") || link.starts_with("mailto:") {
        return None;
    }
    let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
    let target = if file.is_empty() {
        page.to_owned()
    } else {
        normal(&page.parent().unwrap_or(Path::new("")).join(file))
    };
    if !exists(&target) {
        return Some("the file does not exist".to_owned());
    }
    let has_anchor = || anchors.get(target.as_path()).is_none_or(|its| its.contains(anchor));
    (!anchor.is_empty() && !has_anchor()).then(|| "the page has no such heading".to_owned())
}

/// The anchors that GitHub and mdBook make of headings.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut is_code = false;
    let headings = text.lines().filter(|line| {
        if line.starts_with("```") {
            is_code = !is_code;
        }
        !is_code && line.starts_with('#')
    });
    headings.map(|line| slug(line.trim_start_matches('#').trim())).collect()
}

fn slug(heading: &str) -> String {
    let text = heading.replace('`', "");
    let kept = text.chars().filter(|it| it.is_alphanumeric() || " -_".contains(*it));
    kept.collect::<String>().to_lowercase().replace(' ', "-")
}

/// A path without `.` and `..`.
pub(crate) fn normal(path: &Path) -> PathBuf {
    let mut parts = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                parts.pop();
            }
            Component::CurDir => {}
            other => parts.push(other),
        }
    }
    parts
}

/// Names such as `docs/checks.md` in a source, with their lines.
fn named_pages(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    for (number, line) in text.lines().enumerate() {
        for (start, _) in line.match_indices("docs/") {
            let rest = &line[start..];
            let is_part = |it: char| it.is_ascii_alphanumeric() || "/-_.".contains(it);
            let name = &rest[..rest.find(|it| !is_part(it)).unwrap_or(rest.len())];
            let name = name.trim_end_matches('.');
            let is_own =
                !line[..start].ends_with(|it: char| it.is_alphanumeric() || "/-.".contains(it));
            if name.ends_with(".md") && is_own {
                found.push((number + 1, name));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_outside_code_are_found() {
        let text = "see [a](a.md#b) and `[c](d.md)`\n```\n[e](f.md)\n```\n![g](h.svg)";
        assert_eq!(links(text), [(1, "a.md#b".to_owned()), (5, "h.svg".to_owned())]);
    }

    #[test]
    fn link_without_target_is_a_problem() {
        let other = Path::new("docs/other.md");
        let anchors = BTreeMap::from([(other, anchors("# The `x` of y, z\n"))]);
        let exists = |path: &Path| path == other;
        let problem = |link: &str| problem(Path::new("docs/adr/page.md"), link, &anchors, &exists);
        assert_eq!(problem("../other.md#the-x-of-y-z"), None);
        assert_eq!(problem("https://example.com/x"), None);
        assert!(problem("../other.md#the-y").unwrap().contains("heading"));
        assert!(problem("other.md").unwrap().contains("exist"));
    }

    #[test]
    fn pages_named_in_sources_are_found() {
        let text = "//! See docs/a.md, kueue/docs/b.md.\n/// \"docs/c.md#d\"";
        assert_eq!(named_pages(text), [(1, "docs/a.md"), (2, "docs/c.md")]);
    }
}
