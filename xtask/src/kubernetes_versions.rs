//! `cargo xtask kubernetes-versions`: the demo and cluster tests of each mode on other releases of Kubernetes.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, bail};
use clap::ValueEnum;
use switchyard_parts::{Kubernetes, Part, Parts};

use crate::report::Counts;
use crate::test::{self, Outcome};
use crate::{programs, run, times};

/// Files of cluster tests, each with what it stands for.
const FILES: [(&str, &str); 5] = [
    ("deploy", "manifests"),
    ("chart", "Helm"),
    ("one_cluster", "single mode"),
    ("dispatch", "hub, agents"),
    ("kubeconfig", "hub, kubeconfigs"),
];

/// The programs of a control plane that have a version of their own here.
const PARTS: [Part; 3] = [Part::ApiServer, Part::ControllerManager, Part::Scheduler];

/// A release besides the default.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Release {
    /// The oldest that the chart allows.
    Oldest,
    /// The newest that can be built.
    Newest,
}

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only this release. Default: both.
    #[arg(long, value_enum)]
    only: Option<Release>,
    /// Files of cluster tests instead of the usual ones, separated by commas.
    #[arg(long, value_name = "FILE", value_delimiter = ',')]
    files: Vec<String>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let tests = test::cluster_tests()?;
    let mut summary = Vec::new();
    let mut failed = Vec::new();
    for release in Release::value_variants() {
        if args.only.is_some_and(|only| only != *release) {
            continue;
        }
        let (line, failures) = try_release(*release, args, &tests)?;
        summary.push(line);
        failed.extend(failures);
    }
    println!();
    summary.iter().for_each(|line| println!("{line}"));
    if failed.is_empty() { Ok(()) } else { bail!("failed: {}", failed.join(", ")) }
}

/// Returns a line about all that ran, and the names of what failed.
fn try_release(
    release: Release,
    args: &Args,
    tests: &Path,
) -> anyhow::Result<(String, Vec<String>)> {
    let kubernetes = match release {
        Release::Oldest => Kubernetes::Oldest,
        Release::Newest => Kubernetes::Newest,
    };
    let parts = Parts::of(kubernetes)?;
    let version = parts.version(Part::ApiServer)?;
    PARTS.iter().try_for_each(|part| parts.binary(*part).map(drop))?;
    let (mut ends, mut failed) = (Vec::new(), Vec::new());
    if args.files.is_empty() {
        let mut demo = programs::command("debug", "switchyard-demo");
        demo.env(Kubernetes::VARIABLE, kubernetes.name());
        match run::step(&format!("demo on Kubernetes {version}"), demo) {
            Ok(()) => ends.push("demo passed".to_owned()),
            Err(error) => failed.push(format!("{error:#}")),
        }
    }
    for (file, mode) in files(args) {
        let title = format!("{file} on Kubernetes {version}");
        run::announce(&title, "about a minute");
        let start = Instant::now();
        let outcome = run_file(tests, &title, &file, kubernetes)?;
        times::keep(&title, start.elapsed().as_secs_f64());
        let Counts { passed, failed: failures, .. } = outcome.counts;
        ends.push(format!("{file} ({mode}) {passed} passed, {failures} failed"));
        if failures > 0 || passed == 0 {
            failed.push(title);
        }
    }
    Ok((format!("{version}: {}", ends.join("; ")), failed))
}

fn files(args: &Args) -> Vec<(String, String)> {
    if args.files.is_empty() {
        return FILES.map(|(file, mode)| (file.to_owned(), mode.to_owned())).to_vec();
    }
    args.files.iter().map(|file| (file.clone(), "by name".to_owned())).collect()
}

/// Runs the tests of one file, and prints the name and the end of each.
fn run_file(
    program: &Path,
    title: &str,
    file: &str,
    kubernetes: Kubernetes,
) -> anyhow::Result<Outcome> {
    let names = tests_of(program, file)?;
    let mut command = Command::new(program);
    test::prepare(&mut command);
    command.env(Kubernetes::VARIABLE, kubernetes.name()).arg("--exact").args(names);
    let outcome = test::run_program(title, command, true)?;
    for (name, _) in &outcome.ends {
        let failed = outcome.failures.iter().any(|failure| failure.what == *name);
        println!("    {}  {name}", if failed { "FAILED" } else { "passed" });
    }
    for failure in &outcome.failures {
        println!("{}:\n{}\nlogs: {}", failure.what, failure.message, failure.logs.join(", "));
    }
    Ok(outcome)
}

/// The names of a file's tests.
fn tests_of(program: &Path, file: &str) -> anyhow::Result<Vec<String>> {
    let mut list = Command::new(program);
    list.args(["--list", "--format", "terse"]);
    let printed = run::output(list).context("list the cluster tests")?;
    let prefix = format!("{file}::");
    let names: Vec<String> = printed
        .lines()
        .filter_map(|line| line.strip_suffix(": test"))
        .filter(|name| name.starts_with(&prefix))
        .map(str::to_owned)
        .collect();
    if names.is_empty() {
        bail!("no cluster test is in the file {file}");
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_each_mode_exist() {
        for (file, _) in FILES {
            let path = run::root().join(format!("e2e/tests/cluster/{file}.rs"));
            assert!(path.is_file(), "{}", path.display());
        }
    }
}
