//! A form's figures side by side: a table for readers, JSON for programs.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde_json::{Value, json};
use switchyard_e2e::Requests;
use switchyard_e2e::table::{Table, megabytes};

use super::super::requests;
use super::super::setup::HUB;
use super::super::timeline::Step;
use super::{Form, Kind, Outcome};
use crate::quantiles::{Quantiles, seconds};

/// One form, all its systems.
pub(super) struct Report {
    form: Form,
    jobs: usize,
    figures: Vec<Figures>,
}

/// Figures of one system. Times in seconds.
struct Figures {
    kind: Kind,
    cut: bool,
    took: f64,
    done: usize,
    /// Jobs a second until dispatched, and until finished.
    dispatched_rate: f64,
    finished_rate: f64,
    /// From creation until the pod (finish) or the unsuspended Job (dispatch) is on the worker.
    waits: Quantiles,
    /// CPU of each controller, in seconds, by cluster.
    controllers: BTreeMap<String, f64>,
    /// CPU per job, in milliseconds.
    controllers_ms: f64,
    hub_ms: f64,
    api_servers_ms: f64,
    kubernetes_ms: f64,
    /// Peak memory in bytes: the hub's controller, and the largest worker's.
    hub_memory: u64,
    worker_memory: u64,
    /// Per job.
    hub_writes: f64,
    worker_writes: f64,
    events: f64,
    reads: f64,
    /// To the hub's API server, and to those of the workers.
    sides: (Requests, Requests),
    requests: Value,
}

impl Figures {
    fn new(form: Form, jobs: usize, outcome: &Outcome) -> Self {
        let Outcome { kind, timeline, took, cut, usage } = outcome;
        let rate = |step: Step| {
            let done = timeline.waits(step).len();
            // A cut run counts by the part that it completed.
            let time = if *cut && done < jobs { Some(*took) } else { timeline.last(step) };
            time.filter(|time| !time.is_zero()).map_or(0.0, |time| done as f64 / time.as_secs_f64())
        };
        let (end, start) = match form {
            Form::Dispatch => (Step::Dispatched, Step::Dispatched),
            Form::Finish => (Step::Finished, Step::Pod),
        };
        let done = timeline.waits(end).len();
        let per_job = |value: f64| value / done.max(1) as f64;
        let ms = |time: Duration| per_job(time.as_secs_f64() * 1000.0);
        let hub = usage.controllers.get(HUB).copied().unwrap_or_default();
        let workers =
            usage.memory.iter().filter(|(name, _)| *name != HUB).map(|(_, memory)| *memory);
        let writes = |of_hub: bool| {
            let of = usage.requests.iter().filter(|(name, _)| (*name == HUB) == of_hub);
            per_job(of.map(|(_, requests)| requests.writes().without_events().total()).sum::<u64>()
                as f64)
        };
        let all = |pick: fn(&Requests) -> u64| {
            per_job(usage.requests.values().map(pick).sum::<u64>() as f64)
        };
        Self {
            kind: *kind,
            cut: *cut,
            took: took.as_secs_f64(),
            done,
            dispatched_rate: rate(Step::Dispatched),
            finished_rate: rate(Step::Finished),
            waits: Quantiles::of(timeline.waits(start)),
            controllers: usage
                .controllers
                .iter()
                .map(|(name, time)| (name.clone(), time.as_secs_f64()))
                .collect(),
            controllers_ms: ms(usage.all_controllers()),
            hub_ms: ms(hub),
            api_servers_ms: ms(usage.api_servers),
            kubernetes_ms: ms(usage.kubernetes),
            hub_memory: usage.memory.get(HUB).copied().unwrap_or_default(),
            worker_memory: workers.max().unwrap_or_default(),
            hub_writes: writes(true),
            worker_writes: writes(false),
            events: all(|requests| {
                requests.writes().total() - requests.writes().without_events().total()
            }),
            reads: all(|requests| requests.total() - requests.writes().total()),
            sides: usage.by_side(HUB),
            requests: requests::json(usage),
        }
    }

