//! Results of tests: Switchyard's as the harness writes them, Kueue's as recorded.

use std::path::Path;

use anyhow::Context;
use serde_json::{Value, json};

/// Kueue's results in this harness, measured once, with the versions.
const STOCK: &str = include_str!("stock.json");

/// How one test ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Passed,
    Failed,
    /// Not run here.
    Skipped,
}

impl State {
    /// As Ginkgo names it; what is neither is a failure of some kind: panicked, timedout, aborted.
    fn parse(text: &str) -> Self {
        match text {
            "passed" => Self::Passed,
            "skipped" | "pending" => Self::Skipped,
            _ => Self::Failed,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Failed => "failed",
            Self::Skipped => "skipped",
        }
    }
}

/// One test of a suite.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Test {
    pub(super) name: String,
    pub(super) state: State,
    pub(super) seconds: f64,
    /// Why it failed, in one line.
    pub(super) why: String,
}

/// One suite, run.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Outcome {
    pub(super) suite: String,
    pub(super) tests: Vec<Test>,
}

impl Outcome {
    /// Reads the output of the harness.
    pub(super) fn read(suite: &str, path: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read {}", path.display()))?;
        let results: Value =
            serde_json::from_str(&text).with_context(|| path.display().to_string())?;
        Ok(Self::parse(suite, &results))
    }

    fn parse(suite: &str, results: &Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let tests = results["tests"].as_array().into_iter().flatten().map(|test| Test {
            name: text(&test["test"]),
            state: State::parse(&text(&test["state"])),
            seconds: test["seconds"].as_f64().unwrap_or_default(),
            why: text(&test["why"]).split_whitespace().collect::<Vec<_>>().join(" "),
        });
        Self { suite: suite.to_owned(), tests: tests.collect() }
    }

    pub(super) fn count(&self, state: State) -> usize {
        self.tests.iter().filter(|test| test.state == state).count()
    }

    pub(super) fn json(&self, stock: Option<&StockSuite>) -> Value {
        let tests = self.tests.iter().map(|test| {
            let stock = stock.and_then(|stock| stock.state(&test.name)).map(State::name);
            json!({
                "test": test.name, "state": test.state.name(), "seconds": test.seconds, "why": test.why, "stock": stock,
            })
        });
        json!({
            "suite": self.suite, "passed": self.count(State::Passed), "failed": self.count(State::Failed),
            "skipped": self.count(State::Skipped), "tests": tests.collect::<Vec<_>>(),
        })
    }
}

/// Kueue's results.
#[derive(Clone, Debug)]
pub(super) struct Stock {
    /// The version of Kueue.
    pub(super) kueue: String,
    /// The version of Kubernetes that it was measured on.
    pub(super) kubernetes: String,
    suites: Vec<StockSuite>,
}

/// One suite's tests by how they ended.
#[derive(Clone, Debug)]
pub(super) struct StockSuite {
    name: String,
    tests: Vec<(String, State)>,
    /// Why some do not pass.
    pub(super) note: String,
}

impl StockSuite {
    pub(super) fn state(&self, test: &str) -> Option<State> {
        self.tests.iter().find(|(name, _)| name == test).map(|(_, state)| *state)
    }

    pub(super) fn count(&self, state: State) -> usize {
        self.tests.iter().filter(|(_, of)| *of == state).count()
    }
}

impl Stock {
    /// The recorded results.
    pub(super) fn recorded() -> anyhow::Result<Self> {
        let document: Value = serde_json::from_str(STOCK).context("stock.json")?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let suite = |suite: &Value| {
            let of = |state: State| {
                let names = suite[state.name()].as_array().into_iter().flatten();
                names.map(move |name| (text(name), state)).collect::<Vec<_>>()
            };
            let tests =
                [State::Passed, State::Failed, State::Skipped].into_iter().flat_map(of).collect();
            StockSuite { name: text(&suite["suite"]), tests, note: text(&suite["note"]) }
        };
        Ok(Self {
            kueue: text(&document["kueue"]),
            kubernetes: text(&document["kubernetes"]),
            suites: document["suites"].as_array().into_iter().flatten().map(suite).collect(),
        })
    }

    pub(super) fn suite(&self, name: &str) -> Option<&StockSuite> {
        self.suites.iter().find(|suite| suite.name == name)
    }

    pub(super) fn names(&self) -> Vec<&str> {
        self.suites.iter().map(|suite| suite.name.as_str()).collect()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A suite with tests of this name, state and reason.
    pub(in super::super) fn outcome(suite: &str, tests: &[(&str, &str, &str)]) -> Outcome {
        let tests = tests.iter().map(
            |(test, state, why)| json!({"test": test, "state": state, "seconds": 1.0, "why": why}),
        );
        Outcome::parse(suite, &json!({"tests": tests.collect::<Vec<_>>()}))
    }

    #[test]
    fn every_suite_of_the_record_has_tests_and_the_known_counts() {
        let stock = Stock::recorded().unwrap();
        let count = |suite: &str, state| stock.suite(suite).unwrap().count(state);
        assert_eq!(count("mk-baseline", State::Passed), 18);
        assert_eq!(
            (count("single-baseline", State::Passed), count("single-baseline", State::Skipped)),
            (59, 3)
        );
        assert_eq!(count("single-sequential", State::Failed), 1);
        assert!(stock.names().iter().all(|name| count(name, State::Passed) > 0));
        assert!(super::super::DEFAULT.iter().all(|name| stock.suite(name).is_some()));
    }

    #[test]
    fn what_did_not_pass_and_was_run_has_failed() {
        let outcome =
            outcome("s", &[("a", "passed", ""), ("b", "panicked", "x\n  y"), ("c", "pending", "")]);
        let states: Vec<State> = outcome.tests.iter().map(|test| test.state).collect();
        assert_eq!(states, [State::Passed, State::Failed, State::Skipped]);
        assert_eq!(outcome.tests[1].why, "x y");
    }
}
