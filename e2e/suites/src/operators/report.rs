//! The table: a row for each kind.

use std::fmt;
use std::future::Future;
use std::time::{Duration, Instant};

use switchyard_e2e::Part;
use switchyard_e2e::table::Table;

/// The result of one kind in one mode.
#[derive(Clone, Debug)]
pub(super) enum Outcome {
    /// Everything happened, in so long.
    Passed(Duration),
    /// The step that failed, after this time.
    Failed(Duration, String),
    /// Why it could not be played.
    NotPlayed(String),
}

impl Outcome {
    pub(super) async fn of(play: impl Future<Output = anyhow::Result<()>>) -> Self {
        let start = Instant::now();
        match play.await {
            Ok(()) => Self::Passed(start.elapsed()),
            Err(error) => Self::Failed(start.elapsed(), format!("{error:#}")),
        }
    }

    fn word(&self) -> &'static str {
        match self {
            Self::Passed(_) => "passed",
            Self::Failed(..) => "failed",
            Self::NotPlayed(_) => "not played",
        }
    }

    fn took(&self) -> Duration {
        match self {
            Self::Passed(took) | Self::Failed(took, _) => *took,
            Self::NotPlayed(_) => Duration::ZERO,
        }
    }

    fn why(&self) -> Option<&str> {
        match self {
            Self::Passed(_) => None,
            Self::Failed(_, why) | Self::NotPlayed(why) => Some(why),
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.word())?;
        match self {
            Self::NotPlayed(_) => Ok(()),
            Self::Passed(took) | Self::Failed(took, _) => {
                write!(f, " after {:.1} s", took.as_secs_f64())
            }
        }
    }
}

/// One kind.
#[derive(Clone, Debug)]
pub(super) struct Row {
    kind: String,
    operator: String,
    single: Outcome,
    dispatched: Outcome,
}

impl Row {
    /// A version that is empty is not known: the operator was not built.
    pub(super) fn new(
        kind: &str,
        operator: Part,
        version: &str,
        single: Outcome,
        dispatched: Outcome,
    ) -> Self {
        let operator = format!("{} {version}", operator.source()).trim_end().to_owned();
        Self { kind: kind.to_owned(), operator, single, dispatched }
    }

    fn ways(&self) -> [(&'static str, &Outcome); 2] {
        [("single", &self.single), ("dispatched", &self.dispatched)]
    }
}

/// All kinds.
#[derive(Clone, Debug, Default)]
pub(super) struct Report {
    pub(super) rows: Vec<Row>,
}

impl Report {
    /// How many kinds did not pass in both ways.
    pub(super) fn failed(&self) -> usize {
        self.rows
            .iter()
            .filter(|row| row.ways().iter().any(|(_, outcome)| outcome.why().is_some()))
            .count()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = ["operator", "single", "dispatched", "seconds"].map(str::to_owned);
        let mut table = Table::new("Kinds of jobs with their real operators", columns);
        for row in &self.rows {
            let took = row.single.took() + row.dispatched.took();
            let [single, dispatched] = row.ways().map(|(_, outcome)| outcome.word().to_owned());
            table.row(
                &row.kind,
                [row.operator.clone(), single, dispatched, format!("{:.1}", took.as_secs_f64())],
            );
        }
        write!(f, "{table}")?;
        for row in &self.rows {
            for (way, outcome) in row.ways() {
                if let Some(why) = outcome.why() {
                    writeln!(f, "\n{}, {way}: {}\n    {why}", row.kind, outcome.word())?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_that_did_not_pass_has_its_reason() {
        let passed = || Outcome::Passed(Duration::from_millis(8_100));
        let failed = Outcome::Failed(Duration::from_secs(120), "no pods".to_owned());
        let missing = || Outcome::NotPlayed("it is not built".to_owned());
        let rows = vec![
            Row::new("JobSet", Part::JobSet, "v0.12.0", passed(), passed()),
            Row::new("MPIJob", Part::MpiOperator, "v0.8.2", passed(), failed),
            Row::new("RayCluster", Part::KubeRay, "", missing(), missing()),
        ];
        let report = Report { rows };
        assert_eq!(report.failed(), 2);
        let text = report.to_string();
        let lines: Vec<&str> = text.lines().collect();
        let cells = |line: usize| lines[line].split_whitespace().collect::<Vec<_>>();
        assert_eq!(
            cells(2),
            ["JobSet", "sigs.k8s.io/jobset", "v0.12.0", "passed", "passed", "16.2"]
        );
        assert_eq!(cells(3)[3..], ["passed", "failed", "128.1"]);
        assert_eq!(cells(4)[2..], ["not", "played", "not", "played", "0.0"]);
        assert_eq!(lines[6..8], ["MPIJob, dispatched: failed", "    no pods"]);
        assert_eq!(lines[9], "RayCluster, single: not played");
    }
}
