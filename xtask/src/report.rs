//! The report of a run: its parts, the parts that did not run, and its failures.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::bail;

use crate::{run, times};

/// How many parts the report lists as the slowest.
const SLOWEST: usize = 10;

/// Budget of the whole command in minutes on two cores: on a new machine, and on one that has built before.
const WHOLE: (f64, f64) = (30.0, 15.0);

/// A group of parts with a budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub(crate) enum Tier {
    /// Compiles programs and tests. It cannot be selected on the command line, because the other tiers need it.
    #[value(skip)]
    Build,
    /// Format, lints, dependencies.
    Lint,
    /// Unit and property tests, and the simulation.
    Unit,
    /// Simulation and property tests with seeds that no earlier run used.
    #[value(skip)]
    Fresh,
    /// Tests on real control planes.
    Cluster,
    /// Tests on real nodes.
    Nodes,
}

impl Tier {
    const ALL: [Self; 6] =
        [Self::Build, Self::Lint, Self::Unit, Self::Fresh, Self::Cluster, Self::Nodes];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Build => "build",
            Self::Lint => "lint",
            Self::Unit => "unit",
            Self::Fresh => "fresh seeds",
            Self::Cluster => "cluster",
            Self::Nodes => "nodes",
        }
    }

    /// Budget in minutes on two cores: on a new machine, where Go and Rust build at the same time, and on one that has built
    /// before. The report marks a tier above its budget.
    fn budget(self, bare: bool) -> f64 {
        match (self, bare) {
            (Self::Build, true) => 16.0,
            (Self::Build, false) | (Self::Unit, true) => 4.0,
            (Self::Lint, true) => 6.0,
            (Self::Lint | Self::Unit, false) => 2.0,
            (Self::Fresh, _) => 1.5,
            (Self::Cluster, _) => 12.0,
            (Self::Nodes, _) => 5.0,
        }
    }
}

/// Tests by result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    pub(crate) skipped: u64,
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

/// A failure, with the command that repeats it and its logs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) what: String,
    /// The message.
    pub(crate) message: String,
    /// The command that repeats it alone.
    pub(crate) again: String,
    /// Directories of logs.
    pub(crate) logs: Vec<String>,
}

/// A step that ran.
#[derive(Debug)]
struct TimedStep {
    tier: Tier,
    title: String,
    from: Instant,
    to: Instant,
    succeeded: bool,
}

#[derive(Debug, Default)]
struct Record {
    parts: Vec<TimedStep>,
    counts: BTreeMap<Tier, Counts>,
    /// Parts that did not run, and why.
    not_run: Vec<(String, String)>,
    failures: Vec<(Tier, Failure)>,
}

/// Collects the results of a run's threads.
#[derive(Debug)]
pub(crate) struct Report {
    start: Instant,
    /// Whether a program of the test clusters was missing before this run.
    bare: bool,
    /// Whether whole files and programs run. Only then are their times kept.
    whole: bool,
    record: Mutex<Record>,
}

impl Report {
    pub(crate) fn begin(bare: bool, whole: bool) -> Self {
        Self { start: Instant::now(), bare, whole, record: Mutex::default() }
    }

    /// Runs a part, and records its time. An error is recorded as a failure.
    pub(crate) fn part<T>(
        &self,
        tier: Tier,
        title: &str,
        run: impl FnOnce() -> anyhow::Result<T>,
    ) -> Option<T> {
        let from = Instant::now();
        let result = run();
        let (title_of, succeeded) = (title.to_owned(), result.is_ok());
        self.with(|record| {
            record.parts.push(TimedStep {
                tier,
                title: title_of,
                from,
                to: Instant::now(),
                succeeded,
            })
        });
        match result {
            Ok(value) => Some(value),
            Err(error) => {
                let again = match tier {
                    Tier::Build | Tier::Fresh => String::new(),
                    Tier::Lint | Tier::Unit | Tier::Cluster | Tier::Nodes => {
                        format!("cargo xtask test --only {}", tier.name())
                    }
                };
                self.fail(
                    tier,
                    Failure {
                        what: title.to_owned(),
                        message: format!("{error:#}"),
                        again,
                        logs: vec![],
                    },
                );
                None
            }
        }
    }

    /// Seconds so far in which at least one part of a tier ran.
    pub(crate) fn seconds(&self, tier: Tier) -> f64 {
        self.with(|record| record.minutes(tier) * 60.0)
    }

