//! Bad input affects only the objects that refer to it, and never panics.

use crate::fixtures::{Stage, cohort, cq, lq, wl};
use crate::{Amount, Event, LocalQueueKey, Quota, WorkloadKey};

/// A healthy queue beside the broken objects of a test.
fn stage() -> Stage {
    let mut stage = Stage::new();
    stage.apply(Event::LocalQueue(lq("healthy", "healthy")));
    stage.queue(cq("healthy").quota("default", "cpu", 10));
    stage
}

fn assert_others_go_on(stage: &mut Stage) {
    stage.submit(wl("fine").queue("healthy").request("cpu", 1));
    assert!(stage.admit_all().contains(&"fine".to_owned()), "a healthy queue is not held up");
}

#[test]
fn overflowing_requests_fit_only_unlimited_quota() {
    let mut stage = stage();
    let mut queue = cq("main").quota("default", "cpu", 10);
    stage.queue(queue.clone());
    stage.submit(wl("huge").pods("main", i32::MAX).request("cpu", i64::MAX));
    assert_eq!(stage.admit_all(), [""; 0]);
    assert!(stage.why("huge").starts_with("ExceedsMaxQuota"));
    queue.resource_groups[0].flavors[0].resources[0].1 =
        Quota { nominal: Amount::UNLIMITED, ..Quota::default() };
    stage.queue(queue);
    stage.submit(wl("other").request("cpu", i64::MAX).at(1));
    stage.wait(1);
    // An unlimited quota admits no more than an amount can count.
    assert_eq!(stage.admit_all(), ["huge"]);
    assert!(stage.why("other").starts_with("WaitingForQuota"));
    stage.delete("huge");
    stage.wait(1);
    assert_eq!(stage.admit_all(), ["other"]);
    stage.delete("other");
    assert_eq!(stage.engine.cluster_queue("main").unwrap().quota[0].reserved, Amount::ZERO);
    assert_others_go_on(&mut stage);
}

#[test]
fn overflowing_and_negative_limits_are_tolerated() {
    for limit in [i64::MAX, i64::MIN, -5] {
        let mut stage = stage();
        let limit = Some(Amount::new(limit));
        let quota = Quota {
            nominal: Amount::new(i64::MAX - 1),
            borrowing_limit: limit,
            lending_limit: limit,
        };
        for name in ["main", "other"] {
            let mut queue = cq(name).cohort("all").quota("default", "cpu", 10);
            queue.resource_groups[0].flavors[0].resources[0].1 = quota;
            stage.queue(queue);
        }
        stage.apply(Event::Cohort(cohort("all").limited(
            "default",
            "cpu",
            i64::MAX / 1000,
            -1,
            -1,
        )));
        stage.submit(wl("a").request("cpu", 1));
        stage.admit_all();
        stage.delete("a");
        assert_eq!(stage.reserved("main"), 0, "{limit:?}");
        assert_others_go_on(&mut stage);
    }
}

#[test]
fn negative_requests_count_as_zero() {
    let mut stage = stage();
    stage.queue(cq("main").quota("default", "cpu", 10));
    stage.submit(wl("a").request("cpu", -5));
    assert_eq!(stage.cycle(), ["admit a: main x 1 cpu 0 on default"]);
}

#[test]
fn negative_counts_and_minimums_count_as_zero() {
    let mut stage = stage();
    stage.queue(cq("main").quota("default", "cpu", 10));
    stage.submit(wl("a").pods("main", -3).request("cpu", 5).at_least(-7));
    stage.submit(wl("b").pods("main", 30).request("cpu", 5).at_least(i32::MAX).at(1));
    stage.submit(wl("c").pods("main", 30).request("cpu", 5).at_least(i32::MIN).at(2));
    let admitted = stage.admit_all();
    assert_eq!(admitted, ["a", "c"]);
    assert_eq!(stage.reserved("main"), 10);
}

#[test]
fn invalid_pods_are_reported() {
    let mut stage = stage();
    stage.queue(cq("main").quota("default", "cpu", 10));
    stage.submit(
        wl("a")
            .request("cpu", 1)
            .problem("resources validation failed: requests must not exceed its limits"),
    );
    assert_eq!(
        stage.cycle(),
        [
            "pending a: Misconfigured: resources validation failed: requests must not exceed its limits"
        ]
    );
}

#[test]
fn workload_without_pod_sets_is_never_admitted() {
    let mut stage = stage();
    stage.queue(cq("main").quota("default", "cpu", 10));
    stage.submit(wl("a"));
    assert_eq!(stage.cycle(), ["pending a: NoMatchingFlavor: the workload has no pod sets"]);
    assert_eq!(stage.admit_all(), [""; 0]);
    assert_others_go_on(&mut stage);
}

