//! Examples of placement, most of them from Kueue's `tas_cache_test.go`.

use rstest::rstest;

use super::*;
use crate::topology::Unhealthy;
use crate::{AssignedDomain, Taint, TaintEffect, TopologyAssignment};

const MIXED: PlacementOptions = PlacementOptions { mixed: true, balanced: false, empty: false };

#[rstest]
#[case::one_rack_rather_than_two_hosts(
    "b1/r1/x3:2 b1/r2/x5:2 b1/r3/x1:1 b1/r3/x6:1 b1/r3/x2:1 b1/r3/x4:1",
    4,
    "required block",
    "x1*1 x2*1 x4*1 x6*1"
)]
#[case::the_smallest_host_that_does(
    "b1/r1/x3:2 b1/r1/x5:1 b1/r1/x1:1",
    2,
    "required block",
    "x3*2"
)]
#[case::the_least_free_first(
    "b1/r1/x3:4 b1/r1/x5:1 b1/r1/x1:1 b2/r1/x6:2 b2/r1/x2:1",
    6,
    "unconstrained",
    "x1*1 x3*1 x5*1 x2*1 x6*2"
)]
#[case::the_last_block_fits_best(
    "b1/r1/x3:6 b1/r1/x5:5 b1/r1/x1:4 b1/r1/x6:2",
    12,
    "required block kubernetes.io/hostname=2",
    "x1*4 x3*6 x6*2"
)]
#[case::tight_before_spare(
    "b1/r1/x3:3 b1/r1/x5:2 b1/r1/x1:2",
    4,
    "required block kubernetes.io/hostname=2",
    "x1*2 x5*2"
)]
#[case::slices_of_racks(
    "b1/r1/x3:1 b1/r1/x5:1 b1/r2/x1:1 b1/r2/x6:1 b1/r2/x2:1 b2/r1/x4:1 b2/r1/x7:1",
    4,
    "required block rack=2",
    "x3*1 x5*1 x1*1 x2*1"
)]
#[case::layers_of_racks_and_hosts(
    "b1/r1/x1:1 b1/r1/x2:4 b1/r2/x3:3 b1/r2/x4:4",
    8,
    "required block rack=4 kubernetes.io/hostname=2",
    "x2*4 x3*2 x4*2"
)]
#[case::racks_alone(
    "b1/r1/x1:1 b1/r1/x2:4 b1/r2/x3:3 b1/r2/x4:4",
    8,
    "required block rack=4",
    "x1*1 x2*3 x3*3 x4*1"
)]
#[case::too_little_in_layers(
    "b1/r1/x1:7 b1/r1/x2:4 b1/r2/x3:7 b1/r2/x4:3",
    16,
    "required block rack=8 kubernetes.io/hostname=4",
    "topology \"default\" doesn't allow to fit; 1/2 slice(s) fit on level rack; 3/4 slice(s) fit on level kubernetes.io/hostname"
)]
#[case::pods_beyond_whole_slices("b1/r1/x1:9", 5, "required block rack=2", "x1*4")]
#[case::a_level_that_is_not_there(
    "b1/r1/x1:9",
    1,
    "required zone",
    "no requested topology level: zone"
)]
#[case::slices_above(
    "b1/r1/x1:9",
    1,
    "required rack block=1",
    "podset slice topology block is above the podset topology rack"
)]
#[case::layers_out_of_order(
    "b1/r1/x1:9",
    4,
    "required block rack=4 block=2",
    "additional slice layer topology block must be at a lower level than rack"
)]
#[case::layers_that_do_not_divide(
    "b1/r1/x1:9",
    4,
    "required block rack=4 kubernetes.io/hostname=3",
    "additional slice layer size 3 must evenly divide parent layer size 4"
)]
#[case::layers_of_nothing(
    "b1/r1/x1:9",
    4,
    "required block rack=4 kubernetes.io/hostname=0",
    "additional slice layer size 0 must evenly divide parent layer size 4"
)]
#[case::slices_of_nothing(
    "b1/r1/x1:9",
    4,
    "required block rack=0",
    "slice topology requested, but slice size not provided"
)]
#[case::nothing_there("", 4, "required block", "no topology domains at level: block")]
#[case::host_with_the_name_of_its_block("b1/r1/b1:3 b1/r1/x1:1", 3, "required rack", "b1*3")]
fn placement_on_hosts(
    #[case] leaves: &str,
    #[case] count: i32,
    #[case] asked: &str,
    #[case] expected: &str,
) {
    let forest = forest(&HOSTS, leaves);
    let (name, request, requests) = ("main".into(), request(asked), requests(1, 0));
    assert_eq!(
        written(&place(&forest, &[ask(&name, count, &request, &requests)], MIXED)),
        expected
    );
}

