//! Kueue's feature gates, each on and off.

use crate::fixtures::{Stage, cohort, cq, lq, wl};
use crate::{
    ClusterQueue, EngineGates, EngineSettings, Event, FlavorFungibility, FungibilityPolicy,
    PreemptionPolicy, PreemptionRules, WorkloadKey,
};

const ON: EngineGates = EngineGates {
    flavor_fungibility: true,
    preserve_scan_progress: true,
    priority_sorting: true,
    preempt_within_nominal: true,
    prioritize_non_borrowing: true,
    prioritize_preemptors: true,
    timestamp_buffer: true,
    release_failed_preemptors: true,
    released_quota_only: true,
    usage_from_reservation: true,
};

fn stage(gates: EngineGates) -> Stage {
    Stage::with_preemption(EngineSettings { gates, ..EngineSettings::default() })
}

/// Queues of these names in one cohort of 12 cores, under fair sharing.
fn fair(names: &[&str], gates: EngineGates) -> Stage {
    let mut stage = Stage::with_preemption(EngineSettings {
        fair_sharing: true,
        gates,
        ..EngineSettings::default()
    });
    stage.apply(Event::Cohort(cohort("all").limited("default", "cpu", 12, -1, -1)));
    for name in names {
        stage.apply(Event::LocalQueue(lq(name, name)));
        stage.queue(reclaiming(cq(name).cohort("all").quota("default", "cpu", 0)));
    }
    stage
}

fn reclaiming(queue: ClusterQueue) -> ClusterQueue {
    let preemption = PreemptionRules {
        reclaim_within_cohort: PreemptionPolicy::Any,
        ..PreemptionRules::default()
    };
    ClusterQueue { preemption, ..queue }
}

fn fill(stage: &mut Stage, queue: &str, count: usize) {
    for number in 0..count {
        stage.submit(wl(&format!("{queue}{number:02}")).queue(queue).request("cpu", 1));
    }
    assert_eq!(stage.admit_all().len(), count);
}

/// Queues `main` and `other` that borrow from each other, and stop at the first flavor that
/// borrows, or continue.
fn two(gates: EngineGates, when_can_borrow: FungibilityPolicy) -> Stage {
    let mut stage = stage(gates);
    stage.apply(Event::LocalQueue(lq("other", "other")));
    for name in ["main", "other"] {
        let queue = cq(name).cohort("all").quota("default", "cpu", 2).quota("spot", "cpu", 5);
        stage.queue(ClusterQueue {
            fungibility: FlavorFungibility { when_can_borrow, ..queue.fungibility },
            ..queue
        });
    }
    stage
}

#[test]
fn flavor_fungibility() {
    for (flavor_fungibility, flavor) in [(true, "spot"), (false, "default")] {
        let mut stage =
            two(EngineGates { flavor_fungibility, ..ON }, FungibilityPolicy::TryNextFlavor);
        stage.submit(wl("a").request("cpu", 3));
        assert_eq!(
            stage.cycle(),
            [format!("admit a: main x 1 cpu 3 on {flavor}")],
            "whether it looks on"
        );
    }
}

#[test]
fn flavor_fungibility_preserve_scan_progress() {
    for (preserve_scan_progress, flavor) in [(true, "spot"), (false, "default")] {
        let mut stage =
            two(EngineGates { preserve_scan_progress, ..ON }, FungibilityPolicy::MayStopSearch);
        stage.submit(wl("a").request("cpu", 3).at(1));
        stage.submit(wl("b").queue("other").request("cpu", 3).at(2));
        assert_eq!(stage.admit(), ["a"]);
        stage.delete("a");
        assert_eq!(stage.cycle(), [format!("admit b: main x 1 cpu 3 on {flavor}")]);
    }
}

