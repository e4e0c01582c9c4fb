//! Preemption storms: half of a Cohort's queues lent everything to the other half, and then all want it back at once.

use std::time::{Duration, Instant};

use switchyard_scheduler::{
    ClusterQueue, Event, FlavorQuotas, LocalQueue, LocalQueueKey, Name, PodSet, PreemptionPolicy, PreemptionRules,
    Quota, ResourceGroup, Workload,
};

use crate::cluster::Cluster;
use crate::samples::{Samples, table};
use crate::site::{self, START, cores};

/// One size: `victims` workloads run on quota that is borrowed from half of the `queues`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    pub(crate) queues: usize,
    pub(crate) victims: usize,
    pub(crate) rounds: usize,
}

/// How many want their quota back at once.
#[derive(Clone, Copy, Debug)]
enum Heads {
    One,
    All,
}

pub(crate) fn run(sizes: &[Size], limit: Duration, wants: &dyn Fn(&str) -> bool) {
    let mut rows = Vec::new();
    for fair in [false, true] {
        for heads in [Heads::One, Heads::All] {
            let mut longest = Duration::ZERO;
            for size in sizes {
                // Ten times the victims may take a hundred times as long.
                let sharing = if fair { "fair" } else { "classical" };
                if longest * 100 > limit || !wants(&format!("storm/{sharing}/{}/{heads:?}", size.victims)) {
                    continue;
                }
                let (row, took) = measure(*size, heads, fair, limit);
                longest = took;
                rows.push(row);
            }
        }
    }
    let head = ["sharing", "queues", "victims", "heads", "cycles", "p50 ms", "p99 ms", "max ms", "preempted"];
    table("Preemption storms: cycles that preempt, every one of which considers all victims", &head, &rows);
}

impl Size {
    fn namespace(queue: usize) -> Name {
        format!("team-{queue:03}").into()
    }

    /// The first half of the queues has quota, the second half borrows it.
    fn objects(self) -> Vec<Event> {
        let owners = self.queues / 2;
        let each = i64::try_from(self.victims / owners).unwrap_or(0);
        let mut events = vec![site::flavor("default")];
        for queue in 0..self.queues {
            let nominal = cores(if queue < owners { each } else { 0 });
            let quota = Quota { nominal, ..Quota::default() };
            events.push(site::namespace(&Self::namespace(queue)));
            events.push(Event::ClusterQueue(ClusterQueue {
                cohort: Some("all".into()),
                resource_groups: vec![ResourceGroup {
                    covered_resources: vec!["cpu".into()],
                    flavors: vec![FlavorQuotas { name: "default".into(), resources: vec![("cpu".into(), quota)] }],
                }],
                preemption: PreemptionRules {
                    reclaim_within_cohort: PreemptionPolicy::Any,
                    ..PreemptionRules::default()
                },
                ..ClusterQueue::new(format!("queue-{queue:03}"))
            }));
            let key = LocalQueueKey::new(Self::namespace(queue), "main");
            events.push(Event::LocalQueue(LocalQueue::new(key, format!("queue-{queue:03}"))));
        }
        events
    }

    /// The first `victims` numbers borrow one core each; the others want what one owner has.
    fn workload(self, number: usize) -> Workload {
        let owners = self.queues / 2;
        let (queue, size, priority) = match number.checked_sub(self.victims) {
            None => (owners + number % owners, 1, 0),
            Some(owner) => (owner % owners, self.victims / owners, 100),
        };
        let requests = [("cpu".into(), cores(i64::try_from(size).unwrap_or(0)))].into();
        let created = START.plus(Duration::from_millis(number as u64));
        let key = site::key(&Self::namespace(queue), number);
        Workload {
            priority,
            pod_sets: vec![PodSet { requests, ..PodSet::new("main", 1) }],
            ..Workload::new(key, site::uid(number), "main", created)
        }
    }
}

fn measure(size: Size, heads: Heads, fair: bool, limit: Duration) -> (Vec<String>, Duration) {
    let make = |number| size.workload(number);
    let mut cluster = Cluster::new(fair, size.objects(), &make);
    for number in 0..size.victims {
        cluster.submit(number);
    }
    let mut samples = Samples::default();
    let (mut next, mut preempted, end) = (size.victims, 0, Instant::now() + limit);
    for _ in 0..size.rounds {
        settle(&mut cluster);
        let wanted = match heads {
            Heads::One => 1,
            Heads::All => size.queues / 2,
        };
        let owners = next..next + wanted;
        // Numbers of one owner are a multiple of the owners apart.
        next += size.queues / 2;
        for number in owners.clone() {
            cluster.submit(number);
        }
        for _ in 0..size.queues {
            cluster.cycles.clear();
            let done = cluster.cycle();
            preempted += done.preempted.len();
            if !done.preempted.is_empty() {
                samples.add(cluster.cycles.total());
            } else if done.admitted.is_empty() {
                break;
            }
        }
        for number in owners {
            cluster.finish(number);
        }
        if Instant::now() > end {
            break;
        }
    }
    let heads = match heads {
        Heads::One => 1,
        Heads::All => size.queues / 2,
    };
    let sharing = if fair { "fair" } else { "classical" }.to_owned();
    let mut row = vec![sharing, size.queues.to_string(), size.victims.to_string(), heads.to_string()];
    row.extend(samples.columns());
    row.push(preempted.to_string());
    (row, samples.permille(1000))
}

/// Until everybody who can run does.
fn settle(cluster: &mut Cluster<'_>) {
    cluster.wait(2000);
    while cluster.engine.has_heads(cluster.now) {
        let done = cluster.cycle();
        if done.admitted.is_empty() && done.preempted.is_empty() && done.postponed == 0 {
            break;
        }
    }
}