#[rstest]
#[case::block_then_rack(1, 1, "required block", "b2/r1*1")]
#[case::a_rack(2, 1, "required rack", "b2/r2*2")]
#[case::up_to_a_block(4, 1, "preferred rack", "b1/r1*1 b1/r2*3")]
#[case::over_both_blocks(6, 1, "preferred rack", "b1/r1*1 b1/r2*3 b2/r2*2")]
#[case::no_rack(4, 1, "required rack", "topology \"default\" allows to fit only 3 out of 4 pod(s)")]
#[case::too_large_for_all(
    1,
    4,
    "required block",
    "topology \"default\" doesn't allow to fit any of 1 pod(s). Total nodes: 4; excluded: resource \"cpu\": 4"
)]
#[case::too_many_for_all(
    10,
    1,
    "preferred block",
    "topology \"default\" allows to fit only 7 out of 10 pod(s)"
)]
fn placement_on_racks(
    #[case] count: i32,
    #[case] cpu: i64,
    #[case] asked: &str,
    #[case] expected: &str,
) {
    let forest = forest(&[BLOCK, RACK], "b1/r1:1 b1/r2:3 b2/r1:1 b2/r2:2");
    let (name, request, requests) = ("main".into(), request(asked), requests(cpu, 0));
    assert_eq!(
        written(&place(&forest, &[ask(&name, count, &request, &requests)], MIXED)),
        expected
    );
}

#[rstest]
#[case::beside_its_workers("b1:11,8 b2:4,4", 4, "required block group", "b1*1; b1*4")]
#[case::nowhere_beside_its_workers(
    "b1:1,0 b2:4,4",
    4,
    "required block group",
    "topology \"default\" allows to fit only 4 out of 4 pod(s). Total nodes: 2; excluded: resource \"gpu\": 1"
)]
fn leader_is_placed_with_its_workers(
    #[case] leaves: &str,
    #[case] count: i32,
    #[case] asked: &str,
    #[case] expected: &str,
) {
    let forest = forest(&[BLOCK], leaves);
    let (names, request): ([Name; 2], _) = (["leader".into(), "workers".into()], request(asked));
    let (of_leader, of_worker) = (requests(1, 0), requests(1, 1));
    let requests_of_pod_sets =
        [ask(&names[0], 1, &request, &of_leader), ask(&names[1], count, &request, &of_worker)];
    assert_eq!(written(&place(&forest, &requests_of_pod_sets, MIXED)), expected);
}

#[test]
fn third_pod_set_in_a_group_is_rejected() {
    let forest = forest(&[BLOCK], "b1:9");
    let (name, request, requests) =
        ("main".into(), request("required block group"), requests(1, 0));
    let one = || ask(&name, 1, &request, &requests);
    let refused = "podset group group has more than two pod sets";
    assert_eq!(written(&place(&forest, &[one(), one(), one()], MIXED)), refused);
}

#[test]
fn excluded_hosts_are_counted_by_reason() {
    let mut forest = forest(&HOSTS, "b1/r1/x2:9 b1/r1/x3:9");
    let mut tainted = leaf("b1/r1/x1:1", &HOSTS);
    tainted.taints =
        vec![Taint { key: "key".into(), value: "value".into(), effect: TaintEffect::NoSchedule }];
    let mut small = leaf("b1/r1/x4:0", &HOSTS);
    small.labels.insert("zone".into(), "z".into());
    forest.put_leaf(tainted);
    forest.put_leaf(small);
    let (name, request, requests) =
        ("main".into(), request("required kubernetes.io/hostname"), requests(1, 0));
    let filter =
        PodFilter { node_selector: BTreeMap::from([("zone", "z")]), ..PodFilter::default() };
    let requests_of_pod_sets = [PlacementRequest { filter, ..ask(&name, 1, &request, &requests) }];
    let expected = "topology \"default\" doesn't allow to fit any of 1 pod(s). Total nodes: 4; excluded: nodeSelector: \
                    2, resource \"cpu\": 1, taint \"key=value:NoSchedule\": 1";
    assert_eq!(written(&place(&forest, &requests_of_pod_sets, MIXED)), expected);
}

