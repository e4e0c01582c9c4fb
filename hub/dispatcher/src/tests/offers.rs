//! Offers and commits.

use super::*;

#[test]
fn refusal_offers_next_at_once_and_keeps_reasons() {
    for state in [State::Unfit, State::Refused] {
        let mut bench = Bench::new(DispatchMode::BestFit, &[("a", 2000, 4000), ("b", 4000, 4000)]);
        bench.reserve(facts("w"));
        bench.take();
        bench.observe("a", "w", 1, state);
        assert_eq!(bench.take(), ["Absent w/1 on a", "Reserve w/1 on b"], "{state:?}");
        bench.observe("b", "w", 1, state);
        let log = bench.take();
        assert_eq!(log[0], "Absent w/1 on b");
        assert_eq!(
            log[1],
            "give back w until 1070000: No worker cluster can run it: a: a says no; b: b says no"
        );
    }
}

#[test]
fn assumed_capacity_is_not_offered_twice() {
    let mut bench = Bench::new(DispatchMode::BestFit, &[("a", 1500, 4000), ("b", 4000, 4000)]);
    bench.reserve(facts("v"));
    bench.reserve(facts("w"));
    assert_eq!(bench.take(), ["Reserve v/1 on a", "Reserve w/1 on b"]);
}

#[test]
fn unanswered_offer_does_not_block_next() {
    let mut bench = Bench::new(DispatchMode::BestFit, &[("a", 1500, 4000), ("b", 4000, 4000)]);
    bench.reserve(facts("w"));
    bench.take();
    bench.later(2_999);
    let recorded = bench.take();
    assert_eq!(recorded.len(), 1, "{recorded:?}");
    bench.written(WriteOutcome::Done, facts("w").with(|it| it.reserved = true));
    bench.later(1);
    assert_eq!(bench.take(), ["Reserve w/1 on b"]);
    bench.observe("b", "w", 1, State::Reserved);
    assert_eq!(bench.take(), ["commit w/1 on b"]);
}

#[test]
fn workload_waits_and_records_where_it_may_fit_later() {
    let mut bench = Bench::new(DispatchMode::BestFit, &[("a", 0, 500), ("b", 0, 4000)]);
    bench.reserve(facts("w"));
    assert_eq!(bench.take(), ["Reserve w/1 on b"]);
    bench.observe("b", "w", 1, State::Waiting);
    assert!(bench.take().is_empty());
    bench.later(1_000);
    assert_eq!(
        bench.take(),
        [
            "record w: Waiting for a worker cluster: a: couldn't assign flavors to pod set main: insufficient quota for \
          cpu in flavor default, 500m more needed; b: no room now None"
        ]
    );
    bench.written(WriteOutcome::Done, facts("w").with(|it| it.reserved = true));
    bench.capacity("b", 4000, 4000);
    assert!(bench.take().is_empty(), "it waits in b's own queue");
    bench.observe("b", "w", 1, State::Reserved);
    assert_eq!(bench.take(), ["commit w/1 on b"]);
}

#[test]
fn unfit_workload_is_returned_and_requeued_on_growth() {
    let mut bench = Bench::new(DispatchMode::BestFit, &[("a", 500, 500)]);
    bench.reserve(facts("w"));
    let log = bench.take();
    assert!(
        log[0].starts_with("give back w until 1070000: No worker cluster can run it: a: couldn't"),
        "{log:?}"
    );
    bench.capacity("a", 600, 600);
    assert!(bench.take().is_empty());
    bench.capacity("a", 0, 2000);
    assert_eq!(bench.take(), ["wake w"]);
    bench.reserve(facts("w"));
    assert_eq!(bench.take(), ["Reserve w/1 on a"]);
}

