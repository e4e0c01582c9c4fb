//! Adoption while clusters are silent, and copies that are reported late.

use super::copies::{Copy, HOUR, adopted, again};
use super::*;

#[test]
fn workload_waits_while_silent_cluster_may_have_copy() {
    let mut bench = Bench::forgetful(&["a", "b"]);
    bench.tells("a", vec![]);
    bench.applied();
    bench.later(1_000);
    let said = bench.take().join("\n");
    assert!(said.contains("that may run it since before this hub's memory: b"), "{said}");
    bench.written(WriteOutcome::Done, again().with(|it| it.reserved = true));
    bench.later(HOUR / 2);
    assert!(bench.take().iter().all(|line| line.starts_with("record")));

    let mut spoken = Bench::forgetful(&["a", "b"]);
    spoken.tells("a", vec![]);
    spoken.applied();
    spoken.tells("b", vec![]);
    assert_eq!(spoken.take(), ["Reserve new/1 on a"], "it has spoken");

    let rules = ClusterConfig { declared_lost: true, ..ClusterConfig::default() };
    bench.apply(DispatchEvent::ClusterConfigured { name: "b".into(), config: rules });
    bench.later(60_000);
    assert_eq!(
        bench.take().first().map(String::as_str),
        Some("Reserve new/1 on a"),
        "people say that it is lost"
    );

    let mut late = Bench::forgetful(&["a", "b"]);
    late.tells("a", vec![]);
    late.later(HOUR);
    late.applied();
    assert_eq!(late.take(), ["Reserve new/1 on a"], "an hour has passed");
}

/// The Workload of a job was deleted on its cluster, and the job is not stopped yet. The agent does
/// not know the job any more.
#[test]
fn running_copy_of_unknown_job_blocks_namespace() {
    let waiting = |state| {
        let mut bench = Bench::forgetful(&["a", "b"]);
        bench.tells("a", vec![Copy::of("old", "train").unknown().state(state)]);
        bench.tells("b", vec![]);
        bench.take();
        bench.applied();
        bench
    };
    let mut stopped = waiting(State::Running);
    stopped.later(500);
    assert!(!stopped.take().iter().any(|it| it.contains("Reserve")));
    stopped.observe("a", "old", 3, State::Evicted);
    assert_eq!(stopped.take(), ["Reserve new/1 on a"], "it was stopped");

    let mut gone = waiting(State::Running);
    gone.observe("a", "old", 3, State::Gone);
    assert_eq!(gone.take(), ["Reserve new/1 on a"], "it is gone");

    let mut told = waiting(State::Running);
    told.tells("a", vec![Copy::of("old", "train")]);
    assert_eq!(
        told.take().last().map(String::as_str),
        Some("commit new/3 on a, known as old"),
        "it says whose it is"
    );

    let mut late = waiting(State::Running);
    late.later(1_000);
    late.written(WriteOutcome::Done, again().with(|it| it.reserved = true));
    late.later(HOUR);
    assert!(late.take().contains(&"Reserve new/1 on a".to_owned()), "an hour has passed");
    assert_eq!(waiting(State::Failed).take(), ["Reserve new/1 on a"], "it has ended");
}

#[test]
fn idle_copy_is_adopted_only_without_silent_clusters() {
    for (case, state) in
        [("stopped by its fence", State::Suspended), ("ended after it was given up", State::Failed)]
    {
        let mut bench = Bench::forgetful(&["a", "b"]);
        bench.tells("a", vec![Copy::of("old", "train").state(state)]);
        bench.take();
        bench.applied();
        assert!(bench.take().is_empty(), "{case}");
        bench.tells("b", vec![Copy::of("old", "train").attempt(4)]);
        assert_eq!(
            bench.take(),
            ["orphan old/4 on b", "commit new/4 on b, known as old"],
            "{case}"
        );

        let mut bench = Bench::forgetful(&["a", "b"]);
        bench.tells("a", vec![Copy::of("old", "train").state(state)]);
        bench.applied();
        bench.take();
        bench.tells("b", vec![]);
        assert_eq!(
            bench.take(),
            ["commit new/3 on a, known as old"],
            "{case}, and nobody has a later one"
        );
    }
}

/// The workload was sent elsewhere three times while the copy's cluster was silent. It waits again,
/// and nothing of it runs.
#[test]
fn late_copy_is_adopted_despite_later_attempts() {
    let waits = |clusters: &[&str]| {
        let mut bench = Bench::forgetful(clusters);
        bench.tells("a", vec![]);
        bench.reserve(again().with(|it| it.attempt = 3));
        bench.take();
        bench
    };
    let copy = || Copy::of("old", "train").attempt(2);

    let mut bench = waits(&["a", "b"]);
    bench.tells("b", vec![copy().state(State::Succeeded)]);
    assert_eq!(bench.take(), ["orphan old/2 on b", "commit new/2 on b, known as old"]);
    bench.written(WriteOutcome::Done, adopted("b", 2));
    assert_eq!(bench.take(), ["finish new/2 from b: true"], "it does not run again");

    let mut bench = waits(&["a", "b", "c"]);
    bench.tells("b", vec![copy()]);
    assert_eq!(bench.take(), ["orphan old/2 on b"], "c may have a later one");
    bench.tells("c", vec![]);
    assert_eq!(bench.take(), ["commit new/2 on b, known as old"]);
    bench.written(WriteOutcome::Done, adopted("b", 2));
    assert_eq!(bench.take(), ["mirror new/2 from b", "Run old/2 on b"]);
    bench.apply(DispatchEvent::WorkloadChanged(adopted("b", 2).with(|it| it.evicted = true)));
    bench.observe("b", "old", 2, State::Gone);
    bench.take();
    bench.written(
        WriteOutcome::Done,
        adopted("b", 2).with(|it| {
            it.cluster = None;
            it.reserved = false;
            it.check = None;
        }),
    );
    bench.reserve(again().with(|it| {
        it.attempt = 2;
        it.cluster_uid = Some("old".into());
    }));
    assert_eq!(bench.take(), ["Reserve old/4 on a"], "and no number is used twice");
}

