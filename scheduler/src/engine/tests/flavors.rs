//! Selection of flavors.

use crate::fixtures::{Stage, amount, cohort, cq, flavor, lq, tolerate, wl};
use crate::{
    ClusterQueue, EngineSettings, Event, FlavorFungibility, FungibilityPolicy, PodSet,
    PreemptionPolicy, PreemptionRules, QuotaCheckStrategy, TaintEffect, Toleration,
    TolerationOperator, Workload,
};

/// `tainted`, then `labelled` (zone=b), then `default`; 10 cores each.
fn three_flavors() -> Stage {
    let mut stage = Stage::new();
    stage.apply(Event::ResourceFlavor(flavor("tainted").taint(
        "gpu",
        "true",
        TaintEffect::NoSchedule,
    )));
    stage.apply(Event::ResourceFlavor(flavor("labelled").label("zone", "b")));
    stage.queue(
        cq("main")
            .quota("tainted", "cpu", 10)
            .quota("labelled", "cpu", 10)
            .quota("default", "cpu", 10),
    );
    stage
}

#[test]
fn taints_selectors_and_affinity_select_the_flavor() {
    let exists = Toleration {
        key: "gpu".to_owned(),
        operator: TolerationOperator::Exists,
        ..Toleration::default()
    };
    let wrong_effect =
        Toleration { effect: Some(TaintEffect::NoExecute), ..tolerate("gpu", "true") };
    let cases: [(&str, Workload, &str); 11] = [
        ("a taint that is not tolerated", wl("a"), "labelled"),
        ("a tolerated taint", wl("a").toleration(tolerate("gpu", "true")), "tainted"),
        ("a toleration of any value", wl("a").toleration(exists), "tainted"),
        ("a toleration of another value", wl("a").toleration(tolerate("gpu", "false")), "labelled"),
        ("a toleration of another effect", wl("a").toleration(wrong_effect), "labelled"),
        ("a selector that matches", wl("a").selector("zone", "b"), "labelled"),
        ("a selector that a flavor contradicts", wl("a").selector("zone", "c"), "default"),
        ("a selector that no flavor defines", wl("a").selector("disk", "ssd"), "labelled"),
        ("an affinity that a flavor contradicts", wl("a").affinity("zone", &["c", "d"]), "default"),
        (
            "an affinity of which one term matches",
            wl("a").affinity("zone", &["c"]).affinity("zone", &["b"]),
            "labelled",
        ),
        (
            "an affinity of which one term is unknown",
            wl("a").affinity("zone", &["c"]).affinity("disk", &["x"]),
            "labelled",
        ),
    ];
    for (case, workload, expected) in cases {
        let mut stage = three_flavors();
        stage.submit(workload.request("cpu", 1));
        assert_eq!(stage.cycle(), [format!("admit a: main x 1 cpu 1 on {expected}")], "{case}");
    }
}

/// Pins the flavor of `cpu`, as a hub that charged it does.
fn pinned(mut workload: Workload, flavor: &str) -> Workload {
    let pins = || Some(Box::new([("cpu".into(), flavor.into())].into()));
    workload.pod_sets.iter_mut().for_each(|pod_set| pod_set.pins = pins());
    workload
}

#[test]
fn pinned_workload_uses_no_other_flavor() {
    let mut stage = three_flavors();
    stage.submit(pinned(wl("a").request("cpu", 6), "default"));
    stage.submit(wl("b").request("cpu", 6));
    stage.submit(pinned(wl("c").request("cpu", 6), "default"));
    assert_eq!(stage.cycle(), ["admit a: main x 1 cpu 6 on default"]);
    assert_eq!(stage.cycle(), ["admit b: main x 1 cpu 6 on labelled"]);
    stage.cycle();
    let reason = stage.why("c");
    assert!(reason.contains("insufficient unused quota for cpu in flavor default"), "{reason}");
    assert!(reason.contains("flavor labelled is not default, which the hub charged"), "{reason}");
}

