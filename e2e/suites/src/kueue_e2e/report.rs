//! Switchyard beside Kueue: a table of suites, and each test that does not pass, with its reason.

use std::fmt;

use serde_json::{Value, json};
use switchyard_e2e::table::Table;

use super::outcome::{Outcome, State, Stock, Test};

/// The most of a reason that is printed, in characters; all of it is in the JSON.
const REASON: usize = 240;

/// All suites that were run.
pub(super) struct Report<'a> {
    stock: &'a Stock,
    outcomes: Vec<Outcome>,
}

impl<'a> Report<'a> {
    pub(super) fn new(stock: &'a Stock) -> Self {
        Self { stock, outcomes: Vec::new() }
    }

    pub(super) fn add(&mut self, outcome: Outcome) {
        self.outcomes.push(outcome);
    }

    pub(super) fn json(&self) -> Value {
        let suites =
            self.outcomes.iter().map(|outcome| outcome.json(self.stock.suite(&outcome.suite)));
        json!({
            "kueue": self.stock.kueue, "kubernetes": self.stock.kubernetes, "ours": env!("CARGO_PKG_VERSION"),
            "debugBuild": cfg!(debug_assertions), "suites": suites.collect::<Vec<_>>(),
        })
    }

    fn table(&self) -> Table {
        let title = format!(
            "Kueue {}'s end-to-end suites on Kubernetes {}",
            self.stock.kueue, self.stock.kubernetes
        );
        let columns =
            ["passed", "failed", "not run", "Kueue passes", "Kueue fails"].map(str::to_owned);
        let mut table = Table::new(title, columns);
        for outcome in &self.outcomes {
            let stock =
                |state| self.stock.suite(&outcome.suite).map_or(0, |suite| suite.count(state));
            let counts = [
                outcome.count(State::Passed),
                outcome.count(State::Failed),
                outcome.count(State::Skipped),
                stock(State::Passed),
                stock(State::Failed),
            ];
            table.row(outcome.suite.clone(), counts.map(|count| count.to_string()));
        }
        table
    }
}

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.table())?;
        for outcome in &self.outcomes {
            let stock = self.stock.suite(&outcome.suite);
            let passes = |test: &&Test| {
                stock.and_then(|stock| stock.state(&test.name)) == Some(State::Passed)
            };
            for test in outcome.tests.iter().filter(|test| test.state == State::Failed) {
                let beside = if passes(&test) { "" } else { " (nor does Kueue)" };
                writeln!(f, "\n{}: {}{beside}\n    {}", outcome.suite, test.name, reason(test))?;
            }
            let left_out = outcome
                .tests
                .iter()
                .filter(|test| test.state == State::Skipped)
                .filter(passes)
                .count();
            if left_out > 0 {
                writeln!(f, "\n{}: not run, but passed by Kueue: {left_out}", outcome.suite)?;
            }
            if let Some(note) =
                stock.map(|stock| stock.note.as_str()).filter(|note| !note.is_empty())
            {
                writeln!(f, "\n{}: what Kueue does not pass: {note}", outcome.suite)?;
            }
        }
        Ok(())
    }
}

fn reason(test: &Test) -> String {
    match test.why.char_indices().nth(REASON) {
        None => test.why.clone(),
        Some((end, _)) => format!("{}...", test.why.get(..end).unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::outcome::tests::outcome;
    use super::*;

    const PASSED: &str = "Kueuectl Should create a local queue and list it back";

    fn report(stock: &Stock) -> Report<'_> {
        let mut report = Report::new(stock);
        report.add(outcome(
            "single-baseline",
            &[(PASSED, "failed", &"no ".repeat(100)), ("new", "failed", "unknown")],
        ));
        let left_out = "MultiKueue TAS with asymmetric quotas Should admit a TAS Job with required hostname topology";
        report.add(outcome(
            "mk-baseline",
            &[("a", "passed", ""), ("b", "skipped", ""), (left_out, "skipped", "")],
        ));
        report
    }

    #[test]
    fn suites_stand_beside_kueues_and_failures_have_their_reasons() {
        let stock = Stock::recorded().unwrap();
        let text = report(&stock).to_string();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "Kueue v0.19.2's end-to-end suites on Kubernetes 1.36");
        assert_eq!(lines[1], "                 passed  failed  not run  Kueue passes  Kueue fails");
        assert_eq!(lines[2], "single-baseline       0       2        0            59            0");
        assert_eq!(lines[3], "mk-baseline           1       0        2            18            0");
        assert_eq!(lines[5], format!("single-baseline: {PASSED}"));
        assert!(lines[6].ends_with("...") && lines[6].len() < 4 + REASON + 4, "{}", lines[6]);
        assert_eq!(lines[8..10], ["single-baseline: new (nor does Kueue)", "    unknown"]);
        assert!(lines.contains(&"mk-baseline: not run, but passed by Kueue: 1"), "{text}");
    }

    #[test]
    fn the_json_says_of_each_test_what_kueue_does() {
        let stock = Stock::recorded().unwrap();
        let json = report(&stock).json();
        let suite = &json["suites"][0];
        assert_eq!((&suite["failed"], &suite["tests"][0]["stock"]), (&json!(2), &json!("passed")));
        assert_eq!(suite["tests"][1]["stock"], Value::Null);
    }
}
