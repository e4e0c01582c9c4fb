//! What an elastic job has grown to, and the copy of the workload that it replaces.

use super::*;

/// What `w` has grown to.
fn grown() -> WorkloadFacts {
    WorkloadFacts { replaces: Some("w".into()), ..facts("x") }
}

/// The same once it has the copy of `w`.
fn taken() -> WorkloadFacts {
    WorkloadFacts {
        replaces: Some("w".into()),
        cluster_uid: Some("w".into()),
        ..committed("x", "a", 1)
    }
}

impl Bench {
    fn introduce(&mut self, facts: &WorkloadFacts) {
        let (known_as, replaces) = (facts.cluster_uid.as_ref(), facts.replaces.as_ref());
        self.dispatcher.register_uid_alias(&facts.uid, known_as, replaces, facts.finished);
    }
}

fn is_replaced(bench: &mut Bench) {
    bench.apply(DispatchEvent::WorkloadChanged(WorkloadFacts {
        finished: true,
        ..committed("w", "a", 1)
    }));
}

/// `x` has taken over the copy of `w`, which runs on `a`.
fn taken_over() -> Bench {
    let mut bench = Bench::running();
    bench.reserve(grown());
    bench.written(WriteOutcome::Done, taken());
    bench.take();
    bench
}

#[test]
fn it_takes_over_the_copy_as_it_stands_and_is_offered_to_nobody() {
    for mode in [DispatchMode::BestFit, DispatchMode::AllAtOnce, DispatchMode::External] {
        let mut bench = Bench::new(mode, &[("a", 2000, 4000), ("b", 4000, 4000)]);
        bench.runs("w", "a", 1);
        bench.take();
        bench.reserve(grown());
        assert_eq!(bench.take(), ["commit x/1 on a, known as w"], "{mode:?}");
        bench.written(WriteOutcome::Done, taken());
        assert_eq!(bench.take(), ["mirror x/1 from a"], "{mode:?}: nothing is said to the cluster");
    }
}

#[test]
fn what_it_replaced_says_nothing_any_more() {
    let mut bench = taken_over();
    is_replaced(&mut bench);
    bench.apply(DispatchEvent::WorkloadDeleted { uid: "w".into() });
    bench.later(60_000);
    assert!(bench.take().is_empty());
    bench.observe("a", "w", 1, State::Succeeded);
    assert_eq!(bench.take(), ["finish x/1 from a: true"], "the copy is the new one's");
}

#[test]
fn that_it_was_evicted_meanwhile_is_no_reason_to_stop_the_job() {
    let mut bench = taken_over();
    bench.apply(DispatchEvent::WorkloadChanged(WorkloadFacts {
        evicted: true,
        cluster: None,
        ..committed("w", "a", 1)
    }));
    assert!(bench.take().is_empty());
}

#[test]
fn what_is_to_go_takes_its_own_copy_away_under_the_name_that_the_cluster_knows() {
    let mut bench = taken_over();
    is_replaced(&mut bench);
    bench.apply(DispatchEvent::WorkloadChanged(WorkloadFacts {
        evicted: true,
        cluster: None,
        ..taken()
    }));
    assert_eq!(bench.take(), ["Absent w/1 on a"]);
    bench.observe("a", "w", 1, State::Gone);
    assert_eq!(bench.take(), ["forget w/1 on a", "release x"]);
}

#[test]
fn the_next_takes_over_from_it() {
    let mut bench = taken_over();
    is_replaced(&mut bench);
    bench.reserve(WorkloadFacts { replaces: Some("x".into()), ..facts("y") });
    assert_eq!(bench.take(), ["commit y/1 on a, known as w"]);
    let taken = WorkloadFacts {
        replaces: Some("x".into()),
        cluster_uid: Some("w".into()),
        ..committed("y", "a", 1)
    };
    bench.written(WriteOutcome::Done, taken);
    bench.take();
    bench.apply(DispatchEvent::WorkloadChanged(WorkloadFacts { finished: true, ..self::taken() }));
    assert!(bench.take().is_empty());
    bench.observe("a", "w", 1, State::Failed);
    assert_eq!(bench.take(), ["finish y/1 from a: false"]);
}

#[test]
fn it_goes_nowhere_while_the_other_is_leaving() {
    let mut bench = Bench::running();
    bench.apply(DispatchEvent::WorkloadChanged(WorkloadFacts {
        evicted: true,
        cluster: None,
        ..committed("w", "a", 1)
    }));
    assert_eq!(bench.take(), ["Absent w/1 on a"]);
    bench.reserve(grown());
    assert!(bench.take().is_empty());
    bench.observe("a", "w", 1, State::Gone);
    assert_eq!(bench.take(), ["forget w/1 on a", "release w"]);
    bench.written(WriteOutcome::Done, WorkloadFacts { evicted: true, attempt: 1, ..facts("w") });
    bench.later(1);
    bench.apply(DispatchEvent::WorkloadChanged(grown()));
    assert_eq!(bench.take(), ["Reserve x/1 on a"], "now like any other");
}

