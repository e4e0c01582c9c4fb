//! Checks that the sources have the names in the last column of the glossary.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::Context;

use super::fail_if_any;
use super::files::Sources;
use crate::run;

const GLOSSARY: &str = "docs/glossary.md";

pub(super) fn check(sources: &Sources) -> anyhow::Result<()> {
    let page = sources.pages.iter().find(|(path, _)| path == Path::new(GLOSSARY));
    let (_, page) = page.with_context(|| format!("there is no {GLOSSARY}"))?;
    let protocol = run::files(&["proto"]);
    let texts: Vec<String> = protocol
        .iter()
        .map(|path| std::fs::read_to_string(run::root().join(path)))
        .collect::<Result<_, _>>()
        .context("cannot read the protocol")?;
    let all = sources.rust.iter().map(|source| source.text.as_str());
    let words: BTreeSet<&str> =
        all.chain(texts.iter().map(String::as_str)).flat_map(words).collect();
    let missing = |name: &&str| !words.contains(name);
    let findings: Vec<String> = names(page)
        .into_iter()
        .filter(missing)
        .map(|name| format!("{GLOSSARY}: no source has {name}"))
        .collect();
    fail_if_any(&findings, "name the type that embodies the term now")
}

/// The code spans of the last column of each table. A path such as `status.dispatch.attempt` is left out.
fn names(page: &str) -> Vec<&str> {
    let cells = page.lines().filter_map(|line| line.strip_suffix(" |")?.rsplit(" | ").next());
    cells
        .flat_map(|cell| cell.split('`').skip(1).step_by(2))
        .filter(|name| !name.contains('.'))
        .collect()
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|it: char| !it.is_alphanumeric() && it != '_' && it != '-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stand_in_the_last_column() {
        let page = "# A\n| term | type |\n|---|---|\n| a `b` | `C`, `D` |\n| e | `f.g` |\n";
        assert_eq!(names(page), ["C", "D"]);
    }

    #[test]
    fn words_keep_dashes() {
        let found: Vec<&str> = words("use pod-group-name; struct A{b_c}").collect();
        assert!(["pod-group-name", "A", "b_c"].iter().all(|word| found.contains(word)));
    }
}
