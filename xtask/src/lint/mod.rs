//! Checks that run no test: format, Clippy, dependencies, and the shape and words of sources and pages.

mod actions;
mod book;
mod cargo;
mod circles;
mod exceptions;
mod files;
mod glossary;
mod links;
mod names;
mod names_in_pages;
mod prose;
mod sizes;
mod tokens;

use anyhow::bail;
use switchyard_parts::{Part, Parts};

pub(crate) use book::list_commands;
pub(crate) use links::normal;

use crate::reference;
use crate::report::{Report, Tier};
use files::Sources;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Check only shape and words: neither cargo nor cargo-deny runs.
    #[arg(long)]
    text: bool,
    /// Rewrite the lists of known exceptions in xtask/exceptions to the state of the sources.
    #[arg(long)]
    update: bool,
}

/// `cargo xtask lint`: the lint of `cargo xtask test` alone.
///
/// # Errors
/// When a check fails.
pub(crate) fn command(args: &Args) -> anyhow::Result<()> {
    let report = Report::begin(false, false);
    if !args.text {
        cargo::run(&report);
    }
    text(&report, args.update);
    report.end()
}

/// Runs all checks, even after a failure.
pub(crate) fn run(report: &Report) {
    cargo::run(report);
    text(report, false);
}

/// The checks of shape and words. `update` rewrites the lists of exceptions.
fn text(report: &Report, update: bool) {
    let check = |title: &str, check: &dyn Fn() -> anyhow::Result<()>| {
        report.part(Tier::Lint, title, || {
            eprintln!("==> {title}");
            check()
        });
    };
    if let Some(sources) = report.part(Tier::Lint, "sources", Sources::read) {
        check("circles between modules", &|| circles::check(&sources, update));
        check("names of tests", &|| names::check(&sources, update));
        check("lengths of files", &|| sizes::check(&sources));
        check("links", &|| links::check(&sources));
        check("pages of the book", &|| book::check_summary(&sources));
        check("commands of the pages", &|| book::check_commands(&sources));
        check("diagrams", &book::check_diagrams);
        check("reference pages", &reference::check);
        check("names of tests in pages", &|| names_in_pages::check(&sources));
        check("types of the glossary", &|| glossary::check(&sources));
    }
    let tools = report.part(Tier::Build, "build Vale and actionlint", || {
        let parts = Parts::new()?;
        Ok((parts.binary(Part::Vale)?, parts.binary(Part::Actionlint)?))
    });
    if let Some((vale, actionlint)) = tools {
        check("workflows", &|| actions::check(&actionlint));
        check("examples of the rules of language", &|| prose::check_examples(&vale));
        check("words of comments and pages", &|| prose::check(&vale, update));
    }
}

/// Fails with all findings, one a line.
fn fail_if_any(findings: &[String], advice: &str) -> anyhow::Result<()> {
    if findings.is_empty() {
        return Ok(());
    }
    bail!("{}\n{advice}", findings.join("\n"))
}