    /// The measured rate.
    fn rate(&self, form: Form) -> f64 {
        match form {
            Form::Dispatch => self.dispatched_rate,
            Form::Finish => self.finished_rate,
        }
    }

    fn json(&self, form: Form) -> Value {
        json!({
            "system": self.kind.name(), "cut": self.cut, "seconds": self.took, "done": self.done,
            "jobsPerSecond": {"dispatched": self.dispatched_rate, "finished": self.finished_rate, "clock": self.rate(form)},
            "fromCreation": self.waits.json(),
            "controllersCpuSeconds": self.controllers,
            "cpuMillisecondsPerJob": {
                "controllers": self.controllers_ms, "hub": self.hub_ms,
                "apiServers": self.api_servers_ms, "otherKubernetes": self.kubernetes_ms,
            },
            "peakBytes": {"hub": self.hub_memory, "largestWorker": self.worker_memory},
            "requestsPerJob": {
                "hubWrites": self.hub_writes, "workerWrites": self.worker_writes,
                "events": self.events, "reads": self.reads,
            },
            "requests": self.requests,
        })
    }
}

impl Report {
    pub(super) fn new(form: Form, jobs: usize, outcomes: &[Outcome]) -> Self {
        let figures = outcomes.iter().map(|outcome| Figures::new(form, jobs, outcome)).collect();
        Self { form, jobs, figures }
    }

    fn rate_of(&self, kind: Kind) -> Option<f64> {
        let found = self.figures.iter().find(|figures| figures.kind == kind)?;
        Some(found.rate(self.form)).filter(|rate| *rate > 0.0)
    }

    pub(super) fn json(&self) -> Value {
        let ratios = [Kind::Floor, Kind::StockRaised, Kind::Stock].map(|kind| {
            let ratio =
                self.rate_of(Kind::Ours).zip(self.rate_of(kind)).map(|(ours, other)| ours / other);
            (kind.name(), ratio)
        });
        json!({
            "form": self.form.name(), "jobs": self.jobs,
            "systems": self.figures.iter().map(|figures| figures.json(self.form)).collect::<Vec<_>>(),
            "oursTo": ratios.into_iter().map(|(name, ratio)| (name.to_owned(), json!(ratio))).collect::<serde_json::Map<_, _>>(),
        })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.table())?;
        let per_job = |figures: &Figures| (figures.sides.clone(), figures.done);
        let columns = self.figures.iter().map(|figures| (figures.kind.name(), per_job(figures)));
        write!(f, "{}", requests::table(columns))
    }
}

