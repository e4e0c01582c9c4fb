//! The phases' figures side by side.

use std::fmt;
use std::time::Duration;

use serde_json::{Value, json};
use switchyard_e2e::table::{Table, megabytes};

use super::super::requests;
use super::super::setup::HUB;
use super::super::timeline::{Step, Timeline};
use super::{Args, Outcome, Phase};
use crate::quantiles::{Quantiles, seconds};

/// One run.
pub(super) struct Report {
    jobs: usize,
    rate: u32,
    seconds: u32,
    systems: Vec<System>,
}

struct System {
    name: &'static str,
    idle: Figures,
    alone: Figures,
    steady: Figures,
}

/// Figures of one phase. Times in seconds.
struct Figures {
    cut: bool,
    took: f64,
    done: usize,
    dispatched: Quantiles,
    pod: Quantiles,
    finished: Quantiles,
    /// CPU seconds of the controllers, of the hub's alone, and of API servers and etcd.
    controllers: f64,
    hub: f64,
    api_servers: f64,
    /// Peak memory in bytes.
    hub_memory: u64,
    worker_memory: u64,
    writes: u64,
    events: u64,
    requests: Value,
}

impl Figures {
    fn new(phase: &Phase, timeline: &Timeline) -> Self {
        let Phase { jobs, cut, took, usage } = phase;
        let waits = |step| Quantiles::of(timeline.waits_of(step, jobs.clone()));
        let finished = waits(Step::Finished);
        let workers =
            usage.memory.iter().filter(|(name, _)| *name != HUB).map(|(_, memory)| *memory);
        let all: u64 = usage.requests.values().map(|requests| requests.writes().total()).sum();
        let writes = usage
            .requests
            .values()
            .map(|requests| requests.writes().without_events().total())
            .sum();
        Self {
            cut: *cut,
            took: took.as_secs_f64(),
            done: finished.count,
            dispatched: waits(Step::Dispatched),
            pod: waits(Step::Pod),
            finished,
            controllers: usage.all_controllers().as_secs_f64(),
            hub: usage.controllers.get(HUB).map_or(0.0, Duration::as_secs_f64),
            api_servers: usage.api_servers.as_secs_f64(),
            hub_memory: usage.memory.get(HUB).copied().unwrap_or_default(),
            worker_memory: workers.max().unwrap_or_default(),
            writes,
            events: all - writes,
            requests: requests::json(usage),
        }
    }

    fn per_job(&self, value: f64) -> f64 {
        value / self.done.max(1) as f64
    }

    /// Share of one core during the phase.
    fn share(&self, cpu: f64) -> f64 {
        cpu / self.took.max(f64::MIN_POSITIVE)
    }

    fn json(&self) -> Value {
        json!({
            "cut": self.cut, "seconds": self.took, "done": self.done,
            "fromCreation": {
                "toJobOnWorker": self.dispatched.json(), "toPod": self.pod.json(), "toFinishedOnHub": self.finished.json(),
            },
            "cpuMillisecondsPerJob": {
                "controllers": self.per_job(self.controllers * 1000.0), "hub": self.per_job(self.hub * 1000.0),
                "apiServers": self.per_job(self.api_servers * 1000.0),
            },
            "cores": {
                "controllers": self.share(self.controllers), "hub": self.share(self.hub),
                "apiServers": self.share(self.api_servers),
            },
            "peakBytes": {"hub": self.hub_memory, "largestWorker": self.worker_memory},
            "writesPerJob": self.per_job(self.writes as f64), "eventsPerJob": self.per_job(self.events as f64),
            "requests": self.requests,
        })
    }
}

impl Report {
    pub(super) fn new(args: &Args, outcomes: &[Outcome]) -> Self {
        let system = |outcome: &Outcome| System {
            name: outcome.kind.name(),
            idle: Figures::new(&outcome.idle, &outcome.timeline),
            alone: Figures::new(&outcome.alone, &outcome.timeline),
            steady: Figures::new(&outcome.steady, &outcome.timeline),
        };
        let systems = outcomes.iter().map(system).collect();
        Self { jobs: args.jobs, rate: args.rate, seconds: args.seconds, systems }
    }

    pub(super) fn json(&self) -> Value {
        let system = |system: &System| {
            json!({
                "system": system.name, "idle": system.idle.json(), "oneAtATime": system.alone.json(),
                "atARate": system.steady.json(),
            })
        };
        json!({"systems": self.systems.iter().map(system).collect::<Vec<_>>()})
    }

