//! Workload slices that take over a copy.

use super::*;

/// The slice that replaces `w`.
fn grown() -> WorkloadFacts {
    WorkloadFacts { replaces: Some("w".into()), ..facts("x") }
}

/// The same slice with the copy of `w`.
fn taken() -> WorkloadFacts {
    WorkloadFacts {
        replaces: Some("w".into()),
        ..committed("x", "a", 1).with(|it| it.cluster_uid = Some("w".into()))
    }
}

impl Bench {
    fn introduce(&mut self, facts: &WorkloadFacts) {
        let (known_as, replaces) = (facts.state.cluster_uid.as_ref(), facts.replaces.as_ref());
        self.dispatcher.register_uid_alias(&facts.uid, known_as, replaces, facts.state.finished);
    }
}

fn is_replaced(bench: &mut Bench) {
    bench.apply(DispatchEvent::WorkloadChanged(
        committed("w", "a", 1).with(|it| it.finished = true),
    ));
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
fn slice_takes_over_copy_without_offer() {
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
fn replaced_slice_sends_nothing() {
    let mut bench = taken_over();
    is_replaced(&mut bench);
    bench.apply(DispatchEvent::WorkloadDeleted { uid: "w".into() });
    bench.later(60_000);
    assert!(bench.take().is_empty());
    bench.observe("a", "w", 1, State::Succeeded);
    assert_eq!(bench.take(), ["finish x/1 from a: true"], "the copy is the new one's");
}

#[test]
fn eviction_of_replaced_slice_does_not_stop_job() {
    let mut bench = taken_over();
    bench.apply(DispatchEvent::WorkloadChanged(committed("w", "a", 1).with(|it| {
        it.evicted = true;
        it.cluster = None;
    })));
    assert!(bench.take().is_empty());
}

#[test]
fn leaving_slice_removes_its_copy_by_the_clusters_uid() {
    let mut bench = taken_over();
    is_replaced(&mut bench);
    bench.apply(DispatchEvent::WorkloadChanged(taken().with(|it| {
        it.evicted = true;
        it.cluster = None;
    })));
    assert_eq!(bench.take(), ["Absent w/1 on a"]);
    bench.observe("a", "w", 1, State::Gone);
    assert_eq!(bench.take(), ["forget w/1 on a", "release x"]);
}

#[test]
fn third_slice_takes_over_from_second() {
    let mut bench = taken_over();
    is_replaced(&mut bench);
    bench.reserve(WorkloadFacts { replaces: Some("x".into()), ..facts("y") });
    assert_eq!(bench.take(), ["commit y/1 on a, known as w"]);
    let taken = WorkloadFacts {
        replaces: Some("x".into()),
        ..committed("y", "a", 1).with(|it| it.cluster_uid = Some("w".into()))
    };
    bench.written(WriteOutcome::Done, taken);
    bench.take();
    bench.apply(DispatchEvent::WorkloadChanged(self::taken().with(|it| it.finished = true)));
    assert!(bench.take().is_empty());
    bench.observe("a", "w", 1, State::Failed);
    assert_eq!(bench.take(), ["finish y/1 from a: false"]);
}

#[test]
fn slice_waits_while_replaced_one_is_leaving() {
    let mut bench = Bench::running();
    bench.apply(DispatchEvent::WorkloadChanged(committed("w", "a", 1).with(|it| {
        it.evicted = true;
        it.cluster = None;
    })));
    assert_eq!(bench.take(), ["Absent w/1 on a"]);
    bench.reserve(grown());
    assert!(bench.take().is_empty());
    bench.observe("a", "w", 1, State::Gone);
    assert_eq!(bench.take(), ["forget w/1 on a", "release w"]);
    bench.written(
        WriteOutcome::Done,
        facts("w").with(|it| {
            it.evicted = true;
            it.attempt = 1;
        }),
    );
    bench.later(1);
    bench.apply(DispatchEvent::WorkloadChanged(grown()));
    assert_eq!(bench.take(), ["Reserve x/1 on a"], "now like any other");
}

#[test]
fn copy_owner_is_independent_of_registration_order() {
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
fn failed_takeover_leaves_copy_with_its_owner() {
    let mut bench = Bench::running();
    bench.reserve(grown());
    assert_eq!(bench.take(), ["commit x/1 on a, known as w"]);
    // The job is deleted in the foreground: the first slice leaves the store and cannot be looked
    // up.
    bench.apply(DispatchEvent::WorkloadDeleted { uid: "w".into() });
    bench.apply(DispatchEvent::WorkloadChanged(facts("x").with(|it| it.deleting = true)));
    assert!(!bench.take().iter().any(|it| it.contains("on a")), "it may be written yet");
    bench.written(WriteOutcome::Superseded, facts("x").with(|it| it.deleting = true));
    assert_eq!(bench.take(), ["Absent w/1 on a"]);
    bench.observe("a", "w", 1, State::Gone);
    assert!(bench.take().contains(&"forget w/1 on a".to_owned()));
}

#[test]
fn replaced_slice_is_remembered_when_not_found() {
    let mut bench = Bench::running();
    bench.reserve(grown());
    bench.apply(DispatchEvent::WorkloadDeleted { uid: "w".into() });
    bench.written(WriteOutcome::Failed, facts("x"));
    bench.later(60_000);
    bench.written(WriteOutcome::Done, facts("x").with(|it| it.reserved = true));
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
fn deleted_slices_leave_no_state() {
    let mut bench = taken_over();
    let mut before = taken();
    for uid in ["y", "z"] {
        let replaces = Some(before.uid.clone());
        bench.reserve(WorkloadFacts { replaces: replaces.clone(), ..facts(uid) });
        let taken = WorkloadFacts {
            replaces,
            ..committed(uid, "a", 1).with(|it| it.cluster_uid = Some("w".into()))
        };
        bench.written(WriteOutcome::Done, taken.clone());
        bench.apply(DispatchEvent::WorkloadChanged(before.clone().with(|it| it.finished = true)));
        bench.apply(DispatchEvent::WorkloadDeleted { uid: before.uid.clone() });
        before = taken;
        assert_eq!(bench.dispatcher.uid_aliases.len(), 1, "{uid}");
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
    assert_eq!(bench.dispatcher.uid_aliases.len(), 0);
}

#[test]
fn deleted_first_slice_leaves_no_state() {
    let mut bench = taken_over();
    is_replaced(&mut bench);
    bench.apply(DispatchEvent::WorkloadDeleted { uid: "w".into() });
    // It cannot be looked up by name any more.
    bench.apply(DispatchEvent::WorkloadChanged(WorkloadFacts { replaces: None, ..taken() }));
    assert_eq!(
        bench.dispatcher.cluster_uid(&"x".into()),
        "w".into(),
        "for as long as it has the copy"
    );
    bench.apply(DispatchEvent::WorkloadDeleted { uid: "x".into() });
    assert_eq!(bench.take().last().map(String::as_str), Some("Absent w/1 on a"));
    bench.observe("a", "w", 1, State::Gone);
    assert_eq!(bench.dispatcher.uid_aliases.len(), 0);
}

#[test]
fn last_slice_end_counts_despite_late_replacement() {
    let mut bench = taken_over();
    bench.observe("a", "w", 1, State::Succeeded);
    bench.written(WriteOutcome::Done, taken().with(|it| it.finished = true));
    bench.observe("a", "w", 1, State::Gone);
    bench.apply(DispatchEvent::WorkloadDeleted { uid: "x".into() });
    bench.take();
    bench.apply(DispatchEvent::WorkloadChanged(committed("w", "a", 1)));
    bench.later(60_000);
    assert!(bench.take().is_empty(), "it does not run again");
}

#[test]
fn end_during_takeover_is_saved_if_the_slice_is_evicted() {
    let mut bench = Bench::running();
    bench.reserve(grown());
    bench.take();
    bench.observe("a", "w", 1, State::Succeeded);
    let evicted = taken().with(|it| (it.cluster, it.evicted) = (None, true));
    bench.apply(DispatchEvent::WorkloadChanged(WorkloadFacts { version: 3, ..evicted }));
    bench.written(WriteOutcome::Done, WorkloadFacts { version: 2, ..taken() });
    assert!(bench.take().contains(&"finish x/1 from a: true".to_owned()));
}

/// `w` has quota again, and `x`, which replaces it, runs under its own uid.
fn outrun() -> Bench {
    let mut bench = Bench::running();
    bench.apply(DispatchEvent::WorkloadChanged(without_quota(committed("w", "a", 1))));
    bench.observe("a", "w", 1, State::Gone);
    bench.apply(DispatchEvent::WorkloadChanged(alone(committed("x", "a", 1))));
    bench.take();
    bench.reserve(without_quota(committed("w", "a", 1)));
    assert!(bench.take().is_empty(), "x runs");
    bench
}

fn without_quota(facts: WorkloadFacts) -> WorkloadFacts {
    facts.with(|it| (it.cluster, it.evicted, it.reserved) = (None, true, false))
}

/// The slice that replaces `w`, with a copy of its own.
fn alone(facts: WorkloadFacts) -> WorkloadFacts {
    WorkloadFacts { replaces: Some("w".into()), ..facts }
}

#[test]
fn replaced_slice_waits_while_its_replacement_may_run() {
    let mut bench = outrun();
    bench.apply(DispatchEvent::WorkloadChanged(alone(without_quota(committed("x", "a", 1)))));
    assert!(!bench.take().contains(&"Reserve w/2 on a".to_owned()), "x is not gone");
    bench.observe("a", "x", 1, State::Gone);
    assert!(bench.take().contains(&"Reserve w/2 on a".to_owned()));
}

#[test]
fn replaced_slice_goes_on_once_its_replacement_is_deleted() {
    let mut bench = outrun();
    bench.later(60_000);
    let recorded = committed("w", "a", 1).with(|it| it.cluster = None);
    bench.written(WriteOutcome::Done, recorded);
    bench.apply(DispatchEvent::WorkloadDeleted { uid: "x".into() });
    bench.take();
    bench.observe("a", "x", 1, State::Gone);
    let out = bench.take();
    assert!(out.contains(&"Reserve w/2 on a".to_owned()), "{out:?}");
}

/// `y` has the copy of `x`, which is finished and forgotten. The job's reconciler will finish `w`.
#[test]
fn first_slice_waits_while_a_later_one_runs() {
    let mut bench = outrun();
    let last = WorkloadFacts {
        replaces: Some("x".into()),
        ..committed("y", "a", 1).with(|it| it.cluster_uid = Some("x".into()))
    };
    bench.apply(DispatchEvent::WorkloadChanged(last));
    bench.apply(DispatchEvent::WorkloadChanged(alone(
        committed("x", "a", 1).with(|it| it.finished = true),
    )));
    bench.apply(DispatchEvent::WorkloadDeleted { uid: "x".into() });
    bench.later(60_000);
    let out = bench.take();
    assert!(out.iter().all(|it| !it.starts_with("Reserve")), "{out:?}");
}

#[test]
fn job_that_was_scaled_often_keeps_few_links() {
    let mut bench = taken_over();
    for number in 0..50 {
        let name = |number: usize| format!("x{}", "+".repeat(number));
        let (before, uid) = match number {
            0 => ("x".to_owned(), name(1)),
            _ => (name(number), name(number + 1)),
        };
        let slice = WorkloadFacts {
            replaces: Some((*before).into()),
            ..committed(&uid, "a", 1).with(|it| it.cluster_uid = Some("w".into()))
        };
        bench.apply(DispatchEvent::WorkloadChanged(slice));
        let finished = committed(&before, "a", 1).with(|it| {
            it.finished = true;
            it.cluster_uid = Some("w".into());
        });
        bench.apply(DispatchEvent::WorkloadChanged(finished));
        bench.apply(DispatchEvent::WorkloadDeleted { uid: (*before).into() });
    }
    assert!(bench.dispatcher.replacements.len() <= 2, "{:?}", bench.dispatcher.replacements);
}

/// Eight slices, each of which waits for the one that it replaces.
fn waiting_slices(replaced: impl Fn(usize) -> Option<usize>) -> Bench {
    let mut bench = Bench::new(DispatchMode::BestFit, &[("a", 0, 4000)]);
    for number in 0..8 {
        let replaces = replaced(number).map(|it| format!("s{it}").as_str().into());
        bench.reserve(WorkloadFacts { replaces, ..facts(&format!("s{number}")) });
    }
    bench.capacity("a", 0, 4000);
    assert!(!bench.dispatcher.dirty.is_empty(), "more rounds are needed than one event has");
    bench
}

#[test]
fn decisions_about_a_long_chain_need_no_further_event() {
    let mut bench = waiting_slices(|number| number.checked_sub(1));
    let start = bench.now;
    while !bench.dispatcher.dirty.is_empty() {
        let at = bench.dispatcher.next_wakeup().unwrap();
        bench.later(at - bench.now);
        assert!(bench.now < start + 1_000, "{:?}", bench.dispatcher.dirty);
    }
}

/// Users can write the annotation that says which Workload a slice replaces.
#[test]
fn slices_in_a_circle_cost_few_decisions() {
    let mut bench = waiting_slices(|number| Some((number + 7) % 8));
    let (start, before) = (bench.now, bench.dispatcher.decided());
    while bench.now < start + 60_000 {
        let at = bench.dispatcher.next_wakeup().unwrap();
        assert!(at > bench.now, "the hub would never rest");
        bench.later(at - bench.now);
    }
    let decided = bench.dispatcher.decided() - before;
    assert!(decided < 500, "{decided} decisions in a minute");
}
