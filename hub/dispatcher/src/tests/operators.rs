//! Requests of administrators: cordon, drain, move.

use super::*;

fn cordoned(draining: bool) -> ClusterConfig {
    ClusterConfig { cordoned: true, draining, ..ClusterConfig::default() }
}

#[test]
fn cordoned_cluster_gets_nothing_new_and_keeps_jobs() {
    let mut bench = Bench::running();
    bench.apply(DispatchEvent::ClusterConfigured { name: "a".into(), config: cordoned(false) });
    assert!(bench.take().is_empty());
    bench.reserve(facts("v"));
    assert_eq!(bench.take(), ["Reserve v/1 on b"]);
    bench.apply(DispatchEvent::ClusterConfigured { name: "b".into(), config: cordoned(false) });
    let log = bench.take();
    assert_eq!(log[0], "Absent v/1 on b", "an offer is taken back");
    assert!(log[1].contains("a: cordoned; b: cordoned"), "{log:?}");
}

#[test]
fn drained_cluster_hands_workloads_to_others() {
    let mut bench = Bench::running();
    bench.apply(DispatchEvent::ClusterConfigured { name: "a".into(), config: cordoned(true) });
    assert_eq!(
        bench.take(),
        ["retry w: Worker cluster \"a\" is being drained. Previously: \"Ready\""]
    );
    let retrying =
        committed("w", "a", 1).with(|it| it.check = Some(("mk".into(), CheckStatus::Retry)));
    bench.written(WriteOutcome::Done, retrying.clone());
    bench.apply(DispatchEvent::WorkloadChanged(retrying.with(|it| it.evicted = true)));
    bench.observe("a", "w", 1, State::Gone);
    bench.written(
        WriteOutcome::Done,
        facts("w").with(|it| {
            it.attempt = 1;
            it.evicted = true;
        }),
    );
    bench.take();
    bench.reserve(facts("w").with(|it| it.attempt = 1));
    assert_eq!(bench.take(), ["Reserve w/2 on b"]);
}

#[test]
fn move_back_waits_until_refusal_ends() {
    let mut bench = Bench::running();
    bench.observe("a", "w", 1, State::Evicted);
    let retrying =
        committed("w", "a", 1).with(|it| it.check = Some(("mk".into(), CheckStatus::Retry)));
    bench.written(WriteOutcome::Done, retrying.clone());
    bench.apply(DispatchEvent::WorkloadChanged(retrying.with(|it| it.evicted = true)));
    bench.observe("a", "w", 1, State::Gone);
    bench.written(
        WriteOutcome::Done,
        facts("w").with(|it| {
            it.attempt = 1;
            it.evicted = true;
        }),
    );
    bench.reserve(facts("w").with(|it| it.attempt = 1));
    bench.observe("b", "w", 2, State::Reserved);
    bench.written(WriteOutcome::Done, committed("w", "b", 2));
    bench.observe("b", "w", 2, State::Running);
    bench.take();
    bench.apply(DispatchEvent::WorkloadChanged(WorkloadFacts {
        move_request: Some((2, "a".into())),
        ..committed("w", "b", 2)
    }));
    assert!(bench.take().is_empty(), "it has just been evicted there");
    bench.later(60_000);
    assert_eq!(
        bench.take(),
        ["retry w: Moved from worker cluster \"b\" to \"a\" on request. Previously: \"Ready\""]
    );
}

#[test]
fn move_happens_once_and_only_to_accepting_cluster() {
    let moving = |attempt, to: &str| WorkloadFacts {
        move_request: Some((attempt, to.into())),
        ..committed("w", "a", 1)
    };
    let mut bench = Bench::running();
    for (case, facts) in
        [("another attempt", moving(2, "b")), ("unknown", moving(1, "x")), ("here", moving(1, "a"))]
    {
        bench.apply(DispatchEvent::WorkloadChanged(facts));
        assert!(bench.take().is_empty(), "{case}");
    }
    bench.down("b");
    bench.apply(DispatchEvent::WorkloadChanged(moving(1, "b")));
    assert!(bench.take().is_empty(), "not connected");
    bench.connect("b", &[]);
    bench.capacity("b", 0, 4000);
    bench.later(5_000);
    assert_eq!(
        bench.take(),
        ["retry w: Moved from worker cluster \"a\" to \"b\" on request. Previously: \"Ready\""]
    );
    bench.written(
        WriteOutcome::Done,
        moving(1, "b").with(|it| it.check = Some(("mk".into(), CheckStatus::Retry))),
    );
    bench.apply(DispatchEvent::WorkloadChanged(moving(1, "b").with(|it| it.evicted = true)));
    bench.observe("a", "w", 1, State::Gone);
    let pending = || WorkloadFacts {
        move_request: Some((1, "b".into())),
        ..facts("w").with(|it| it.attempt = 1)
    };
    bench.written(WriteOutcome::Done, pending());
    bench.take();
    bench.later(60_000);
    bench.capacity("a", 4000, 4000);
    bench.reserve(pending());
    assert_eq!(bench.take(), ["Reserve w/2 on b"], "although it would fit a at once");
    bench.observe("b", "w", 2, State::Unfit);
    assert!(
        bench.take().contains(&"Reserve w/2 on a".to_owned()),
        "but it is not kept waiting for one that refuses"
    );
}

#[test]
fn changed_priority_is_sent_where_it_runs_or_is_offered() {
    let of = |class: &str, priority| WorkloadFacts {
        priority_class: Some(class.into()),
        priority,
        ..facts("w")
    };
    let mut bench = Bench::new(DispatchMode::BestFit, &[("a", 2000, 4000)]);
    bench.reserve(of("low", 1));
    assert_eq!(bench.take(), ["Reserve w/1 on a"]);
    bench.apply(DispatchEvent::WorkloadChanged(of("high", 9)));
    assert_eq!(bench.take(), ["Reserve w/1 on a"], "of another class");
    bench.apply(DispatchEvent::WorkloadChanged(of("high", 9)));
    assert!(bench.take().is_empty(), "once");
    bench.observe("a", "w", 1, State::Reserved);
    let running = |class: &str, priority| WorkloadFacts {
        priority_class: Some(class.into()),
        priority,
        ..committed("w", "a", 1)
    };
    bench.written(WriteOutcome::Done, running("high", 9));
    bench.observe("a", "w", 1, State::Running);
    bench.take();
    bench.apply(DispatchEvent::WorkloadChanged(running("high", 10)));
    assert_eq!(bench.take(), ["Run w/1 on a"], "the class has another value");
    bench.apply(DispatchEvent::WorkloadChanged(WorkloadFacts {
        priority: 11,
        ..committed("w", "a", 1)
    }));
    assert!(bench.take().is_empty(), "it has no class of its own");
}
