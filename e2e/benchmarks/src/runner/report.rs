//! A generator's figures side by side.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde_json::{Value, json};
use switchyard_e2e::table::{Table, megabytes};
use switchyard_flags::bench::runner::Kind;

use super::super::requests;
use super::Outcome;
use super::summary::Summary;

/// One generator, all its systems.
pub(super) struct Report<'a> {
    generator: &'a str,
    outcomes: &'a [Outcome],
}

impl Outcome {
    fn count(&self) -> u64 {
        self.summary.count()
    }

    fn per_workload(&self, value: f64) -> f64 {
        value / self.count().max(1) as f64
    }

    fn memory(&self) -> u64 {
        self.usage.memory.values().copied().max().unwrap_or_default()
    }

    /// CPU of what admits, in milliseconds for each Workload.
    fn controller_ms(&self) -> f64 {
        self.per_workload(self.usage.all_controllers().as_secs_f64() * 1000.0)
    }

    fn api_server_ms(&self) -> f64 {
        self.per_workload(self.usage.api_servers.as_secs_f64() * 1000.0)
    }

    /// Writes and events for each Workload, of all clients, including the runner.
    fn writes(&self) -> (f64, f64) {
        let all = |pick: fn(&switchyard_e2e::Requests) -> u64| {
            self.usage.requests.values().map(pick).sum::<u64>() as f64
        };
        let writes = all(|requests| requests.writes().without_events().total());
        (
            self.per_workload(writes),
            self.per_workload(all(|requests| requests.writes().total()) - writes),
        )
    }

    fn json(&self) -> Value {
        let Summary { queues, workloads, finished, dropped } = &self.summary;
        let queues: BTreeMap<_, _> = queues
            .iter()
            .map(|(class, it)| (class, json!({"quotaInUse": it.quota_in_use})))
            .collect();
        let class = |(class, it): (&String, &super::summary::Workloads)| {
            let figures = json!({
                "count": it.count, "evictions": it.evictions, "averageSecondsToAdmission": it.to_admission,
                "averageSecondsToFinish": it.to_finish,
            });
            (class.clone(), figures)
        };
        let workloads: BTreeMap<_, _> = workloads.iter().map(class).collect();
        let (writes, events) = self.writes();
        json!({
            "system": self.kind.name(), "cut": self.cut, "seconds": self.took.as_secs_f64(), "workloads": self.count(), "finished": finished,
            "queueClasses": queues, "workloadClasses": workloads, "droppedWorkloadEvents": dropped,
            "cpuMillisecondsPerWorkload": {"controller": self.controller_ms(), "apiServers": self.api_server_ms()},
            "peakBytes": self.memory(), "writesPerWorkload": writes, "eventsPerWorkload": events,
            "requests": requests::json(&self.usage),
        })
    }
}

impl<'a> Report<'a> {
    pub(super) fn new(generator: &'a str, outcomes: &'a [Outcome]) -> Self {
        Self { generator, outcomes }
    }

    pub(super) fn json(&self) -> Value {
        let took = |kind: Kind| {
            self.outcomes
                .iter()
                .find(|it| it.kind == kind && !it.cut)
                .map(|it| it.took.as_secs_f64())
        };
        let ratio = |kind: Kind| took(kind).zip(took(Kind::Ours)).map(|(other, ours)| other / ours);
        let others = [Kind::Minimal, Kind::Stock, Kind::StockRaised];
        json!({
            "generator": self.generator, "systems": self.outcomes.iter().map(Outcome::json).collect::<Vec<_>>(),
            "timesFasterThan": others.map(|kind| (kind.name(), ratio(kind))).into_iter().collect::<BTreeMap<_, _>>(),
        })
    }

    fn classes(&self, of: impl Fn(&Summary) -> Vec<String>) -> BTreeSet<String> {
        self.outcomes.iter().flat_map(|outcome| of(&outcome.summary)).collect()
    }

    fn table(&self) -> Table {
        let title = format!("runner: Kueue's scheduler performance test, {}", self.generator);
        let mut table = Table::new(title, self.outcomes.iter().map(|it| it.kind.name().to_owned()));
        let mut row = |name: &str, cell: &dyn Fn(&Outcome) -> String| {
            table.row(name, self.outcomes.iter().map(cell))
        };
        row("until all are finished", &|it| {
            let took = it.took.as_secs_f64();
            if it.cut { format!("cut at {took:.0} s") } else { format!("{took:.1} s") }
        });
        row("workloads finished", &|it| format!("{} of {}", it.summary.finished, it.count()));
        for class in self.classes(|summary| summary.queues.keys().cloned().collect()) {
            row(&format!("quota in use, {class}"), &|it| {
                let queues = it.summary.queues.get(&class);
                queues.map_or("-".to_owned(), |queues| {
                    format!("{:.1} %", queues.quota_in_use * 100.0)
                })
            });
        }
        for class in self.classes(|summary| summary.workloads.keys().cloned().collect()) {
            row(&format!("to admission, {class}"), &|it| {
                // The runner counts those that were not admitted as admitted at once.
                let workloads = it.summary.workloads.get(&class).filter(|_| !it.cut);
                workloads
                    .map_or("-".to_owned(), |workloads| format!("{:.1} s", workloads.to_admission))
            });
        }
        row("evictions", &|it| {
            it.summary.workloads.values().map(|it| it.evictions).sum::<u64>().to_string()
        });
        row("CPU/workload: controller", &|it| format!("{:.2} ms", it.controller_ms()));
        row("CPU/workload: API, etcd", &|it| format!("{:.2} ms", it.api_server_ms()));
        row("peak memory", &|it| megabytes(it.memory()));
        row("writes/workload", &|it| format!("{:.2}", it.writes().0));
        row("events/workload", &|it| format!("{:.2}", it.writes().1));
        table
    }
}

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.table())?;
        let columns = self.outcomes.iter().map(|it| {
            let count = usize::try_from(it.count()).unwrap_or(usize::MAX);
            (it.kind.name(), (it.usage.by_side(super::super::setup::HUB), count))
        });
        write!(f, "{}", requests::table(columns))
    }
}