#[test]
fn late_copy_is_spared_while_later_attempt_may_run() {
    let mut bench = Bench::forgetful(&["a", "b"]);
    bench.apply(DispatchEvent::WorkloadChanged(WorkloadFacts {
        subject: again().subject,
        ..committed("new", "a", 3)
    }));
    bench.tells("a", vec![Copy { uid: "new", ..Copy::of("new", "train") }]);
    bench.take();
    bench.tells("b", vec![Copy::of("old", "train").attempt(2)]);
    assert_eq!(bench.take(), ["orphan old/2 on b"], "that one runs");
    bench.apply(DispatchEvent::WorkloadChanged(WorkloadFacts {
        subject: again().subject,
        ..committed("new", "a", 3).with(|it| it.evicted = true)
    }));
    assert_eq!(bench.take(), ["Absent new/3 on a"], "not before it is gone");
    bench.observe("a", "new", 3, State::Gone);
    assert_eq!(bench.take(), ["forget new/3 on a", "release new"]);
    bench.written(
        WriteOutcome::Done,
        again().with(|it| {
            it.attempt = 3;
            it.evicted = true;
        }),
    );
    bench.reserve(again().with(|it| it.attempt = 3));
    assert_eq!(bench.take(), ["commit new/2 on b, known as old"]);
}

/// The hub restarted. A copy of an earlier attempt may be on the silent cluster.
#[test]
fn evicted_workload_is_released_once_silent_cluster_is_lost() {
    const TIMEOUT: i64 = 900_000;
    type Change = (&'static str, fn(&mut Bench), i64);
    let changes: [Change; 3] = [
        (
            "it is declared lost",
            |bench| {
                let config = ClusterConfig { declared_lost: true, ..ClusterConfig::default() };
                bench.apply(DispatchEvent::ClusterConfigured { name: "silent".into(), config });
            },
            0,
        ),
        (
            "its MultiKueueCluster is deleted",
            |bench| bench.apply(DispatchEvent::ClusterDeleted { name: "silent".into() }),
            0,
        ),
        ("its policy gives up", |bench| bench.rules("silent", LossPolicy::GiveUp), TIMEOUT),
    ];
    for (case, change, after) in changes {
        let mut bench = Bench::new(DispatchMode::BestFit, &[("a", 4000, 4000)]);
        bench.rules("silent", LossPolicy::Hold);
        bench.apply(DispatchEvent::WorkloadChanged(
            committed("w", "silent", 1).with(|it| (it.evicted, it.cluster) = (true, None)),
        ));
        bench.later(HOUR);
        assert!(bench.take().is_empty(), "{case}: it may run there");
        change(&mut bench);
        bench.later(after);
        assert_eq!(bench.take(), ["release w"], "{case}");
    }
}

#[test]
fn missing_cluster_is_awaited_until_it_reports() {
    let configure = |bench: &mut Bench, clusters: &[&str]| {
        let clusters = clusters.iter().map(|name| Name::from(*name)).collect();
        bench.apply(DispatchEvent::CheckConfigured { name: "mk".into(), clusters });
    };
    let waiting = || {
        let mut bench = Bench::forgetful(&["a"]);
        configure(&mut bench, &["a", "z"]);
        bench.tells("a", vec![]);
        bench.applied();
        assert!(bench.take().is_empty());
        bench
    };
    let mut bench = waiting();
    bench.later(1_000);
    let said = bench.take().join("\n");
    assert!(said.contains("since before this hub's memory: z;"), "{said}");
    bench.written(WriteOutcome::Done, again().with(|it| it.reserved = true));
    bench.later(HOUR);
    assert_eq!(bench.take().first().map(String::as_str), Some("Reserve new/1 on a"));

    let mut bench = waiting();
    configure(&mut bench, &["a"]);
    assert_eq!(bench.take(), ["Reserve new/1 on a"], "it is not configured any more");

    // A committed workload whose cluster reports no copy may run a later attempt on the missing one.
    let mut bench = Bench::forgetful(&["a"]);
    configure(&mut bench, &["a", "z"]);
    bench.apply(DispatchEvent::WorkloadChanged(committed("w", "a", 1)));
    bench.tells("a", vec![]);
    bench.take();
    configure(&mut bench, &["a"]);
    assert_eq!(bench.take(), ["Run w/1 on a"], "it is not configured any more");

    let mut bench = Bench::forgetful(&["a", "b"]);
    bench.tells("a", vec![]);
    bench.tells("b", vec![Copy::of("old", "train")]);
    bench.apply(DispatchEvent::ClusterDeleted { name: "b".into() });
    bench.rules("b", LossPolicy::Hold);
    bench.take();
    bench.applied();
    assert!(bench.take().is_empty(), "it was made again, and has not told");
    bench.tells("b", vec![Copy::of("old", "train")]);
    assert_eq!(bench.take(), ["orphan old/3 on b", "commit new/3 on b, known as old"]);
}

/// The clock of a hub replica may be an hour ahead of the API server's. The other replica wrote the
/// time of the store loss by that one.
#[test]
fn recovery_window_is_an_hour_of_api_server_time() {
    let age = 10 * 60_000;
    for own_clock_ahead in [-2 * HOUR, 0, 2 * HOUR] {
        let now = START + own_clock_ahead;
        assert_eq!(StoreLoss::new(START - age, START, now).recovery_until, now + HOUR - age);
    }
}
