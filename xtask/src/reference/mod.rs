//! Reference pages made from the sources. `cargo xtask generate` writes them, and the lint fails
//! while one is stale.

mod conditions;
mod fields;
mod names;
mod ports;
mod roles;
mod rust;
mod values;

use std::fs;

use anyhow::{Context, bail};

use crate::run;

/// The path of a page, and the function that makes its text.
type Page = (&'static str, fn() -> anyhow::Result<String>);

const PAGES: [Page; 6] = [
    ("docs/labels.md", names::page),
    ("docs/conditions.md", conditions::page),
    ("docs/fields.md", fields::page),
    ("docs/values.md", values::page),
    ("docs/roles.md", roles::page),
    ("docs/ports.md", ports::page),
];

/// Writes all pages.
///
/// # Errors
/// When a source cannot be parsed.
pub(crate) fn write() -> anyhow::Result<()> {
    for (path, page) in PAGES {
        let text = page().with_context(|| format!("making {path}"))?;
        fs::write(run::root().join(path), text).with_context(|| format!("writing {path}"))?;
    }
    Ok(())
}

/// Checks that all pages are up to date.
///
/// # Errors
/// Names the stale pages.
pub(crate) fn check() -> anyhow::Result<()> {
    let mut stale = Vec::new();
    for (path, page) in PAGES {
        let text = page().with_context(|| format!("making {path}"))?;
        if fs::read_to_string(run::root().join(path)).unwrap_or_default() != text {
            stale.push(path);
        }
    }
    if stale.is_empty() {
        return Ok(());
    }
    bail!("stale: {}; `cargo xtask generate` writes them", stale.join(", "))
}

/// A source of the repository.
fn read(path: &str) -> anyhow::Result<String> {
    fs::read_to_string(run::root().join(path)).with_context(|| format!("cannot read {path}"))
}

/// The start of each page.
fn head(title: &str, intro: &str) -> String {
    format!("# {title}\n\n<!-- Made from the sources: cargo xtask generate -->\n\n{intro}\n")
}

/// A table, or nothing without rows. Bars in cells are escaped.
fn table<const N: usize>(headings: [&str; N], rows: &[[String; N]]) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    let mut out = line(headings.map(str::to_owned).to_vec());
    out.push_str(&format!("|{}\n", "---|".repeat(N)));
    for row in rows {
        out.push_str(&line(row.iter().map(|cell| cell.replace('|', "\\|")).collect()));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reference_pages_are_fresh() {
        if std::env::var_os("UPDATE_DOCS").is_some() {
            write().unwrap();
        }
        check().unwrap();
    }

    #[test]
    fn bars_in_cells_are_escaped() {
        let rows = [["a|b".to_owned(), "c".to_owned()]];
        assert_eq!(table(["x", "y"], &rows), "| x | y |\n|---|---|\n| a\\|b | c |\n");
        assert_eq!(table::<1>(["x"], &[]), "");
    }
}