/// An embedded agent may report its capacity before its inventory.
#[test]
fn returned_workload_is_requeued_when_its_cluster_is_back() {
    let mut bench = Bench::new(DispatchMode::BestFit, &[("a", 4000, 4000)]);
    bench.down("a");
    // A shorter loss costs no reservation.
    bench.later(10_000);
    bench.reserve(facts("w"));
    let log = bench.take();
    assert!(log[0].ends_with("No worker cluster can run it: a: not connected"), "{log:?}");
    bench.apply(DispatchEvent::SessionOpened { name: "a".into() });
    bench.capacity("a", 4000, 4000);
    assert!(bench.take().is_empty(), "its copies are not known yet");
    bench.apply(DispatchEvent::InventoryComplete { cluster: "a".into(), uids: Uids::new() });
    assert_eq!(bench.take(), ["wake w"]);
    bench.reserve(facts("w"));
    assert_eq!(bench.take(), ["Reserve w/1 on a"]);
}

#[test]
fn recorded_reservation_without_fit_is_retried_with_backoff() {
    let mut bench = Bench::new(DispatchMode::BestFit, &[("a", 500, 500)]);
    for (round, seconds) in [(1, 10), (2, 20), (3, 40)] {
        bench.apply(DispatchEvent::WorkloadChanged(facts("w").with(|it| it.reserved = true)));
        let log = bench.take();
        assert!(log[0].starts_with("retry w: No worker"), "{round}: {log:?}");
        bench.written(
            WriteOutcome::Done,
            facts("w").with(|it| {
                it.check = Some(("mk".into(), CheckStatus::Retry));
                it.reserved = true;
            }),
        );
        bench.apply(DispatchEvent::WorkloadChanged(facts("w")));
        bench.take();
        // In memory, the delay can end early.
        bench.reserve(facts("w"));
        let log = bench.take();
        let until = bench.now + seconds * 1_000;
        assert!(
            log[0].starts_with(&format!("give back w until {until}: No worker")),
            "{round}: {log:?}"
        );
    }
}

#[test]
fn start_gives_clusters_time_to_connect() {
    let mut dispatcher = Dispatcher::new(DispatcherSettings::default(), START);
    let mut apply = |event, now| dispatcher.apply(event, now).iter().map(line).collect::<Vec<_>>();
    apply(DispatchEvent::CheckConfigured { name: "mk".into(), clusters: vec!["a".into()] }, START);
    apply(
        DispatchEvent::ClusterConfigured { name: "a".into(), config: ClusterConfig::default() },
        START,
    );
    let reserved = MemoryReservation { check: "mk".into(), needs_other_checks: false };
    assert!(apply(DispatchEvent::QuotaReserved { facts: facts("w"), reserved }, START).is_empty());
    let log = apply(DispatchEvent::Tick, START + 10_000);
    assert_eq!(log, ["give back w until 1020000: No worker cluster can run it: a: not connected"]);
}

#[test]
fn short_loss_of_all_clusters_keeps_reservation() {
    let mut bench = Bench::new(DispatchMode::BestFit, &[("a", 500, 4000)]);
    let reserved = || facts("w").with(|it| it.reserved = true);
    bench.reserve(facts("w"));
    assert_eq!(bench.take(), ["Reserve w/1 on a"]);
    bench.down("a");
    bench.later(9_000);
    let waits = "record w: Waiting for a worker cluster: a: not connected None";
    assert_eq!(bench.take(), ["Absent w/1 on a", waits]);
    bench.written(WriteOutcome::Done, reserved());
    bench.connect("a", &[]);
    bench.capacity("a", 4000, 4000);
    assert_eq!(bench.take(), ["Reserve w/2 on a"]);

    bench.later(10_000);
    assert_eq!(bench.take(), ["record w: Waiting for a worker cluster: a: was asked None"]);
    bench.written(WriteOutcome::Done, reserved());
    bench.down("a");
    bench.later(9_000);
    assert_eq!(bench.take(), ["Absent w/2 on a"]);
    bench.later(2_000);
    assert_eq!(bench.take(), ["retry w: No worker cluster can run it: a: not connected"]);
}

#[test]
fn cluster_that_comes_and_goes_gets_no_new_grace() {
    let mut bench = Bench::new(DispatchMode::BestFit, &[("a", 500, 4000)]);
    bench.reserve(facts("w"));
    for round in 0..6 {
        bench.down("a");
        bench.later(1_000);
        if round == 0 {
            bench.written(WriteOutcome::Done, facts("w").with(|it| it.reserved = true));
        }
        bench.connect("a", &[]);
        bench.later(1_000);
    }
    let returned = "retry w: No worker cluster can run it: a: not connected";
    let log = bench.take();
    assert!(log.iter().any(|line| line == returned), "{log:?}");
}