#[rstest::rstest]
#[case::not_in_the_queue(
    "spot",
    "flavor spot, which the hub charged for cpu, is not in the ClusterQueue"
)]
#[case::not_tolerated("tainted", "untolerated taint")]
fn pin_that_cannot_match_is_no_matching_flavor(#[case] pin: &str, #[case] expected: &str) {
    let mut stage = three_flavors();
    stage.submit(pinned(wl("a").request("cpu", 1), pin));
    stage.cycle();
    let reason = stage.why("a");
    assert!(reason.starts_with("NoMatchingFlavor") && reason.contains(expected), "{reason}");
}

/// The driver fits the first flavor, which leaves another one to try; the workers never fit.
#[test]
fn waiting_pinned_pod_sets_do_not_return_to_the_head() {
    let mut stage = Stage::new();
    for name in ["first", "second"] {
        stage.apply(Event::ResourceFlavor(flavor(name)));
    }
    stage.queue(cq("main").quota("first", "cpu", 5).quota("second", "cpu", 5));
    stage.submit(wl("filler").request("cpu", 3).at(1));
    assert_eq!(stage.admit(), ["filler"]);
    let several = wl("several").pods("driver", 1).request("cpu", 1).pods("workers", 3);
    stage.submit(pinned(several.request("cpu", 1).at(2), "first"));
    stage.submit(wl("behind").request("cpu", 1).at(3));
    let admitted: Vec<String> = (0..3).flat_map(|_| stage.admit()).collect();
    assert_eq!(admitted, ["behind"]);
    stage.delete("filler");
    stage.wait(1);
    assert_eq!(stage.admit(), ["several"]);
}

#[test]
fn pin_without_the_resource_says_what_to_add() {
    let mut stage = Stage::new();
    for name in ["small", "large"] {
        stage.apply(Event::ResourceFlavor(flavor(name)));
    }
    stage.queue(cq("main").quota("small", "cpu", 4).group().quota("large", "memory", 4));
    stage.submit(pinned(wl("a").request("cpu", 1), "large"));
    stage.cycle();
    let reason = stage.why("a");
    let expected = "flavor large has no cpu in the ClusterQueue, and the hub charged cpu to it";
    assert!(reason.contains(expected), "{reason}");
}

#[test]
fn pin_of_a_preemptor_survives_retries() {
    let mut stage = Stage::with_preemption(EngineSettings::default());
    for name in ["first", "second"] {
        stage.apply(Event::ResourceFlavor(flavor(name)));
    }
    let mut queue = cq("main").quota("first", "cpu", 10).quota("second", "cpu", 10);
    queue.preemption.within_cluster_queue = PreemptionPolicy::LowerPriority;
    stage.queue(queue);
    stage.submit(pinned(wl("low").request("cpu", 10), "first"));
    assert_eq!(stage.admit(), ["low"]);
    stage.submit(pinned(wl("high").priority(5).request("cpu", 10), "first"));
    for _ in 0..3 {
        assert!(stage.admit().is_empty());
        assert!(!stage.why("high").starts_with("NoMatchingFlavor"));
    }
    stage.evict("low");
    assert_eq!(stage.cycle(), ["admit high: main x 1 cpu 10 on first"]);
}

#[test]
fn flavor_tolerations_cover_its_own_taint() {
    let mut stage = Stage::new();
    let mut tainted = flavor("tainted").taint("gpu", "true", TaintEffect::NoExecute);
    tainted.tolerations.push(tolerate("gpu", "true"));
    stage.apply(Event::ResourceFlavor(tainted));
    stage.queue(cq("main").quota("tainted", "cpu", 10));
    stage.submit(wl("a").request("cpu", 1));
    assert_eq!(stage.cycle(), ["admit a: main x 1 cpu 1 on tainted"]);
}

