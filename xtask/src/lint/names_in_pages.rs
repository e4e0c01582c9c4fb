//! Checks that the sources have the names of tests that pages give.

use std::collections::BTreeSet;

use super::fail_if_any;
use super::files::Sources;

pub(super) fn check(sources: &Sources) -> anyhow::Result<()> {
    let known: BTreeSet<&str> =
        sources.rust.iter().flat_map(|source| words(&source.text)).collect();
    let mut findings = Vec::new();
    for (path, page) in &sources.pages {
        for (number, line) in page.lines().enumerate() {
            let stale = names(line).filter(|name| !known.contains(name));
            findings
                .extend(stale.map(|name| {
                    format!("{}:{}: no source has {name}", path.display(), number + 1)
                }));
        }
    }
    fail_if_any(&findings, "give the test's name of today")
}

/// Endings of metrics. A page may name one that only Kueue has.
const METRICS: [&str; 4] = ["_hashes", "_seconds", "_total", "_workloads"];

/// The code spans that look like the name of a test, without its module: four words or more.
fn names(line: &str) -> impl Iterator<Item = &str> {
    let spans = line.split('`').skip(1).step_by(2);
    spans
        .map(|span| span.rsplit("::").next().unwrap_or(span))
        .filter(|span| span.chars().all(is_in_name) && span.matches('_').count() >= 3)
        .filter(|span| !METRICS.iter().any(|ending| span.ends_with(ending)))
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|it: char| !is_in_name(it)).filter(|word| !word.is_empty())
}

fn is_in_name(it: char) -> bool {
    it.is_ascii_lowercase() || it.is_ascii_digit() || it == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_without_module_are_read() {
        let line = "| a `stuck::job_that_waits_moves` | `a_b_c`, `x.y_z_a_b` | `A_B_C_D` |";
        let found: Vec<&str> = names(line).collect();
        assert_eq!(found, ["job_that_waits_moves"]);
    }
}
