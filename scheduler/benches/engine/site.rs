//! A large site: flavors, Cohorts of three levels, ClusterQueues, and workloads determined by their
//! numbers.

use std::collections::BTreeMap;

use switchyard_scheduler::{
    Amount, ClusterQueue, Cohort, Event, FlavorQuotas, LocalQueue, LocalQueueKey, Name, PodSet,
    PreemptionPolicy, PreemptionRules, Quota, ResourceFlavor, ResourceGroup, Time, Workload,
    WorkloadKey,
};

use crate::random::Random;

/// The start of the simulation.
pub(crate) const START: Time = Time::from_secs(1_800_000_000);
/// Below one root Cohort: 3 Cohorts with 2 Cohorts each.
const LEAVES: usize = 6;
/// ClusterQueues of one tree.
const QUEUES_OF_ROOT: usize = 100;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Site {
    pub(crate) queues: usize,
    pub(crate) seed: u64,
}

pub(crate) fn gibibytes(count: i64) -> Amount {
    Amount::new(count << 30)
}

pub(crate) fn cores(count: i64) -> Amount {
    Amount::new(count * 1000)
}

pub(crate) fn flavor(name: &str) -> Event {
    Event::ResourceFlavor(ResourceFlavor {
        name: name.into(),
        node_labels: BTreeMap::new(),
        node_taints: Vec::new(),
        tolerations: Vec::new(),
        topology_name: None,
    })
}

pub(crate) fn namespace(name: &Name) -> Event {
    Event::Namespace { name: name.clone(), labels: BTreeMap::new() }
}

/// The name contains the number.
pub(crate) fn key(namespace: &Name, number: usize) -> WorkloadKey {
    WorkloadKey::new(namespace.clone(), format!("job-trainer-{number:07}"))
}

/// The number in the name of [`key`].
pub(crate) fn number(key: &WorkloadKey) -> usize {
    key.name.rsplit('-').next().and_then(|digits| digits.parse().ok()).unwrap_or(usize::MAX)
}

/// As long as a real uid.
pub(crate) fn uid(number: usize) -> Name {
    format!("5d3c9ae2-6c0f-4a57-9d1e-{number:012}").into()
}

fn quotas(name: &str, resources: &[(&str, Amount, Amount)]) -> FlavorQuotas {
    let quota =
        |nominal, limit| Quota { nominal, borrowing_limit: Some(limit), lending_limit: None };
    let resources =
        resources.iter().map(|(name, nominal, limit)| ((*name).into(), quota(*nominal, *limit)));
    FlavorQuotas { name: name.into(), resources: resources.collect() }
}

impl Site {
    fn namespace(queue: usize) -> Name {
        format!("team-{queue:04}").into()
    }

    /// All objects except the workloads.
    pub(crate) fn objects(self) -> Vec<Event> {
        let mut events: Vec<_> = ["reserved", "spot", "a100"].map(flavor).into();
        let cohort = |name: String, parent: Option<String>| {
            Event::Cohort(Cohort { parent: parent.map(Name::from), ..Cohort::new(name) })
        };
        for root in 0..self.queues.div_ceil(QUEUES_OF_ROOT) {
            events.push(cohort(format!("root-{root:02}"), None));
            for mid in 0..3 {
                events
                    .push(cohort(format!("mid-{root:02}-{mid}"), Some(format!("root-{root:02}"))));
            }
            for leaf in 0..LEAVES {
                events.push(cohort(
                    format!("leaf-{root:02}-{leaf}"),
                    Some(format!("mid-{root:02}-{}", leaf / 2)),
                ));
            }
        }
        for queue in 0..self.queues {
            events.push(namespace(&Self::namespace(queue)));
            events.push(Event::ClusterQueue(Self::queue(queue)));
            let key = LocalQueueKey::new(Self::namespace(queue), "main");
            events.push(Event::LocalQueue(LocalQueue::new(key, format!("queue-{queue:04}"))));
        }
        events
    }

    fn queue(number: usize) -> ClusterQueue {
        let general = |name| {
            quotas(
                name,
                &[("cpu", cores(20), cores(100)), ("memory", gibibytes(80), gibibytes(400))],
            )
        };
        ClusterQueue {
            cohort: Some(format!("leaf-{:02}-{}", number / QUEUES_OF_ROOT, number % LEAVES).into()),
            resource_groups: vec![
                ResourceGroup {
                    covered_resources: vec!["cpu".into(), "memory".into()],
                    flavors: vec![general("reserved"), general("spot")],
                },
                ResourceGroup {
                    covered_resources: vec!["nvidia.com/gpu".into()],
                    flavors: vec![quotas(
                        "a100",
                        &[("nvidia.com/gpu", Amount::new(8), Amount::new(40))],
                    )],
                },
            ],
            preemption: PreemptionRules {
                within_cluster_queue: PreemptionPolicy::LowerPriority,
                reclaim_within_cohort: PreemptionPolicy::Any,
                ..PreemptionRules::default()
            },
            ..ClusterQueue::new(format!("queue-{number:04}"))
        }
    }

    /// A fifth of the workloads are for GPUs or can shrink; the others are Kueue's three classes.
    pub(crate) fn workload(self, number: usize) -> Workload {
        let mut random = Random::new(self.seed ^ (number as u64).wrapping_mul(0x0100_0000_01b3));
        let queue = number % self.queues;
        let created = START.plus(std::time::Duration::from_millis(random.next() % 3_600_000));
        let (cpu, gpus, pods, least, priority) = match random.below(100) {
            0..60 => (1, 0, 1, None, 50),
            60..80 => (5, 0, 1, None, 100),
            80..88 => (20, 0, 1, None, 200),
            88..96 => (2, 1, 1, None, 100),
            _ => (1, 0, 4, Some(2), 50),
        };
        let mut requests =
            BTreeMap::from([("cpu".into(), cores(cpu)), ("memory".into(), gibibytes(4 * cpu))]);
        if gpus > 0 {
            requests.insert("nvidia.com/gpu".into(), Amount::new(gpus));
        }
        let pod_set = PodSet { min_count: least, requests, ..PodSet::new("main", pods) };
        Workload {
            priority,
            pod_sets: vec![pod_set],
            ..Workload::new(key(&Self::namespace(queue), number), uid(number), "main", created)
        }
    }
}
