//! Fit of workloads, and deductions between reports.

use super::*;
use crate::PinRules;
use switchyard_proto::v1 as proto;
use switchyard_scheduler::{Operator, Toleration, TolerationOperator};
use switchyard_syntax::flavor_pins::FlavorPins;

fn row(flavor: &str, resource: &str, nominal: i64, available: i64) -> proto::FlavorCapacity {
    proto::FlavorCapacity {
        flavor: flavor.into(),
        resource: resource.into(),
        nominal,
        used: nominal - available,
        available,
        potential: nominal,
        ..proto::FlavorCapacity::default()
    }
}

fn labelled(mut row: proto::FlavorCapacity, key: &str, value: &str) -> proto::FlavorCapacity {
    row.node_labels.insert(key.into(), value.into());
    row
}

fn tainted(mut row: proto::FlavorCapacity, key: &str) -> proto::FlavorCapacity {
    row.taints.push(proto::Taint {
        key: key.into(),
        value: String::new(),
        effect: "NoSchedule".into(),
    });
    row
}

fn capacity(flavors: Vec<proto::FlavorCapacity>) -> ClusterCapacity {
    let queue = proto::QueueCapacity {
        namespace: "ns".into(),
        local_queue: "lq".into(),
        cluster_queue: "cq".into(),
        active: true,
        flavors,
        ..proto::QueueCapacity::default()
    };
    let mut capacity = ClusterCapacity::default();
    capacity.report(from_wire(proto::Capacity { queues: vec![queue], ..Default::default() }), 0);
    capacity
}

fn pods(count: i32, requests: &[(&str, i64)]) -> PodSet {
    let requests =
        requests.iter().map(|(name, amount)| (Name::from(*name), Amount::new(*amount))).collect();
    PodSet { requests, ..PodSet::new("main", count) }
}

fn fit(capacity: &ClusterCapacity, pod_sets: &[PodSet]) -> Fit {
    capacity.fit(&"ns".into(), &"lq".into(), pod_sets, unpinned(&FlavorPins::default()))
}

fn unpinned(charged: &FlavorPins) -> ClusterPins<'_> {
    ClusterPins::new(charged, None, "a")
}

fn first_reason(verdict: &Fit) -> String {
    match verdict {
        Fit::Now(_) => "fits".into(),
        Fit::Later { reasons, .. } => format!("waits: {}", reasons[0].message),
        Fit::Never(reasons) => format!("never: {}", reasons[0].message),
    }
}

#[rstest::rstest]
#[case::in_another_group(
    "large",
    "flavor large has no cpu in ClusterQueue cq, and the hub charged cpu to it: add cpu there"
)]
#[case::nowhere(
    "spot",
    "flavor spot, which the hub charged for cpu, is not in ClusterQueue cq: add it there"
)]
fn missing_pin_says_what_to_add(#[case] pin: &str, #[case] expected: &str) {
    let rows = vec![row("default", "cpu", 8000, 8000), row("large", "memory", 8000, 8000)];
    let charged = FlavorPins::from_rows([("main", "cpu", pin)]).unwrap();
    let rules = PinRules::default();
    let pins = ClusterPins::new(&charged, Some(&rules), "a");
    let mut capacity = capacity(rows);
    capacity.enforces_pins = true;
    let fit = capacity.fit(&"ns".into(), &"lq".into(), &[pods(1, &[("cpu", 1000)])], pins);
    let reason = first_reason(&fit);
    assert!(reason.starts_with("never: ") && reason.contains(expected), "{reason}");
}

