//! Classical preemption: victims, their order, and the preemptor's wait.

use crate::fixtures::{Stage, cq, lq, wl};
use crate::{
    BorrowWithinCohort, ClusterQueue, Decision, Engine, EngineSettings, Event, PreemptionPolicy,
    PreemptionRules, PreemptionSettings,
};

use PreemptionPolicy::{Any, LowerOrNewerEqualPriority, LowerPriority, Never};

fn rules(queue: ClusterQueue, within: PreemptionPolicy, reclaim: PreemptionPolicy) -> ClusterQueue {
    let preemption = PreemptionRules {
        within_cluster_queue: within,
        reclaim_within_cohort: reclaim,
        ..PreemptionRules::default()
    };
    ClusterQueue { preemption, ..queue }
}

/// One queue of 10 cores.
fn alone(within: PreemptionPolicy) -> Stage {
    let mut stage = Stage::with_preemption(EngineSettings::default());
    stage.queue(rules(cq("main").quota("default", "cpu", 10), within, Never));
    stage
}

/// Queues `main` and `other` of 10 cores each in one cohort, each with a LocalQueue of its name.
fn cohort(main: impl FnOnce(ClusterQueue) -> ClusterQueue) -> Stage {
    let mut stage = Stage::with_preemption(EngineSettings::default());
    stage.apply(Event::LocalQueue(lq("other", "other")));
    stage.queue(main(cq("main").cohort("all").quota("default", "cpu", 10)));
    stage.queue(cq("other").cohort("all").quota("default", "cpu", 10));
    stage
}

#[test]
fn within_cluster_queue_policy_selects_victims() {
    for (policy, priority, at, goes) in [
        (Never, 9, 0, false),
        (LowerPriority, 1, 9, true),
        (LowerPriority, 0, 0, false),
        (LowerOrNewerEqualPriority, 0, 1, true),
        (LowerOrNewerEqualPriority, 0, 9, false),
    ] {
        let mut stage = alone(policy);
        stage.submit(wl("running").request("cpu", 8).at(5));
        stage.admit();
        stage.submit(wl("new").request("cpu", 8).priority(priority).at(at));
        let told =
            stage.cycle().iter().any(|text| text == "preempt running for new: InClusterQueue");
        assert_eq!(told, goes, "{policy:?} priority {priority} at {at}");
    }
}

#[test]
fn evicted_victim_regains_its_age_with_new_quota() {
    for confirmed in [false, true] {
        let mut stage = alone(LowerOrNewerEqualPriority);
        stage.submit(crate::Workload {
            queue_time: crate::Time::from_secs(100),
            ..wl("running").request("cpu", 8)
        });
        if confirmed {
            stage.admit();
            // The event with the reservation also ends the eviction.
            stage.change("running", |workload| workload.queue_time = workload.created);
        } else {
            stage.engine.cycle(stage.now);
        }
        stage.submit(wl("new").request("cpu", 8).at(50));
        let decided = stage.cycle();
        assert!(
            !decided.iter().any(|text| text.starts_with("preempt")),
            "confirmed: {confirmed}: {decided:?}"
        );
    }
}

#[test]
fn fewest_victims_of_lowest_priority_and_newest() {
    let mut stage = alone(LowerPriority);
    for (name, cpu, priority) in [("big", 5, 2), ("low", 1, 0), ("older", 2, 1), ("newer", 2, 1)] {
        stage.submit(wl(name).request("cpu", cpu).priority(priority));
        stage.wait(1);
        stage.admit();
    }
    stage.submit(wl("new").request("cpu", 2).priority(9));
    // `low` is taken first and is not enough. `newer` suffices by itself, so `low` may stay.
    assert_eq!(stage.cycle()[0], "preempt newer for new: InClusterQueue");
}

#[test]
fn preemptor_stays_head_until_its_victims_are_gone() {
    let mut stage = alone(LowerPriority);
    stage.submit(wl("running").request("cpu", 8));
    stage.admit();
    stage.submit(wl("new").request("cpu", 8).priority(1));
    let missing = "couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor default, 6 more \
                   needed. Pending the preemption of 1 workload(s)";
    assert_eq!(
        stage.cycle(),
        [
            "preempt running for new: InClusterQueue".to_owned(),
            format!("pending new: WaitingForPreemptedWorkloads: {missing}")
        ]
    );
    stage.submit(wl("small").request("cpu", 2).priority(5));
    assert_eq!(stage.order("main"), "new small", "it is not overtaken even by priority");
    let again = stage.cycle();
    assert_eq!(again.len(), 1, "the victim is told once: {again:?}");
    stage.apply(Event::PreemptionFailed { key: crate::WorkloadKey::new("ns", "running") });
    assert_eq!(stage.cycle().len(), 2, "and again if it could not be told");
    stage.evict("running");
    assert_eq!(stage.admit_all(), ["new", "small"]);
    assert_eq!(stage.order("main"), "[running]");
}

