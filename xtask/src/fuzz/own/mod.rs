//! Generates scenarios for features that `scenario-gen.py` lacks.

mod edits;
mod objects;

use anyhow::bail;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};

/// The special subject of a scenario.
#[derive(Clone, Copy, PartialEq, Eq)]
enum About {
    /// Admission checks on all or some flavors, answered between steps; some are inactive or missing.
    Checks,
    /// Stop policies of ClusterQueues, some of them with checks.
    Stops,
    /// Queues that move between cohorts, cohorts that move or are deleted, namespaces and flavors that come later or change.
    Moves,
    /// Several resource groups, pod sets and minimal counts, fungibility preference, fractional quantities and weights.
    Shapes,
    /// Stop policies of LocalQueues, two in each namespace, some of them with checks.
    LocalQueues,
    /// Admission fair sharing: two LocalQueues in each namespace, with past usage and weights.
    Use,
}

/// A scenario in the making.
struct Draft {
    rng: StdRng,
    about: About,
    fair: bool,
    flavors: Vec<Value>,
    cohorts: Vec<Value>,
    queues: Vec<Value>,
    checks: Vec<String>,
    local_queues: Vec<Value>,
    /// The workloads submitted so far.
    workloads: Vec<Value>,
}

/// The scenario of a mode and a seed. Equal inputs give equal scenarios.
pub(crate) fn scenario(mode: &str, seed: u64) -> anyhow::Result<Value> {
    let about = match mode {
        "own-checks" => About::Checks,
        "own-stops" => About::Stops,
        "own-moves" => About::Moves,
        "own-shapes" => About::Shapes,
        "own-doors" => About::LocalQueues,
        "own-use" => About::Use,
        other => bail!("there is no mode {other}"),
    };
    // Modes differ with the same seed. A third of the scenarios uses fair sharing.
    let rng = StdRng::seed_from_u64(seed.wrapping_mul(31).wrapping_add(about as u64));
    let nothing = || (Vec::new(), Vec::new());
    let ((flavors, cohorts), (queues, workloads)) = (nothing(), nothing());
    let (checks, local_queues, fair) = (Vec::new(), Vec::new(), seed.is_multiple_of(3));
    let mut draft =
        Draft { rng, about, fair, flavors, cohorts, queues, checks, local_queues, workloads };
    Ok(draft.make(&format!("{mode}-{seed:04}")))
}

impl Draft {
    fn make(&mut self, name: &str) -> Value {
        self.make_flavors();
        self.make_cohorts();
        self.make_queues();
        let (missing, present): (Vec<_>, Vec<_>) =
            self.flavors.clone().into_iter().partition(|_| self.late_flavor());
        let checks = self.checks.clone();
        let admission_checks: Vec<_> =
            checks.iter().filter_map(|check| self.first_check(check)).collect();
        let namespaces: Vec<_> =
            (0..self.queues.len()).map(|at| objects::namespace(at, true)).collect();
        self.make_local_queues();
        let local_queues = self.local_queues.clone();
        let (cohorts, queues) = (self.cohorts.clone(), self.queues.clone());
        let count = self.rng.random_range(3..=6);
        let mut steps: Vec<Value> = (0..count).map(|number| self.make_step(number)).collect();
        for flavor in missing {
            let at = self.rng.random_range(1..count);
            edits::push(&mut steps[at], "apply", flavor);
        }
        let mut scenario = json!({
            "name": name, "fairSharing": self.fair, "start": "2026-01-01T00:00:00Z", "namespaces": namespaces,
            "resourceFlavors": present, "admissionChecks": admission_checks, "cohorts": cohorts,
            "clusterQueues": queues, "localQueues": local_queues, "steps": steps,
        });
        if self.about == About::Use {
            scenario["admissionFairSharing"] = self.sharing();
        }
        scenario
    }

    fn late_flavor(&mut self) -> bool {
        self.about == About::Moves && self.chance(0.1)
    }

    fn chance(&mut self, of: f64) -> bool {
        self.rng.random_bool(of)
    }

    fn pick<T: Clone>(&mut self, from: &[T]) -> Option<T> {
        from.choose(&mut self.rng).cloned()
    }

    /// One of these words at random.
    fn word(&mut self, of: &[&'static str]) -> &'static str {
        of.choose(&mut self.rng).copied().unwrap_or_default()
    }

    /// Names of random workloads among those submitted so far.
    fn some_workloads(&mut self, at_most: usize) -> Vec<String> {
        let count = self.rng.random_range(1..=at_most);
        let chosen: Vec<_> =
            self.workloads.choose_multiple(&mut self.rng, count).map(objects::key).collect();
        chosen
    }
}

#[cfg(test)]
mod tests {
    use super::scenario;

    #[test]
    fn seed_determines_the_scenario() {
        for mode in ["own-checks", "own-stops", "own-doors", "own-moves", "own-shapes", "own-use"] {
            let one = scenario(mode, 7).unwrap();
            assert_eq!(one, scenario(mode, 7).unwrap());
            assert_ne!(one["steps"], scenario(mode, 8).unwrap()["steps"]);
        }
    }
}