#[test]
fn fit_gives_reasons() {
    let cpu = |available| capacity(vec![row("default", "cpu", 8000, available)]);
    let toleration = Toleration {
        key: "spot".into(),
        operator: TolerationOperator::Exists,
        ..Toleration::default()
    };
    let spot = || capacity(vec![tainted(row("spot", "cpu", 8000, 8000), "spot")]);
    let zones = || {
        capacity(vec![
            labelled(row("a", "cpu", 1000, 1000), "zone", "a"),
            labelled(row("b", "cpu", 8000, 8000), "zone", "b"),
        ])
    };
    let selecting = |key: &str, value: &str| {
        let mut pods = pods(1, &[("cpu", 1000)]);
        pods.node_selector.insert(key.into(), value.into());
        pods
    };
    let requiring = |operator, value: &str| {
        let mut pods = pods(2, &[("cpu", 1000)]);
        let requirement = Requirement { key: "zone".into(), operator, values: vec![value.into()] };
        pods.affinity = vec![NodeSelectorTerm {
            match_expressions: vec![requirement],
            match_fields: Vec::new(),
        }];
        pods
    };
    let p = "couldn't assign flavors to pod set main:";
    let cases: Vec<(&str, ClusterCapacity, Vec<PodSet>, String)> = vec![
        ("as much as is free", cpu(3000), vec![pods(3, &[("cpu", 1000)])], "fits".into()),
        (
            "more than is free",
            cpu(2500),
            vec![pods(3, &[("cpu", 1000)])],
            format!(
                "waits: {p} insufficient unused quota for cpu in flavor default, 500m more needed"
            ),
        ),
        (
            "more than there ever is",
            cpu(8000),
            vec![pods(9, &[("cpu", 1000)])],
            format!("never: {p} insufficient quota for cpu in flavor default, 1 more needed"),
        ),
        (
            "two pod sets together",
            cpu(3000),
            vec![pods(2, &[("cpu", 1000)]), pods(2, &[("cpu", 1000)])],
            format!(
                "waits: {p} insufficient unused quota for cpu in flavor default, 1 more needed"
            ),
        ),
        (
            "a resource nobody offers",
            cpu(8000),
            vec![pods(1, &[("nvidia.com/gpu", 1)])],
            format!("never: {p} resource nvidia.com/gpu unavailable in ClusterQueue cq"),
        ),
        ("nothing of a resource nobody offers", cpu(0), vec![pods(1, &[("x", 0)])], "fits".into()),
        (
            "a taint",
            spot(),
            vec![pods(1, &[("cpu", 1)])],
            format!("never: {p} untolerated taint spot in flavor spot"),
        ),
        (
            "a tolerated taint",
            spot(),
            vec![PodSet { tolerations: vec![toleration], ..pods(1, &[("cpu", 1)]) }],
            "fits".into(),
        ),
        ("the second flavor", zones(), vec![pods(2, &[("cpu", 1000)])], "fits".into()),
        ("a selector", zones(), vec![selecting("zone", "b")], "fits".into()),
        (
            "a selector nobody matches",
            zones(),
            vec![selecting("zone", "c")],
            format!("never: {p} flavor a doesn't match node affinity"),
        ),
        (
            "a selector on labels that no flavor has",
            zones(),
            vec![selecting("disk", "ssd")],
            "fits".into(),
        ),
        (
            "a selector on labels that only the full flavor has",
            capacity(vec![
                labelled(row("full", "cpu", 0, 0), "disk", "ssd"),
                labelled(row("b", "cpu", 8000, 8000), "zone", "b"),
            ]),
            vec![selecting("disk", "ssd")],
            "fits".into(),
        ),
        ("an affinity", zones(), vec![requiring(Operator::In, "b")], "fits".into()),
        (
            "an affinity to the small one",
            zones(),
            vec![requiring(Operator::NotIn, "b")],
            format!("never: {p} insufficient quota for cpu in flavor a, 1 more needed"),
        ),
        ("no pods", cpu(0), vec![pods(0, &[("cpu", 1000)])], "fits".into()),
    ];
    for (case, capacity, pod_sets, expected) in cases {
        assert_eq!(first_reason(&fit(&capacity, &pod_sets)), expected, "{case}");
    }
    assert_eq!(
        first_reason(&cpu(1).fit(
            &"other".into(),
            &"lq".into(),
            &[],
            unpinned(&FlavorPins::default())
        )),
        "never: the cluster has no LocalQueue other/lq"
    );
}

#[test]
fn sent_workload_is_deducted_until_report_counts_it() {
    let mut capacity = capacity(vec![row("default", "cpu", 4000, 4000)]);
    let ask = [pods(3, &[("cpu", 1000)])];
    let one = Uid::from("one");
    capacity.assume(&one, (&"ns".into(), &"lq".into()), &ask, unpinned(&FlavorPins::default()));
    assert!(first_reason(&fit(&capacity, &ask)).starts_with("waits"));
    let report = capacity.queues().clone();
    capacity.report(CapacityReport { queues: report.clone(), ..CapacityReport::default() }, 0);
    assert!(
        first_reason(&fit(&capacity, &ask)).starts_with("waits"),
        "a report that may not have it yet"
    );
    capacity.counted(&one, 0);
    let rooms = BTreeMap::from([("default".into(), FlavorRoom::default())]);
    let report = CapacityReport { queues: report, rooms, ..CapacityReport::default() };
    assert!(capacity.changes_only_rooms(&report));
    capacity.report(report.clone(), 0);
    assert!(first_reason(&fit(&capacity, &ask)).starts_with("waits"), "only rooms differ");
    capacity.report(report, 0);
    assert_eq!(first_reason(&fit(&capacity, &ask)), "fits", "a report that has it");
    capacity.assume(&one, (&"ns".into(), &"lq".into()), &ask, unpinned(&FlavorPins::default()));
    capacity.unassume(&one);
    assert_eq!(first_reason(&fit(&capacity, &ask)), "fits");
    assert!(capacity.sums.is_empty());
}

