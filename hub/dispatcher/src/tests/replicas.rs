//! Replicas of one object: the first one's cluster, and how later ones follow.

use super::*;

const TWO: &[(&str, i64, i64)] = &[("a", 1000, 4000), ("b", 4000, 4000)];

fn later(replica: Replica) -> WorkloadFacts {
    WorkloadFacts { replica: Some(replica), ..facts("w") }
}

fn at(cluster: &str) -> Replica {
    Replica::FirstOnCluster(cluster.into())
}

/// A later replica that runs on `b` with the first.
fn following() -> Bench {
    let mut bench = Bench::new(DispatchMode::BestFit, TWO);
    bench.reserve(later(at("b")));
    bench.written(WriteOutcome::Done, WorkloadFacts { replica: None, ..committed("w", "b", 1) });
    bench.observe("b", "w", 1, State::Running);
    bench.take();
    bench
}

#[test]
fn first_replica_prefers_cluster_with_room_for_all() {
    let first = |all: i64| WorkloadFacts { replica: Some(Replica::First(pods(all))), ..facts("w") };
    for (case, all, cluster) in [
        ("it alone fits a best", 1000, "a"),
        ("all fit b", 3000, "b"),
        ("all fit nowhere", 9000, "a"),
    ] {
        let mut bench = Bench::new(DispatchMode::BestFit, TWO);
        bench.reserve(first(all));
        assert_eq!(bench.take(), [format!("Reserve w/1 on {cluster}")], "{case}");
    }
}

#[test]
fn later_replica_joins_first_without_offer() {
    for mode in [DispatchMode::BestFit, DispatchMode::AllAtOnce, DispatchMode::External] {
        let mut bench = Bench::new(mode, TWO);
        bench.reserve(later(Replica::FirstWithoutCluster));
        assert!(bench.take().is_empty(), "{mode:?}");
        bench.apply(DispatchEvent::WorkloadChanged(later(at("b"))));
        assert_eq!(bench.take(), ["commit w/1 on b"], "{mode:?}");
        bench
            .written(WriteOutcome::Done, WorkloadFacts { replica: None, ..committed("w", "b", 1) });
        assert_eq!(bench.take(), ["Run w/1 on b"], "{mode:?}: only now");
        bench.observe("b", "w", 1, State::Waiting);
        assert!(bench.take().is_empty(), "{mode:?}: it waits there");
    }
}

#[test]
fn later_replica_records_what_it_waits_for() {
    let mut bench = Bench::new(DispatchMode::BestFit, TWO);
    bench.reserve(later(Replica::FirstWithoutCluster));
    bench.later(1_000);
    assert_eq!(bench.take(), ["record w: Waiting for the first replica to have a cluster None"]);
}

#[test]
fn later_replica_without_first_quota_returns_its_own() {
    let mut bench = Bench::new(DispatchMode::BestFit, TWO);
    bench.reserve(later(Replica::FirstWithoutQuota));
    assert!(bench.take().is_empty(), "the first may be reserved in a moment");
    bench.later(1_000);
    let log = bench.take();
    assert!(log.len() == 1 && log[0].ends_with(": The first replica has no quota"), "{log:?}");
    assert!(bench.dispatcher.needs_changes("w") && !bench.dispatcher.knows("w"), "it is parked");
    bench.capacity("a", 4000, 4000);
    assert!(bench.take().is_empty(), "room on a cluster is of no use to it");
    bench.apply(DispatchEvent::WorkloadChanged(later(Replica::FirstWithoutCluster)));
    assert_eq!(bench.take(), ["wake w"]);
    bench.apply(DispatchEvent::WorkloadChanged(later(at("b"))));
    assert!(bench.take().is_empty(), "once");
    assert!(!bench.dispatcher.needs_changes("w"));
}

/// The retry of attempt 1 is written, nothing is left on `b`, and it has quota again.
fn leaves_and_is_reserved_again(bench: &mut Bench) {
    let retrying =
        committed("w", "b", 1).with(|it| it.check = Some(("mk".into(), CheckStatus::Retry)));
    bench.written(WriteOutcome::Done, retrying.clone());
    bench.apply(DispatchEvent::WorkloadChanged(retrying.with(|it| it.evicted = true)));
    bench.observe("b", "w", 1, State::Gone);
    bench.written(
        WriteOutcome::Done,
        facts("w").with(|it| {
            it.attempt = 1;
            it.evicted = true;
        }),
    );
    bench.take();
    bench.reserve(later(at("b")).with(|it| it.attempt = 1));
}

#[test]
fn later_replica_leaves_with_first_and_follows() {
    for first in [Replica::FirstWithoutQuota, Replica::FirstWithoutCluster, at("a")] {
        let mut bench = following();
        bench.apply(DispatchEvent::WorkloadChanged(WorkloadFacts {
            replica: Some(first.clone()),
            ..committed("w", "b", 1)
        }));
        let expected = "retry w: The first replica is no longer there. Previously: \"Ready\"";
        assert_eq!(bench.take(), [expected], "{first:?}");
        leaves_and_is_reserved_again(&mut bench);
        assert_eq!(bench.take(), ["commit w/2 on b"], "{first:?}: it may come back there at once");
    }
}

#[test]
fn later_replica_refused_is_tried_there_again() {
    let mut bench = following();
    bench.observe("b", "w", 1, State::Evicted);
    leaves_and_is_reserved_again(&mut bench);
    assert!(bench.take().is_empty());
    bench.later(60_000);
    assert_eq!(bench.take(), ["commit w/2 on b"]);
}

#[test]
fn later_replica_waits_for_silent_cluster_and_never_moves() {
    let mut bench = Bench::new(DispatchMode::BestFit, TWO);
    bench.down("b");
    bench.reserve(later(at("b")));
    assert!(bench.take().is_empty());
    bench.connect("b", &[]);
    assert_eq!(bench.take(), ["commit w/1 on b"]);
    bench.written(
        WriteOutcome::Done,
        WorkloadFacts { move_request: Some((1, "a".into())), ..committed("w", "b", 1) },
    );
    bench.observe("b", "w", 1, State::Running);
    assert_eq!(bench.take(), ["Run w/1 on b"]);
}
