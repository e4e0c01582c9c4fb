//! Lists of known exceptions to a rule, one on each line, in `xtask/exceptions`.
//!
//! A list only shrinks: a finding without a line fails, and so does a line without a finding.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use anyhow::Context;

use super::fail_if_any;
use crate::run;

/// A rule's list of exceptions.
pub(super) struct Exceptions {
    /// The name of its file.
    pub(super) file: &'static str,
    /// The comment at the top of its file.
    pub(super) purpose: &'static str,
}

impl Exceptions {
    /// Compares findings with the list. `found` maps the line of an exception to the text that reports the finding.
    ///
    /// # Errors
    /// When they differ, unless `update` rewrites the list.
    pub(super) fn check(
        &self,
        found: &BTreeMap<String, String>,
        update: bool,
    ) -> anyhow::Result<()> {
        if update {
            let path = self.path();
            let lines: String = found.keys().map(|key| format!("{key}\n")).collect();
            return fs::write(&path, format!("# {}\n{lines}", self.purpose))
                .with_context(|| format!("cannot write {}", path.display()));
        }
        let text = fs::read_to_string(self.path())
            .with_context(|| format!("cannot read {}", self.path().display()))?;
        eprintln!("    {} known exceptions", lines(&text).count());
        let advice =
            "`cargo xtask lint --text --update` rewrites the lists; they should only shrink";
        fail_if_any(&self.differences(&text, found), advice)
    }

    fn path(&self) -> PathBuf {
        run::root().join("xtask/exceptions").join(self.file)
    }

    fn differences(&self, text: &str, found: &BTreeMap<String, String>) -> Vec<String> {
        let known: Vec<&str> = lines(text).collect();
        let new = found.iter().filter(|(key, _)| !known.contains(&key.as_str()));
        let gone = known.iter().filter(|line| !found.contains_key(**line));
        new.map(|(_, report)| report.clone())
            .chain(gone.map(|line| {
                format!(
                    "xtask/exceptions/{}: `{line}` is no exception any more: remove it",
                    self.file
                )
            }))
            .collect()
    }
}

fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_with_other_findings_fails_both_ways() {
        let list = Exceptions { file: "x.txt", purpose: "" };
        let found: BTreeMap<String, String> = [("a", "a is wrong"), ("b", "b is wrong")]
            .map(|(key, report)| (key.to_owned(), report.to_owned()))
            .into();
        assert_eq!(list.differences("# why\na\nb\n", &found), Vec::<String>::new());
        let differences = list.differences("a\nc\n", &found);
        assert_eq!(differences[0], "b is wrong");
        assert!(differences[1].contains("`c` is no exception"), "{differences:?}");
    }
}
