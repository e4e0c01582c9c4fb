//! The baseline of Kueue's scheduler performance test, with the engine alone: 15,000 workloads of
//! three classes, 30 ClusterQueues in 5 Cohorts. Jobs run in simulated time; the bench measures the
//! engine.

use std::collections::BTreeSet;
use std::time::Duration;

use switchyard_scheduler::{
    ClusterQueue, Event, FlavorQuotas, LocalQueue, LocalQueueKey, Name, PodSet, PreemptionPolicy,
    PreemptionRules, Quota, ResourceGroup, Time, Workload,
};

use crate::cluster::Cluster;
use crate::samples::{millis, table};
use crate::site::{self, START, cores};

const QUEUES: usize = 30;
const QUEUES_OF_COHORT: usize = 6;

/// A class of workloads: its number per queue, and its interval.
struct WorkloadClass {
    name: &'static str,
    count: usize,
    every_millis: u64,
    cores: i64,
    runs_millis: u64,
    priority: i32,
}

const CLASSES: [WorkloadClass; 3] = [
    WorkloadClass {
        name: "small",
        count: 350,
        every_millis: 100,
        cores: 1,
        runs_millis: 200,
        priority: 50,
    },
    WorkloadClass {
        name: "medium",
        count: 100,
        every_millis: 500,
        cores: 5,
        runs_millis: 500,
        priority: 100,
    },
    WorkloadClass {
        name: "large",
        count: 50,
        every_millis: 1200,
        cores: 20,
        runs_millis: 1000,
        priority: 200,
    },
];
const PER_QUEUE: usize = 500;

/// The class of a workload, and its creation time after the start.
fn class(number: usize) -> (&'static WorkloadClass, Duration) {
    let mut at = number % PER_QUEUE;
    for class in &CLASSES {
        if at < class.count {
            return (class, Duration::from_millis(class.every_millis * at as u64));
        }
        at -= class.count;
    }
    (&CLASSES[0], Duration::ZERO)
}

fn namespace(queue: usize) -> Name {
    format!("team-{queue:02}").into()
}

fn objects() -> Vec<Event> {
    let mut events = vec![site::flavor("rf")];
    for queue in 0..QUEUES {
        let quota =
            Quota { nominal: cores(20), borrowing_limit: Some(cores(100)), lending_limit: None };
        events.push(site::namespace(&namespace(queue)));
        events.push(Event::ClusterQueue(ClusterQueue {
            cohort: Some(format!("cohort-{}", queue / QUEUES_OF_COHORT).into()),
            resource_groups: vec![ResourceGroup {
                covered_resources: vec!["cpu".into()],
                flavors: vec![FlavorQuotas {
                    name: "rf".into(),
                    resources: vec![("cpu".into(), quota)],
                }],
            }],
            preemption: PreemptionRules {
                within_cluster_queue: PreemptionPolicy::LowerPriority,
                reclaim_within_cohort: PreemptionPolicy::Any,
                ..PreemptionRules::default()
            },
            ..ClusterQueue::new(format!("queue-{queue:02}"))
        }));
        let key = LocalQueueKey::new(namespace(queue), "main");
        events.push(Event::LocalQueue(LocalQueue::new(key, format!("queue-{queue:02}"))));
    }
    events
}

fn workload(number: usize) -> Workload {
    let (class, after) = class(number);
    let requests = [("cpu".into(), cores(class.cores))].into();
    Workload {
        priority: class.priority,
        pod_sets: vec![PodSet { requests, ..PodSet::new("main", 1) }],
        ..Workload::new(
            site::key(&namespace(number / PER_QUEUE), number),
            site::uid(number),
            "main",
            begin().plus(after),
        )
    }
}

fn begin() -> Time {
    START.plus(Duration::from_secs(3600))
}

/// An event of a workload.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum JobEvent {
    Comes,
    Ends,
}

