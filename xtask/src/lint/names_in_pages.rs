//! Checks that the sources have the names of tests that pages give.

use std::collections::BTreeSet;

use super::fail_if_any;
use super::files::Sources;

pub(super) fn check(sources: &Sources) -> anyhow::Result<()> {
    let known: BTreeSet<&str> =
        sources.rust.iter().flat_map(|source| defined(&source.text)).collect();
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

/// Beginnings and endings of metrics. A page may name one that only Kueue has.
const METRICS: ([&str; 2], [&str; 3]) =
    (["kueue_", "switchyard_"], ["_seconds", "_total", "_active_workloads"]);

/// The code spans that look like the name of a test, without its module: four words or more.
fn names(line: &str) -> impl Iterator<Item = &str> {
    let spans = line.split('`').skip(1).step_by(2);
    spans
        .map(|span| span.rsplit("::").next().unwrap_or(span))
        .filter(|span| span.chars().all(is_in_name) && span.matches('_').count() >= 3)
        .filter(|span| !METRICS.0.iter().any(|beginning| span.starts_with(beginning)))
        .filter(|span| !METRICS.1.iter().any(|ending| span.ends_with(ending)))
}

/// The names of functions, modules and cases of tests.
fn defined(text: &str) -> impl Iterator<Item = &str> {
    let after =
        |begin: &'static str| text.split(begin).skip(1).filter_map(|rest| words(rest).next());
    after("fn ").chain(after("mod ")).chain(after("case::"))
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

    #[test]
    fn functions_modules_and_cases_are_defined() {
        let source = "mod a_b;\n#[case::c_d(1)]\nfn e_f() { g_h(); } // i_j";
        assert_eq!(defined(source).collect::<Vec<_>>(), ["e_f", "a_b", "c_d"]);
    }
}