#[test]
fn issued_victim_stays_victim_before_its_event() {
    let mut stage = alone(LowerPriority);
    for name in ["older", "newer"] {
        stage.submit(wl(name).request("cpu", 5).priority(1));
        stage.wait(1);
        stage.admit();
    }
    stage.submit(wl("new").request("cpu", 5).priority(9));
    assert_eq!(stage.cycle()[0], "preempt newer for new: InClusterQueue");
    stage.change("older", |workload| workload.priority = 0);
    let again = stage.cycle();
    assert!(!again.iter().any(|text| text.starts_with("preempt")), "one is enough: {again:?}");
    stage.apply(Event::PreemptionFailed { key: crate::WorkloadKey::new("ns", "newer") });
    assert_eq!(
        stage.cycle()[0],
        "preempt older for new: InClusterQueue",
        "nobody is on the way out any more"
    );
}

#[test]
fn overtaken_preemptor_keeps_quota_while_victims_leave() {
    let mut stage = cohort(|queue| rules(queue, Never, Any));
    stage.apply(Event::LocalQueue(lq("second", "second")));
    stage.queue(rules(cq("second").cohort("all").quota("default", "cpu", 10), Never, Any));
    for (name, queue, cpu, priority) in [
        ("kept", "main", 4, 9),
        ("base", "other", 10, 9),
        ("ten", "other", 10, 0),
        ("six", "other", 6, 0),
    ] {
        stage.submit(wl(name).queue(queue).request("cpu", cpu).priority(priority));
        stage.wait(1);
        stage.admit();
    }
    stage.submit(wl("first").request("cpu", 6).priority(3));
    stage.submit(wl("second").queue("second").request("cpu", 10).priority(2));
    stage.submit(wl("lesser").queue("other").request("cpu", 4).priority(1));
    let told: Vec<_> =
        stage.cycle().into_iter().filter(|text| text.starts_with("preempt")).collect();
    let reason = "InCohortReclamation";
    assert_eq!(
        told,
        [format!("preempt six for first: {reason}"), format!("preempt ten for second: {reason}")]
    );
    stage.evict("ten");
    // Four cores are free, and `second` would have to preempt `lesser`.
    assert_eq!(stage.admit(), ["first"]);
    assert_eq!(stage.admit(), Vec::<String>::new());
    stage.evict("six");
    assert_eq!(stage.admit_all(), ["second"]);
}

#[test]
fn preemption_message_is_kueues() {
    let mut stage = cohort(|queue| rules(queue, Never, Any));
    stage.submit(wl("borrower").queue("other").request("cpu", 15));
    stage.admit();
    stage.submit(wl("owner").request("cpu", 10));
    let decisions = stage.engine.cycle(stage.now).decisions;
    let [preempt @ Decision::Preempt { .. }, _] = &decisions[..] else { panic!("{decisions:?}") };
    insta::assert_snapshot!(preempt.preempted_message(Some("job-1")).unwrap(), @"Preempted to accommodate a workload (UID: uid-owner, JobUID: job-1) due to reclamation within the cohort; preemptor path: /all/main; preemptee path: /all/other");
    insta::assert_snapshot!(preempt.preempted_message(None).unwrap(), @"Preempted to accommodate a workload (UID: uid-owner, JobUID: UNKNOWN) due to reclamation within the cohort; preemptor path: /all/main; preemptee path: /all/other");
}

#[test]
fn reclaim_takes_only_from_borrowers() {
    for (cpu, goes) in [(15, true), (10, false)] {
        let mut stage = cohort(|queue| rules(queue, Never, Any));
        stage.submit(wl("running").queue("other").request("cpu", cpu));
        stage.admit();
        stage.submit(wl("mine").request("cpu", 4));
        stage.admit();
        stage.submit(wl("new").request("cpu", 5));
        assert_eq!(stage.cycle().iter().any(|text| text.starts_with("preempt")), goes, "{cpu}");
    }
}

#[test]
fn reclaim_by_priority_spares_higher_priorities() {
    for (priority, goes) in [(0, true), (5, false)] {
        let mut stage = cohort(|queue| rules(queue, Never, LowerPriority));
        stage.submit(wl("borrower").queue("other").request("cpu", 15).priority(priority));
        stage.admit();
        stage.submit(wl("new").request("cpu", 10).priority(1));
        assert_eq!(
            stage.cycle().iter().any(|text| text.starts_with("preempt")),
            goes,
            "{priority}"
        );
    }
}