/// Thousands of workloads that wait for one cluster cost the API server a bounded rate of writes.
#[test]
fn reservations_are_returned_at_a_pace() {
    let mut bench = Bench::new(DispatchMode::BestFit, &[("a", 4000, 4000)]);
    bench.down("a");
    bench.later(20_000);
    bench.take();
    let reserved = |number: u32| facts(&format!("w{number}")).with(|it| it.reserved = true);
    for number in 0..200 {
        bench.apply(DispatchEvent::WorkloadChanged(reserved(number)));
    }
    let retries = |log: Vec<String>| log.iter().filter(|line| line.starts_with("retry")).count();
    let at_once = retries(bench.take());
    assert!((1..=6).contains(&at_once), "{at_once}");
    bench.later(1_000);
    let in_a_second = retries(bench.take());
    assert!((6..=7).contains(&in_a_second), "{in_a_second}");
    for _ in 0..30 {
        bench.later(1_000);
    }
    assert_eq!(at_once + in_a_second + retries(bench.take()), 200);
}

#[test]
fn other_checks_precede_offers() {
    let mut bench = Bench::new(DispatchMode::BestFit, &[("a", 4000, 4000)]);
    let reserved = MemoryReservation { check: "mk".into(), needs_other_checks: true };
    bench.apply(DispatchEvent::QuotaReserved { facts: facts("w"), reserved });
    assert_eq!(bench.take(), ["record w: - None"]);
    bench.written(
        WriteOutcome::Done,
        WorkloadFacts { other_checks_ready: false, ..facts("w").with(|it| it.reserved = true) },
    );
    assert!(bench.take().is_empty());
    bench.apply(DispatchEvent::WorkloadChanged(WorkloadFacts {
        other_checks_ready: true,
        ..facts("w").with(|it| it.reserved = true)
    }));
    assert_eq!(bench.take(), ["Reserve w/1 on a"]);
}

#[test]
fn open_offer_does_not_keep_quota() {
    let mut bench = Bench::new(DispatchMode::BestFit, &[("a", 2000, 4000)]);
    bench.apply(DispatchEvent::WorkloadChanged(facts("w").with(|it| it.reserved = true)));
    assert_eq!(bench.take(), ["Reserve w/1 on a"]);
    bench.apply(DispatchEvent::WorkloadChanged(facts("w").with(|it| {
        it.reserved = true;
        it.evicted = true;
    })));
    assert_eq!(bench.take(), ["Absent w/1 on a", "release w"]);
}

#[test]
fn withdrawn_memory_reservation_returns_at_once() {
    let preempted = "give back w until 1060000: preempted before a worker cluster had it";
    let mut bench = Bench::new(DispatchMode::BestFit, &[("a", 2000, 4000)]);
    bench.reserve(facts("w"));
    bench.take();
    bench.apply(DispatchEvent::ReservationWithdrawn { uid: "w".into() });
    assert_eq!(bench.take(), [preempted, "Absent w/1 on a"]);
    bench.observe("a", "w", 1, State::Gone);
    bench.reserve(facts("w"));
    assert_eq!(bench.take(), ["forget w/1 on a", "Reserve w/2 on a"], "it comes again");

    bench.observe("a", "w", 2, State::Reserved);
    bench.apply(DispatchEvent::ReservationWithdrawn { uid: "w".into() });
    assert_eq!(bench.take(), ["commit w/2 on a"], "the write decides");
    bench.written(WriteOutcome::Superseded, facts("w"));
    assert_eq!(bench.take(), [preempted, "Absent w/2 on a"]);

    bench.apply(DispatchEvent::ReservationWithdrawn { uid: "w".into() });
    assert_eq!(bench.take(), ["recorded w"], "nothing is in memory");
    let mut bench = Bench::new(DispatchMode::BestFit, &[("a", 2000, 4000)]);
    bench.reserve(facts("w"));
    bench.observe("a", "w", 1, State::Reserved);
    bench.apply(DispatchEvent::ReservationWithdrawn { uid: "w".into() });
    bench.take();
    bench.written(WriteOutcome::Done, committed("w", "a", 1));
    assert_eq!(
        bench.take(),
        ["recorded w", "Run w/1 on a"],
        "the engine evicts what the API shows"
    );
}