#[test]
fn balanced_placement_gives_each_rack_the_same() {
    let forest = forest(&HOSTS, "b1/r1/x1:4 b1/r2/x2:4 b1/r3/x3:2");
    let (name, request, requests) = ("main".into(), request("preferred rack"), requests(1, 0));
    let requests_of_pod_sets = [ask(&name, 6, &request, &requests)];
    assert_eq!(written(&place(&forest, &requests_of_pod_sets, MIXED)), "x1*4 x3*2");
    assert_eq!(
        written(&place(
            &forest,
            &requests_of_pod_sets,
            PlacementOptions { balanced: true, ..MIXED }
        )),
        "x1*3 x2*3"
    );
}

#[test]
fn balanced_placement_that_breaks_layers_is_dropped() {
    let hosts =
        "b1/r0/x0:2 b1/r0/x1:3 b0/r0/x2:4 b0/r0/x3:4 b0/r0/x4:4 b1/r1/x5:2 b1/r0/x6:3 b1/r1/x7:2";
    let forest = forest(&HOSTS, hosts);
    let (name, request) =
        ("main".into(), request("preferred block rack=4 kubernetes.io/hostname=2"));
    let requests = requests(1, 0);
    let requests_of_pod_sets = [ask(&name, 20, &request, &requests)];
    let placed = |balanced| {
        place(&forest, &requests_of_pod_sets, PlacementOptions { balanced, ..MIXED }).assignments
    };
    assert_eq!(placed(true), placed(false));
    assert_eq!(placed(true)[0].as_ref().map(TopologyAssignment::pods), Some(20));
}

fn at(hosts: &[(&str, i32)]) -> TopologyAssignment {
    let domain = |(host, count): &(&str, i32)| AssignedDomain {
        values: vec![(*host).into()],
        count: *count,
    };
    TopologyAssignment {
        levels: vec![HOSTNAME_LABEL.into()],
        domains: hosts.iter().map(domain).collect(),
    }
}

#[rstest]
#[case::in_the_same_rack("required rack", &[("x1", 1), ("x2", 1)], "x1", "x2*1 x3*1")]
#[case::a_full_rack("required rack", &[("x4", 1), ("x5", 1)], "x4", "topology \"default\" doesn't allow to fit any of 1 pod(s). Total nodes: 5; excluded: resource \"cpu\": 2, topologyDomain: 3")]
#[case::anywhere("preferred rack", &[("x4", 1), ("x5", 1)], "x4", "x1*1 x5*1")]
#[case::the_slice_stays_together("preferred block rack=2", &[("x1", 1), ("x2", 1), ("x4", 1), ("x5", 1)], "x1", "x2*1 x3*1 x4*1 x5*1")]
#[case::others_are_gone_too("required rack", &[("x1", 1), ("x9", 1)], "x1", "Cannot replace the node, because the existing topologyAssignment is invalid, as it contains the stale domain x9")]
#[case::the_only_host("required rack", &[("x1", 1)], "x1", "x2*1")]
fn failed_node_is_replaced(
    #[case] asked: &str,
    #[case] own: &[(&str, i32)],
    #[case] node: &str,
    #[case] expected: &str,
) {
    let mut forest = forest(&HOSTS, "b1/r1/x1:1 b1/r1/x2:1 b1/r1/x3:1 b1/r2/x4:1 b1/r2/x5:1");
    let (name, request, requests, own) =
        (Name::from("main"), request(asked), requests(1, 0), at(own));
    for place in forest.uses(&flavors(&["f".into()]), &own, &requests) {
        forest.charge(&place, 1);
    }
    let tree = forest.tree("f").expect("a tree");
    let placer = Placer { tree, resources: &forest.resources, options: MIXED };
    let requests_of_pod_sets =
        [PlacementRequest { own: Some(&own), ..ask(&name, own.pods(), &request, &requests) }];
    let node: Name = node.into();
    let place = |keep| {
        placer.place(
            &requests_of_pod_sets,
            Some(Unhealthy { node: &node, keep }),
            &mut Assumed::new(),
        )
    };
    assert_eq!(written(&place(false)), expected);
    assert_eq!(place(true).assignments, vec![Some(own.clone())], "a single pod cannot move");
}