#[test]
fn borrow_within_cohort_preempts_up_to_the_threshold() {
    for (policy, threshold, goes) in [
        (Never, None, false),
        (LowerPriority, None, true),
        (LowerPriority, Some(3), true),
        (LowerPriority, Some(1), false),
    ] {
        let borrow = BorrowWithinCohort { policy, max_priority_threshold: threshold };
        let mut stage = cohort(|queue| {
            let queue = rules(queue, Never, LowerPriority);
            let preemption = PreemptionRules { borrow_within_cohort: borrow, ..queue.preemption };
            ClusterQueue { preemption, ..queue }
        });
        stage.submit(wl("borrower").queue("other").request("cpu", 15).priority(2));
        stage.admit();
        stage.submit(wl("new").request("cpu", 12).priority(9));
        let told = stage
            .cycle()
            .contains(&"preempt borrower for new: InCohortReclaimWhileBorrowing".to_owned());
        assert_eq!(told, goes, "{policy:?} up to {threshold:?}");
    }
}

#[test]
fn two_preemptors_of_a_cycle_share_no_victim() {
    let mut stage = Stage::with_preemption(EngineSettings::default());
    for name in ["other", "third"] {
        stage.apply(Event::LocalQueue(lq(name, name)));
    }
    for name in ["main", "third"] {
        stage.queue(rules(cq(name).cohort("all").quota("default", "cpu", 5), Never, Any));
    }
    stage.queue(cq("other").cohort("all").quota("default", "cpu", 0));
    stage.submit(wl("first").queue("other").request("cpu", 5));
    stage.wait(1);
    stage.admit();
    stage.submit(wl("second").queue("other").request("cpu", 5));
    stage.wait(1);
    stage.admit();
    // Both would take `second`, the newest. The later one finds `first` instead.
    stage.submit(wl("a").request("cpu", 5).at(1));
    stage.submit(wl("b").queue("third").request("cpu", 5).at(2));
    let decided = stage.cycle();
    assert_eq!(decided[0], "preempt second for a: InCohortReclamation");
    assert_eq!(decided[1], "preempt first for b: InCohortReclamation");
}

#[test]
fn closed_preemption_gate_forbids_preemption() {
    let mut stage = alone(LowerPriority);
    stage.submit(wl("running").request("cpu", 8));
    stage.admit();
    stage.submit(crate::Workload { gates_closed: true, ..wl("new").request("cpu", 8).priority(1) });
    assert_eq!(
        stage.cycle(),
        ["pending new: AdmissionGated: Workload requires preemption, but it's gated"]
    );
    stage.change("new", |workload| workload.gates_closed = false);
    assert_eq!(stage.cycle()[0], "preempt running for new: InClusterQueue");
}

#[test]
fn free_flavor_is_preferred_to_preemption_by_policy() {
    let mut stage = Stage::with_preemption(EngineSettings::default());
    let queue = cq("main").quota("default", "cpu", 10).quota("spot", "cpu", 10);
    stage.queue(rules(queue, LowerPriority, Never));
    stage.submit(wl("running").request("cpu", 8));
    stage.admit();
    stage.submit(wl("new").request("cpu", 8).priority(1));
    assert_eq!(stage.cycle(), ["admit new: main x 1 cpu 8 on spot"]);
}

#[test]
fn engine_without_preemption_issues_none() {
    let mut stage = Stage::new();
    stage.queue(rules(cq("main").quota("default", "cpu", 10), LowerPriority, Never));
    stage.submit(wl("running").request("cpu", 8));
    stage.admit();
    stage.submit(wl("new").request("cpu", 8).priority(1));
    let message = "insufficient unused quota for cpu in flavor default, 6 more needed";
    assert_eq!(
        stage.cycle(),
        [format!(
            "pending new: WaitingForQuota: couldn't assign flavors to pod set main: {message}"
        )]
    );
}

#[test]
fn preemption_skips_count_shared_victims_without_a_new_search() {
    for (recompute_overlaps, skipped) in [(false, 1), (true, 0)] {
        let preemption = PreemptionSettings { recompute_overlaps, ..PreemptionSettings::default() };
        let mut stage =
            Stage::around(Engine::with_preemption(EngineSettings::default(), preemption));
        stage.apply(Event::LocalQueue(lq("other", "other")));
        stage.queue(rules(
            cq("main").cohort("all").quota("default", "cpu", 10),
            LowerPriority,
            Any,
        ));
        stage.queue(rules(
            cq("other").cohort("all").quota("default", "cpu", 10),
            LowerPriority,
            Any,
        ));
        stage.submit(wl("low").request("cpu", 20));
        assert_eq!(stage.admit(), ["low"]);
        stage.submit(wl("one").request("cpu", 10).priority(5));
        stage.submit(wl("two").request("cpu", 10).priority(5).queue("other"));
        let skips = stage.engine.cycle(stage.now).preemption_skips;
        assert_eq!(
            skips.values().sum::<usize>(),
            skipped,
            "recomputed: {recompute_overlaps}, {skips:?}"
        );
    }
}
