//! What is checked without running anything: format, lints, dependencies, and which crate may use which.

use std::process::Command;

use anyhow::bail;

use crate::{run, tools};

pub(crate) fn run() -> anyhow::Result<()> {
    run::step("format", run::cargo(&["fmt", "--all", "--check"]))?;
    let clippy = |targets: &[&str]| {
        run::cargo(&[&["clippy", "--workspace"][..], targets, &["--", "--deny", "warnings"]].concat())
    };
    run::step("clippy", clippy(&["--all-targets"]))?;
    // They are not among those that a plain `cargo test` runs, so not among all targets either.
    run::step("clippy of the cluster tests", clippy(&["--test", "cluster"]))?;
    purity()?;
    deny()
}

/// Crates that must stay free of others, with all that these bring.
const FORBIDDEN: [(&str, &[&str]); 2] = [
    ("switchyard-scheduler", &["tokio", "kube", "kube-core", "k8s-openapi", "tonic", "jiff", "rand", "hyper"]),
    ("switchyard-api", &["tokio", "kube-client", "kube-runtime", "tonic", "hyper"]),
];

/// The engine decides without I/O: its dependencies cannot do any.
fn purity() -> anyhow::Result<()> {
    for (package, forbidden) in FORBIDDEN {
        let tree = run::output(run::cargo(&["tree", "--package", package, "--edges", "normal", "--prefix", "none"]))?;
        let found: Vec<&str> =
            tree.lines().filter_map(|line| line.split(' ').next()).filter(|name| forbidden.contains(name)).collect();
        if !found.is_empty() {
            bail!("{package} must not depend on {found:?}; `cargo tree -p {package} -i NAME` shows how it does");
        }
        eprintln!("==> {package}: free of {}", forbidden.join(", "));
    }
    Ok(())
}

fn deny() -> anyhow::Result<()> {
    let deny = tools::cargo_deny()?;
    let check = |what: &[&str]| {
        let mut command = Command::new(&deny);
        command.args(["--all-features", "check"]).args(what).current_dir(run::root());
        command
    };
    run::step("cargo deny", check(&["--hide-inclusion-graph", "bans", "licenses", "sources"]))?;
    let mut fetch = Command::new(&deny);
    fetch.args(["fetch", "db"]).current_dir(run::root());
    if fetch.output().is_ok_and(|out| out.status.success()) {
        run::step("cargo deny advisories", check(&["advisories"]))
    } else {
        eprintln!("==> cargo deny advisories: SKIPPED, the advisory database cannot be reached from here");
        Ok(())
    }
}