#[test]
fn unknown_namespace_keeps_a_workload_pending() {
    let mut stage = stage();
    stage.queue(cq("main").quota("default", "cpu", 10));
    stage.submit(wl("a").request("cpu", 1));
    stage.apply(Event::NamespaceDeleted { name: "ns".into() });
    assert_eq!(
        stage.cycle(),
        [
            "pending a: Misconfigured: workload namespace \"ns\" does not exist: Namespace \"ns\" not found"
        ]
    );
    stage.namespace("ns", &[]);
    stage.wait(1);
    assert_eq!(stage.admit(), ["a"]);
}

#[test]
fn missing_flavor_stops_only_its_queue() {
    let mut stage = stage();
    stage.queue(cq("main").quota("missing", "cpu", 10));
    stage.submit(wl("a").request("cpu", 1));
    assert_eq!(stage.cycle(), [""; 0]);
    assert_others_go_on(&mut stage);
}

#[test]
fn last_of_duplicate_quotas_counts() {
    let mut stage = stage();
    let queue = cq("main").quota("default", "cpu", 10).quota("default", "cpu", 7);
    let queue = queue.group().quota("default", "cpu", 3).quota("spot", "memory", 3);
    stage.queue(queue.check("a", &[]).check("a", &[]));
    stage.check("a", "example.com/check", true);
    // The last of duplicate quotas counts: 3 cores.
    stage.submit(wl("big").request("cpu", 4));
    stage.submit(wl("a").request("cpu", 3).at(1));
    assert_eq!(stage.admit_all(), ["a"]);
    stage.delete("a");
    assert_eq!(stage.reserved("main"), 0);
    assert_others_go_on(&mut stage);
}

#[test]
fn covered_resource_without_quota_has_no_quota() {
    let mut stage = stage();
    let mut queue = cq("main").quota("default", "cpu", 10);
    queue.resource_groups[0].covered_resources.push("memory".into());
    stage.queue(queue);
    stage.submit(wl("a").request("cpu", 1).request("memory", 1));
    assert_eq!(stage.admit_all(), [""; 0]);
    assert!(stage.why("a").starts_with("ExceedsMaxQuota"));
}

#[test]
fn reservation_of_unknown_objects_is_charged_as_stated() {
    let mut stage = stage();
    stage.queue(cq("main").quota("default", "cpu", 10));
    stage.submit(wl("a").request("cpu", 2));
    stage.admit();
    stage.change("a", |workload| {
        let reservation = workload.reservation.as_mut().unwrap();
        reservation.pod_sets[0].name = "renamed".into();
        reservation.pod_sets[0].flavors.insert("memory".into(), "unheard-of".into());
        reservation.pod_sets[0].count = 0;
    });
    assert_eq!(stage.reserved("main"), 2);
    stage.change("a", |workload| {
        workload.reservation.as_mut().unwrap().cluster_queue = "nowhere".into()
    });
    assert_eq!(stage.reserved("main"), 0);
    stage.delete("a");
    assert_others_go_on(&mut stage);
}

#[test]
fn deletion_of_unknown_objects_is_ignored() {
    let mut stage = stage();
    stage.apply(Event::ClusterQueueDeleted { name: "x".into() });
    stage.apply(Event::CohortDeleted { name: "x".into() });
    stage.apply(Event::LocalQueueDeleted { key: LocalQueueKey::new("ns", "x") });
    stage.apply(Event::WorkloadDeleted { key: WorkloadKey::new("ns", "x") });
    stage.apply(Event::ResourceFlavorDeleted { name: "x".into() });
    stage.apply(Event::AdmissionCheckDeleted { name: "x".into() });
    stage.apply(Event::TopologyDeleted { name: "x".into() });
    stage.apply(Event::NamespaceDeleted { name: "x".into() });
    stage.apply(Event::Retry { key: WorkloadKey::new("ns", "x") });
    stage.apply(Event::RetryAll { cluster_queue: "x".into() });
    assert_others_go_on(&mut stage);
}

#[test]
fn cohort_chain_of_a_thousand_levels_works() {
    let mut stage = stage();
    for level in 0..1000 {
        stage.engine.apply(
            Event::Cohort(cohort(&format!("c{level}")).below(&format!("c{}", level + 1))),
            stage.now,
        );
        if level % 100 == 0 {
            // A queue at the bottom now and then makes the engine walk the whole chain.
            stage.queue(cq("main").cohort("c0").quota("default", "cpu", i64::from(level % 7 + 1)));
        }
    }
    stage.submit(wl("a").request("cpu", 1));
    assert_eq!(stage.admit_all(), ["a"]);
}
