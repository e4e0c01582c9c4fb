//! Preemption storms: half of a Cohort's queues lent their quota to the other half, and then all
//! reclaim it at once.

use std::time::{Duration, Instant};

use switchyard_scheduler::{
    ClusterQueue, Event, FlavorQuotas, LocalQueue, LocalQueueKey, Name, PodSet, PreemptionPolicy,
    PreemptionRules, Quota, ResourceGroup, Workload,
};

use crate::cluster::Cluster;
use crate::samples::{Samples, table};
use crate::site::{self, START, cores};

/// `victims` workloads run on quota borrowed from half of the `queues`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    pub(crate) queues: usize,
    pub(crate) victims: usize,
    pub(crate) rounds: usize,
}

/// The number of queues that reclaim at once.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Heads {
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
                if longest * 100 > limit
                    || !wants(&format!("storm/{sharing}/{}/{heads:?}", size.victims))
                {
                    continue;
                }
                let (row, took) = measure(*size, heads, fair, limit);
                longest = took;
                rows.push(row);
            }
        }
    }
    let head = [
        "sharing",
        "queues",
        "victims",
        "heads",
        "cycles",
        "p50 ms",
        "p99 ms",
        "max ms",
        "preempted",
    ];
    table(
        "Preemption storms: cycles that preempt, every one of which considers all victims",
        &head,
        &rows,
    );
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
                    flavors: vec![FlavorQuotas {
                        name: "default".into(),
                        resources: vec![("cpu".into(), quota)],
                    }],
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

    /// A cluster with all victims running.
    pub(crate) fn lent<'a>(self, fair: bool, make: &'a dyn Fn(usize) -> Workload) -> Cluster<'a> {
        let mut cluster = Cluster::new(fair, self.objects(), make);
        for number in 0..self.victims {
            cluster.submit(number);
        }
        cluster
    }

    /// The first `victims` numbers borrow one core each; the others request all quota of one owner.
    pub(crate) fn workload(self, number: usize) -> Workload {
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
    let mut cluster = size.lent(fair, &make);
    let (samples, preempted) = rounds(&mut cluster, size, heads, Instant::now() + limit);
    let sharing = if fair { "fair" } else { "classical" }.to_owned();
    let wanted = heads.count(size);
    let mut row =
        vec![sharing, size.queues.to_string(), size.victims.to_string(), wanted.to_string()];
    row.extend(samples.columns());
    row.push(preempted.to_string());
    (row, samples.permille(1000))
}

/// Owners reclaim their quota again and again. Returns the times of the cycles and the number of
/// victims.
pub(crate) fn rounds(
    cluster: &mut Cluster<'_>,
    size: Size,
    heads: Heads,
    end: Instant,
) -> (Samples, usize) {
    let mut samples = Samples::default();
    let (mut next, mut preempted) = (size.victims, 0);
    for _ in 0..size.rounds {
        settle(cluster);
        let owners = next..next + heads.count(size);
        // The numbers of one owner differ by the number of owners.
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
    (samples, preempted)
}

impl Heads {
    fn count(self, size: Size) -> usize {
        match self {
            Self::One => 1,
            Self::All => size.queues / 2,
        }
    }
}

/// Runs cycles until no more workloads are admitted.
pub(crate) fn settle(cluster: &mut Cluster<'_>) {
    cluster.wait(2000);
    while cluster.engine.has_heads(cluster.now) {
        let done = cluster.cycle();
        if done.admitted.is_empty() && done.preempted.is_empty() && done.postponed == 0 {
            break;
        }
    }
}
