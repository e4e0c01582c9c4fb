//! `cargo xtask book`: the pages of `docs` as a book.
//!
//! Links in the pages are right in the repository. In the book, a link to a file outside `docs` would
//! lead nowhere, so only its text stays, and mdBook names the page of a README `index`.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, ensure};

use crate::lint::normal;
use crate::run;

const DOCS: &str = "docs";
/// The contents, which the book shows beside each page.
const SUMMARY: &str = "docs/SUMMARY.md";

pub(crate) fn run() -> anyhow::Result<()> {
    ensure!(run::has("mdbook", "--version"), "there is no mdbook: cargo install --locked mdbook");
    let (source, html) = (run::target().join("book-source"), run::target().join("book"));
    if source.exists() {
        fs::remove_dir_all(&source).with_context(|| format!("removing {}", source.display()))?;
    }
    copy(Path::new(DOCS), &source)?;
    let mut build = Command::new("mdbook");
    build.arg("build").arg(&source).arg("--dest-dir").arg(&html);
    run::step("build the book", build)?;
    check_search(&html)?;
    println!("the book is {}", html.join("index.html").display());
    Ok(())
}

/// Each page of the contents is in the index of the book's search.
fn check_search(html: &Path) -> anyhow::Result<()> {
    let entries = fs::read_dir(html).with_context(|| format!("cannot read {}", html.display()))?;
    let is_index = |name: &str| name.starts_with("searchindex") && name.ends_with(".js");
    let mut names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let name = names.find(|name| is_index(name)).context("the book has no index of its words")?;
    let index = fs::read_to_string(html.join(&name))
        .with_context(|| format!("cannot read {}", html.join(&name).display()))?;
    let missing: Vec<String> = pages(&fs::read_to_string(run::root().join(SUMMARY))?)
        .filter(|page| !index.contains(&format!("{page}#")))
        .collect();
    ensure!(missing.is_empty(), "a search does not find {}", missing.join(", "));
    Ok(())
}

/// The pages of a summary, by their names in the book.
fn pages(summary: &str) -> impl Iterator<Item = String> {
    let links = summary.lines().filter_map(|line| line.split_once("](")?.1.split_once(".md)"));
    links.map(|(page, _)| format!("{}.html", page.replace("README", "index")))
}

/// Copies a folder of the repository, with the links of its pages as the book needs them.
fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(to).with_context(|| format!("cannot create {}", to.display()))?;
    let entries = fs::read_dir(run::root().join(from))
        .with_context(|| format!("cannot read {}", from.display()))?;
    for entry in entries {
        let entry = entry?;
        let (path, target) = (from.join(entry.file_name()), to.join(entry.file_name()));
        if entry.file_type()?.is_dir() {
            copy(&path, &target)?;
        } else if path.extension().is_some_and(|it| it == "md") {
            let text = fs::read_to_string(entry.path())
                .with_context(|| format!("cannot read {}", path.display()))?;
            fs::write(&target, for_book(&path, &text))?;
        } else {
            fs::copy(entry.path(), &target)?;
        }
    }
    Ok(())
}

/// A page with the links that lead somewhere in the book.
fn for_book(page: &Path, text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("](") {
        let Some((target, after)) = after.split_once(')') else { break };
        out.push_str(before);
        match in_book(page, target) {
            Some(target) => out.push_str(&format!("]({target})")),
            None => drop_bracket(&mut out),
        }
        rest = after;
    }
    out + rest
}

/// Removes the bracket that the text of a link begins with.
fn drop_bracket(out: &mut String) {
    let mut depth = 0_usize;
    for (at, letter) in out.char_indices().rev().collect::<Vec<_>>() {
        match letter {
            ']' => depth += 1,
            '[' if depth == 0 => {
                out.remove(at);
                return;
            }
            '[' => depth -= 1,
            _ => {}
        }
    }
}

/// A link's target in the book. `None` if it has none.
fn in_book(page: &Path, target: &str) -> Option<String> {
    let is_elsewhere = target.contains(":") || target.starts_with('#');
    // SUMMARY.md itself has only links to pages.
    if is_elsewhere || page == Path::new(SUMMARY) {
        return Some(target.to_owned());
    }
    let (path, anchor) = match target.split_once('#') {
        Some((path, anchor)) => (path, format!("#{anchor}")),
        None => (target, String::new()),
    };
    let whole = normal(&page.parent().unwrap_or(Path::new("")).join(path));
    if !whole.starts_with(DOCS) || whole == Path::new(SUMMARY) {
        return None;
    }
    let page = path.strip_suffix("README.md").map(|dir| format!("{dir}index.md"));
    Some(page.unwrap_or_else(|| path.to_owned()) + &anchor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_have_their_names_in_the_book() {
        let summary = "# Summary\n\n[Start](README.md)\n- [A](adr/README.md)\n- [B](b.md)\n";
        let found: Vec<String> = pages(summary).collect();
        assert_eq!(found, ["index.html", "adr/index.html", "b.html"]);
    }

    #[test]
    fn links_out_of_the_book_become_text() {
        let text = "See [`engine[]`](../scheduler/src), [a](a.md#x), ![p](p.svg),\n[all](adr/README.md), \
                    [top](../README.md#try-it), [contents](SUMMARY.md), [web](https://a.b/../c), [here](#there).\n";
        assert_eq!(
            for_book(Path::new("docs/b.md"), text),
            "See `engine[]`, [a](a.md#x), ![p](p.svg),\n[all](adr/index.md), top, contents, \
             [web](https://a.b/../c), [here](#there).\n"
        );
        let text = "[up](../architecture.md) and [out](../../proto)";
        assert_eq!(for_book(Path::new("docs/adr/1.md"), text), "[up](../architecture.md) and out");
        let summary = "- [ADRs](adr/README.md)";
        assert_eq!(for_book(Path::new("docs/SUMMARY.md"), summary), summary);
    }
}