/// Runs one `part`-th of the workloads.
pub(crate) fn run(part: usize, wants: &dyn Fn(&str) -> bool) {
    let mut rows = Vec::new();
    for fair in [false, true] {
        if wants(if fair { "baseline/fair" } else { "baseline/classical" }) {
            rows.push(measure(fair, part));
        }
    }
    let head = [
        "sharing",
        "workloads",
        "engine s",
        "admitted/s",
        "cycles",
        "p50 ms",
        "p99 ms",
        "max ms",
        "evicted",
        "simulated s",
        "quota in use",
        "small s",
        "medium s",
        "large s",
    ];
    table(
        "Kueue's baseline through the engine alone (the last three: mean time to admission)",
        &head,
        &rows,
    );
}

fn measure(fair: bool, part: usize) -> Vec<String> {
    let mut cluster = Cluster::new(fair, objects(), &workload);
    let numbers = (0..QUEUES * PER_QUEUE).filter(|number| number % part == 0);
    let mut agenda: BTreeSet<(Time, JobEvent, usize)> =
        numbers.map(|number| (begin().plus(class(number).1), JobEvent::Comes, number)).collect();
    let total = agenda.len();
    let mut ends: Vec<Option<Time>> = vec![None; QUEUES * PER_QUEUE];
    let (mut evicted, mut used, mut waited) = (0, Duration::ZERO, [(Duration::ZERO, 0_u32); 3]);
    cluster.events.clear();
    loop {
        while let Some((at, what, number)) =
            agenda.first().copied().filter(|(at, ..)| *at <= cluster.now)
        {
            agenda.pop_first();
            match what {
                JobEvent::Comes => cluster.submit(number),
                JobEvent::Ends if ends[number] == Some(at) => {
                    let class = class(number).0;
                    used += Duration::from_millis(class.runs_millis)
                        * u32::try_from(class.cores).unwrap_or(0);
                    cluster.finish(number);
                }
                JobEvent::Ends => {}
            }
        }
        if cluster.engine.has_heads(cluster.now) {
            let done = cluster.cycle();
            for number in done.preempted {
                ends[number] = None;
                evicted += 1;
            }
            for number in done.admitted {
                let (class, after) = class(number);
                let at = cluster.now.plus(Duration::from_millis(class.runs_millis));
                ends[number] = Some(at);
                agenda.insert((at, JobEvent::Ends, number));
                let sum =
                    &mut waited[CLASSES.iter().position(|c| c.name == class.name).unwrap_or(0)];
                *sum = (sum.0 + cluster.now.since(begin().plus(after)), sum.1 + 1);
            }
            // The assumed time of a cycle and its writes.
            cluster.wait(1);
            continue;
        }
        let next = agenda.first().map(|(at, ..)| *at);
        let Some(next) = next.into_iter().chain(cluster.engine.next_wakeup(cluster.now)).min()
        else {
            break;
        };
        cluster.now = next.max(cluster.now);
        // After the last event only collected triggers remain, which affect no workload.
        if agenda.is_empty() && cluster.running() == 0 && !cluster.engine.has_heads(cluster.now) {
            break;
        }
    }
    let engine = cluster.cycles.total() + cluster.events.total();
    let span = cluster.now.since(begin());
    let quota = span.as_secs_f64() * 20.0 * QUEUES as f64;
    let mut row = vec![
        if fair { "fair" } else { "classical" }.to_owned(),
        total.to_string(),
        format!("{:.3}", engine.as_secs_f64()),
        format!("{:.0}", total as f64 / engine.as_secs_f64()),
    ];
    row.extend(cluster.cycles.columns());
    row.extend([
        evicted.to_string(),
        format!("{:.1}", span.as_secs_f64()),
        format!("{:.1} %", 100.0 * used.as_secs_f64() / quota),
    ]);
    row.extend(waited.iter().map(|(sum, count)| millis(*sum / (*count).max(1) / 1000)));
    row
}
