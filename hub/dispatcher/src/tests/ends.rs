//! From running to the end, with evictions on the way.

use super::*;

#[test]
fn workload_is_offered_committed_run_and_finished() {
    let mut bench = Bench::new(DispatchMode::BestFit, &[("a", 2000, 4000), ("b", 4000, 4000)]);
    bench.reserve(facts("w"));
    assert_eq!(bench.take(), ["Reserve w/1 on a"], "the tightest that fits");
    bench.observe("a", "w", 1, State::Waiting);
    bench.observe("a", "w", 1, State::Reserved);
    let log = bench.take();
    assert_eq!(
        log,
        ["Reserve w/1 on b", "commit w/1 on a"],
        "asked the next when the first made it wait"
    );
    bench.written(WriteOutcome::Done, committed("w", "a", 1));
    assert_eq!(bench.take(), ["Absent w/1 on b", "Run w/1 on a"], "only what is written is run");
    bench.observe("b", "w", 1, State::Gone);
    assert_eq!(bench.take(), ["forget w/1 on b"]);
    bench.observe("a", "w", 1, State::Running);
    assert!(bench.take().is_empty());
    bench.observe("a", "w", 1, State::Succeeded);
    bench.observe("a", "w", 1, State::Succeeded);
    assert_eq!(bench.take(), ["finish w/1 from a: true"], "once, however often it is said");
    bench.written(WriteOutcome::Done, committed("w", "a", 1).with(|it| it.finished = true));
    let log = bench.take();
    assert!(
        log.contains(&"ack w/1 to a".to_owned()) && log.contains(&"Absent w/1 on a".to_owned()),
        "{log:?}"
    );
    bench.observe("a", "w", 1, State::Gone);
    assert_eq!(bench.take(), ["forget w/1 on a"]);
    assert!(!bench.dispatcher.knows("w"));
}

#[test]
fn evicted_on_worker_is_requeued_and_goes_elsewhere() {
    let mut bench = Bench::running();
    bench.observe("a", "w", 1, State::Evicted);
    assert_eq!(
        bench.take(),
        [
            "retry w: Workload evicted on worker cluster: \"a\", resetting for re-admission. Previously: \"Ready\""
        ]
    );
    let retrying =
        committed("w", "a", 1).with(|it| it.check = Some(("mk".into(), CheckStatus::Retry)));
    bench.written(WriteOutcome::Done, retrying.clone());
    assert_eq!(bench.take(), ["Absent w/1 on a"]);
    bench.apply(DispatchEvent::WorkloadChanged(retrying.with(|it| it.evicted = true)));
    assert!(bench.take().is_empty(), "not released while it may still run");
    bench.observe("a", "w", 1, State::Gone);
    assert_eq!(bench.take(), ["forget w/1 on a", "release w"]);
    bench.written(
        WriteOutcome::Done,
        facts("w").with(|it| {
            it.attempt = 1;
            it.evicted = true;
        }),
    );
    bench.reserve(facts("w").with(|it| {
        it.attempt = 1;
        it.evicted = true;
    }));
    assert_eq!(
        bench.take(),
        ["Reserve w/2 on b"],
        "the cluster that evicted it is not asked again so soon"
    );
}

#[test]
fn worker_eviction_reason_is_reported() {
    let mut bench = Bench::running();
    let preempted = Reason::new("Preempted", "Preempted to accommodate another");
    bench.observe_with("a", "w", 1, State::Evicted, vec![preempted]);
    let told = bench.take();
    assert!(told[0].starts_with("retry w (Preempted): "), "{told:?}");
}

#[test]
fn workload_over_execution_time_is_not_retried() {
    let mut bench = Bench::running();
    let reason = Reason::new("DeactivatedDueToMaximumExecutionTimeExceeded", "60 s are over");
    bench.observe_with("a", "w", 1, State::Evicted, vec![reason]);
    assert_eq!(
        bench.take(),
        ["deactivate w: Workload exceeded its maximum execution time on worker cluster: \"a\""]
    );
    let deactivated = committed("w", "a", 1).with(|it| it.active = false);
    bench.written(WriteOutcome::Done, deactivated);
    assert_eq!(bench.take(), ["Absent w/1 on a"]);
}