#[test]
fn a_process_that_begins_knows_whose_the_copy_is_in_whatever_order_it_learns() {
    let before = || committed("w", "a", 1);
    let orders = || [[before(), taken()], [taken(), before()]].into_iter();
    for (order, all_first) in orders().map(|it| (it, true)).chain(orders().map(|it| (it, false))) {
        let mut bench = Bench::new(DispatchMode::BestFit, &[("a", 2000, 4000)]);
        for facts in order.iter().filter(|_| all_first) {
            bench.introduce(facts);
        }
        for facts in order {
            bench.apply(DispatchEvent::WorkloadChanged(facts));
        }
        assert_eq!(bench.take(), ["Run w/1 on a"], "once, by the new one");
        assert_eq!(bench.dispatcher.cluster_view("a").workloads, 1);
        is_replaced(&mut bench);
        assert!(bench.take().is_empty());
        assert_eq!(bench.dispatcher.committed("w"), None);
        assert_eq!(bench.dispatcher.committed("x"), Some(("a".into(), 1)));
    }
}

#[test]
fn a_takeover_that_comes_to_nothing_leaves_the_copy_to_the_one_that_has_it() {
    let mut bench = Bench::running();
    bench.reserve(grown());
    assert_eq!(bench.take(), ["commit x/1 on a, known as w"]);
    // Their job is deleted in the foreground: the first one leaves the store, and is not found by its name any more.
    bench.apply(DispatchEvent::WorkloadDeleted { uid: "w".into() });
    bench.apply(DispatchEvent::WorkloadChanged(WorkloadFacts { deleting: true, ..facts("x") }));
    assert!(!bench.take().iter().any(|it| it.contains("on a")), "it may be written yet");
    bench.written(WriteOutcome::Superseded, WorkloadFacts { deleting: true, ..facts("x") });
    assert_eq!(bench.take(), ["Absent w/1 on a"]);
    bench.observe("a", "w", 1, State::Gone);
    assert!(bench.take().contains(&"forget w/1 on a".to_owned()));
}

#[test]
fn what_it_replaces_is_not_forgotten_once_that_is_not_to_be_found() {
    let mut bench = Bench::running();
    bench.reserve(grown());
    bench.apply(DispatchEvent::WorkloadDeleted { uid: "w".into() });
    bench.written(WriteOutcome::Failed, facts("x"));
    bench.later(60_000);
    bench.written(WriteOutcome::Done, WorkloadFacts { reserved: true, ..facts("x") });
    bench.capacity("b", 4000, 4000);
    assert!(
        !bench.take().iter().any(|it| it.starts_with("Reserve")),
        "nowhere else while the copy may run"
    );
    bench.observe("a", "w", 1, State::Gone);
    bench.capacity("b", 4000, 4000);
    assert!(bench.take().iter().any(|it| it.starts_with("Reserve x/1")));
}

#[test]
fn of_those_that_are_gone_nothing_is_remembered() {
    let mut bench = taken_over();
    let mut before = taken();
    for uid in ["y", "z"] {
        let replaces = Some(before.uid.clone());
        bench.reserve(WorkloadFacts { replaces: replaces.clone(), ..facts(uid) });
        let taken =
            WorkloadFacts { replaces, cluster_uid: Some("w".into()), ..committed(uid, "a", 1) };
        bench.written(WriteOutcome::Done, taken.clone());
        bench.apply(DispatchEvent::WorkloadChanged(WorkloadFacts {
            finished: true,
            ..before.clone()
        }));
        bench.apply(DispatchEvent::WorkloadDeleted { uid: before.uid.clone() });
        before = taken;
        assert_eq!(bench.dispatcher.identities.len(), 1, "{uid}");
    }
    bench.apply(DispatchEvent::WorkloadDeleted { uid: "z".into() });
    assert_eq!(
        bench.take().last().map(String::as_str),
        Some("Absent w/1 on a"),
        "the last one's is the copy"
    );
    bench.observe("a", "w", 1, State::Gone);
    is_replaced(&mut bench);
    bench.apply(DispatchEvent::WorkloadDeleted { uid: "w".into() });
    assert_eq!(bench.dispatcher.identities.len(), 0);
}

#[test]
fn nor_of_those_whose_first_goes_before_the_last_is_seen_again() {
    let mut bench = taken_over();
    is_replaced(&mut bench);
    bench.apply(DispatchEvent::WorkloadDeleted { uid: "w".into() });
    // It is not found by its name any more.
    bench.apply(DispatchEvent::WorkloadChanged(WorkloadFacts { replaces: None, ..taken() }));
    assert_eq!(
        bench.dispatcher.cluster_uid(&"x".into()),
        "w".into(),
        "for as long as it has the copy"
    );
    bench.apply(DispatchEvent::WorkloadDeleted { uid: "x".into() });
    assert_eq!(bench.take().last().map(String::as_str), Some("Absent w/1 on a"));
    bench.observe("a", "w", 1, State::Gone);
    assert_eq!(bench.dispatcher.identities.len(), 0);
}

#[test]
fn the_end_of_the_last_is_that_of_the_job_however_late_the_first_is_said_to_be_replaced() {
    let mut bench = taken_over();
    bench.observe("a", "w", 1, State::Succeeded);
    bench.written(WriteOutcome::Done, WorkloadFacts { finished: true, ..taken() });
    bench.observe("a", "w", 1, State::Gone);
    bench.apply(DispatchEvent::WorkloadDeleted { uid: "x".into() });
    bench.take();
    bench.apply(DispatchEvent::WorkloadChanged(committed("w", "a", 1)));
    bench.later(60_000);
    assert!(bench.take().is_empty(), "it does not run again");
}
