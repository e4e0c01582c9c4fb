//! Properties of placement, for random trees and requests.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::topology::tree::joined;
use crate::{NonTasPod, TopologyAssignment};

/// For each host: its block, rack, cpu and gpu.
fn hosts() -> impl Strategy<Value = Vec<(u8, u8, i64, i64)>> {
    prop::collection::vec((0..3_u8, 0..3_u8, 0..6_i64, 0..4_i64), 1..14)
}

fn asked() -> impl Strategy<Value = (i32, String, i64)> {
    let level = prop::sample::select(vec!["block", "rack", HOSTNAME_LABEL]);
    let how = prop::sample::select(vec!["required", "preferred", "unconstrained"]);
    let slices = prop::sample::select(vec![
        "",
        "kubernetes.io/hostname=2",
        "rack=2",
        "rack=4 kubernetes.io/hostname=2",
    ]);
    (1..14_i32, how, level, slices, 1..3_i64).prop_map(|(count, how, level, slices, cpu)| {
        // Slices are at the level of the request or below.
        let slices =
            if level == HOSTNAME_LABEL && slices.starts_with("rack") { "" } else { slices };
        let level = if how == "unconstrained" { "" } else { level };
        let size = if slices.contains("=4") {
            4
        } else if slices.is_empty() {
            1
        } else {
            2
        };
        (count * size, format!("{how} {level} {slices}"), cpu)
    })
}

fn forest_of(hosts: &[(u8, u8, i64, i64)]) -> Forest {
    let text = |(at, (block, rack, cpu, gpu)): (usize, &(u8, u8, i64, i64))| {
        format!("b{block}/r{rack}/x{at:02}:{cpu},{gpu}")
    };
    forest(&HOSTS, &hosts.iter().enumerate().map(text).collect::<Vec<_>>().join(" "))
}

/// The free cpu of each host.
fn free(forest: &Forest) -> BTreeMap<Name, i64> {
    let mut forest_ids = BTreeMap::new();
    let tree = forest.tree("f").expect("a tree");
    let cpu = forest.resources.number("cpu").expect("cpu is known");
    for (_, leaf) in tree.leaves() {
        forest_ids.insert(leaf.id.clone(), leaf.free(cpu, false));
    }
    forest_ids
}

fn charge(
    forest: &mut Forest,
    assignment: &TopologyAssignment,
    requests: &BTreeMap<Name, Amount>,
    sign: i128,
) {
    for place in forest.uses(&flavors(&["f".into()]), assignment, requests) {
        forest.charge(&place, sign);
    }
}

