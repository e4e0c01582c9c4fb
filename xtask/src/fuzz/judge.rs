//! Compares the decisions of Kueue and of the engine for a scenario.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde_json::Value;

use super::engine::Engine;
use super::oracle::{Oracle, Repeated};

/// Runs both schedulers.
pub(crate) struct Judge {
    /// `scheduler/oracle`, which plays every scenario.
    pub(crate) ours: Oracle,
    /// The oracle in the directory of scenario-gen.py, which plays the scenarios of that generator.
    pub(crate) theirs: Option<Oracle>,
    pub(crate) engine: Engine,
    /// A directory for the files with scenarios.
    pub(crate) scratch: PathBuf,
}

/// The outcome of one scenario.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Judgement {
    /// Equal decisions, and their number.
    Same { decisions: usize },
    /// Kueue's decisions, the steps as it played them, and the first difference as text.
    Differs { expect: Value, steps: Value, difference: String },
    /// Kueue's decisions vary between repetitions, and one repetition equals the engine's.
    Varies,
    /// Kueue's decisions vary between repetitions, and none equals the engine's.
    VariesWithoutMatch,
    /// They differ in a way that docs/compatibility.md or docs/conformance.md names.
    KnownDifference,
    /// Kueue cannot play it, so the scenario is invalid.
    Invalid,
}

impl Judge {
    pub(crate) fn all(&self, scenarios: &[Value]) -> anyhow::Result<Vec<Judgement>> {
        let own = |scenario: &Value| {
            scenario["name"].as_str().is_some_and(|name| name.starts_with("own-"))
        };
        let oracle =
            self.theirs.as_ref().filter(|_| !scenarios.iter().any(own)).unwrap_or(&self.ours);
        let answers = oracle.ask(scenarios, &self.scratch)?;
        let played: Vec<Value> = answers.iter().flatten().cloned().collect();
        let file = self.scratch.join("compared.jsonl");
        write(&file, &played)?;
        let mut differences = self.engine.differences(&file, played.len())?.into_iter();
        let judgement = |answer: Option<Value>| match answer {
            None => Judgement::Invalid,
            Some(mut played) => match differences.next().flatten() {
                None => Judgement::Same { decisions: decisions(&played["expect"]) },
                Some(difference) => {
                    let (expect, steps) = (played["expect"].take(), played["steps"].take());
                    Judgement::Differs { expect, steps, difference }
                }
            },
        };
        Ok(answers.into_iter().map(judgement).collect())
    }

    /// The judgement of a differing scenario if repetitions by the oracle settle it: the API server would reject Kueue's
    /// decisions, or the difference is a message that varies between repetitions. `None` otherwise.
    pub(crate) fn settled(
        &self,
        scenario: &Value,
        runs: usize,
    ) -> anyhow::Result<Option<Judgement>> {
        let Some(theirs) = self.theirs.as_ref().filter(|_| scenario["topologies"].is_array())
        else {
            return Ok(None);
        };
        match theirs.repeat(scenario, runs, &self.scratch)? {
            Repeated::Rejected => Ok(Some(Judgement::Invalid)),
            Repeated::Varies => Ok(None),
            Repeated::Same(played) => Ok(self.is_equal(&played)?.then_some(Judgement::Varies)),
        }
    }

    /// Whether the engine decides a played scenario as it expects.
    pub(crate) fn is_equal(&self, played: &Value) -> anyhow::Result<bool> {
        let file = self.scratch.join("repeated.jsonl");
        write(&file, std::slice::from_ref(played))?;
        Ok(self.engine.differences(&file, 1)?.iter().all(Option::is_none))
    }
}

/// The number of admissions and preemptions among Kueue's decisions.
fn decisions(expect: &Value) -> usize {
    let steps = expect.as_array().into_iter().flatten();
    let cycles = steps.flat_map(|step| step["cycles"].as_array().into_iter().flatten());
    let size = |value: &Value| value.as_object().map_or(0, serde_json::Map::len);
    cycles.map(|cycle| size(&cycle["admitted"]) + size(&cycle["preempted"])).sum()
}

/// Writes scenarios, one on each line.
pub(crate) fn write(file: &Path, scenarios: &[Value]) -> anyhow::Result<()> {
    let mut text = String::new();
    for scenario in scenarios {
        writeln!(text, "{scenario}")?;
    }
    if let Some(dir) = file.parent() {
        std::fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
    }
    std::fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
}
