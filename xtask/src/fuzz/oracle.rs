//! Kueue's own scheduler, as a compiled Go test that reads scenarios from files.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail};
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::generator::OVERLAP;
use super::judge;
use crate::{run, tools};

/// Kueue's decisions when it plays a scenario several times.
pub(crate) enum Repeated {
    /// The same in all repetitions. Messages that vary are removed from the scenario.
    Same(Value),
    /// Different between repetitions.
    Varies,
    /// The API server would reject the decisions, or they do not end.
    Rejected,
}

/// The compiled oracle.
pub(crate) struct Oracle {
    binary: PathBuf,
}

impl Oracle {
    /// Compiles the Go test in `dir`, unless it was compiled for the same files before.
    pub(crate) fn build(dir: &Path) -> anyhow::Result<Self> {
        if !dir.join("go.mod").is_file() {
            bail!(
                "{} has no oracle: pass --oracle DIR, the directory with Kueue's oracle (go.mod, oracle_test.go and \
                 scenario-gen.py)",
                dir.display()
            );
        }
        let binary = tools::cache()?.join("oracle").join(format!("{}.test", checksum(dir)?));
        if !binary.is_file() {
            let mut go = Command::new("go");
            go.args(["test", "-c", "-o"]).arg(&binary).arg(".").current_dir(dir);
            run::step(
                "compile Kueue's scheduler into the oracle (once, some minutes; needs Go)",
                go,
            )?;
        }
        Ok(Self { binary })
    }

    /// The path of the program.
    pub(crate) fn binary(&self) -> &Path {
        &self.binary
    }

    /// The scenarios as played: with Kueue's decisions, and with the names of workloads that the oracle added to the steps.
    /// `None` for a scenario that it refuses.
    pub(crate) fn ask(
        &self,
        scenarios: &[Value],
        scratch: &Path,
    ) -> anyhow::Result<Vec<Option<Value>>> {
        let mut answers = vec![None; scenarios.len()];
        for gate in [true, false] {
            let asked: Vec<usize> = (0..scenarios.len())
                .filter(|at| (scenarios[*at]["gates"][OVERLAP] == true) == gate)
                .collect();
            self.ask_all(scenarios, &asked, gate, scratch, &mut answers)?;
        }
        Ok(answers)
    }

    /// Plays one scenario several times.
    pub(crate) fn repeat(
        &self,
        scenario: &Value,
        runs: usize,
        scratch: &Path,
    ) -> anyhow::Result<Repeated> {
        let (input, output) = (scratch.join("asked.jsonl"), scratch.join("answered.jsonl"));
        judge::write(&input, std::slice::from_ref(scenario))?;
        let played = self
            .command(&input, &output, scenario["gates"][OVERLAP] == true)
            .env("ORACLE_RUNS", runs.to_string())
            .current_dir(scratch)
            .output()
            .with_context(|| format!("cannot start {}", self.binary.display()))?;
        let text = std::fs::read_to_string(&output).unwrap_or_default();
        if let Some(line) = text.lines().next() {
            let scenario = serde_json::from_str(line);
            return Ok(Repeated::Same(
                scenario.context("the oracle wrote something else than a scenario")?,
            ));
        }
        let told = String::from_utf8_lossy(&played.stdout);
        let varies = told.lines().any(|line| line.starts_with("NONDETERMINISTIC"));
        Ok(if varies { Repeated::Varies } else { Repeated::Rejected })
    }

    fn command(&self, input: &Path, output: &Path, gate: bool) -> Command {
        let mut command = Command::new(&self.binary);
        command
            .args(["-test.run", "^TestOracle$"])
            .env("ORACLE_IN", input)
            .env("ORACLE_OUT", output)
            .env("ORACLE_GATES", format!("{OVERLAP}={gate}"))
            // At Go's default, garbage collection takes a third of the time, although the heap is small.
            .env("GOGC", "400");
        command
    }

    /// Plays scenarios in one process. A scenario that Kueue cannot play ends the process; then each half is played apart.
    fn ask_all(
        &self,
        scenarios: &[Value],
        asked: &[usize],
        gate: bool,
        scratch: &Path,
        answers: &mut [Option<Value>],
    ) -> anyhow::Result<()> {
        if asked.is_empty() {
            return Ok(());
        }
        let chosen: Vec<Value> = asked.iter().map(|at| scenarios[*at].clone()).collect();
        match self.play(&chosen, gate, scratch)? {
            Some(played) => {
                for (at, scenario) in asked.iter().zip(played) {
                    answers[*at] = Some(scenario);
                }
                Ok(())
            }
            None if asked.len() == 1 => Ok(()),
            None => {
                let (left, right) = asked.split_at(asked.len() / 2);
                self.ask_all(scenarios, left, gate, scratch, answers)?;
                self.ask_all(scenarios, right, gate, scratch, answers)
            }
        }
    }

    fn play(
        &self,
        scenarios: &[Value],
        gate: bool,
        scratch: &Path,
    ) -> anyhow::Result<Option<Vec<Value>>> {
        let (input, output) = (scratch.join("asked.jsonl"), scratch.join("answered.jsonl"));
        judge::write(&input, scenarios)?;
        let status = self
            .command(&input, &output, gate)
            .current_dir(scratch)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .with_context(|| format!("cannot start {}", self.binary.display()))?;
        let text = std::fs::read_to_string(&output).unwrap_or_default();
        let answers: Vec<Value> = text
            .lines()
            .map(serde_json::from_str)
            .collect::<Result<_, _>>()
            .context("the oracle wrote something else than scenarios")?;
        Ok((status.success() && answers.len() == scenarios.len()).then_some(answers))
    }
}

/// The checksum of all files in the directory, by name.
fn checksum(dir: &Path) -> anyhow::Result<String> {
    let entries =
        std::fs::read_dir(dir).with_context(|| format!("cannot list {}", dir.display()))?;
    let mut files = entries.map(|entry| Ok(entry?.path())).collect::<anyhow::Result<Vec<_>>>()?;
    files.retain(|path| path.is_file());
    files.sort();
    let mut sum = Sha256::new();
    for file in files {
        let content =
            std::fs::read(&file).with_context(|| format!("cannot read {}", file.display()))?;
        sum.update(file.file_name().unwrap_or_default().as_encoded_bytes());
        sum.update((content.len() as u64).to_le_bytes());
        sum.update(&content);
    }
    Ok(sum.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect())
}