#[test]
fn prefer_no_schedule_taint_excludes_no_pods() {
    let mut stage = Stage::new();
    stage.apply(Event::ResourceFlavor(flavor("tainted").taint(
        "gpu",
        "true",
        TaintEffect::PreferNoSchedule,
    )));
    stage.queue(cq("main").quota("tainted", "cpu", 10));
    stage.submit(wl("a").request("cpu", 1));
    assert_eq!(stage.cycle(), ["admit a: main x 1 cpu 1 on tainted"]);
}

#[test]
fn first_fitting_flavor_is_taken() {
    let mut stage = Stage::new();
    stage.queue(cq("main").quota("default", "cpu", 4).quota("spot", "cpu", 4));
    for name in ["a", "b", "c"] {
        stage.submit(wl(name).request("cpu", 3));
    }
    assert_eq!(stage.cycle(), ["admit a: main x 1 cpu 3 on default"]);
    assert_eq!(stage.cycle(), ["admit b: main x 1 cpu 3 on spot"]);
    insta::assert_snapshot!(stage.cycle().join("\n"), @"pending c: WaitingForQuota: couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor default, 2 more needed, insufficient unused quota for cpu in flavor spot, 2 more needed");
}

#[test]
fn one_flavor_per_group_and_groups_are_independent() {
    let mut stage = Stage::new();
    let queue = cq("main").quota("default", "cpu", 1).quota("default", "memory", 100);
    let queue = queue.quota("spot", "cpu", 10).quota("spot", "memory", 100).group();
    stage.apply(Event::ResourceFlavor(flavor("a100")));
    stage.queue(queue.quota("a100", "nvidia.com/gpu", 8));
    stage.submit(wl("a").request("cpu", 2).request("memory", 50).request("nvidia.com/gpu", 4));
    assert_eq!(
        stage.cycle(),
        ["admit a: main x 1 cpu 2 on spot, memory 50 on spot, nvidia.com/gpu 4 on a100"]
    );
}

#[test]
fn pod_sets_may_get_different_flavors() {
    let mut stage = Stage::new();
    stage.queue(cq("main").quota("default", "cpu", 4).quota("spot", "cpu", 20));
    stage.submit(wl("a").pods("driver", 1).request("cpu", 3).pods("workers", 4).request("cpu", 3));
    assert_eq!(stage.cycle(), ["admit a: driver x 1 cpu 3 on default; workers x 4 cpu 12 on spot"]);
}

#[test]
fn undeclared_resources_block_or_are_ignored() {
    for (strategy, expected) in [
        (
            QuotaCheckStrategy::BlockUndeclared,
            "pending a: NoMatchingFlavor: couldn't assign flavors to pod set main: resource example.com/x unavailable \
             in ClusterQueue",
        ),
        (
            QuotaCheckStrategy::IgnoreUndeclared,
            "admit a: main x 1 cpu 1 on default; more x 1 cpu 1 on default",
        ),
    ] {
        let mut stage =
            Stage::with(EngineSettings { quota_check: strategy, ..EngineSettings::default() });
        stage.queue(cq("main").quota("default", "cpu", 10));
        stage.submit(
            wl("a").request("cpu", 1).request("example.com/x", 1).pods("more", 1).request("cpu", 1),
        );
        assert_eq!(stage.cycle(), [expected]);
    }
}

#[test]
fn zero_of_an_undeclared_resource_is_no_obstacle() {
    let mut stage = Stage::new();
    stage.queue(cq("main").quota("default", "cpu", 10));
    stage.submit(wl("a").request("cpu", 1).request("example.com/x", 0));
    assert_eq!(stage.cycle(), ["admit a: main x 1 cpu 1 on default"]);
}

#[test]
fn pod_set_without_requests_needs_no_flavor() {
    let mut stage = Stage::new();
    stage.queue(cq("main").quota("default", "cpu", 10));
    stage.submit(wl("a").pods("idle", 3));
    assert_eq!(stage.cycle(), ["admit a: idle x 3 "]);
}

