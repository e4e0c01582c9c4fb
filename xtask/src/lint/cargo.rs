//! Checks by cargo and cargo-deny: format, Clippy, dependencies, and the dependencies that crates must not have.

use std::process::Command;

use anyhow::bail;

use crate::report::{Report, Tier};
use crate::{run, tools};

/// Runs all checks, even after a failure.
pub(super) fn run(report: &Report) {
    report.part(Tier::Lint, "format", || {
        run::step("format", run::cargo(&["fmt", "--all", "--check"]))
    });
    let clippy = |targets: &[&str]| {
        run::cargo(
            &[&["clippy", "--workspace"][..], targets, &["--", "--deny", "warnings"]].concat(),
        )
    };
    report.part(Tier::Lint, "clippy", || {
        run::long_step("clippy", "about 2 minutes", clippy(&["--all-targets"]))
    });
    // `--all-targets` leaves the cluster tests out, as a plain `cargo test` does.
    let title = "clippy of the cluster tests";
    report.part(Tier::Lint, title, || run::step(title, clippy(&["--test", "cluster"])));
    report.part(Tier::Lint, "forbidden dependencies", purity);
    if let Some(deny) = report.part(Tier::Lint, "cargo-deny itself", tools::cargo_deny) {
        let check = |what: &[&str]| {
            let mut command = Command::new(&deny);
            command.args(["--all-features", "check"]).args(what).current_dir(run::root());
            command
        };
        let dependencies = check(&["--hide-inclusion-graph", "bans", "licenses", "sources"]);
        report.part(Tier::Lint, "cargo deny", || run::step("cargo deny", dependencies));
        let title = "cargo deny advisories";
        let mut fetch = Command::new(&deny);
        fetch.args(["fetch", "db"]).current_dir(run::root());
        match fetch.output() {
            Ok(out) if out.status.success() => {
                report.part(Tier::Lint, title, || run::step(title, check(&["advisories"])));
            }
            Ok(out) => {
                let printed = String::from_utf8_lossy(&out.stderr);
                let cause = printed
                    .lines()
                    .rfind(|line| !line.trim().is_empty())
                    .unwrap_or("no output")
                    .trim();
                report.skip(
                    Tier::Lint,
                    title,
                    &format!("the advisory database cannot be fetched: {cause}"),
                );
            }
            Err(error) => {
                report.skip(Tier::Lint, title, &format!("cargo-deny cannot be started: {error}"))
            }
        }
    }
}

/// Crates with the packages that must not be in their dependency graphs.
const FORBIDDEN: &[(&str, &[&str])] = &[
    (
        "switchyard-scheduler",
        &["tokio", "kube", "kube-core", "k8s-openapi", "tonic", "jiff", "rand", "hyper"],
    ),
    ("switchyard-dispatcher", &["tokio", "kube", "kube-core", "tonic", "hyper"]),
    (
        "switchyard-audit",
        &["tokio", "kube-client", "kube-runtime", "tonic", "hyper", "switchyard-scheduler"],
    ),
    (
        "switchyard-ledger",
        &["tokio", "kube", "kube-core", "k8s-openapi", "tonic", "jiff", "rand", "hyper"],
    ),
    ("switchyard-api", &["tokio", "kube-client", "kube-runtime", "tonic", "hyper"]),
    ("switchyard-jobs", &["tokio", "kube-client", "kube-runtime", "tonic", "hyper"]),
    ("switchyard-config", &["tokio", "kube-client", "kube-runtime", "tonic", "hyper"]),
    ("switchyard-syntax", &["tokio", "kube", "kube-core", "tonic", "hyper"]),
    ("switchyard", &["switchyard-hub"]),
];

/// Checks that the dependencies of pure crates do no I/O.
fn purity() -> anyhow::Result<()> {
    for &(package, forbidden) in FORBIDDEN {
        let tree = run::output(run::cargo(&[
            "tree",
            "--package",
            package,
            "--edges",
            "normal",
            "--prefix",
            "none",
        ]))?;
        let found: Vec<&str> = tree
            .lines()
            .filter_map(|line| line.split(' ').next())
            .filter(|name| forbidden.contains(name))
            .collect();
        if !found.is_empty() {
            bail!(
                "{package} must not depend on {found:?}; `cargo tree -p {package} -i NAME` shows how it does"
            );
        }
        eprintln!("==> {package}: free of {}", forbidden.join(", "));
    }
    Ok(())
}