#[test]
fn priority_sorting_within_cohort() {
    for fair_sharing in [false, true] {
        for (priority_sorting, first) in [(true, "newer"), (false, "older")] {
            let gates = EngineGates { priority_sorting, ..ON };
            let mut stage = Stage::with_preemption(EngineSettings {
                fair_sharing,
                gates,
                ..EngineSettings::default()
            });
            for name in ["a", "b"] {
                stage.apply(Event::LocalQueue(lq(name, name)));
                stage.queue(cq(name).cohort("all").quota("default", "cpu", 5));
            }
            stage.submit(wl("older").queue("a").request("cpu", 1).at(1));
            stage.submit(wl("newer").queue("b").request("cpu", 1).at(2).priority(9));
            assert_eq!(stage.admit()[0], first, "fair sharing: {fair_sharing}");
        }
    }
}

#[test]
fn fair_sharing_preempt_within_nominal() {
    for (preempt_within_nominal, reason) in
        [(true, "InCohortReclamation"), (false, "InCohortFairSharing")]
    {
        let mut stage = fair(&["a", "b", "c"], EngineGates { preempt_within_nominal, ..ON });
        stage.queue(reclaiming(cq("c").cohort("all").quota("default", "cpu", 4)));
        fill(&mut stage, "a", 8);
        fill(&mut stage, "b", 8);
        stage.submit(wl("owner").queue("c").request("cpu", 4));
        let told: Vec<_> =
            stage.cycle().into_iter().filter(|text| text.starts_with("preempt")).collect();
        assert!(!told.is_empty() && told.iter().all(|text| text.ends_with(reason)), "{told:?}");
    }
}

#[test]
fn fair_sharing_prioritize_non_borrowing() {
    for (prioritize_non_borrowing, order) in
        [(true, ["from-c", "from-a"]), (false, ["from-a", "from-c"])]
    {
        let mut stage = fair(&["a", "b", "c"], EngineGates { prioritize_non_borrowing, ..ON });
        stage.queue(reclaiming(
            cq("c").cohort("all").quota("default", "cpu", 4).quota("spot", "cpu", 0),
        ));
        stage.queue(cq("lender").cohort("all").quota("spot", "cpu", 100));
        stage.submit(wl("big").queue("c").request("cpu", 90));
        assert_eq!(stage.admit(), ["big"]);
        stage.submit(wl("from-a").queue("a").request("cpu", 1));
        stage.submit(wl("from-c").queue("c").request("cpu", 1).at(9));
        assert_eq!(stage.admit(), order);
    }
}

#[test]
fn prioritize_preemptor_workloads() {
    for (prioritize_preemptors, first) in [(true, "new"), (false, "late")] {
        let mut stage = fair(&["a", "b", "c"], EngineGates { prioritize_preemptors, ..ON });
        fill(&mut stage, "c", 1);
        fill(&mut stage, "a", 11);
        stage.submit(wl("new").queue("c").request("cpu", 3));
        let told = stage.cycle().into_iter();
        let victims: Vec<_> = told
            .filter_map(|text| Some(text.strip_prefix("preempt ")?.split(' ').next()?.to_owned()))
            .collect();
        assert_eq!(victims.len(), 3, "{victims:?}");
        victims.iter().for_each(|name| stage.evict(name));
        // Its queue has the lower share.
        stage.submit(wl("late").queue("b").request("cpu", 3));
        assert_eq!(stage.admit()[0], first);
    }
}

#[test]
fn scheduler_timestamp_preemption_buffer() {
    for (timestamp_buffer, newer_by, goes) in
        [(false, 1, true), (true, 300, false), (true, 301, true)]
    {
        let mut stage = stage(EngineGates { timestamp_buffer, ..ON });
        let preemption = PreemptionRules {
            within_cluster_queue: PreemptionPolicy::LowerOrNewerEqualPriority,
            ..PreemptionRules::default()
        };
        stage.queue(ClusterQueue { preemption, ..cq("main").quota("default", "cpu", 10) });
        stage.submit(wl("running").request("cpu", 8).at(newer_by));
        stage.admit();
        stage.submit(wl("new").request("cpu", 8));
        let told = stage.cycle().iter().any(|text| text.starts_with("preempt running"));
        assert_eq!(told, goes, "{newer_by} s, {timestamp_buffer}");
    }
}