    /// Number of tests that ran so far.
    pub(crate) fn tests(&self) -> u64 {
        self.with(|record| record.counts.values().map(|counts| counts.passed + counts.failed).sum())
    }

    /// Whether no part ran.
    pub(crate) fn is_empty(&self) -> bool {
        self.with(|record| record.parts.is_empty())
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.with(|record| !record.failures.is_empty())
    }

    /// Records how tests ended.
    pub(crate) fn count(&self, tier: Tier, counts: Counts) {
        self.with(|record| *record.counts.entry(tier).or_default() += counts);
    }

    pub(crate) fn fail(&self, tier: Tier, failure: Failure) {
        eprintln!(
            "FAILED: {}: {}",
            failure.what,
            failure.message.lines().next().unwrap_or_default()
        );
        self.with(|record| record.failures.push((tier, failure)));
    }

    /// Records that a part did not run, and why. It counts as one skipped test.
    pub(crate) fn skip(&self, tier: Tier, what: &str, why: &str) {
        eprintln!("==> {what}: SKIPPED: {why}");
        self.with(|record| {
            record.counts.entry(tier).or_default().skipped += 1;
            record.not_run.push((what.to_owned(), why.to_owned()));
        });
    }

    /// Records that flags left a part out. It does not count as a skipped test.
    pub(crate) fn left_out(&self, what: &str, why: &str) {
        self.with(|record| record.not_run.push((what.to_owned(), why.to_owned())));
    }

    /// Prints the report.
    ///
    /// # Errors
    /// Names the failed parts, if any.
    pub(crate) fn end(self) -> anyhow::Result<()> {
        let took = self.start.elapsed();
        let record = self.record.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        for part in record.parts.iter().filter(|part| self.whole && part.succeeded) {
            times::keep(&part.title, (part.to - part.from).as_secs_f64());
        }
        print!("{}", record.text(took, self.bare));
        if record.failures.is_empty() {
            return Ok(());
        }
        let failed: Vec<&str> =
            record.failures.iter().map(|(_, failure)| failure.what.as_str()).collect();
        bail!("failed: {}", failed.join(", "))
    }

    fn with<T>(&self, act: impl FnOnce(&mut Record) -> T) -> T {
        act(&mut self.record.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
    }
}

impl Record {
    fn text(&self, took: Duration, bare: bool) -> String {
        let mut text = String::new();
        self.write(&mut text, took, bare).unwrap_or_default();
        text
    }

    fn write(&self, text: &mut String, took: Duration, bare: bool) -> std::fmt::Result {
        let mut slowest: Vec<&TimedStep> = self.parts.iter().collect();
        slowest.sort_by_key(|part| std::cmp::Reverse(part.to - part.from));
        writeln!(text, "\nThe slowest parts")?;
        for part in slowest.iter().take(SLOWEST) {
            let seconds = (part.to - part.from).as_secs_f64();
            writeln!(text, "  {seconds:>7.1} s  {:<11}  {}", part.tier.name(), part.title)?;
        }
        let machine = if bare { "a bare machine" } else { "a machine that has built before" };
        writeln!(text, "\nTiers              minutes  budget on {machine}")?;
        for tier in Tier::ALL {
            let minutes = self.minutes(tier);
            let Counts { passed, failed, skipped } =
                self.counts.get(&tier).copied().unwrap_or_default();
            if minutes == 0.0 && passed + failed + skipped == 0 {
                continue;
            }
            let budget = tier.budget(bare);
            let over = if minutes > budget { "  OVER BUDGET" } else { "" };
            let tests = match passed + failed + skipped {
                0 => String::new(),
                _ => format!("  {passed} passed, {failed} failed, {skipped} skipped"),
            };
            writeln!(text, "  {:<15} {minutes:>8.1}  {budget:>6.1}{tests}{over}", tier.name())?;
        }
        for (tier, failure) in &self.failures {
            failure.write(*tier, text)?;
        }
        let (took, whole) = (took.as_secs_f64() / 60.0, if bare { WHOLE.0 } else { WHOLE.1 });
        let over = if took > whole { ", OVER BUDGET" } else { "" };
        writeln!(text, "\ntook {took:.1} min of {whole:.0}{over}")?;
        let mut all = Counts::default();
        self.counts.values().for_each(|counts| all += *counts);
        writeln!(text, "{} passed, {} failed, {} skipped", all.passed, all.failed, all.skipped)?;
        if self.not_run.is_empty() {
            return Ok(());
        }
        let not_run: Vec<String> =
            self.not_run.iter().map(|(what, why)| format!("{what} ({why})")).collect();
        writeln!(text, "NOT RUN: {}", not_run.join("; "))
    }

