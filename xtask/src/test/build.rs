//! Compiles all tests and the programs that they start, with one set of features.
//!
//! Cargo unites the features of all packages that a command selects. With tests among the targets, it adds those of
//! dev-dependencies. Both commands here select the whole workspace and its tests, so each dependency is compiled once.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, bail, ensure};

use crate::run;

/// A compiled target with tests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Program {
    /// The package, such as `switchyard-hub`.
    pub(super) package: String,
    /// The target's name, such as `transport`.
    pub(super) target: String,
    /// Cargo's kind of target: `lib`, `bin`, `test` or `bench`.
    pub(super) kind: String,
    pub(super) path: PathBuf,
}

impl Program {
    /// Whether it has Rust's test harness. Benchmarks have their own `main`.
    pub(super) fn has_harness(&self) -> bool {
        self.kind != "bench"
    }

    /// The command that repeats a test, or the whole program, with the seeds of the failed run.
    pub(super) fn again(&self, seeds: &str, test: &str) -> String {
        let target = match self.kind.as_str() {
            "lib" => "--lib".to_owned(),
            kind => format!("--{kind} {}", self.target),
        };
        let name = if test.is_empty() { String::new() } else { format!(" -- --exact {test}") };
        format!("{seeds} cargo test --package {} {target}{name}", self.package)
    }

    /// Its name in reports, such as `switchyard-hub` or `switchyard-hub transport`.
    pub(super) fn title(&self) -> String {
        match self.kind.as_str() {
            "lib" => self.package.clone(),
            "bin" => format!("{} bin {}", self.package, self.target),
            kind => format!("{} {kind} {}", self.package, self.target),
        }
    }
}

/// Compiles the unit and property tests of all packages. With fewer packages the features would differ, and cargo would compile
/// dependencies again.
pub(super) fn unit() -> anyhow::Result<Vec<Program>> {
    let found = programs(&[
        "test",
        "--workspace",
        "--no-run",
        "--message-format",
        "json-render-diagnostics",
    ])?;
    ensure!(!found.is_empty(), "cargo names no test program, so nothing would be tested");
    Ok(found)
}

/// Compiles the tests on real control planes, and the programs that they start.
pub(super) fn cluster() -> anyhow::Result<Program> {
    let args = [
        "build",
        "--workspace",
        "--bins",
        "--test",
        "cluster",
        "--message-format",
        "json-render-diagnostics",
    ];
    let found = programs(&args)?.into_iter().find(|program| program.target == "cluster");
    found.context("cargo names no program of the tests on real control planes")
}

fn programs(args: &[&str]) -> anyhow::Result<Vec<Program>> {
    let mut command = run::cargo(args);
    let output = command.stderr(Stdio::inherit()).output().context("cannot start cargo")?;
    if !output.status.success() {
        bail!("it does not compile");
    }
    Ok(String::from_utf8_lossy(&output.stdout).lines().filter_map(program).collect())
}

/// The program in one of cargo's messages, if there is one.
fn program(line: &str) -> Option<Program> {
    let message: serde_json::Value = serde_json::from_str(line).ok()?;
    if message["reason"] != "compiler-artifact" || message["profile"]["test"] != true {
        return None;
    }
    let text = |value: &serde_json::Value| value.as_str().map(str::to_owned);
    // The form is `path+file:///switchyard/hub#switchyard-hub@0.1.0` or `path+file:///switchyard/xtask#0.1.0`.
    let id = text(&message["package_id"])?;
    let (path, version) = id.rsplit_once('#')?;
    let package = match version.split_once('@') {
        Some((name, _)) => name.to_owned(),
        None => path.rsplit('/').next()?.to_owned(),
    };
    let kind = match message["target"]["kind"].get(0)?.as_str()? {
        kind @ ("bin" | "test" | "bench") => kind.to_owned(),
        _ => "lib".to_owned(),
    };
    let target = text(&message["target"]["name"])?;
    Some(Program { package, target, kind, path: message["executable"].as_str()?.into() })
}

/// A command that starts a program as `cargo test` does: in its package's directory.
pub(super) fn start(program: &Program, packages: &super::workspace::Workspace) -> Command {
    let mut command = Command::new(&program.path);
    command.current_dir(packages.directory(&program.package).unwrap_or_else(run::root));
    command
}

#[cfg(test)]
mod tests {
    use super::program;

    #[test]
    fn cargo_messages_name_test_programs() {
        let message = |id: &str, kind: &str, name: &str, test: bool| {
            format!(
                r#"{{"reason":"compiler-artifact","package_id":"{id}","target":{{"kind":["{kind}"],"name":"{name}"}},
                "profile":{{"test":{test}}},"executable":"/t/{name}-1"}}"#
            )
        };
        let hub = "path+file:///switchyard/hub#switchyard-hub@0.1.0";
        for (case, line, title) in [
            ("a library", message(hub, "lib", "switchyard_hub", true), Some("switchyard-hub")),
            (
                "an integration test",
                message(hub, "test", "transport", true),
                Some("switchyard-hub test transport"),
            ),
            (
                "a package named as its directory",
                message("path+file:///switchyard/xtask#0.1.0", "bin", "xtask", true),
                Some("xtask bin xtask"),
            ),
            ("a program without tests", message(hub, "bin", "switchyard-hub", false), None),
            (
                "another message",
                "{\"reason\":\"build-finished\",\"success\":true}".to_owned(),
                None,
            ),
            ("no message", "warning: unused".to_owned(), None),
        ] {
            assert_eq!(program(&line).map(|program| program.title()).as_deref(), title, "{case}");
        }
    }
}