#[test]
fn burst_neither_records_nor_offers_elsewhere() {
    let unseen = vec![Reason::new("PendingEvaluation", "not considered yet")];
    let mut bench = Bench::new(DispatchMode::BestFit, &[("a", 4000, 4000), ("b", 9000, 9000)]);
    bench.reserve(facts("v"));
    bench.reserve(facts("w"));
    bench.observe_with("a", "w", 1, State::Waiting, unseen);
    bench.later(900);
    bench.observe("a", "v", 1, State::Reserved);
    bench.take();
    bench.later(2_900);
    assert!(bench.take().is_empty(), "a takes others");
    bench.later(200);
    let log = bench.take();
    assert_eq!(log.len(), 2, "{log:?}");
    assert!(log[0] == "Reserve w/1 on b" && log[1].starts_with("record w: Waiting"), "{log:?}");
}

#[test]
fn superseded_commit_is_redecided_failed_one_retried() {
    let mut bench = Bench::new(DispatchMode::BestFit, &[("a", 2000, 4000)]);
    bench.reserve(facts("w"));
    bench.observe("a", "w", 1, State::Reserved);
    bench.take();
    bench.written(WriteOutcome::Failed, facts("w"));
    assert!(bench.take().is_empty(), "not at once");
    bench.later(1_000);
    assert_eq!(bench.take(), ["commit w/1 on a"]);
    bench.written(WriteOutcome::Superseded, facts("w").with(|it| it.active = false));
    let log = bench.take();
    assert_eq!(
        log,
        ["give back w until 1061000: the workload is no longer to run", "Absent w/1 on a"]
    );
    assert!(!log.iter().any(|line| line.starts_with("Run")));
}