/// The values of a host's levels.
fn path(forest: &Forest, host: &str) -> Vec<Name> {
    let tree = forest.tree("f").expect("a tree");
    let domain = tree.leaf_id(host).and_then(|id| tree.domain(id)).expect("a host");
    domain.path.to_vec()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn placement_is_complete_and_within_capacity(hosts in hosts(), wanted in prop::collection::vec(asked(), 1..6)) {
        for balanced in [false, true] {
            let mut forest = forest_of(&hosts);
            for (count, text, cpu) in &wanted {
                let (name, request, requests) = ("main".into(), request(text), requests(*cpu, 0));
                let options = PlacementOptions { mixed: true, balanced, empty: false };
                let placement = place(&forest, &[ask(&name, *count, &request, &requests)], options);
                let Some(assignment) = placement.assignments.into_iter().flatten().next() else {
                    prop_assert!(placement.failure.is_some());
                    continue;
                };
                prop_assert_eq!(assignment.pods(), *count);
                if let Some(level) = &request.required {
                    let at = HOSTS.iter().position(|known| **known == **level).expect("a level");
                    let domains: BTreeSet<_> = assignment.domains.iter()
                        .map(|domain| path(&forest, &joined(&domain.values))[..=at].to_vec()).collect();
                    prop_assert_eq!(domains.len(), 1, "required is one domain");
                }
                for layer in request.layers() {
                    let at = HOSTS.iter().position(|known| **known == *layer.topology).expect("a level");
                    let mut pods: BTreeMap<Vec<Name>, i32> = BTreeMap::new();
                    for domain in &assignment.domains {
                        *pods.entry(path(&forest, &joined(&domain.values))[..=at].to_vec()).or_default() += domain.count;
                    }
                    prop_assert!(pods.values().all(|pods| pods % layer.size == 0), "whole slices: {:?}", pods);
                }
                charge(&mut forest, &assignment, &requests, 1);
                prop_assert!(free(&forest).values().all(|free| *free >= 0), "within capacity");
            }
        }
    }

    #[test]
    fn placement_uses_a_single_domain_if_one_fits(hosts in hosts(), count in 1..8_i32) {
        let forest = forest_of(&hosts);
        let (name, requests) = ("main".into(), requests(1, 0));
        for (at, level) in HOSTS.iter().enumerate() {
            let mut capacity: BTreeMap<Vec<Name>, i64> = BTreeMap::new();
            for (host, free) in free(&forest) {
                *capacity.entry(path(&forest, &host)[..=at].to_vec()).or_default() += free;
            }
            let one_does = capacity.values().any(|free| *free >= i64::from(count));
            for how in ["required", "preferred"] {
                let request = request(&format!("{how} {level}"));
                let placement = place(&forest, &[ask(&name, count, &request, &requests)], PlacementOptions::default());
                let assignment = placement.assignments.into_iter().flatten().next();
                let domains: BTreeSet<_> = assignment.iter().flat_map(|assignment| &assignment.domains)
                    .map(|domain| path(&forest, &joined(&domain.values))[..=at].to_vec()).collect();
                if one_does {
                    prop_assert_eq!(domains.len(), 1);
                } else {
                    prop_assert!(how == "preferred" || assignment.is_none());
                }
            }
        }
    }

    #[test]
    fn added_usage_can_be_removed(hosts in hosts(), cpu in -3..9_i64, order in any::<bool>()) {
        let mut forest = forest_of(&hosts);
        let before = free(&forest);
        let requests = requests(1, 0);
        let everywhere = TopologyAssignment {
            levels: vec![HOSTNAME_LABEL.into()],
            domains: before.keys().map(|host| crate::AssignedDomain { values: vec![host.clone()], count: 2 }).collect(),
        };
        let pod = NonTasPod { key: "p".into(), leaf: leaf("b0/r0/new:1", &HOSTS).name, requests: requests.clone() };
        // Another pod on a leaf that stays.
        let (block, rack, ..) = hosts[0];
        let resident = NonTasPod {
            key: "r".into(),
            leaf: leaf(&format!("b{block}/r{rack}/x00:0"), &HOSTS).name,
            requests: requests.clone(),
        };
        forest.put_non_tas_pod(&resident);
        prop_assert_eq!(free(&forest).get("x00").copied(), before.get("x00").map(|free| free - 1));
        charge(&mut forest, &everywhere, &requests, 1);
        forest.put_non_tas_pod(&pod);
        forest.put_leaf(leaf(&format!("b0/r0/new:{cpu}"), &HOSTS));
        prop_assert_eq!(free(&forest).get("new").copied(), Some(cpu - 1));
        if order {
            forest.delete_leaf(&pod.leaf);
            forest.delete_non_tas_pod(&pod.key);
        } else {
            forest.delete_non_tas_pod(&pod.key);
            forest.delete_leaf(&pod.leaf);
        }
        charge(&mut forest, &everywhere, &requests, -1);
        forest.delete_non_tas_pod(&resident.key);
        prop_assert_eq!(free(&forest), before);
    }

    #[test]
    fn order_of_leaves_changes_no_placement(hosts in hosts(), wanted in asked(), turn in 0..14_usize) {
        let (count, text, cpu) = wanted;
        let (name, request, requests) = ("main".into(), request(&text), requests(cpu, 0));
        let once = forest_of(&hosts);
        let mut again = forest_of(&hosts);
        // Leaves are removed and added again, like nodes that flap.
        for at in 0..hosts.len() {
            let (block, rack, cpu, gpu) = hosts[(at + turn) % hosts.len()];
            let text = format!("b{block}/r{rack}/x{:02}:{cpu},{gpu}", (at + turn) % hosts.len());
            again.delete_leaf(&leaf(&text, &HOSTS).name);
            again.put_leaf(leaf(&text, &HOSTS));
        }
        let options = PlacementOptions { mixed: true, ..PlacementOptions::default() };
        let requests_of_pod_sets = [ask(&name, count, &request, &requests)];
        prop_assert_eq!(written(&place(&once, &requests_of_pod_sets, options)), written(&place(&again, &requests_of_pod_sets, options)));
    }

    #[test]
    fn flavors_of_the_same_hosts_share_usage(hosts in hosts(), count in 1..4_i32) {
        let mut forest = forest_of(&hosts);
        forest.put_flavor(&ResourceFlavor { name: "g".into(), ..flavor("g", "a") });
        let requests = requests(1, 0);
        let (name, request) = ("main".into(), request("preferred rack"));
        let placement = place(&forest, &[ask(&name, count, &request, &requests)], PlacementOptions::default());
        let Some(assignment) = placement.assignments.into_iter().flatten().next() else { return Ok(()) };
        let before = free(&forest);
        let places = forest.uses(&flavors(&["g".into()]), &assignment, &requests);
        forest.begin_cycle();
        for place in &places {
            forest.charge(place, 1);
        }
        prop_assert_eq!(&free(&forest), &before, "not before the cycle ends");
        forest.end_cycle();
        let taken: i64 = before.values().sum::<i64>() - free(&forest).values().sum::<i64>();
        prop_assert_eq!(taken, i64::from(count));
    }
}
