//! Reference pages: tables, the check that a page is fresh, and the list of metrics, which a
//! cluster test compares with live programs.

pub mod metrics;

use std::path::PathBuf;
use std::{env, fs};

/// A page of the repository that is made from the sources.
#[derive(Clone, Copy, Debug)]
pub struct Page {
    /// Path from the repository's root.
    pub path: &'static str,
    /// The command that writes the page.
    pub command: &'static str,
}

impl Page {
    /// Compares the page with `text`. With the variable `UPDATE_DOCS`, writes it first.
    ///
    /// # Errors
    /// When the page is stale or cannot be written. The message names the command.
    pub fn check(&self, text: &str) -> Result<(), String> {
        let Self { path, command } = self;
        let file = self.file();
        if env::var_os("UPDATE_DOCS").is_some() {
            fs::write(&file, text).map_err(|error| format!("cannot write {path}: {error}"))?;
        }
        if fs::read_to_string(&file).is_ok_and(|current| current == text) {
            return Ok(());
        }
        Err(format!("{path} is stale: {command}"))
    }

    fn file(&self) -> PathBuf {
        PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join(self.path)
    }
}

/// A table in Markdown, or nothing without rows. Bars in cells are escaped.
#[must_use]
pub fn table<const N: usize>(headings: [&str; N], rows: &[[String; N]]) -> String {
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
    fn bars_in_cells_are_escaped() {
        let rows = [["a|b".to_owned(), "c".to_owned()]];
        assert_eq!(table(["x", "y"], &rows), "| x | y |\n|---|---|\n| a\\|b | c |\n");
        assert_eq!(table::<1>(["x"], &[]), "");
    }

    #[test]
    fn stale_page_is_named_with_its_command() {
        let page = Page { path: "docs/none.md", command: "cargo xtask generate" };
        assert_eq!(page.check(""), Err("docs/none.md is stale: cargo xtask generate".to_owned()));
    }
}
