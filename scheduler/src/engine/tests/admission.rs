//! Reservations: decided, confirmed, refused, released.

use crate::fixtures::{Stage, amount, cq, wl};
use crate::{CheckPhase, CheckState, Decision, Event, Name, RefusedReason, WorkloadKey};

/// Name of the event, and the event.
type Case = (&'static str, fn(&mut Stage));

fn stage() -> Stage {
    let mut stage = Stage::new();
    stage.queue(cq("main").quota("default", "cpu", 10));
    stage
}

#[test]
fn fitting_workload_is_admitted_and_charged_at_once() {
    let mut stage = stage();
    stage.submit(wl("a").pods("workers", 3).request("cpu", 2));
    assert_eq!(stage.cycle(), ["admit a: workers x 3 cpu 6 on default"]);
    assert_eq!(stage.reserved("main"), 6);
    assert_eq!(stage.cycle(), [""; 0], "nothing is decided twice");
}

#[test]
fn unconfirmed_reservation_survives_stale_event() {
    let mut stage = stage();
    stage.submit(wl("a").request("cpu", 6));
    stage.cycle();
    stage.change("a", |workload| workload.admitted = false);
    assert_eq!(stage.reserved("main"), 6);
    assert_eq!(stage.cycle(), [""; 0]);
}

#[test]
fn failed_write_returns_quota_and_retries_at_once() {
    let mut stage = stage();
    stage.submit(wl("a").request("cpu", 6));
    stage.cycle();
    stage.refuse("a", RefusedReason::WriteFailed { message: "conflict".to_owned() });
    assert_eq!(stage.reserved("main"), 0);
    assert_eq!(stage.why("a"), "PendingEvaluation: Failed to admit workload: conflict");
    assert_eq!(stage.cycle(), ["admit a: main x 1 cpu 6 on default"]);
}

#[test]
fn refusal_of_confirmed_reservation_is_ignored() {
    let mut stage = stage();
    stage.submit(wl("a").request("cpu", 6));
    assert_eq!(stage.admit(), ["a"]);
    stage.refuse("a", RefusedReason::WriteFailed { message: "late".to_owned() });
    assert_eq!(stage.reserved("main"), 6);
}

#[test]
fn refusal_of_earlier_reservation_is_ignored() {
    let mut stage = stage();
    stage.submit(wl("a").request("cpu", 6));
    let cycle = Some(stage.engine.cycle(stage.now).number);
    let reason = RefusedReason::WriteFailed { message: "preempted".to_owned() };
    let refusal = Event::AdmissionRefused { key: WorkloadKey::new("ns", "a"), cycle, reason };
    stage.apply(refusal.clone());
    assert_eq!(stage.cycle(), ["admit a: main x 1 cpu 6 on default"]);
    stage.apply(refusal);
    assert_eq!(stage.reserved("main"), 6, "its second reservation is being written");
}

#[test]
fn undispatched_workload_waits_for_a_retry_request() {
    let mut stage = stage();
    stage.submit(wl("a").request("cpu", 6));
    stage.cycle();
    stage.refuse(
        "a",
        RefusedReason::DispatchFailed { message: "no cluster took it".to_owned(), retry_at: None },
    );
    stage.wait(100);
    assert_eq!(stage.cycle(), [""; 0], "its own release does not bring it back");
    assert_eq!(stage.why("a"), "PendingEvaluation: no cluster took it");
    stage.apply(crate::Event::RetryAll { cluster_queue: "main".into() });
    assert_eq!(stage.cycle(), ["admit a: main x 1 cpu 6 on default"]);
}

#[test]
fn undispatched_workload_is_retried_at_its_time() {
    let mut stage = stage();
    stage.submit(wl("a").request("cpu", 6));
    stage.cycle();
    let retry_at = Some(stage.now.plus(std::time::Duration::from_secs(30)));
    stage.refuse(
        "a",
        RefusedReason::DispatchFailed { message: "no cluster took it".to_owned(), retry_at },
    );
    stage.wait(29);
    assert_eq!(stage.cycle(), [""; 0]);
    assert_eq!(stage.engine.next_wakeup(stage.now), retry_at);
    stage.wait(1);
    assert!(stage.engine.has_heads(stage.now));
    assert_eq!(stage.cycle(), ["admit a: main x 1 cpu 6 on default"]);
}

#[test]
fn finished_deleted_and_stopped_workloads_free_quota() {
    let cases: [Case; 3] = [
        ("finished", |stage| stage.change("a", |workload| workload.finished = true)),
        ("deleted", |stage| stage.delete("a")),
        ("evicted and stopped", |stage| {
            stage.change("a", |workload| {
                workload.reservation = None;
                workload.admitted = false;
                workload.active = false;
            });
        }),
    ];
    for (case, end) in cases {
        let mut stage = stage();
        stage.submit(wl("a").request("cpu", 6));
        assert_eq!(stage.admit(), ["a"]);
        end(&mut stage);
        assert_eq!(stage.reserved("main"), 0, "{case}");
        let view = stage.engine.cluster_queue("main").unwrap();
        assert_eq!((view.reserving, view.admitted, view.pending_active), (0, 0, 0), "{case}");
    }
}

#[test]
fn deactivated_workload_keeps_quota_until_it_stopped() {
    let mut stage = stage();
    stage.submit(wl("a").request("cpu", 6));
    assert_eq!(stage.admit(), ["a"]);
    stage.submit(wl("b").request("cpu", 6));
    stage.change("a", |workload| workload.active = false);
    assert_eq!(stage.reserved("main"), 6);
    assert_eq!(stage.admit(), [""; 0], "its pods still run");
    stage.change("a", |workload| workload.evicted = true);
    assert_eq!(stage.admit(), [""; 0], "and while it is being stopped");
    stage.change("a", |workload| {
        workload.reservation = None;
        workload.admitted = false;
    });
    stage.wait(1);
    assert_eq!(stage.admit(), ["b"]);
}

#[test]
fn new_uid_under_the_same_name_is_a_new_workload() {
    let mut stage = stage();
    stage.submit(wl("a").request("cpu", 6));
    assert_eq!(stage.admit(), ["a"]);
    stage.change("a", |workload| {
        workload.uid = "another".into();
        workload.reservation = None;
        workload.admitted = false;
    });
    assert_eq!(stage.reserved("main"), 0);
    assert_eq!(stage.cycle(), ["admit a: main x 1 cpu 6 on default"]);
}

#[test]
fn reclaimable_pods_free_their_quota() {
    let mut stage = stage();
    stage.submit(wl("a").pods("workers", 4).request("cpu", 2));
    assert_eq!(stage.admit(), ["a"]);
    stage.submit(wl("b").request("cpu", 6));
    assert_eq!(stage.admit_all(), [""; 0]);
    stage.change("a", |workload| {
        workload.reclaimable.insert("workers".into(), 2);
    });
    assert_eq!(stage.reserved("main"), 4);
    stage.wait(1);
    assert_eq!(stage.admit_all(), ["b"]);
}

#[test]
fn pending_workload_does_not_request_reclaimable_pods() {
    let mut stage = stage();
    stage.submit(wl("a").pods("workers", 8).request("cpu", 2));
    stage.change("a", |workload| {
        workload.reclaimable.insert("workers".into(), 4);
    });
    assert_eq!(stage.cycle(), ["admit a: workers x 4 cpu 8 on default"]);
}

#[test]
fn partial_admission_admits_the_most_pods_that_fit() {
    let mut stage = stage();
    stage.submit(wl("a").pods("workers", 20).request("cpu", 1).at_least(3));
    assert_eq!(stage.cycle(), ["admit a: workers x 10 cpu 10 on default"]);
    stage.submit(wl("b").pods("workers", 20).request("cpu", 1).at_least(3));
    let message = "insufficient quota for cpu in flavor default, previously considered podsets requests (0) + \
                   current podset request (20) > maximum capacity (10)";
    assert_eq!(
        stage.cycle(),
        [format!(
            "pending b: ExceedsMaxQuota: couldn't assign flavors to pod set workers: {message}"
        )]
    );
}

#[test]
fn min_count_zero_admits_the_pod_set_without_pods() {
    let mut stage = stage();
    stage.submit(
        wl("a")
            .pods("driver", 1)
            .request("cpu", 10)
            .pods("workers", 4)
            .request("cpu", 1)
            .at_least(0),
    );
    assert_eq!(
        stage.cycle(),
        ["admit a: driver x 1 cpu 10 on default; workers x 0 cpu 0 on default"]
    );
}

#[test]
fn the_pods_resource_counts_pods() {
    let mut stage = Stage::new();
    stage.queue(cq("main").quota("default", "cpu", 100).quota("default", "pods", 5));
    stage.submit(wl("a").pods("workers", 3).request("cpu", 1));
    stage.submit(wl("b").pods("workers", 3).request("cpu", 1).at(1));
    assert_eq!(stage.cycle(), ["admit a: workers x 3 cpu 3 on default, pods 3 on default"]);
    assert_eq!(
        stage.cycle(),
        [
            "pending b: WaitingForQuota: couldn't assign flavors to pod set workers: insufficient unused quota for pods \
          in flavor default, 1 more needed"
        ]
    );
}

#[test]
fn pod_sets_share_the_free_quota() {
    let mut stage = stage();
    stage.submit(wl("a").pods("driver", 1).request("cpu", 2).pods("workers", 4).request("cpu", 3));
    assert_eq!(
        stage.cycle(),
        [
            "pending a: ExceedsMaxQuota: couldn't assign flavors to pod set workers: insufficient quota for cpu in \
          flavor default, previously considered podsets requests (2) + current podset request (12) > maximum \
          capacity (10)"
        ]
    );
}

#[test]
fn failed_admission_checks_keep_a_workload_pending() {
    let mut stage = stage();
    let check = |state| CheckState { name: "check".into(), state };
    stage.submit(wl("a").request("cpu", 1));
    stage.change("a", |workload| workload.checks = vec![check(CheckPhase::Retry)]);
    assert_eq!(
        stage.cycle(),
        ["pending a: PendingEvaluation: The workload has failed admission checks"]
    );
    stage.change("a", |workload| workload.checks = vec![check(CheckPhase::Pending)]);
    assert_eq!(stage.cycle(), ["admit a: main x 1 cpu 1 on default"]);
}

#[test]
fn reservation_lists_the_checks_of_its_flavors() {
    let mut stage = Stage::new();
    for name in ["all", "default-only", "spot-only"] {
        stage.check(name, "example.com/check", true);
    }
    let queue = cq("main").quota("default", "cpu", 4).quota("spot", "cpu", 10);
    stage.queue(
        queue.check("spot-only", &["spot"]).check("all", &[]).check("default-only", &["default"]),
    );
    let checks = |stage: &mut Stage| -> Vec<Name> {
        match &stage.engine.cycle(stage.now).decisions[..] {
            [Decision::Reserve { checks, .. }] => checks.clone(),
            other => panic!("{other:?}"),
        }
    };
    stage.submit(wl("a").request("cpu", 4));
    assert_eq!(checks(&mut stage), ["all".into(), "default-only".into()]);
    stage.submit(wl("b").request("cpu", 8));
    assert_eq!(checks(&mut stage), ["all".into(), "spot-only".into()]);
}

#[test]
fn reservation_names_the_rejected_flavors() {
    let mut stage = Stage::new();
    stage.queue(cq("main").quota("default", "cpu", 4).quota("spot", "cpu", 10));
    stage.submit(wl("a").request("cpu", 8));
    let decisions = stage.engine.cycle(stage.now).decisions;
    let [Decision::Reserve { note, waited_since, .. }] = &decisions[..] else {
        panic!("{decisions:?}")
    };
    assert_eq!(waited_since.0, 0);
    insta::assert_snapshot!(note, @"main: default(NoFit;insufficient quota for cpu in flavor default, previously considered podsets requests (0) + current podset request (8) > maximum capacity (4))");
}

#[test]
fn pending_decision_carries_requests() {
    let mut stage = stage();
    stage.submit(wl("a").pods("workers", 3).request("cpu", 5));
    let decisions = stage.engine.cycle(stage.now).decisions;
    let [Decision::Pending { requests, .. }] = &decisions[..] else { panic!("{decisions:?}") };
    assert_eq!(requests[0].0, "workers".into());
    assert_eq!(requests[0].1["cpu"], amount("cpu", 15));
}

#[test]
fn reservation_of_deleted_queue_is_charged_when_it_returns() {
    let mut stage = stage();
    stage.submit(wl("a").request("cpu", 6));
    assert_eq!(stage.admit(), ["a"]);
    stage.apply(crate::Event::ClusterQueueDeleted { name: "main".into() });
    assert!(stage.engine.cluster_queue("main").is_none());
    stage.queue(cq("main").quota("default", "cpu", 20));
    assert_eq!(stage.reserved("main"), 6);
    assert_eq!(stage.engine.cluster_queue("main").unwrap().admitted, 1);
    stage.delete("a");
    assert_eq!(stage.reserved("main"), 0);
}

#[test]
fn block_admission_admits_one_workload_at_a_time() {
    let mut stage = Stage::with(crate::EngineSettings {
        block_admission: true,
        ..crate::EngineSettings::default()
    });
    stage.queue(cq("main").quota("default", "cpu", 10));
    for (name, at) in [("a", 1), ("b", 2), ("c", 3)] {
        stage.submit(wl(name).request("cpu", 1).at(at));
    }
    let message =
        "WaitingForPodsReady: waiting for all admitted workloads to be in PodsReady condition";
    assert_eq!(stage.admit(), ["a"]);
    assert_eq!((stage.admit(), stage.why("b")), (Vec::new(), message.to_owned()));
    assert_eq!(stage.order("main"), "b c", "it stays first");
    stage.change("a", |workload| workload.pods_ready = true);
    assert_eq!(stage.admit(), ["b"]);
    assert_eq!(stage.admit(), [""; 0]);
    // A workload that loses its quota no longer blocks others.
    stage.delete("b");
    assert_eq!(stage.admit(), ["c"]);
    stage.change("a", |workload| workload.pods_ready = false);
    stage.change("c", |workload| workload.finished = true);
    stage.submit(wl("d").request("cpu", 1));
    assert_eq!(stage.admit(), [""; 0], "a lost its pods");
}

#[test]
fn block_admission_ends_at_the_pods_ready_deadline() {
    let mut stage = Stage::with(crate::EngineSettings {
        block_admission: true,
        ..crate::EngineSettings::default()
    });
    stage.queue(cq("main").quota("default", "cpu", 10));
    stage.submit(wl("a").request("cpu", 1).at(1));
    stage.submit(wl("b").request("cpu", 1).at(2));
    assert_eq!(stage.admit(), ["a"]);
    let until = stage.now.plus(std::time::Duration::from_secs(60));
    stage.change("a", |workload| workload.ready_by = Some(until));
    stage.wait(30);
    assert_eq!(stage.admit(), [""; 0]);
    assert_eq!(stage.engine.next_wakeup(stage.now), Some(until), "nothing else will tell");
    stage.now = until;
    assert_eq!(stage.admit(), ["b"]);
    // A repeated event of the workload changes nothing.
    stage.change("a", |workload| workload.ready_by = Some(until));
    stage.change("b", |workload| workload.pods_ready = true);
    stage.submit(wl("c").request("cpu", 1));
    assert_eq!(stage.admit(), ["c"]);
}
