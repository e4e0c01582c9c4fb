//! Whether Kueue and the engine decide a scenario alike.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde_json::Value;

use super::engine::Engine;
use super::oracle::Oracle;

/// Asks both.
pub(crate) struct Judge {
    /// `scheduler/oracle`, which plays every scenario.
    pub(crate) ours: Oracle,
    /// The one that scenario-gen.py is beside, which plays the scenarios made by it.
    pub(crate) theirs: Option<Oracle>,
    pub(crate) engine: Engine,
    /// A directory for the files with scenarios.
    pub(crate) scratch: PathBuf,
}

/// The outcome of one scenario.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Judgement {
    /// Both decide the same, and so many things.
    Same { decisions: usize },
    /// The first difference, in words, and what Kueue decides.
    Differs { expect: Value, difference: String },
    /// Kueue does not decide it the same way each time, and once as the engine does.
    Wavers,
    /// Kueue does not decide it the same way each time, but not once as the engine does.
    Chance,
    /// Kueue cannot play it: it is no valid scenario.
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
        let played: Vec<Value> = scenarios
            .iter()
            .zip(&answers)
            .filter_map(|(scenario, answer)| {
                let mut scenario = scenario.clone();
                scenario["expect"] = answer.clone()?;
                Some(scenario)
            })
            .collect();
        let file = self.scratch.join("compared.jsonl");
        write(&file, &played)?;
        let mut differences = self.engine.differences(&file, played.len())?.into_iter();
        let judgement = |answer: Option<Value>| match answer {
            None => Judgement::Invalid,
            Some(expect) => match differences.next().flatten() {
                None => Judgement::Same { decisions: decisions(&expect) },
                Some(difference) => Judgement::Differs { expect, difference },
            },
        };
        Ok(answers.into_iter().map(judgement).collect())
    }
}

/// How many admissions and preemptions there are in what Kueue decided.
fn decisions(expect: &Value) -> usize {
    let steps = expect.as_array().into_iter().flatten();
    let cycles = steps.flat_map(|step| step["cycles"].as_array().into_iter().flatten());
    let size = |value: &Value| value.as_object().map_or(0, serde_json::Map::len);
    cycles.map(|cycle| size(&cycle["admitted"]) + size(&cycle["preempted"])).sum()
}

/// Writes scenarios, one a line.
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
