//! One queue and one flavor, where addition alone determines the victims.

use proptest::prelude::*;
use switchyard_scheduler::{
    Amount, ClusterQueue, FlavorQuotas, LocalQueue, LocalQueueKey, PodSet, PreemptionPolicy,
    PreemptionRules, Quota, ResourceFlavor, ResourceGroup, Time, Workload, WorkloadKey,
};

use crate::script::{Answer, EngineKind, Step};
use crate::world::World;

/// The priority of the new workload.
const PRIORITY: i32 = 10;

fn job(number: usize, cores: i64, priority: i32) -> Workload {
    let requests = [("cpu".into(), Amount::new(cores))].into();
    let key = WorkloadKey::new("n0", format!("w{number}"));
    let created = Time::from_secs(number as i64);
    let pod_sets = vec![PodSet { requests, ..PodSet::new("main", 1) }];
    Workload { priority, pod_sets, ..Workload::new(key, format!("u{number}"), "l0", created) }
}

/// A queue with running jobs of these cores and priorities, and `free` cores.
fn busy(jobs: &[(i64, i32)], free: i64, kind: EngineKind) -> World {
    let nominal = Amount::new(jobs.iter().map(|(cores, _)| cores).sum::<i64>() + free);
    let resources = vec![("cpu".into(), Quota { nominal, ..Quota::default() })];
    let group = ResourceGroup {
        covered_resources: vec!["cpu".into()],
        flavors: vec![FlavorQuotas { name: "f0".into(), resources }],
    };
    let preemption = PreemptionRules {
        within_cluster_queue: PreemptionPolicy::LowerPriority,
        ..PreemptionRules::default()
    };
    let flavor = ResourceFlavor {
        name: "f0".into(),
        node_labels: Default::default(),
        node_taints: Vec::new(),
        tolerations: Vec::new(),
        topology_name: None,
    };
    let mut world = World::new(kind);
    for step in [
        Step::Namespace { name: "n0".into(), labelled: false },
        Step::Flavor(flavor),
        Step::Queue(ClusterQueue {
            resource_groups: vec![group],
            preemption,
            ..ClusterQueue::new("q0")
        }),
        Step::LocalQueue(LocalQueue::new(LocalQueueKey::new("n0", "l0"), "q0")),
    ] {
        world.step(&step);
    }
    for (number, (cores, priority)) in jobs.iter().enumerate() {
        world.step(&Step::Submit(Box::new(job(number, *cores, *priority))));
        world.step(&Step::Cycle(vec![Answer::Confirm]));
    }
    world
}

proptest! {
    #[test]
    fn victims_are_minimal_in_one_queue(
        jobs in prop::collection::vec((1_i64..6, prop_oneof![4 => 0..PRIORITY, 1 => PRIORITY..12]), 1..8),
        free in 0_i64..3,
        wanted in 1_i64..20,
        fair in any::<bool>(),
    ) {
        let mut world = busy(&jobs, free, if fair { EngineKind::Fair } else { EngineKind::Classical });
        world.step(&Step::Submit(Box::new(job(jobs.len(), wanted, PRIORITY))));
        let admitted = world.step(&Step::Cycle(vec![Answer::Confirm]));
        let lesser: i64 = jobs.iter().filter(|(_, priority)| *priority < PRIORITY).map(|(cores, _)| cores).sum();
        let key = |number: usize| WorkloadKey::new("n0", format!("w{number}"));
        let gone: Vec<usize> =
            (0..jobs.len()).filter(|number| world.victims.iter().any(|victim| victim.key == key(*number))).collect();
        prop_assert_eq!(world.victims.len(), gone.len());
        prop_assert_eq!(!admitted.is_empty(), wanted <= free);
        prop_assert_eq!(!gone.is_empty(), wanted > free && wanted <= free + lesser, "{:?} for {}", gone, wanted);
        let freed: i64 = gone.iter().map(|number| jobs[*number].0).sum();
        for number in gone {
            let (cores, priority) = jobs[number];
            prop_assert!(priority < PRIORITY, "w{} is no lesser one", number);
            prop_assert!(free + freed - cores < wanted, "w{} need not have gone", number);
            prop_assert!(free + freed >= wanted, "they went for nothing");
        }
    }
}
