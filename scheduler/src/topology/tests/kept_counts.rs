//! Counts that are kept between searches are those of a new count.

use proptest::prelude::*;

use super::*;
use crate::topology::Placer;
use crate::topology::count_cache::borrow_counts;
use crate::topology::counts::{Counts, Within};
use crate::topology::forest::DomainUsage;
use crate::topology::place::LeaderAndWorkers;
use crate::{AssignedDomain, NonTasPod, Taint, TaintEffect, TopologyAssignment};

/// A change of one of few hosts.
#[derive(Clone, Debug)]
enum Step {
    /// The host with its block, rack, cpu, and whether it is tainted.
    Put(u8, u8, u8, i64, bool),
    Delete(u8),
    Charge(u8, i32),
    Release(u8, i32),
    OtherPod(u8),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let host = 0..6_u8;
    let step = prop_oneof![
        3 => (host.clone(), 0..2_u8, 0..2_u8, 0..6_i64, any::<bool>())
            .prop_map(|(host, block, rack, cpu, taint)| Step::Put(host, block, rack, cpu, taint)),
        1 => host.clone().prop_map(Step::Delete),
        2 => (host.clone(), 1..3_i32).prop_map(|(host, pods)| Step::Charge(host, pods)),
        1 => (host.clone(), 1..3_i32).prop_map(|(host, pods)| Step::Release(host, pods)),
        1 => host.prop_map(Step::OtherPod),
    ];
    prop::collection::vec(step, 1..24)
}

fn usage(forest: &mut Forest, host: u8, pods: i32) -> Vec<DomainUsage> {
    let domains = vec![AssignedDomain { values: vec![format!("x{host}").into()], count: pods }];
    let assignment = TopologyAssignment { levels: vec![HOSTNAME_LABEL.into()], domains };
    forest.uses(&flavors(&["f".into()]), &assignment, &requests(1, 0))
}

fn apply(forest: &mut Forest, step: &Step) {
    match *step {
        Step::Put(host, block, rack, cpu, tainted) => {
            let mut leaf = leaf(&format!("b{block}/r{rack}/x{host}:{cpu},4"), &HOSTS);
            leaf.name = format!("x{host}").into();
            if tainted {
                let taint = Taint {
                    key: "k".into(),
                    value: format!("v{block}"),
                    effect: TaintEffect::NoSchedule,
                };
                leaf.taints.push(taint);
            }
            forest.put_leaf(leaf);
        }
        Step::Delete(host) => {
            forest.delete_leaf(&format!("x{host}").into());
        }
        Step::Charge(host, pods) | Step::Release(host, pods) => {
            let sign = if matches!(step, Step::Charge(..)) { 1 } else { -1 };
            for place in usage(forest, host, pods) {
                forest.charge(&place, sign);
            }
        }
        Step::OtherPod(host) => {
            let leaf = format!("x{host}").into();
            let pod = NonTasPod { key: format!("p{host}").into(), leaf, requests: requests(1, 0) };
            forest.put_non_tas_pod(&pod);
        }
    }
}

const SHAPES: [(&str, i64); 4] = [
    ("preferred rack", 1),
    ("required block kubernetes.io/hostname=2", 2),
    ("required block rack=4 kubernetes.io/hostname=2", 1),
    ("unconstrained", 1),
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn kept_counts_equal_new_counts(steps in steps(), assumed in prop::collection::btree_map(0..6_u8, -2..3_i32, 0..3)) {
        let mut forest = forest(&HOSTS, "b0/r0/x0:3,4 b0/r1/x1:2,4");
        for step in &steps {
            apply(&mut forest, step);
            let mut used = Assumed::new();
            for (host, pods) in &assumed {
                let sign = if *pods < 0 { -1 } else { 1 };
                for place in usage(&mut forest, *host, pods.abs()) {
                    used.entry(place.leaf).or_default().add_all(&place.amounts, sign);
                }
            }
            for (text, cpu) in SHAPES {
                for (with_leader, empty) in [(false, false), (true, false), (false, true)] {
                    let (name, request, requests) = ("main".into(), request(text), requests(cpu, 0));
                    let tree = forest.tree("f").expect("the flavor has a tree");
                    let placer = Placer { tree, resources: &forest.resources, options: PlacementOptions::default() };
                    let workers = ask(&name, 4, &request, &requests);
                    let leader = ask(&name, 1, &request, &requests);
                    let group = LeaderAndWorkers { workers: &workers, leader: with_leader.then_some(&leader) };
                    let plan = placer.plan(&group).expect("a good request");
                    let demands = placer.demands(&group);
                    let wanted = demands.wanted(&workers.filter, Within::Anywhere, empty);
                    for assumed in [&Assumed::new(), &used] {
                        let (kept, loan) = borrow_counts(tree, &plan, &wanted, assumed);
                        let new = Counts::new(tree, &plan, &wanted);
                        if assumed.is_empty() {
                            prop_assert!(kept.agrees_with(tree, &new), "{text} after {step:?}");
                        }
                        loan.give_back(tree, kept);
                    }
                }
            }
        }
    }

    #[test]
    fn victims_are_tried_as_in_a_whole_search(
        steps in steps(),
        victims in prop::collection::vec((0..6_u8, 1..3_i32, any::<bool>()), 1..8),
        count in 1..9_i32,
    ) {
        let mut forest = forest(&HOSTS, "b0/r0/x0:3,4 b0/r1/x1:2,4");
        steps.iter().for_each(|step| apply(&mut forest, step));
        let places: Vec<_> = victims.iter()
            .map(|(host, pods, away)| (usage(&mut forest, *host, *pods), *away)).collect();
        for (text, cpu) in SHAPES {
            let (name, request, requests) = ("main".into(), request(text), requests(cpu, 0));
            let asks = [ask(&name, count, &request, &requests)];
            let tree = forest.tree("f").expect("the flavor has a tree");
            let options = PlacementOptions { mixed: true, ..PlacementOptions::default() };
            let placer = Placer { tree, resources: &forest.resources, options };
            let mut trial = placer.try_victims(&asks).expect("a plain request");
            let mut assumed = Assumed::new();
            for (places, away) in &places {
                // Some victims are put back, as those that are not needed.
                let signs: &[i128] = if *away { &[-1] } else { &[-1, 1] };
                for sign in signs {
                    trial.shift(places.iter(), *sign);
                    for place in places {
                        assumed.entry(place.leaf.clone()).or_default().add_all(&place.amounts, *sign);
                    }
                    let whole = placer.place(&asks, None, &mut assumed.clone());
                    prop_assert_eq!(trial.fits(), whole.failure.is_none(), "{}", text);
                }
            }
            trial.end();
        }
    }
}