fn fungible(
    queue: ClusterQueue,
    borrow: FungibilityPolicy,
    preempt: FungibilityPolicy,
) -> ClusterQueue {
    let fungibility = FlavorFungibility {
        when_can_borrow: borrow,
        when_can_preempt: preempt,
        ..FlavorFungibility::default()
    };
    ClusterQueue { fungibility, ..queue }
}

#[test]
fn fungibility_borrows_first_or_tries_the_next_flavor() {
    use FungibilityPolicy::{MayStopSearch, TryNextFlavor};
    for (policy, expected) in [(MayStopSearch, "default"), (TryNextFlavor, "spot")] {
        let mut stage = Stage::new();
        let queue = cq("main").cohort("all").quota("default", "cpu", 1).quota("spot", "cpu", 10);
        stage.queue(fungible(queue, policy, TryNextFlavor));
        stage.queue(cq("other").cohort("all").quota("default", "cpu", 10));
        stage.submit(wl("a").request("cpu", 2));
        assert_eq!(stage.cycle(), [format!("admit a: main x 1 cpu 2 on {expected}")]);
    }
}

#[test]
fn interrupted_search_resumes_at_the_next_flavor() {
    use FungibilityPolicy::MayStopSearch;
    // Two queues compete for the free quota of `default`. The loser resumes with `spot`, although
    // its search stopped at `default`.
    let mut stage = Stage::new();
    stage.apply(Event::LocalQueue(lq("other", "other")));
    for name in ["main", "other"] {
        let queue = cq(name).cohort("all").quota("default", "cpu", 2).quota("spot", "cpu", 5);
        stage.queue(fungible(queue, MayStopSearch, MayStopSearch));
    }
    stage.submit(wl("a").request("cpu", 3).at(1));
    stage.submit(wl("b").queue("other").request("cpu", 3).at(2));
    assert_eq!(
        stage.cycle(),
        [
            "admit a: main x 1 cpu 3 on default",
            "pending b: WaitingForQuota: Workload no longer fits after processing another workload",
        ]
    );
    assert_eq!(stage.cycle(), ["admit b: main x 1 cpu 3 on spot"]);
}

#[test]
fn order_is_least_borrowing_then_priority_then_age() {
    let mut stage = Stage::new();
    for name in ["a", "b", "c"] {
        stage.apply(Event::LocalQueue(lq(name, name)));
        stage.queue(cq(name).cohort("all").quota("default", "cpu", 5));
    }
    stage.submit(wl("borrower").queue("a").request("cpu", 8).priority(100));
    stage.submit(wl("newer").queue("b").request("cpu", 5).at(2));
    stage.submit(wl("older").queue("c").request("cpu", 5).at(1));
    let decided: Vec<_> = stage
        .cycle()
        .iter()
        .map(|text| text.split(':').next().unwrap_or_default().to_owned())
        .collect();
    assert_eq!(decided, ["admit older", "admit newer", "pending borrower"]);
}

#[test]
fn entry_without_candidates_reserves_quota_in_the_cycle() {
    for (reclaim, expected) in
        [(PreemptionPolicy::Never, "pending"), (PreemptionPolicy::Any, "admit")]
    {
        let mut stage = Stage::new();
        for name in ["a", "b"] {
            stage.apply(Event::LocalQueue(lq(name, name)));
        }
        let preemption =
            PreemptionRules { reclaim_within_cohort: reclaim, ..PreemptionRules::default() };
        stage.queue(ClusterQueue {
            preemption,
            ..cq("a").cohort("all").quota("default", "cpu", 10)
        });
        stage.queue(cq("b").cohort("all").quota("default", "cpu", 0));
        stage.submit(wl("running").queue("b").request("cpu", 6));
        assert_eq!(stage.admit(), ["running"]);
        stage.submit(wl("owner").queue("a").request("cpu", 8));
        stage.submit(wl("borrower").queue("b").request("cpu", 2));
        let decided = stage.cycle();
        let borrower = decided.iter().find(|text| text.contains("borrower")).unwrap();
        assert!(borrower.starts_with(expected), "{reclaim:?}: {decided:?}");
    }
}

