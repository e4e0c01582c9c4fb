//! Outlooks of failed searches, and views of a tree.

use std::collections::BTreeSet;

use super::*;
use crate::topology::{DomainAmounts, PlacementOutlook};
use crate::{AssignedDomain, NonTasPod, Taint, TaintEffect, TopologyAssignment};

/// Two blocks of three racks: x4 is too small, another pod fills x3, a workload fills x5, and x6 is
/// tainted.
fn busy() -> Forest {
    let mut forest =
        forest(&HOSTS, "b1/r1/x1:2 b1/r1/x2:2 b1/r2/x3:1 b1/r2/x4:0 b2/r3/x5:3 b2/r3/x7:1");
    let mut tainted = leaf("b2/r3/x6:9", &HOSTS);
    let (key, value) = ("gpu".to_owned(), "yes".to_owned());
    tainted.taints.push(Taint { key, value, effect: TaintEffect::NoSchedule });
    forest.put_leaf(tainted);
    forest.put_non_tas_pod(&NonTasPod {
        key: "ns/other".into(),
        leaf: "b1-r2-x3".into(),
        requests: requests(1, 0),
    });
    let domains = vec![AssignedDomain { values: vec!["x5".into()], count: 3 }];
    let assignment = TopologyAssignment { levels: vec![HOSTNAME_LABEL.into()], domains };
    let names = ["f".into()];
    for usage in forest.uses(&flavors(&names), &assignment, &requests(1, 0)) {
        forest.charge(&usage, 1);
    }
    forest
}

fn outlook(forest: &Forest, count: i32, request_text: &str) -> Option<PlacementOutlook> {
    let (name, request, requests) = ("main".into(), request(request_text), requests(1, 0));
    let tree = forest.tree("f").expect("a tree");
    let placer =
        Placer { tree, resources: &forest.resources, options: PlacementOptions::default() };
    placer.outlook(&[ask(&name, count, &request, &requests)], &"f".into(), &mut Assumed::new())
}

fn written(outlook: &PlacementOutlook) -> String {
    let best = outlook.best.iter().map(|best| format!("{}:{}", best.values.join("/"), best.fits));
    let obstructed = outlook
        .obstructed
        .iter()
        .map(|it| format!("{} {} ({})", it.leaves, it.obstacle.message(), it.examples.join(" ")));
    let all: Vec<_> = best.chain(obstructed).collect();
    format!(
        "{} of {} in {} {}\n{}",
        outlook.fits,
        outlook.pods,
        outlook.strictness.name(),
        outlook.level,
        all.join("\n")
    )
}

#[test]
fn outlook_names_best_domain_by_level_and_obstacles() {
    let found = outlook(&busy(), 5, "required rack").expect("5 pods fit in no rack");
    insta::assert_snapshot!(written(&found), @r"
    5 of 5 in Required rack
    b1:4
    b1/r1:4
    b1/r1/x1:2
    1 the pods do not tolerate taint gpu=yes:NoSchedule (b2-r3-x6)
    1 the node has less cpu than a pod requests (b1-r2-x4)
    1 other pods use its cpu (b1-r2-x3)
    1 workloads use its cpu (b2-r3-x5)
    ");
}

#[test]
fn outlook_counts_whole_slices_at_and_above_their_level() {
    let found = outlook(&busy(), 6, "required block rack=3").expect("no rack holds two slices");
    let fits: Vec<i32> = found.best.iter().map(|best| best.fits).collect();
    assert_eq!((fits, found.fits), (vec![3, 3, 2], 3));
}

#[test]
fn placed_pods_and_bad_requests_have_no_outlook() {
    assert_eq!(outlook(&busy(), 4, "required rack"), None);
    assert_eq!(outlook(&busy(), 1, "required zone"), None);
}

#[test]
fn view_sums_allocatable_used_and_free_by_domain() {
    let forest = busy();
    let tree = forest.tree("f").expect("a tree");
    let covered = BTreeSet::from(["cpu".into(), "unknown".into()]);
    let view = tree.view(&covered, &forest.resources);
    let lines = view.domains.iter().map(|domain| {
        let DomainAmounts { allocatable, others, workloads, free } =
            domain.amounts.get("cpu").copied().unwrap_or_default();
        format!("{} {allocatable} {others} {workloads} {free}", domain.values.join("/"))
    });
    insta::assert_snapshot!(lines.collect::<Vec<_>>().join("\n"), @r"
    b1 5 1 0 4
    b1/r1 4 0 0 4
    b1/r1/x1 2 0 0 2
    b1/r1/x2 2 0 0 2
    b1/r2 1 1 0 0
    b1/r2/x3 1 1 0 0
    b1/r2/x4 0 0 0 0
    b2 13 0 3 10
    b2/r3 13 0 3 10
    b2/r3/x5 3 0 3 0
    b2/r3/x6 9 0 0 9
    b2/r3/x7 1 0 0 1
    ");
    let largest = tree.largest_free(&"f".into(), &covered, &forest.resources);
    let largest: Vec<_> = largest.iter().map(|it| (it.free.get(), it.total.get())).collect();
    assert_eq!(largest, [(10, 14), (10, 14), (9, 14)]);
}

#[test]
fn overcommitted_leaf_counts_as_full() {
    let mut forest = forest(&HOSTS, "b1/r1/x1:2 b1/r1/x2:2");
    forest.put_non_tas_pod(&NonTasPod {
        key: "ns/other".into(),
        leaf: "b1-r1-x1".into(),
        requests: requests(5, 0),
    });
    let tree = forest.tree("f").expect("a tree");
    let covered = BTreeSet::from(["cpu".into()]);
    let largest = tree.largest_free(&"f".into(), &covered, &forest.resources);
    assert_eq!(largest.iter().map(|it| it.free.get()).collect::<Vec<_>>(), [2, 2, 2]);
}