impl Report {
    fn table(&self) -> Table {
        let title = format!(
            "burst, {}: {} jobs at once, a hub and three workers",
            self.form.name(),
            self.jobs
        );
        let mut table =
            Table::new(title, self.figures.iter().map(|figures| figures.kind.name().to_owned()));
        let mut row = |name: &str, cell: &dyn Fn(&Figures) -> String| {
            table.row(name, self.figures.iter().map(cell))
        };
        row("until all are there", &|it| {
            if it.cut { format!("cut, {} done", it.done) } else { format!("{:.1} s", it.took) }
        });
        row("dispatched, jobs/s", &|it| format!("{:.2}", it.dispatched_rate));
        let where_to = match self.form {
            Form::Dispatch => "job",
            Form::Finish => {
                row("finished, jobs/s", &|it| format!("{:.2}", it.finished_rate));
                "pod"
            }
        };
        for kind in [Kind::Floor, Kind::StockRaised, Kind::Stock] {
            if let Some(rate) = self.rate_of(kind) {
                row(&format!("  of {}", kind.name()), &|it| {
                    format!("{:.2}", it.rate(self.form) / rate)
                });
            }
        }
        row(&format!("created to {where_to}, p50"), &|it| seconds(it.waits.p50));
        row(&format!("created to {where_to}, p99"), &|it| seconds(it.waits.p99));
        row("CPU/job: controllers", &|it| format!("{:.1} ms", it.controllers_ms));
        row("  of them the hub", &|it| format!("{:.1} ms", it.hub_ms));
        row("CPU/job: API, etcd", &|it| format!("{:.1} ms", it.api_servers_ms));
        row("CPU/job: other k8s", &|it| format!("{:.1} ms", it.kubernetes_ms));
        row("CPU, hub+workers", &|it| {
            let each: Vec<String> =
                it.controllers.values().map(|seconds| format!("{seconds:.1}")).collect();
            if each.is_empty() { "-".to_owned() } else { format!("{} s", each.join("+")) }
        });
        row("peak memory: hub", &|it| megabytes(it.hub_memory));
        row("peak memory: worker", &|it| megabytes(it.worker_memory));
        row("writes/job: hub", &|it| format!("{:.2}", it.hub_writes));
        row("writes/job: workers", &|it| format!("{:.2}", it.worker_writes));
        row("events/job", &|it| format!("{:.2}", it.events));
        row("reads/job", &|it| format!("{:.2}", it.reads));
        table
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::measure::Usage;
    use super::super::super::setup::name;
    use super::super::super::timeline::Timeline;
    use super::*;

    fn outcome(kind: Kind, jobs: usize, done: usize, each: Duration, cut: bool) -> Outcome {
        let mut timeline = Timeline::new(jobs);
        let start = timeline.begin();
        for index in 0..jobs {
            timeline.created(index, start);
        }
        for index in 0..done {
            let at = start + each * u32::try_from(index + 1).unwrap();
            timeline.note(Step::Dispatched, &name(index), at);
        }
        let page = concat!(
            "apiserver_request_total{code=\"201\",dry_run=\"\",group=\"batch\",resource=\"jobs\",subresource=\"\",verb=\"POST\"} 10\n",
            "apiserver_request_total{code=\"201\",dry_run=\"\",group=\"\",resource=\"events\",subresource=\"\",verb=\"POST\"} 5\n",
            "apiserver_request_total{code=\"200\",dry_run=\"\",group=\"batch\",resource=\"jobs\",subresource=\"\",verb=\"GET\"} 20\n",
        );
        let usage = Usage {
            controllers: [
                (HUB.to_owned(), Duration::from_millis(100)),
                ("w1".to_owned(), Duration::from_millis(50)),
            ]
            .into(),
            memory: [(HUB.to_owned(), 30_000_000), ("w1".to_owned(), 20_000_000)].into(),
            api_servers: Duration::from_secs(1),
            kubernetes: Duration::ZERO,
            requests: [(HUB.to_owned(), Requests::parse(page))].into(),
        };
        Outcome { kind, timeline, took: each * u32::try_from(jobs).unwrap(), cut, usage }
    }

    #[test]
    fn figures_stand_side_by_side_with_their_ratios() {
        let outcomes = [
            outcome(Kind::Floor, 10, 10, Duration::from_millis(50), false),
            outcome(Kind::Ours, 10, 10, Duration::from_millis(100), false),
            outcome(Kind::Stock, 10, 5, Duration::from_secs(1), true),
        ];
        let report = Report::new(Form::Dispatch, 10, &outcomes);
        let lines: Vec<String> = report
            .to_string()
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect();
        for line in [
            "until all are there 0.5 s 1.0 s cut, 5 done",
            "dispatched, jobs/s 20.00 10.00 0.50",
            "of floor 1.00 0.50 0.03",
            "of stock as shipped 40.00 20.00 1.00",
            "created to job, p50 300 ms 600 ms 3.00 s",
            "CPU/job: controllers 15.0 ms 15.0 ms 30.0 ms",
            "writes/job: hub 1.00 1.00 2.00",
            "events/job 0.50 0.50 1.00",
            "CPU, hub+workers 0.1+0.1 s 0.1+0.1 s 0.1+0.1 s",
            "hub POST jobs.batch 1.00 1.00 2.00",
            "reads/job 2.00 2.00 4.00",
        ] {
            assert!(lines.contains(&line.to_owned()), "{line:?} is not in\n{report}");
        }
        let json = report.json();
        assert_eq!(json["oursTo"]["stock as shipped"], 20.0);
        assert_eq!(json["oursTo"]["stock raised"], Value::Null);
        assert_eq!(json["systems"][2]["cut"], true);
    }
}
