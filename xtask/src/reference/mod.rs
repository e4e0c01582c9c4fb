//! Reference pages made from the sources. `cargo xtask generate` writes them, and the lint fails
//! while one is stale.

mod conditions;
mod fields;
mod metrics;
mod names;
mod ports;
mod roles;
mod rust;
mod values;

use std::fs;

use anyhow::{Context, bail};
use switchyard_pages::table;

use crate::run;

/// The path of a page, and the function that makes its text.
type Page = (&'static str, fn() -> anyhow::Result<String>);

const PAGES: [Page; 7] = [
    ("docs/labels.md", names::page),
    ("docs/conditions.md", conditions::page),
    ("docs/fields.md", fields::page),
    ("docs/values.md", values::page),
    ("docs/roles.md", roles::page),
    ("docs/ports.md", ports::page),
    ("docs/metric-families.md", metrics::page),
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
}