    fn table(&self, title: String, phase: impl Fn(&System) -> &Figures, idle: bool) -> Table {
        let mut table = Table::new(title, self.systems.iter().map(|system| system.name.to_owned()));
        let mut row = |name: &str, cell: &dyn Fn(&Figures) -> String| {
            table.row(name, self.systems.iter().map(|system| cell(phase(system))));
        };
        let percent = |share: f64| format!("{:.1} %", share * 100.0);
        if !idle {
            row("until all are finished", &|it| {
                if it.cut { format!("cut, {} done", it.done) } else { format!("{:.1} s", it.took) }
            });
            row("created to job, p50", &|it| seconds(it.dispatched.p50));
            row("created to job, p99", &|it| seconds(it.dispatched.p99));
            row("created to pod, p50", &|it| seconds(it.pod.p50));
            row("created to pod, p99", &|it| seconds(it.pod.p99));
            row("created to finished, p50", &|it| seconds(it.finished.p50));
            row("CPU/job: controllers", &|it| {
                format!("{:.1} ms", it.per_job(it.controllers * 1000.0))
            });
            row("  of them the hub", &|it| format!("{:.1} ms", it.per_job(it.hub * 1000.0)));
            row("CPU/job: API, etcd", &|it| {
                format!("{:.1} ms", it.per_job(it.api_servers * 1000.0))
            });
            row("writes/job", &|it| format!("{:.2}", it.per_job(it.writes as f64)));
            row("events/job", &|it| format!("{:.2}", it.per_job(it.events as f64)));
        }
        row("of a core: controllers", &|it| percent(it.share(it.controllers)));
        row("  of them the hub", &|it| percent(it.share(it.hub)));
        row("of a core: API, etcd", &|it| percent(it.share(it.api_servers)));
        row("peak memory: hub", &|it| megabytes(it.hub_memory));
        row("peak memory: worker", &|it| megabytes(it.worker_memory));
        table
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { jobs, rate, seconds, .. } = self;
        writeln!(f, "{}", self.table("trickle: no jobs come".to_owned(), |it| &it.idle, true))?;
        writeln!(
            f,
            "{}",
            self.table(format!("trickle: {jobs} jobs, one at a time"), |it| &it.alone, false)
        )?;
        let title = format!("trickle: {rate} jobs a second for {seconds} s, pods of random length");
        write!(f, "{}", self.table(title, |it| &it.steady, false))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Instant;

    use super::super::super::measure::Usage;
    use super::super::super::setup::name;
    use super::*;
    use switchyard_flags::bench::system::Kind;

    fn phase(jobs: std::ops::Range<usize>, cut: bool) -> Phase {
        let usage = Usage {
            controllers: BTreeMap::from([
                (HUB.to_owned(), Duration::from_millis(300)),
                ("w1".to_owned(), Duration::from_millis(100)),
            ]),
            ..Usage::default()
        };
        Phase { jobs, cut, took: Duration::from_secs(4), usage }
    }

    #[test]
    fn each_part_has_its_own_jobs_and_its_own_table() {
        let mut timeline = Timeline::new(3);
        let start: Instant = timeline.begin();
        for (index, ms) in [(0, 30), (1, 500), (2, 900)] {
            timeline.created(index, start);
            for step in [Step::Dispatched, Step::Pod, Step::Finished] {
                timeline.note(step, &name(index), start + Duration::from_millis(ms));
            }
        }
        let outcome = Outcome {
            kind: Kind::Ours,
            timeline,
            idle: phase(0..0, false),
            alone: phase(0..1, false),
            steady: phase(1..4, true),
        };
        let report = Report { jobs: 1, rate: 1, seconds: 3, systems: Vec::new() };
        let systems = vec![System {
            name: outcome.kind.name(),
            idle: Figures::new(&outcome.idle, &outcome.timeline),
            alone: Figures::new(&outcome.alone, &outcome.timeline),
            steady: Figures::new(&outcome.steady, &outcome.timeline),
        }];
        let report = Report { systems, ..report };
        let text = report.to_string();
        let lines: Vec<String> = text
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect();
        for line in [
            "created to pod, p50 30 ms",
            "created to pod, p99 900 ms",
            "until all are finished cut, 2 done",
            "CPU/job: controllers 400.0 ms",
            "CPU/job: controllers 200.0 ms",
            "of a core: controllers 10.0 %",
        ] {
            assert!(lines.contains(&line.to_owned()), "{line:?} is not in\n{text}");
        }
        assert_eq!(report.json()["systems"][0]["atARate"]["cut"], true);
        assert_eq!(
            report.json()["systems"][0]["oneAtATime"]["fromCreation"]["toPod"]["p50Seconds"],
            0.03
        );
    }
}
