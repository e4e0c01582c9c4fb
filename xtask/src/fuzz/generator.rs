//! The sources of scenarios.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, ensure};
use serde_json::{Value, json};

use super::own;
use crate::run;

/// A kind of scenario.
pub(crate) struct Mode {
    /// Its name, and the generator's name for it.
    pub(crate) name: &'static str,
}

impl Mode {
    /// Whether its scenarios are generated here and played by `scheduler/oracle`, not by the oracle of `scenario-gen.py`.
    pub(crate) fn is_own(&self) -> bool {
        self.name.starts_with("own-")
    }

    /// The generator beside the oracle. Topology scenarios set their gates themselves.
    fn program(&self) -> &'static str {
        if self.name.starts_with("tas-") { "tas-gen.py" } else { "scenario-gen.py" }
    }
}

/// All kinds. `dyn-` modes also edit objects between the steps; `tas-` modes have topologies; `own-` modes are generated here.
pub(crate) const MODES: [Mode; 27] = [
    Mode { name: "single" },
    Mode { name: "flat" },
    Mode { name: "tree" },
    Mode { name: "borrow" },
    Mode { name: "fair" },
    Mode { name: "fairtree" },
    Mode { name: "dyn-single" },
    Mode { name: "dyn-flat" },
    Mode { name: "dyn-tree" },
    Mode { name: "dyn-borrow" },
    Mode { name: "dyn-fair" },
    Mode { name: "dyn-fairtree" },
    Mode { name: "tas-plain" },
    Mode { name: "tas-slices" },
    Mode { name: "tas-groups" },
    Mode { name: "tas-preempt" },
    Mode { name: "tas-nodes" },
    Mode { name: "tas-delayed" },
    Mode { name: "tas-fair" },
    Mode { name: "tas-balanced" },
    Mode { name: "tas-gates" },
    Mode { name: "own-checks" },
    Mode { name: "own-stops" },
    Mode { name: "own-doors" },
    Mode { name: "own-moves" },
    Mode { name: "own-shapes" },
    Mode { name: "own-use" },
];

/// The gate that Kueue 0.19 has off and 0.20 on.
pub(crate) const OVERLAP: &str = "RecomputeAssignmentUponPreemptionTargetsOverlap";

/// The scenarios of a mode with `count` seeds from `first`, the gate on for odd seeds.
pub(crate) fn make(
    mode: &Mode,
    oracle: &Path,
    first: u64,
    count: usize,
) -> anyhow::Result<Vec<Value>> {
    let gated = |(seed, mut scenario): (u64, Value)| {
        if !scenario["topologies"].is_array() {
            scenario["gates"] = json!({ OVERLAP: seed % 2 == 1 });
        }
        scenario
    };
    if mode.is_own() {
        let made =
            (first..).take(count).map(|seed| Ok(gated((seed, own::scenario(mode.name, seed)?))));
        return made.collect();
    }
    let last = first + (count as u64).saturating_sub(1);
    let program = mode.program();
    let mut command = Command::new("python3");
    command.arg(oracle.join(program)).args([mode.name, &first.to_string(), &last.to_string()]);
    let text =
        run::output(command).with_context(|| format!("{program} needs python3: install it"))?;
    let scenarios = (first..).zip(text.lines()).map(|(seed, line)| {
        let scenario: Value = serde_json::from_str(line)
            .with_context(|| format!("{program} printed something else"))?;
        Ok(gated((seed, scenario)))
    });
    let scenarios = scenarios.collect::<anyhow::Result<Vec<_>>>()?;
    ensure!(
        scenarios.len() == count,
        "{program} made {} scenarios instead of {count}",
        scenarios.len()
    );
    Ok(scenarios)
}

/// The scenarios of a file. If a scenario does not set the gate, it is as in recorded scenarios.
pub(crate) fn read(file: &Path) -> anyhow::Result<Vec<Value>> {
    let text =
        std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    let scenarios = (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty()).map(
        |(number, line)| {
            let context = || format!("{}:{number} is no scenario", file.display());
            let mut scenario: Value = serde_json::from_str(line).with_context(context)?;
            let edited = scenario["name"].as_str().is_some_and(|name| name.starts_with("dyn-"));
            let scenario_gates = scenario.as_object_mut().with_context(context)?.entry("gates");
            scenario_gates.or_insert_with(|| json!({ OVERLAP: !edited }));
            Ok(scenario)
        },
    );
    scenarios.collect()
}
