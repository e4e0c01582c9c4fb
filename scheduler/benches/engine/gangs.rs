//! Gangs on nodes with eight GPUs each, in blocks of 20 racks of 16 nodes: the site of the oracle's
//! `tas-bench.py`, in memory.

use std::collections::BTreeMap;
use std::time::Duration;

use switchyard_scheduler::{
    Amount, CapacityLeaf, ClusterQueue, Cohort, Event, FlavorQuotas, HOSTNAME_LABEL, LocalQueue,
    LocalQueueKey, Name, PodSet, PreemptionPolicy, PreemptionRules, Quota, ResourceFlavor,
    ResourceGroup, TopologyRequest, Workload,
};

use crate::random::Random;
use crate::site::{self, START, cores};

pub(crate) const GPU: &str = "nvidia.com/gpu";
const GPUS_OF_NODE: i64 = 8;
const CORES_OF_NODE: i64 = 96;
const NODES_OF_RACK: usize = 16;
const NODES_OF_BLOCK: usize = 20 * NODES_OF_RACK;
const NODES_OF_ZONE: usize = 8 * NODES_OF_BLOCK;
const QUEUES_OF_COHORT: usize = 10;

/// All levels, highest first.
const LEVELS: [&str; 4] = ["zone", "block", "rack", HOSTNAME_LABEL];

#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    pub(crate) nodes: usize,
    pub(crate) queues: usize,
    /// The lowest levels, 1 to 4.
    pub(crate) levels: usize,
}

impl Size {
    /// All objects except the workloads.
    pub(crate) fn objects(self) -> Vec<Event> {
        let levels = LEVELS[LEVELS.len() - self.levels..].iter().map(|level| (*level).into());
        let mut events = vec![
            Event::Topology { name: "levels".into(), levels: levels.collect() },
            Event::ResourceFlavor(ResourceFlavor {
                name: "gpu".into(),
                node_labels: strings([("tas", "yes")]),
                node_taints: Vec::new(),
                tolerations: Vec::new(),
                topology_name: Some("levels".into()),
            }),
        ];
        events.extend((0..self.nodes).map(leaf));
        for cohort in 0..self.queues.div_ceil(QUEUES_OF_COHORT) {
            events.push(Event::Cohort(Cohort::new(format!("cohort-{cohort:02}"))));
        }
        for queue in 0..self.queues {
            let key = LocalQueueKey::new(namespace(queue), "main");
            events.push(site::namespace(&namespace(queue)));
            events.push(Event::ClusterQueue(self.queue(queue)));
            events.push(Event::LocalQueue(LocalQueue::new(key, format!("queue-{queue:03}"))));
        }
        events
    }

    fn queue(self, number: usize) -> ClusterQueue {
        let share = |each: i64| each * int64(self.nodes) / int64(self.queues);
        let quota = |nominal| Quota { nominal, ..Quota::default() };
        ClusterQueue {
            cohort: Some(format!("cohort-{:02}", number / QUEUES_OF_COHORT).into()),
            resource_groups: vec![ResourceGroup {
                covered_resources: vec!["cpu".into(), GPU.into()],
                flavors: vec![FlavorQuotas {
                    name: "gpu".into(),
                    resources: vec![
                        ("cpu".into(), quota(cores(share(CORES_OF_NODE)))),
                        (GPU.into(), quota(Amount::new(share(GPUS_OF_NODE)))),
                    ],
                }],
            }],
            preemption: PreemptionRules {
                within_cluster_queue: PreemptionPolicy::LowerPriority,
                reclaim_within_cohort: PreemptionPolicy::Any,
                ..PreemptionRules::default()
            },
            ..ClusterQueue::new(format!("queue-{number:03}"))
        }
    }

    /// 1 to 64 pods. A third of the gangs requires one rack or block, a third prefers it, a third
    /// requests no level.
    pub(crate) fn workload(self, number: usize) -> Workload {
        let mut random = Random::new((number as u64).wrapping_mul(0x0100_0000_01b3));
        let pods = match random.below(100) {
            0..30 => 1,
            30..50 => 2,
            50..70 => 4,
            70..84 => 8,
            84..94 => 16,
            94..98 => 32,
            _ => 64,
        };
        let gpus = if pods > 8 { 8 } else { 1 << random.below(4) };
        let level = if pods <= 16 { "rack" } else { "block" };
        let request = match random.below(3) {
            _ if pods == 1 => TopologyRequest::default(),
            0 => required(level),
            1 => TopologyRequest { preferred: Some(level.into()), ..TopologyRequest::default() },
            _ => TopologyRequest::default(),
        };
        let priority = if random.below(4) == 0 { 100 } else { 0 };
        Workload { priority, ..self.gang(number, random.below(self.queues), (pods, gpus), request) }
    }

    /// A gang of so many pods with so many GPUs each.
    pub(crate) fn gang(
        self,
        number: usize,
        queue: usize,
        (pods, gpus): (i32, i64),
        request: TopologyRequest,
    ) -> Workload {
        let requests =
            BTreeMap::from([("cpu".into(), cores(gpus)), (GPU.into(), Amount::new(gpus))]);
        let asks = request != TopologyRequest::default();
        let pod_set = PodSet {
            requests,
            topology: asks.then(|| Box::new(request)),
            ..PodSet::new("main", pods)
        };
        let created = START.plus(Duration::from_secs(number as u64));
        let key = site::key(&namespace(queue), number);
        Workload {
            pod_sets: vec![pod_set],
            ..Workload::new(key, site::uid(number), "main", created)
        }
    }
}

/// All pods in one domain of this level.
pub(crate) fn required(level: &str) -> TopologyRequest {
    TopologyRequest { required: Some(level.into()), ..TopologyRequest::default() }
}

fn leaf(number: usize) -> Event {
    let (zone, block, rack) =
        (number / NODES_OF_ZONE, number / NODES_OF_BLOCK, number / NODES_OF_RACK);
    let (name, zone) = (host(number), format!("z{zone}"));
    let (block, rack) = (format!("b{block}"), format!("b{block}-r{rack}"));
    let labels = [
        ("tas", "yes"),
        ("zone", zone.as_str()),
        ("block", &block),
        ("rack", &rack),
        (HOSTNAME_LABEL, &name),
    ];
    let capacity = [
        ("cpu", cores(CORES_OF_NODE)),
        (GPU, Amount::new(GPUS_OF_NODE)),
        ("memory", site::gibibytes(1024)),
        ("pods", Amount::new(110)),
    ];
    Event::CapacityLeaf(Box::new(CapacityLeaf {
        labels: strings(labels),
        taints: Vec::new(),
        capacity: capacity.into_iter().map(|(name, amount)| (name.into(), amount)).collect(),
        name: name.clone(),
    }))
}

pub(crate) fn host(number: usize) -> Name {
    format!("node-{number:05}").into()
}

fn namespace(queue: usize) -> Name {
    format!("team-{queue:03}").into()
}

fn strings<const N: usize>(pairs: [(&str, &str); N]) -> BTreeMap<String, String> {
    pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).into()
}

fn int64(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
