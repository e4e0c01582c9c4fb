//! Runs the engine by the example that compares its decisions with recorded ones.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};
use serde_json::Value;

use crate::run;

/// The compiled example.
pub(crate) struct Engine {
    binary: PathBuf,
}

impl Engine {
    /// Compiles it with optimizations, and copies it, so that a later build does not change it during the run.
    pub(crate) fn build(scratch: &Path) -> anyhow::Result<Self> {
        let build =
            ["build", "--release", "-p", "switchyard-scheduler", "--example", "conformance"];
        let mut command = run::cargo(&build);
        command.args(["--message-format", "json-render-diagnostics"]);
        let messages = run::output(command)?;
        let named = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let mut named =
            named.filter_map(|message| Some(PathBuf::from(message["executable"].as_str()?)));
        let built = named.next_back().context("cargo named no executable of the example")?;
        let binary = scratch.join("conformance");
        std::fs::copy(&built, &binary)
            .with_context(|| format!("cannot copy {}", built.display()))?;
        Ok(Self { binary })
    }

    /// The path of the copy.
    pub(crate) fn binary(&self) -> &Path {
        &self.binary
    }

    /// The first difference between the engine's and the expected decisions, for each scenario of the file. `None` if they are
    /// equal.
    pub(crate) fn differences(
        &self,
        file: &Path,
        count: usize,
    ) -> anyhow::Result<Vec<Option<String>>> {
        let output = Command::new(&self.binary)
            .arg("--json")
            .arg(file)
            .stderr(Stdio::inherit())
            .output()
            .with_context(|| format!("cannot start {}", self.binary.display()))?;
        let mut differences = vec![None; count];
        for line in String::from_utf8_lossy(&output.stdout).lines() {
            let told: Value =
                serde_json::from_str(line).with_context(|| format!("the example said {line:?}"))?;
            let at = told["line"]
                .as_u64()
                .and_then(|line| usize::try_from(line).ok())
                .and_then(|line| line.checked_sub(1));
            let place = at
                .and_then(|at| differences.get_mut(at))
                .with_context(|| format!("no such line: {line}"))?;
            *place = told["difference"].as_str().map(str::to_owned);
        }
        let failed = differences.iter().any(Option::is_some);
        ensure!(failed || output.status.success(), "the example ended early: {}", output.status);
        Ok(differences)
    }
}
