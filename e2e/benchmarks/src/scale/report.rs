//! The numbers of clusters side by side, and how each figure grows from the first to the last.

use std::fmt;

use serde_json::{Value, json};
use switchyard_e2e::table::{Table, megabytes};

use super::{Args, Outcome, Stretch};
use crate::quantiles::seconds;

/// One run.
pub(super) struct Report<'a> {
    pub(super) args: &'a Args,
    pub(super) outcomes: &'a [Outcome],
}

impl Stretch {
    /// Share of one core.
    fn share(self) -> f64 {
        self.cpu / self.wall.max(f64::MIN_POSITIVE)
    }

    fn rate(self, jobs: usize) -> f64 {
        jobs as f64 / self.wall.max(f64::MIN_POSITIVE)
    }

    fn cpu_ms(self, jobs: usize) -> f64 {
        self.cpu * 1000.0 / jobs.max(1) as f64
    }
}

/// A figure: its name, how it is read, and how it is written.
type Figure = (&'static str, fn(&Outcome) -> f64, fn(f64) -> String);

const FIGURES: [Figure; 15] = [
    ("agents connected", |it| it.connect, |value| format!("{value:.1} s")),
    ("of a core: idle", |it| it.idle.share(), percent),
    ("memory: idle", |it| it.idle_memory as f64, bytes),
    ("created, jobs/s", |it| it.create.rate(it.jobs), per_second),
    ("CPU/job created", |it| it.create.cpu_ms(it.jobs), milliseconds),
    ("dispatched, jobs/s", |it| it.dispatch.rate(it.running), per_second),
    ("CPU/job dispatched", |it| it.dispatch.cpu_ms(it.running), milliseconds),
    ("of a core: quiet", |it| it.quiet.share(), percent),
    ("memory: quiet", |it| it.quiet_memory as f64, bytes),
    ("of a core: changes", |it| it.change.share(), percent),
    ("status lag, p50", |it| it.lag.p50, seconds),
    ("status lag, p99", |it| it.lag.p99, seconds),
    ("status lag, longest", |it| it.lag.max, seconds),
    ("memory: peak", |it| it.peak_memory as f64, bytes),
    ("leadership lost", |it| it.leadership_lost as f64, |value| format!("{value:.0}")),
];

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

fn per_second(rate: f64) -> String {
    format!("{rate:.1}")
}

fn milliseconds(time: f64) -> String {
    format!("{time:.2} ms")
}

fn bytes(value: f64) -> String {
    megabytes(value as u64)
}

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Args { running, queued, rate, .. } = self.args;
        let title = format!(
            "scale: one hub, {running} jobs run and {queued} wait; quiet, then {rate} changes a second"
        );
        let mut columns: Vec<String> =
            self.outcomes.iter().map(|it| format!("{} clusters", it.clusters)).collect();
        let ends = if let [first, .., last] = self.outcomes { Some((first, last)) } else { None };
        columns
            .extend(ends.map(|(first, last)| format!("{} to {}", last.clusters, first.clusters)));
        let mut table = Table::new(title, columns);
        for (name, read, write) in FIGURES {
            let mut cells: Vec<String> = self.outcomes.iter().map(|it| write(read(it))).collect();
            cells.extend(ends.map(|(first, last)| {
                let (first, last) = (read(first), read(last));
                if first > 0.0 { format!("x {:.2}", last / first) } else { "-".to_owned() }
            }));
            table.row(name, cells);
        }
        write!(f, "{table}")
    }
}

/// With the unit in the names.
pub(super) fn json(outcome: &Outcome) -> Value {
    let Outcome { clusters, jobs, running, .. } = outcome;
    json!({
        "clusters": clusters, "jobs": jobs, "running": running, "secondsUntilConnected": outcome.connect,
        "hubCores": {"idle": outcome.idle.share(), "quiet": outcome.quiet.share(), "changes": outcome.change.share()},
        "hubBytes": {"idle": outcome.idle_memory, "quiet": outcome.quiet_memory, "peak": outcome.peak_memory},
        "jobsPerSecond": {"created": outcome.create.rate(*jobs), "dispatched": outcome.dispatch.rate(*running)},
        "hubCpuMillisecondsPerJob": {
            "created": outcome.create.cpu_ms(*jobs), "dispatched": outcome.dispatch.cpu_ms(*running),
        },
        "statusLag": outcome.lag.json(), "leadershipLost": outcome.leadership_lost,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_stands_beside_the_figures() {
        let outcome = |clusters: usize, wall: f64| Outcome {
            clusters,
            jobs: 300,
            running: 100,
            dispatch: Stretch { cpu: 1.0, wall },
            peak_memory: 1_000_000 * clusters as u64,
            ..Outcome::default()
        };
        let args = Args {
            clusters: vec![3, 30],
            running: 100,
            queued: 200,
            rate: 50,
            seconds: 1,
            limit: 1,
            json: None,
        };
        let outcomes = [outcome(3, 2.0), outcome(30, 4.0)];
        let text = Report { args: &args, outcomes: &outcomes }.to_string();
        let lines: Vec<String> = text
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect();
        for line in [
            "3 clusters 30 clusters 30 to 3",
            "dispatched, jobs/s 50.0 25.0 x 0.50",
            "memory: peak 3 MB 30 MB x 10.00",
        ] {
            assert!(lines.contains(&line.to_owned()), "{line:?} is not in\n{text}");
        }
        assert_eq!(json(&outcomes[1])["jobsPerSecond"]["dispatched"], 25.0);
    }
}