#[test]
fn cut_borrowing_limit_frees_no_quota_for_others() {
    let mut stage = Stage::new();
    for name in ["a", "b", "c"] {
        stage.apply(Event::LocalQueue(lq(name, name)));
    }
    stage.apply(Event::Cohort(cohort("all").limited("default", "cpu", 7, -1, -1)));
    let limit = |borrow| {
        let mut queue = cq("a").cohort("all").quota("default", "cpu", 10);
        queue.resource_groups[0].flavors[0].resources[0].1.borrowing_limit =
            Some(amount("cpu", borrow));
        queue
    };
    stage.queue(limit(6));
    stage.queue(cq("b").cohort("all").quota("default", "cpu", 0));
    stage.queue(cq("c").cohort("all").quota("default", "cpu", 3));
    stage.submit(wl("running").queue("a").request("cpu", 16));
    assert_eq!(stage.admit(), ["running"]);
    stage.queue(limit(2));
    // Four of twenty are free. `owner` takes three of them; `above` is four above its limit, which
    // must not help `late`.
    stage.submit(wl("owner").queue("c").request("cpu", 3));
    stage.submit(wl("above").queue("a").request("cpu", 3).priority(9));
    stage.submit(wl("late").queue("b").request("cpu", 4));
    let decided: Vec<_> = stage
        .cycle()
        .iter()
        .map(|text| text.split(':').next().unwrap_or_default().to_owned())
        .collect();
    assert_eq!(decided, ["admit owner", "pending above", "pending late"]);
}

#[test]
fn limits_apply_on_every_level() {
    let mut stage = Stage::new();
    stage.apply(Event::Cohort(cohort("left").below("root").limited("default", "cpu", 0, 3, -1)));
    stage.apply(Event::Cohort(cohort("right").below("root").limited("default", "cpu", 0, -1, 4)));
    stage.queue(cq("main").cohort("left").quota("default", "cpu", 2));
    stage.queue(cq("lender").cohort("right").quota("default", "cpu", 10));
    // 2 of its own; right lends 4 of its 10, but left may borrow only 3.
    let quota = &stage.engine.cluster_queue("main").unwrap().quota[0];
    assert_eq!((quota.available, quota.potential), (amount("cpu", 5), amount("cpu", 5)));
    stage.submit(wl("a").request("cpu", 5));
    stage.submit(wl("b").request("cpu", 1).at(1));
    assert_eq!(stage.admit_all(), ["a"]);
}

#[test]
fn partial_admission_reduces_pod_sets_in_proportion() {
    let mut stage = Stage::new();
    stage.queue(cq("main").quota("default", "cpu", 9));
    let mut workload = wl("a").pods("one", 8).request("cpu", 1).at_least(2);
    workload.pod_sets.push(PodSet { min_count: Some(4), ..workload.pod_sets[0].clone() });
    workload.pod_sets[1].name = "two".into();
    stage.submit(workload);
    assert_eq!(stage.cycle(), ["admit a: one x 4 cpu 4 on default; two x 5 cpu 5 on default"]);
}

#[test]
fn queue_without_flavors_rejects_pods_without_requests() {
    let mut stage = Stage::new();
    stage.queue(ClusterQueue::new("main"));
    stage.submit(wl("a").pods("driver", 1).pods("workers", 3));
    stage.submit(wl("b").pods("none", 0).at(1));
    assert_eq!(
        stage.cycle(),
        [
            "pending a: NoMatchingFlavor: failed to assign flavors to pod set driver: workload requires Topology, but \
          there is no TAS cache information"
        ]
    );
    assert_eq!(stage.admit(), ["b"]);
}