#[test]
fn replacement_that_completes_no_slice_stays_in_its_block() {
    let mut forest = forest(&HOSTS, "b1/r1/x1:1 b1/r1/x2:1 b1/r1/x3:1 b1/r2/x4:1 b2/r3/x6:9");
    let (name, request, requests, own) = (
        Name::from("main"),
        request("required block rack=2"),
        requests(1, 0),
        at(&[("x1", 1), ("x2", 1), ("x3", 1)]),
    );
    for place in forest.uses(&flavors(&["f".into()]), &own, &requests) {
        forest.charge(&place, 1);
    }
    let tree = forest.tree("f").expect("a tree");
    let placer = Placer { tree, resources: &forest.resources, options: MIXED };
    let asks = [PlacementRequest { own: Some(&own), ..ask(&name, 3, &request, &requests) }];
    let node: Name = "x1".into();
    let failed = Some(Unhealthy { node: &node, keep: false });
    assert_eq!(written(&placer.place(&asks, failed, &mut Assumed::new())), "x2*1 x3*1 x4*1");
}

#[test]
fn replacement_of_all_workers_stays_with_their_leader() {
    let mut forest = forest(&HOSTS, "b1/r1/x1:1 b1/r1/x2:1 b2/r3/x6:1");
    let (request, requests) = (request("required rack group"), requests(1, 0));
    let (leader, workers) = (at(&[("x1", 1)]), at(&[("x2", 1)]));
    for own in [&leader, &workers] {
        for place in forest.uses(&flavors(&["f".into()]), own, &requests) {
            forest.charge(&place, 1);
        }
    }
    let tree = forest.tree("f").expect("a tree");
    let placer = Placer { tree, resources: &forest.resources, options: MIXED };
    let name = Name::from("workers");
    let own = PlacementRequest { own: Some(&workers), ..ask(&name, 1, &request, &requests) };
    let asks = [PlacementRequest { peer: Some(&leader), ..own }];
    let node: Name = "x2".into();
    let failed = Some(Unhealthy { node: &node, keep: false });
    let placement = placer.place(&asks, failed, &mut Assumed::new());
    assert!(written(&placement).contains("topologyDomain: 1"), "{}", written(&placement));
}

#[rstest]
#[case::more_pods_beside_those_that_run(3, "x1*1 x2*2")]
#[case::fewer_pods_from_the_end(1, "x2*1")]
#[case::as_many_pods(2, "x2*2")]
fn elastic_pods_stay_in_place(#[case] count: i32, #[case] expected: &str) {
    let forest = forest(&HOSTS, "b1/r1/x1:4 b1/r1/x2:2");
    let (name, request, requests, previous) =
        ("main".into(), request("unconstrained"), requests(1, 0), at(&[("x2", 2)]));
    let requests_of_pod_sets =
        [PlacementRequest { previous: Some(&previous), ..ask(&name, count, &request, &requests) }];
    assert_eq!(written(&place(&forest, &requests_of_pod_sets, MIXED)), expected);
}

#[test]
fn elastic_pods_in_lost_domains_are_placed_again() {
    let forest = forest(&HOSTS, "b1/r1/x1:4");
    let (name, request, requests, previous) =
        ("main".into(), request("unconstrained"), requests(1, 0), at(&[("x2", 2)]));
    let requests_of_pod_sets =
        [PlacementRequest { previous: Some(&previous), ..ask(&name, 3, &request, &requests) }];
    assert_eq!(written(&place(&forest, &requests_of_pod_sets, MIXED)), "x1*3");
}