#[test]
fn all_at_once_offers_to_all_and_commits_first() {
    let mut bench = Bench::new(DispatchMode::AllAtOnce, &[("b", 0, 0), ("a", 0, 0), ("c", 0, 0)]);
    bench.reserve(facts("w"));
    let log = bench.take();
    assert!(
        log[0].starts_with("record w: Waiting") && log[0].ends_with(r#"Some(["a", "b", "c"])"#),
        "{log:?}"
    );
    let nominated = vec!["a".into(), "b".into(), "c".into()];
    bench.written(
        WriteOutcome::Done,
        WorkloadFacts { nominated, ..facts("w").with(|it| it.reserved = true) },
    );
    assert_eq!(bench.take(), ["Reserve w/1 on a", "Reserve w/1 on b", "Reserve w/1 on c"]);
    bench.observe("c", "w", 1, State::Reserved);
    bench.observe("a", "w", 1, State::Reserved);
    assert_eq!(bench.take(), ["commit w/1 on c"]);
    bench.written(WriteOutcome::Done, committed("w", "c", 1));
    assert_eq!(bench.take(), ["Absent w/1 on a", "Absent w/1 on b", "Run w/1 on c"]);
}

#[test]
fn incremental_adds_clusters_each_round_in_config_order() {
    let mode = DispatchMode::Incremental { step: 2, round: 300_000 };
    let mut bench = Bench::new(mode, &[("c", 0, 0), ("a", 0, 0), ("b", 0, 0)]);
    bench.apply(DispatchEvent::WorkloadChanged(facts("w").with(|it| it.reserved = true)));
    assert_eq!(bench.take(), [r#"record w: - Some(["c", "a"])"#]);
    let first: Vec<Name> = vec!["c".into(), "a".into()];
    bench.written(
        WriteOutcome::Done,
        WorkloadFacts { nominated: first, ..facts("w").with(|it| it.reserved = true) },
    );
    assert_eq!(bench.take(), ["Reserve w/1 on c", "Reserve w/1 on a"]);
    bench.later(299_999);
    assert!(bench.take().is_empty());
    bench.later(1);
    assert_eq!(bench.take(), [r#"record w: - Some(["c", "a", "b"])"#]);
}

#[test]
fn incremental_by_name_ignores_config_order() {
    let mode = DispatchMode::Incremental { step: 2, round: 300_000 };
    let settings =
        DispatcherSettings { mode, nominate_by_name: true, ..DispatcherSettings::default() };
    let mut bench = Bench::with(settings, &[("c", 0, 0), ("a", 0, 0), ("b", 0, 0)]);
    bench.apply(DispatchEvent::WorkloadChanged(facts("w").with(|it| it.reserved = true)));
    assert_eq!(bench.take(), [r#"record w: - Some(["a", "b"])"#]);
}

#[test]
fn external_dispatcher_nominates() {
    let mut bench = Bench::new(DispatchMode::External, &[("a", 0, 0), ("b", 0, 0)]);
    bench.reserve(facts("w"));
    assert!(bench.take()[0].starts_with("record w"));
    bench.written(WriteOutcome::Done, facts("w").with(|it| it.reserved = true));
    assert!(bench.take().is_empty());
    bench.apply(DispatchEvent::WorkloadChanged(WorkloadFacts {
        nominated: vec!["b".into(), "zzz".into()],
        ..facts("w").with(|it| it.reserved = true)
    }));
    assert_eq!(bench.take(), ["Reserve w/1 on b"]);
    bench.apply(DispatchEvent::WorkloadChanged(WorkloadFacts {
        nominated: vec!["a".into()],
        ..facts("w").with(|it| it.reserved = true)
    }));
    assert_eq!(bench.take(), ["Absent w/1 on b", "Reserve w/1 on a"]);
}

#[test]
fn withdrawn_attempt_is_not_offered_there_again() {
    let mut bench = Bench::new(DispatchMode::External, &[("a", 2000, 4000)]);
    bench.apply(DispatchEvent::WorkloadChanged(WorkloadFacts {
        nominated: vec!["a".into()],
        ..facts("w").with(|it| it.reserved = true)
    }));
    assert_eq!(bench.take(), ["Reserve w/1 on a"]);
    bench.apply(DispatchEvent::WorkloadChanged(WorkloadFacts {
        nominated: Vec::new(),
        ..facts("w").with(|it| it.reserved = true)
    }));
    bench.observe("a", "w", 1, State::Gone);
    assert_eq!(bench.take(), ["Absent w/1 on a", "forget w/1 on a"]);
    // Its tombstone may still be there.
    bench.apply(DispatchEvent::WorkloadChanged(WorkloadFacts {
        nominated: vec!["a".into()],
        ..facts("w").with(|it| it.reserved = true)
    }));
    assert_eq!(bench.take(), ["Reserve w/2 on a"]);
}

#[test]
fn reservation_from_before_restart_is_withdrawn() {
    let mut bench = Bench::new(DispatchMode::BestFit, &[("a", 4000, 4000)]);
    bench.dispatcher.track(facts("w"));
    bench.observe("a", "w", 5, State::Reserved);
    assert_eq!(bench.take(), ["Absent w/5 on a"]);
    bench.reserve(facts("w"));
    assert_eq!(bench.take(), ["Reserve w/6 on a"], "attempts only grow");
}

/// The user creates the Workload, and later the job.
#[test]
fn workload_without_job_waits_for_it() {
    let mut bench = Bench::new(DispatchMode::BestFit, &[("a", 2000, 4000)]);
    bench.reserve(WorkloadFacts { waits_for_job: true, ..facts("w") });
    bench.later(1_000);
    assert_eq!(bench.take(), ["record w: Waiting for the job that this Workload is for None"]);
    bench.written(
        WriteOutcome::Done,
        WorkloadFacts { waits_for_job: true, ..facts("w").with(|it| it.reserved = true) },
    );
    bench.later(60_000);
    assert!(bench.take().is_empty());
    bench.apply(DispatchEvent::WorkloadChanged(WorkloadFacts {
        version: 9,
        ..facts("w").with(|it| it.reserved = true)
    }));
    assert_eq!(bench.take().first().map(String::as_str), Some("Reserve w/1 on a"));
}