    /// Minutes in which at least one part of a tier ran.
    fn minutes(&self, tier: Tier) -> f64 {
        let mut spans: Vec<(Instant, Instant)> = self
            .parts
            .iter()
            .filter(|part| part.tier == tier)
            .map(|part| (part.from, part.to))
            .collect();
        spans.sort();
        let (mut sum, mut until) = (Duration::ZERO, None);
        for (from, to) in spans {
            let begin = until.map_or(from, |until| from.max(until));
            sum += to.saturating_duration_since(begin);
            until = Some(until.map_or(to, |until| to.max(until)));
        }
        sum.as_secs_f64() / 60.0
    }
}

impl Failure {
    fn write(&self, tier: Tier, text: &mut String) -> std::fmt::Result {
        writeln!(text, "\nFAILED: {} ({})", self.what, tier.name())?;
        for line in self.message.lines() {
            writeln!(text, "  {line}")?;
        }
        for log in &self.logs {
            writeln!(
                text,
                "  logs:  {}",
                log.strip_prefix(&format!("{}/", run::root().display())).unwrap_or(log)
            )?;
        }
        match self.again.as_str() {
            "" => Ok(()),
            again => writeln!(text, "  again: {again}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::{Counts, Failure, Record, Tier, TimedStep};

    fn record(spans: &[(Tier, &str, u64, u64)]) -> Record {
        let zero = Instant::now();
        let at = |seconds| zero + Duration::from_secs(seconds);
        let part = |&(tier, title, from, to): &(Tier, &str, u64, u64)| TimedStep {
            tier,
            title: title.to_owned(),
            from: at(from),
            to: at(to),
            succeeded: true,
        };
        Record { parts: spans.iter().map(part).collect(), ..Record::default() }
    }

    #[test]
    fn minutes_of_parts_that_overlap_count_once() {
        for (case, spans, minutes) in [
            ("none", &[][..], 0.0),
            (
                "one after the other",
                &[(Tier::Unit, "a", 0, 60), (Tier::Unit, "b", 90, 120)][..],
                1.5,
            ),
            (
                "one inside the other",
                &[(Tier::Unit, "a", 0, 120), (Tier::Unit, "b", 30, 60)][..],
                2.0,
            ),
            ("overlapping", &[(Tier::Unit, "a", 0, 60), (Tier::Unit, "b", 30, 120)][..], 2.0),
            ("another tier's", &[(Tier::Lint, "a", 0, 60)][..], 0.0),
        ] {
            assert_eq!(record(spans).minutes(Tier::Unit), minutes, "{case}");
        }
    }

    #[test]
    fn text_names_slow_parts_budgets_failures_and_skips() {
        let mut record =
            record(&[(Tier::Lint, "clippy", 0, 600), (Tier::Cluster, "moves", 600, 630)]);
        record.counts.insert(Tier::Cluster, Counts { passed: 2, failed: 1, skipped: 0 });
        record.counts.insert(Tier::Lint, Counts { passed: 0, failed: 0, skipped: 1 });
        record.not_run.push(("cargo deny advisories".to_owned(), "no database".to_owned()));
        let failure = Failure {
            what: "moves::away".to_owned(),
            message: "waited 45 s".to_owned(),
            again: "cargo xtask test --only cluster moves::away".to_owned(),
            logs: vec!["/logs/fleet-7".to_owned()],
        };
        record.failures.push((Tier::Cluster, failure));
        let text = record.text(Duration::from_secs(630), true);
        let expected = "
The slowest parts
    600.0 s  lint         clippy
     30.0 s  cluster      moves

Tiers              minutes  budget on a bare machine
  lint                10.0     6.0  0 passed, 0 failed, 1 skipped  OVER BUDGET
  cluster              0.5    12.0  2 passed, 1 failed, 0 skipped

FAILED: moves::away (cluster)
  waited 45 s
  logs:  /logs/fleet-7
  again: cargo xtask test --only cluster moves::away

took 10.5 min of 30
2 passed, 1 failed, 1 skipped
NOT RUN: cargo deny advisories (no database)
";
        assert_eq!(text, expected);
    }
}