#[test]
fn evicted_on_hub_keeps_quota_until_copies_are_gone() {
    for leaving in [
        committed("w", "a", 1).with(|it| it.evicted = true),
        committed("w", "a", 1).with(|it| it.deleting = true),
        committed("w", "a", 1).with(|it| it.active = false),
    ] {
        let mut bench = Bench::running();
        bench.apply(DispatchEvent::WorkloadChanged(leaving));
        assert_eq!(bench.take(), ["Absent w/1 on a"]);
        bench.observe("a", "w", 1, State::Gone);
        assert_eq!(bench.take(), ["forget w/1 on a", "release w"]);
    }
}

#[test]
fn deleted_workload_is_removed_from_its_cluster() {
    let mut bench = Bench::running();
    bench.apply(DispatchEvent::WorkloadDeleted { uid: "w".into() });
    assert_eq!(bench.take(), ["Absent w/1 on a"]);
    bench.observe("a", "w", 1, State::Gone);
    assert_eq!(bench.take(), ["forget w/1 on a"]);
    assert!(!bench.dispatcher.knows("w"));
}

#[test]
fn job_end_during_hub_eviction_is_final() {
    let mut bench = Bench::running();
    bench
        .apply(DispatchEvent::WorkloadChanged(committed("w", "a", 1).with(|it| it.evicted = true)));
    bench.take();
    bench.observe("a", "w", 1, State::Failed);
    assert_eq!(bench.take(), ["finish w/1 from a: false"]);
}

#[test]
fn running_workload_survives_restart() {
    let mut bench = Bench::new(DispatchMode::BestFit, &[("a", 0, 4000), ("b", 4000, 4000)]);
    bench.apply(DispatchEvent::WorkloadChanged(committed("w", "a", 3)));
    assert_eq!(bench.take(), ["Run w/3 on a"]);
    bench.observe("a", "w", 3, State::Running);
    // A reservation from before that was never committed.
    bench.observe("b", "w", 3, State::Reserved);
    assert_eq!(bench.take(), ["Absent w/3 on b"]);
}

#[test]
fn older_workload_version_changes_nothing() {
    let mut bench = Bench::running();
    bench.apply(DispatchEvent::WorkloadChanged(WorkloadFacts {
        version: 20,
        ..committed("w", "a", 1)
    }));
    bench.apply(DispatchEvent::WorkloadChanged(WorkloadFacts { version: 19, ..facts("w") }));
    assert!(bench.take().is_empty());
}

#[test]
fn end_of_deleted_workload_is_acknowledged() {
    let mut bench = Bench::running();
    bench.observe("a", "w", 1, State::Succeeded);
    bench.take();
    bench.apply(DispatchEvent::WorkloadDeleted { uid: "w".into() });
    bench.take();
    let uid = Uid::from("w");
    bench.apply(DispatchEvent::WriteEnded(WriteResult {
        uid,
        outcome: WriteOutcome::Superseded,
        facts: None,
    }));
    assert_eq!(bench.take(), ["ack w/1 to a"]);
}

#[test]
fn only_status_of_committed_job_is_mirrored() {
    let mut bench = Bench::running();
    let shown = || Observation { job_status: true, ..observation("w", 1, State::Running) };
    bench.observed("a", shown());
    assert_eq!(bench.take(), ["mirror w/1 from a"]);
    bench.observed("b", shown());
    assert_eq!(bench.take(), ["Absent w/1 on b"]);
}

/// The copy may be deleted since: the agent would create it again.
#[test]
fn evicted_attempt_gets_no_run_after_restart() {
    let mut bench = Bench::new(DispatchMode::BestFit, &[("a", 2000, 4000)]);
    bench.observe("a", "w", 1, State::Evicted);
    bench.take();
    bench.apply(DispatchEvent::WorkloadChanged(committed("w", "a", 1)));
    let said = bench.take();
    assert!(said.iter().any(|action| action.starts_with("retry w")), "{said:?}");
    assert!(!said.iter().any(|action| action.starts_with("Run w")), "{said:?}");
}

/// The agent made the report before it had the order to run, and starts the job after it.
#[test]
fn report_from_before_the_order_to_run_releases_no_quota() {
    let mut bench = Bench::running();
    bench.observe("a", "w", 1, State::Gone);
    assert!(bench.take().iter().any(|it| it.starts_with("retry w")));
    let evicted = committed("w", "a", 1).with(|it| (it.cluster, it.evicted) = (None, true));
    bench.written(WriteOutcome::Done, evicted);
    let out = bench.take();
    assert_eq!(out, ["Absent w/1 on a"], "it may run");
    bench.observe("a", "w", 1, State::Gone);
    assert!(bench.take().contains(&"release w".to_owned()));
}
