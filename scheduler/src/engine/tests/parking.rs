//! StrictFIFO and BestEffortFIFO, parking, its triggers, equivalence and back-off.

use std::collections::BTreeMap;

use crate::fixtures::{Stage, cohort, cq, flavor, lq, wl};
use crate::{EngineSettings, Event, LabelSelector, StopPolicy, Time};

/// Name of the event, and the event.
type Case = (&'static str, fn(&mut Stage));

/// A queue of 10 cores with 8 in use.
fn busy(strict: bool) -> Stage {
    let mut stage = Stage::new();
    let queue = cq("main").quota("default", "cpu", 10);
    stage.queue(if strict { queue.strict() } else { queue });
    stage.submit(wl("running").request("cpu", 8));
    assert_eq!(stage.admit(), ["running"]);
    stage
}

#[test]
fn order_is_priority_then_age_then_uid() {
    let mut stage = Stage::new();
    stage.queue(cq("main").quota("default", "cpu", 10));
    for (name, priority, at) in [("d", 0, 2), ("c", 0, 1), ("b", 0, 1), ("a", 5, 9)] {
        stage.submit(wl(name).request("cpu", 1).priority(priority).at(at));
    }
    assert_eq!(stage.order("main"), "a b c d");
    assert_eq!(stage.admit_all(), ["a", "b", "c", "d"]);
}

#[test]
fn strict_head_blocks_the_workloads_behind_it() {
    let mut stage = busy(true);
    stage.submit(wl("big").request("cpu", 5).at(1));
    stage.submit(wl("small").request("cpu", 1).at(2));
    for _ in 0..3 {
        assert_eq!(stage.admit(), [""; 0]);
    }
    assert_eq!(stage.order("main"), "big small");
    assert_eq!(
        stage.why("small"),
        "PendingEvaluation: Workload is pending evaluation in the scheduling queue"
    );
    stage.delete("running");
    assert_eq!(stage.admit_all(), ["big", "small"]);
}

#[test]
fn best_effort_head_is_parked_and_the_next_is_tried() {
    let mut stage = busy(false);
    stage.submit(wl("big").request("cpu", 5).at(1));
    stage.submit(wl("small").request("cpu", 1).at(2));
    assert_eq!(stage.admit_all(), ["small"]);
    assert_eq!(stage.order("main"), "[big]");
    let view = stage.engine.cluster_queue("main").unwrap();
    assert_eq!((view.pending_active, view.pending_inadmissible), (0, 1));
}

#[test]
fn triggers_are_collected_for_a_second() {
    let mut stage = busy(false);
    stage.submit(wl("big").request("cpu", 5).at(1));
    stage.admit_all();
    stage.wait(10);
    stage.cycle();
    stage.delete("running");
    assert_eq!(stage.engine.next_wakeup(stage.now), Some(Time::from_secs(1011)));
    assert!(!stage.engine.has_heads(stage.now));
    assert_eq!(stage.cycle(), [""; 0]);
    stage.wait(1);
    assert!(stage.engine.has_heads(stage.now));
    assert_eq!(stage.admit(), ["big"]);
}

#[test]
fn helpful_events_retry_parked_workloads() {
    let queue = || cq("main").quota("default", "cpu", 10).cohort("all");
    let other = || cq("other").quota("default", "cpu", 10).cohort("all");
    let cases: [Case; 12] = [
        ("a workload of the queue is deleted", |stage| stage.delete("running")),
        ("a workload of the queue finishes", |stage| {
            stage.change("running", |workload| workload.finished = true)
        }),
        ("a workload of the queue is deactivated", |stage| {
            stage.change("running", |workload| workload.active = false)
        }),
        ("a workload of another queue of the cohort is deleted", |stage| stage.delete("elsewhere")),
        ("pods of a running workload are reclaimable", |stage| {
            stage.change("running", |workload| {
                workload.reclaimable = BTreeMap::from([("main".into(), 1)])
            });
        }),
        ("a running workload changes its priority", |stage| {
            stage.change("running", |workload| workload.priority = 9)
        }),
        ("the queue's quota changes", |stage| {
            stage.queue(cq("main").quota("default", "cpu", 11).cohort("all"))
        }),
        ("another queue of the cohort changes", |stage| {
            stage.queue(cq("other").quota("default", "cpu", 11).cohort("all"));
        }),
        ("the cohort changes", |stage| {
            stage.apply(Event::Cohort(cohort("all").limited("default", "cpu", 5, -1, -1)));
        }),
        ("a flavor of the queue changes", |stage| {
            stage.apply(Event::ResourceFlavor(flavor("default").label("zone", "a")));
        }),
        ("somebody asks for it", |stage| {
            stage.apply(Event::RetryAll { cluster_queue: "main".into() })
        }),
        ("the workload itself changes", |stage| {
            stage.change("big", |workload| workload.priority = 1)
        }),
    ];
    for (case, trigger) in cases {
        let mut stage = Stage::new();
        stage.apply(Event::LocalQueue(lq("other", "other")));
        stage.queue(queue());
        stage.queue(other());
        stage.submit(wl("running").request("cpu", 8));
        stage.submit(wl("elsewhere").queue("other").request("cpu", 10));
        assert_eq!(stage.admit_all().len(), 2);
        stage.submit(wl("big").request("cpu", 5));
        assert_eq!(stage.admit_all(), [""; 0]);
        assert_eq!(stage.order("main"), "[big]", "{case}");
        trigger(&mut stage);
        stage.wait(1);
        stage.engine.flush_inadmissible(stage.now);
        assert_eq!(stage.order("main"), "big", "{case}");
    }
}

#[test]
fn unrelated_events_leave_workloads_parked() {
    let cases: [Case; 6] = [
        ("a flavor of the queue gets another topology", |stage| {
            stage.apply(Event::Topology { name: "racks".into(), levels: Vec::new() });
            let topology_name = Some("racks".into());
            stage.apply(Event::ResourceFlavor(crate::ResourceFlavor {
                topology_name,
                ..flavor("default")
            }));
        }),
        ("its own condition is written", |stage| {
            stage.change("big", |workload| workload.admitted = false)
        }),
        ("a reservation is confirmed", |stage| {
            stage.submit(wl("small").request("cpu", 1));
            assert_eq!(stage.admit_all(), ["small"]);
        }),
        ("the same queue is listed again", |stage| {
            stage.queue(cq("main").quota("default", "cpu", 10))
        }),
        ("a flavor of another queue changes", |stage| {
            stage.apply(Event::ResourceFlavor(flavor("spot").label("zone", "a")));
        }),
        ("a workload of another tree is deleted", |stage| stage.delete("elsewhere")),
    ];
    for (case, event) in cases {
        let mut stage = busy(false);
        stage.apply(Event::LocalQueue(lq("other", "other")));
        stage.queue(cq("other").quota("default", "cpu", 10));
        stage.submit(wl("elsewhere").queue("other").request("cpu", 10));
        stage.submit(wl("big").request("cpu", 5));
        assert_eq!(stage.admit_all(), ["elsewhere"]);
        stage.wait(5);
        stage.admit_all();
        event(&mut stage);
        stage.wait(5);
        stage.engine.flush_inadmissible(stage.now);
        assert_eq!(stage.order("main"), "[big]", "{case}");
    }
}

#[test]
fn equivalent_workloads_are_parked_without_an_attempt() {
    let mut stage = busy(false);
    for (name, at) in [("a", 1), ("b", 2), ("c", 3)] {
        stage.submit(wl(name).request("cpu", 5).at(at));
    }
    stage.submit(wl("other").request("cpu", 4).at(4));
    let decided = stage.cycle();
    assert_eq!(decided.len(), 1, "only one of them was tried: {decided:?}");
    assert_eq!(stage.order("main"), "[a] [b] [c] other");
    let bypassed = "WaitingForQuota: Bypassed scheduling evaluation because an equivalent workload recently failed";
    assert_eq!(stage.why("b"), bypassed);
    // Another workload of the class is not tried either; one of another priority is.
    stage.submit(wl("d").request("cpu", 5).at(5));
    stage.submit(wl("urgent").request("cpu", 5).priority(1).at(6));
    assert_eq!(stage.order("main"), "urgent [a] [b] [c] other [d]");
    stage.delete("running");
    stage.wait(1);
    assert_eq!(stage.admit_all(), ["urgent", "a"]);
}

#[test]
fn without_equivalence_hashing_each_workload_is_tried() {
    let mut stage =
        Stage::with(EngineSettings { equivalence_hashing: false, ..EngineSettings::default() });
    stage.queue(cq("main").quota("default", "cpu", 1));
    stage.submit(wl("a").request("cpu", 5));
    stage.submit(wl("b").request("cpu", 5));
    stage.cycle();
    assert_eq!(stage.order("main"), "[a] b");
}

#[test]
fn strict_queue_does_not_park_equivalent_workloads() {
    let mut stage = busy(true);
    stage.submit(wl("a").request("cpu", 5));
    stage.submit(wl("b").request("cpu", 5));
    stage.cycle();
    assert_eq!(stage.order("main"), "a b");
}

#[test]
fn namespace_mismatch_parks_even_in_a_strict_queue() {
    for strict in [true, false] {
        let mut stage = busy(strict);
        let queue = cq("main").quota("default", "cpu", 10);
        let queue = if strict { queue.strict() } else { queue };
        let selector = LabelSelector::label("team", "a");
        stage.queue(crate::ClusterQueue { namespace_selector: Some(selector), ..queue });
        stage.submit(wl("stranger").request("cpu", 1).priority(9));
        stage.wait(1);
        let message = "workload namespace doesn't match ClusterQueue selector";
        assert_eq!(stage.cycle(), [format!("pending stranger: Misconfigured: {message}")]);
        assert_eq!(stage.order("main"), "[stranger]");
        // Triggers do not retry it; a label change does.
        stage.delete("running");
        stage.wait(1);
        stage.engine.flush_inadmissible(stage.now);
        assert_eq!(stage.order("main"), "[stranger]");
        stage.namespace("ns", &[("team", "a")]);
        stage.wait(1);
        assert_eq!(stage.admit(), ["stranger"]);
    }
}

#[test]
fn missing_selector_matches_no_namespace() {
    let mut stage = Stage::new();
    stage.queue(crate::ClusterQueue {
        namespace_selector: None,
        ..cq("main").quota("default", "cpu", 10)
    });
    stage.submit(wl("a").request("cpu", 1));
    let message = "workload namespace doesn't match ClusterQueue selector";
    assert_eq!(stage.cycle(), [format!("pending a: Misconfigured: {message}")]);
}

#[test]
fn workload_returns_after_its_back_off() {
    let mut stage = Stage::new();
    stage.queue(cq("main").quota("default", "cpu", 10));
    stage.submit(crate::Workload {
        requeue_at: Some(Time::from_secs(1060)),
        ..wl("a").request("cpu", 1)
    });
    assert_eq!(stage.order("main"), "[a]");
    assert_eq!(stage.why("a"), "PendingEvaluation: Workload is waiting for its back-off to finish");
    stage.apply(Event::RetryAll { cluster_queue: "main".into() });
    stage.wait(59);
    assert_eq!(stage.cycle(), [""; 0], "triggers do not cut a back-off short");
    assert_eq!(stage.engine.next_wakeup(stage.now), Some(Time::from_secs(1060)));
    stage.wait(1);
    assert_eq!(stage.admit(), ["a"]);
}

#[test]
fn requeued_false_blocks_until_it_is_true() {
    let mut stage = Stage::new();
    stage.queue(cq("main").quota("default", "cpu", 10));
    let requeue_at = Some(Time::from_secs(1001));
    stage.submit(crate::Workload {
        requeued: Some(false),
        requeue_at,
        ..wl("a").request("cpu", 1)
    });
    stage.wait(1000);
    assert_eq!(stage.cycle(), [""; 0]);
    stage.change("a", |workload| workload.requeued = Some(true));
    assert_eq!(stage.admit(), ["a"]);
}

#[test]
fn stopped_queues_admit_nothing_and_resume() {
    let mut stage = Stage::new();
    let queue = || cq("main").quota("default", "cpu", 10);
    stage.queue(queue().stop(StopPolicy::Hold));
    stage.submit(wl("a").request("cpu", 1));
    assert!(!stage.engine.has_heads(stage.now));
    assert_eq!(stage.cycle(), [""; 0]);
    assert_eq!(stage.why("a"), "Suspended: ClusterQueue main is inactive");
    stage.queue(queue());
    assert_eq!(stage.admit(), ["a"]);

    let local =
        |policy| Event::LocalQueue(crate::LocalQueue { stop_policy: policy, ..lq("main", "main") });
    stage.apply(local(StopPolicy::HoldAndDrain));
    stage.submit(wl("b").request("cpu", 1));
    assert_eq!(stage.cycle(), [""; 0]);
    assert_eq!(stage.order("main"), "");
    assert_eq!(stage.why("b"), "Suspended: LocalQueue main is inactive");
    stage.apply(local(StopPolicy::None));
    assert_eq!(stage.admit(), ["b"]);
}

#[test]
fn inactive_and_on_hold_workloads_are_not_queued() {
    let mut stage = Stage::new();
    stage.queue(cq("main").quota("default", "cpu", 10));
    stage.submit(wl("a").request("cpu", 1));
    stage.change("a", |workload| workload.active = false);
    assert_eq!(stage.order("main"), "");
    assert_eq!(stage.why("a"), "Deactivated: The workload is deactivated");
    stage.change("a", |workload| {
        workload.active = true;
        workload.on_hold = true;
    });
    assert_eq!(stage.cycle(), [""; 0]);
    stage.change("a", |workload| workload.on_hold = false);
    assert_eq!(stage.admit(), ["a"]);
}

#[test]
fn class_follows_workload_changes() {
    let mut stage = busy(false);
    stage.submit(wl("a").request("cpu", 5).at(1));
    stage.submit(wl("b").request("cpu", 5).at(2));
    stage.admit_all();
    assert_eq!(stage.order("main"), "[a] [b]");
    stage.change("b", |workload| *workload = wl("b").request("cpu", 2).at(2));
    assert_eq!(stage.admit_all(), ["b"]);
    assert_eq!(stage.order("main"), "[a]");
}

#[test]
fn workload_moves_with_its_local_queue() {
    let mut stage = Stage::new();
    for name in ["main", "other"] {
        stage.queue(cq(name).quota("default", "cpu", 10));
    }
    stage.submit(wl("a").request("cpu", 1));
    stage.apply(Event::LocalQueue(lq("main", "other")));
    assert_eq!((stage.order("main"), stage.order("other")), (String::new(), "a".to_owned()));
    stage.apply(Event::LocalQueue(lq("third", "main")));
    stage.change("a", |workload| "third".clone_into(&mut workload.queue_name));
    assert_eq!((stage.order("main"), stage.order("other")), ("a".to_owned(), String::new()));
    assert_eq!(
        stage.engine.local_queue(&crate::LocalQueueKey::new("ns", "main")).unwrap().pending,
        0
    );
}

#[test]
fn check_retries_parked_only_if_it_activates_the_queue() {
    let mut stage = Stage::new();
    stage.check("one", "example.com/check", true);
    stage.queue(cq("main").quota("default", "cpu", 10).check("one", &[]));
    stage.submit(wl("running").request("cpu", 8));
    stage.submit(wl("big").request("cpu", 5).at(1));
    assert_eq!(stage.admit_all(), ["running"]);
    // Removes triggers of the admission itself.
    stage.wait(1);
    assert_eq!(stage.admit_all(), [""; 0]);
    for (active, order) in [(false, "[big]"), (true, "big")] {
        stage.check("one", "example.com/check", active);
        stage.wait(1);
        stage.engine.flush_inadmissible(stage.now);
        assert_eq!(stage.order("main"), order, "active: {active}");
    }
}