/// `victim` holds 3 of 4 CPUs. A preemptor needs 2 of them, and two workloads 1 each: one more than
/// is free.
#[test]
fn quota_of_victims_is_free_once_they_have_left() {
    let play = |released_quota_only: bool| {
        let mut stage = stage(EngineGates { released_quota_only, ..EngineGates::default() });
        for (name, nominal) in [("owner", 2), ("lender", 2), ("x", 0), ("y", 0)] {
            stage.apply(Event::LocalQueue(lq(name, name)));
            stage.queue(reclaiming(cq(name).cohort("all").quota("default", "cpu", nominal)));
        }
        stage.submit(wl("victim").queue("lender").request("cpu", 3));
        stage.admit();
        stage.submit(wl("preemptor").queue("owner").request("cpu", 2));
        stage.submit(wl("a").queue("x").request("cpu", 1));
        stage.submit(wl("b").queue("y").request("cpu", 1));
        let first = stage.admit();
        let held = ["owner", "lender", "x", "y"].map(|queue| stage.reserved(queue)).iter().sum();
        stage.evict("victim");
        let next = stage.admit();
        (first, held, next)
    };
    let names = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(play(false), (names(&["a", "b"]), 5, names(&["preemptor"])), "as in Kueue");
    assert_eq!(play(true), (names(&["a"]), 4, names(&["preemptor", "b"])));
}

/// A queue whose preemptor `new` preempts `running`.
fn with_preemption(release_failed_preemptors: bool) -> Stage {
    let mut stage = stage(EngineGates { release_failed_preemptors, ..ON });
    stage.queue(ClusterQueue {
        preemption: lower_priority(),
        ..cq("main").quota("default", "cpu", 10)
    });
    stage.submit(wl("running").request("cpu", 8));
    stage.admit();
    stage.submit(wl("new").request("cpu", 8).priority(1));
    assert_eq!(stage.cycle().len(), 2);
    stage
}

fn lower_priority() -> PreemptionRules {
    PreemptionRules {
        within_cluster_queue: PreemptionPolicy::LowerPriority,
        ..PreemptionRules::default()
    }
}

#[test]
fn failed_preemptor_loses_the_head_to_higher_priorities() {
    // Event; order with the gate, and without it.
    type Case = (&'static str, fn(&mut Stage), [&'static str; 2]);
    let cases: [Case; 4] = [
        ("nothing", |_| {}, ["new urgent", "new urgent"]),
        (
            "the victim's priority rises",
            |stage| {
                stage.change("running", |it| it.priority = 9);
                stage.cycle();
            },
            ["urgent [new]", "[new] urgent"],
        ),
        (
            "the quota is cut below what the preemptor asks for",
            |stage| {
                stage.queue(ClusterQueue {
                    preemption: lower_priority(),
                    ..cq("main").quota("default", "cpu", 7)
                });
                stage.cycle();
            },
            ["urgent [new]", "[new] urgent"],
        ),
        (
            "the victim could not be told to go",
            |stage| stage.apply(Event::PreemptionFailed { key: WorkloadKey::new("ns", "running") }),
            ["urgent new", "new urgent"],
        ),
    ];
    for (case, fail, orders) in cases {
        for (released, order) in [true, false].into_iter().zip(orders) {
            let mut stage = with_preemption(released);
            fail(&mut stage);
            stage.submit(wl("urgent").request("cpu", 8).priority(5));
            assert_eq!(stage.order("main"), order, "{case}, {released}");
        }
    }
}

#[test]
fn retried_failed_preemptor_is_not_the_head() {
    for (released, first) in [(true, "urgent"), (false, "new")] {
        let mut stage = with_preemption(released);
        stage.change("running", |it| it.priority = 9);
        stage.cycle();
        stage.submit(wl("urgent").request("cpu", 8).priority(5));
        stage.delete("running");
        stage.wait(2);
        assert_eq!(stage.admit(), [first], "{released}");
    }
}