#[test]
fn tightest_cluster_scores_best() {
    let score = |flavors: Vec<proto::FlavorCapacity>| match fit(
        &capacity(flavors),
        &[pods(1, &[("cpu", 1000)])],
    ) {
        Fit::Now(score) => score,
        other => panic!("{other:?}"),
    };
    let roomy = score(vec![row("f", "cpu", 8000, 8000)]);
    let tight = score(vec![row("f", "cpu", 8000, 1500)]);
    let gpus = score(vec![row("f", "cpu", 8000, 1500), row("f", "nvidia.com/gpu", 8, 8)]);
    let mut borrowed = row("f", "cpu", 8000, 1500);
    borrowed.nominal = 6000;
    let borrowing = score(vec![borrowed]);
    let mut order = [borrowing, gpus, roomy, tight];
    order.sort();
    assert_eq!(order, [tight, roomy, gpus, borrowing]);
}

/// A burst uses up the nominal quota before the cluster reports it.
#[test]
fn cluster_borrows_once_sent_workloads_use_its_nominal_quota() {
    let mut owned = row("f", "cpu", 4000, 4000);
    // The cohort lends as much again.
    (owned.available, owned.potential, owned.used) = (8000, 8000, 0);
    let mut capacity = capacity(vec![owned]);
    let one_cpu = [pods(1, &[("cpu", 1000)])];
    let borrows = |capacity: &ClusterCapacity| match fit(capacity, &one_cpu) {
        Fit::Now(score) => score.borrows,
        other => panic!("{other:?}"),
    };
    let sent: Vec<bool> = (0..6)
        .map(|number| {
            let borrows = borrows(&capacity);
            let (uid, none) = (Uid::from(format!("{number}")), FlavorPins::default());
            capacity.assume(&uid, (&"ns".into(), &"lq".into()), &one_cpu, unpinned(&none));
            borrows
        })
        .collect();
    assert_eq!(sent, [false, false, false, false, true, true]);
    for number in 2..6 {
        capacity.unassume(&Uid::from(format!("{number}")));
    }
    assert!(!borrows(&capacity), "two of four are left");
}

/// A cluster's answer to a pod that is pinned to these flavors, if it enforces pins or not.
fn pinned_fit(mut rows: Vec<proto::FlavorCapacity>, pins: &[(&str, &str)], keeps: bool) -> Fit {
    rows.push(row("large", "nvidia.com/gpu", 8, 8));
    let mut capacity = capacity(rows);
    capacity.enforces_pins = keeps;
    let rows = pins.iter().map(|(resource, flavor)| ("main", *resource, *flavor));
    let charged = FlavorPins::from_rows(rows).unwrap();
    let rules = PinRules::default();
    let pins = ClusterPins::new(&charged, Some(&rules), "a");
    let ask = pods(1, &[("cpu", 1000), ("nvidia.com/gpu", 1)]);
    capacity.fit(&"ns".into(), &"lq".into(), &[ask], pins)
}

fn match_of(verdict: &Fit) -> PinMatch {
    let Fit::Now(score) = verdict else { panic!("{}", first_reason(verdict)) };
    score.pins
}

#[test]
fn cluster_that_enforces_pins_fits_by_the_pinned_flavor() {
    let rows = || vec![row("spot", "cpu", 8000, 8000), row("steady", "cpu", 8000, 500)];
    let fit = |pins: &[(&str, &str)]| first_reason(&pinned_fit(rows(), pins, true));
    assert_eq!(fit(&[("cpu", "spot")]), "fits");
    assert_eq!(fit(&[("cpu", "spot"), ("nvidia.com/gpu", "large"), ("memory", "x")]), "fits");
    let p = "couldn't assign flavors to pod set main:";
    assert_eq!(
        fit(&[("cpu", "steady")]),
        format!("waits: {p} flavor spot is not steady, which the hub charged for cpu")
    );
    assert_eq!(
        fit(&[("cpu", "other")]),
        format!(
            "never: {p} flavor other, which the hub charged for cpu, is not in ClusterQueue cq: add it there, or map it in spec.flavorPins of the MultiKueueConfig"
        )
    );
}

#[test]
fn cluster_that_chooses_fits_and_ranks_by_what_it_would_choose() {
    let both = || vec![row("spot", "cpu", 8000, 8000), row("steady", "cpu", 8000, 8000)];
    let fit = |rows, pins: &[(&str, &str)]| match_of(&pinned_fit(rows, pins, false));
    assert_eq!(fit(both(), &[]), PinMatch::Kept, "nothing is pinned");
    assert_eq!(fit(both(), &[("cpu", "spot")]), PinMatch::Likely);
    assert_eq!(fit(both(), &[("cpu", "steady")]), PinMatch::Unlikely);
    assert_eq!(fit(both(), &[("cpu", "other")]), PinMatch::Unlikely, "and it is no refusal");
    let one =
        || vec![tainted(row("spot", "cpu", 8000, 8000), "spot"), row("steady", "cpu", 8000, 8000)];
    assert_eq!(fit(one(), &[("cpu", "steady")]), PinMatch::Kept, "its pods tolerate no other");
}
