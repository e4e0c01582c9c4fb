//! Checks that a file of more than 600 lines, without its tests, gives a reason in its first lines: `//! Long because ...`.

use super::fail_if_any;
use super::files::{Source, Sources, is_test};

const LONGEST: usize = 600;

/// Lines at the top that may contain the reason.
const TOP: usize = 20;

pub(super) fn check(sources: &Sources) -> anyhow::Result<()> {
    let findings: Vec<String> = sources.rust.iter().filter_map(finding).collect();
    fail_if_any(&findings, "split the file, or say at its top: `//! Long because ...`")
}

fn finding(source: &Source) -> Option<String> {
    let lines = source.text.lines().take_while(|line| !line.starts_with("#[cfg(test)]")).count();
    let has_reason = source.text.lines().take(TOP).any(|line| line.contains("Long because "));
    (lines > LONGEST && !has_reason && !is_test(&source.path))
        .then(|| format!("{}: {lines} lines without its tests", source.path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_found(path: &str, text: String) -> bool {
        let source = Source { path: path.into(), text, tokens: Default::default() };
        finding(&source).is_some()
    }

    #[test]
    fn long_file_without_reason_is_found() {
        let long = "fn f() {}\n".repeat(LONGEST + 1);
        assert!(is_found("a/src/b.rs", long.clone()));
        assert!(!is_found("a/src/tests.rs", long.clone()));
        assert!(!is_found("a/src/b.rs", format!("//! Long because it is a table.\n{long}")));
        assert!(!is_found(
            "a/src/b.rs",
            format!("fn f() {{}}\n#[cfg(test)]\nmod tests {{\n{long}}}\n")
        ));
    }
}
