//! A store that was restored from a backup: what it has forgotten of attempts and ends.

use super::adoption::{Copy, again};
use super::*;

fn stopped(attempt: u64) -> Vec<Copy> {
    vec![Copy::of("w", "train").attempt(attempt).state(State::Suspended)]
}

/// Attempt 2 runs on `a`; the cluster of a later one was away until then.
fn sent_elsewhere_meanwhile() -> Bench {
    let mut bench = Bench::forgetful(&["a", "b"]);
    bench.tells("a", vec![]);
    bench.rules("b", DisconnectPolicy::Fence { after: 10_000 });
    bench.later(600_000);
    bench.runs("w", "a", 2);
    assert_eq!(bench.take(), ["Run w/2 on a"]);
    bench
}

#[test]
fn a_later_attempt_that_was_stopped_is_left_alone_while_an_earlier_one_runs() {
    let mut bench = sent_elsewhere_meanwhile();
    bench.tells("b", stopped(3));
    assert!(bench.take().is_empty(), "neither is told anything");
    bench.observe("a", "w", 2, State::Succeeded);
    assert_eq!(
        bench.take(),
        ["Absent w/3 on b", "finish w/2 from a: true"],
        "it is of no use any more"
    );
}

#[test]
fn a_later_attempt_that_was_stopped_goes_on_once_nothing_is_left_of_the_earlier_one() {
    let mut bench = sent_elsewhere_meanwhile();
    bench.tells("b", stopped(3));
    bench.apply(DispatchEvent::WorkloadChanged(WorkloadFacts {
        evicted: true,
        ..committed("w", "a", 2)
    }));
    assert_eq!(bench.take(), ["Absent w/2 on a"]);
    bench.observe("a", "w", 2, State::Gone);
    assert_eq!(bench.take(), ["forget w/2 on a", "release w"]);
    bench.written(WriteOutcome::Done, WorkloadFacts { attempt: 2, evicted: true, ..facts("w") });
    bench.reserve(WorkloadFacts { attempt: 2, ..facts("w") });
    assert_eq!(bench.take(), ["commit w/3 on b, known as w"]);
    bench.written(WriteOutcome::Done, committed("w", "b", 3));
    assert_eq!(bench.take(), ["Run w/3 on b"]);
}

#[test]
fn a_later_attempt_that_was_stopped_waits_for_what_is_left_of_others() {
    let mut bench = Bench::forgetful(&["a", "b"]);
    bench.tells("a", vec![]);
    bench.tells("b", stopped(3));
    bench.observe("a", "w", 1, State::Running);
    bench.take();
    bench.reserve(WorkloadFacts { attempt: 2, ..facts("w") });
    assert_eq!(bench.take(), ["Absent w/1 on a"]);
    bench.observe("a", "w", 1, State::Gone);
    assert_eq!(bench.take(), ["forget w/1 on a", "commit w/3 on b, known as w"]);
}

/// Its cluster has stopped it and may let it go on, or has evicted it.
fn has_job_and(state: State) -> Vec<Copy> {
    vec![Copy::of("w", "train").attempt(3).state(state)]
}

#[test]
fn a_later_attempt_that_waits_on_its_cluster_goes_on_there_unless_an_earlier_one_runs() {
    let mut bench = Bench::forgetful(&["a", "b"]);
    bench.tells("a", vec![]);
    bench.tells("b", has_job_and(State::Waiting));
    bench.reserve(WorkloadFacts { attempt: 1, ..facts("w") });
    assert_eq!(bench.take(), ["orphan w/3 on b", "commit w/3 on b, known as w"]);

    let mut bench = sent_elsewhere_meanwhile();
    bench.tells("b", has_job_and(State::Waiting));
    assert_eq!(bench.take(), ["Absent w/3 on b"], "it would run as soon as there is room");
}

#[test]
fn a_later_attempt_that_was_evicted_on_its_cluster_is_gone_before_another_begins() {
    let mut bench = Bench::forgetful(&["a", "b"]);
    bench.tells("a", vec![]);
    bench.tells("b", has_job_and(State::Evicted));
    bench.reserve(WorkloadFacts { attempt: 1, ..facts("w") });
    assert_eq!(bench.take(), ["orphan w/3 on b", "commit w/3 on b, known as w"]);
    bench.written(WriteOutcome::Done, committed("w", "b", 3));
    let said = bench.take().join("\n");
    assert!(said.contains("retry w") && said.contains("evicted on worker cluster"), "{said}");
}

#[test]
fn the_end_of_a_later_attempt_is_kept_by_its_cluster_and_holds_nothing_up_while_an_earlier_one_runs()
 {
    let mut bench = sent_elsewhere_meanwhile();
    bench.tells("b", vec![Copy::of("w", "train").attempt(3).state(State::Succeeded)]);
    let said = bench.take();
    assert!(!said.is_empty() && said.iter().all(|line| line == "ack w/3 to b"), "{said:?}");
}

#[test]
fn a_cluster_that_has_not_spoken_may_run_the_attempt_that_the_api_knows() {
    let later = |told: bool| {
        let mut bench = Bench::forgetful(&["a", "b"]);
        bench.later(2 * 3_600_000);
        if told {
            bench.tells("a", vec![]);
        }
        bench.dispatcher.learn(committed("w", "a", 2));
        bench.take();
        bench.tells("b", stopped(3));
        bench.take()
    };
    assert_eq!(
        later(false),
        ["Run w/2 on a"],
        "nobody waits for it any more, but it stays where it is"
    );
    assert_eq!(later(true), ["commit w/3 on b, known as w"]);
}

#[test]
fn a_job_that_shows_its_end_is_sent_nowhere() {
    let over = |facts: WorkloadFacts| WorkloadFacts { job_ended: Some(true), ..facts };
    let mut bench = Bench::forgetful(&["a", "b"]);
    bench.apply(DispatchEvent::WorkloadChanged(over(committed("w", "a", 1))));
    bench.reserve(over(again()));
    bench.tells("a", vec![]);
    bench.tells("b", vec![]);
    bench.later(10_000);
    assert!(bench.take().is_empty(), "its cluster would make it anew");
    bench.apply(DispatchEvent::WorkloadChanged(committed("w", "a", 1)));
    assert!(bench.take().is_empty(), "who makes these facts has not looked");
    bench.apply(DispatchEvent::WorkloadChanged(WorkloadFacts {
        finished: true,
        ..over(committed("w", "a", 1))
    }));
    assert_eq!(bench.take(), ["Absent w/1 on a"]);

    let mut bench = Bench::forgetful(&["a"]);
    bench.apply(DispatchEvent::WorkloadChanged(over(committed("w", "a", 1))));
    bench.tells("a", vec![Copy::of("w", "train").attempt(1).state(State::Failed)]);
    assert_eq!(bench.take(), ["finish w/1 from a: false"], "its cluster still has it");

    let mut bench = Bench::forgetful(&["a"]);
    bench.tells("a", vec![]);
    bench.apply(DispatchEvent::WorkloadChanged(WorkloadFacts {
        deleting: true,
        ..over(committed("w", "a", 1))
    }));
    assert_eq!(bench.take(), ["Absent w/1 on a"], "its owner has deleted it");
}

#[test]
fn a_job_that_waited_for_a_copy_without_a_job_is_sent_once_that_is_gone() {
    let mut bench = Bench::forgetful(&["a"]);
    bench.tells(
        "a",
        vec![Copy::of("old", "train").state(State::Waiting).with(|it| it.has_job = false)],
    );
    bench.applied();
    assert_eq!(bench.take(), ["orphan old/3 on a", "Absent old/3 on a"]);
    bench.later(1_000);
    bench.written(WriteOutcome::Done, WorkloadFacts { reserved: true, ..again() });
    bench.later(60_000);
    bench.take();
    bench.observe("a", "old", 3, State::Gone);
    assert_eq!(bench.take()[..2], ["forget old/3 on a", "Reserve new/1 on a"]);
    assert_eq!(
        bench.dispatcher.waiting.len(),
        1,
        "it is found by its job while it looks for a cluster"
    );
    bench.observe("a", "new", 1, State::Reserved);
    bench.written(WriteOutcome::Done, committed("new", "a", 1));
    assert!(bench.dispatcher.waiting.is_empty());
}

#[test]
fn a_copy_that_is_over_and_says_nothing_of_its_job_is_removed_as_unknown() {
    let left = |origin: bool| {
        let mut bench = Bench::forgetful(&["a"]);
        let copy = Copy::of("old", "train").state(State::Evicted);
        bench.tells("a", vec![if origin { copy } else { copy.unknown() }]);
        bench.take();
        bench.later(2 * 900_000);
        bench.take()
    };
    assert_eq!(left(false), ["Absent old/3 on a"], "nobody could adopt it, and its name is taken");
    assert!(left(true).is_empty());
}

/// Of an agent that is older than the hub, `Evicted` may be a preemption.
#[test]
fn a_copy_of_which_nobody_knows_the_job_has_its_time_from_when_it_was_evicted() {
    let mut bench = Bench::forgetful(&["a"]);
    bench.tells("a", vec![Copy::of("old", "train").unknown()]);
    bench.later(2 * 900_000);
    assert_eq!(bench.take(), ["orphan old/3 on a"]);
    bench.observe("a", "old", 3, State::Evicted);
    bench.later(900_000 - 1);
    assert!(bench.take().is_empty(), "its worker may let it go on");
    bench.observe("a", "old", 3, State::Running);
    bench.later(900_000);
    assert!(bench.take().is_empty(), "it goes on");
    bench.observe("a", "old", 3, State::Evicted);
    bench.later(900_000);
    assert_eq!(bench.take(), ["Absent old/3 on a"]);
}

#[test]
fn an_attempt_that_the_api_knows_does_not_go_on_while_there_may_be_a_later_one() {
    let mut bench = Bench::forgetful(&["a", "b"]);
    bench.apply(DispatchEvent::WorkloadChanged(committed("w", "a", 2)));
    bench.tells("a", stopped(2));
    assert_eq!(bench.take(), ["mirror w/2 from a"], "b may have a later one");
    bench.tells("b", vec![]);
    assert_eq!(bench.take(), ["Run w/2 on a"]);

    let mut bench = Bench::forgetful(&["a", "b", "c"]);
    bench.apply(DispatchEvent::WorkloadChanged(committed("w", "a", 2)));
    bench.tells("a", vec![]);
    bench.tells("b", stopped(3));
    assert!(bench.take().is_empty(), "c may have a later one");
    bench.tells("c", vec![Copy::of("w", "train").attempt(4)]);
    assert_eq!(bench.take(), ["Absent w/3 on b", "commit w/4 on c, known as w"]);
}

#[test]
fn quota_of_an_eviction_from_a_backup_goes_back_when_every_cluster_has_told() {
    let mut bench = Bench::forgetful(&["a", "b"]);
    bench.apply(DispatchEvent::WorkloadChanged(WorkloadFacts {
        evicted: true,
        ..committed("w", "a", 2)
    }));
    bench.tells("a", vec![]);
    bench.observe("a", "w", 2, State::Gone);
    assert_eq!(bench.take(), ["Absent w/2 on a", "forget w/2 on a"], "b may run a later one");
    bench.tells("b", vec![]);
    assert_eq!(bench.take(), ["release w"]);
}

#[test]
fn a_later_attempt_that_waits_is_removed_for_one_that_runs_whoever_else_is_silent() {
    for state in [State::Waiting, State::Reserved, State::Evicted] {
        let mut bench = Bench::forgetful(&["a", "b", "c"]);
        bench.apply(DispatchEvent::WorkloadChanged(committed("w", "a", 2)));
        bench.tells("a", vec![Copy::of("w", "train").attempt(2)]);
        assert_eq!(bench.take().last().map(String::as_str), Some("Run w/2 on a"));
        bench.tells("b", has_job_and(state));
        assert_eq!(
            bench.take(),
            ["Absent w/3 on b"],
            "{state:?}: it would run beside the other as soon as there is room"
        );
    }
    let mut bench = Bench::forgetful(&["a", "b", "c"]);
    bench.apply(DispatchEvent::WorkloadChanged(committed("w", "a", 2)));
    bench.tells("b", has_job_and(State::Waiting));
    assert!(bench.take().is_empty(), "nobody says that the other is there");
    bench.tells("a", vec![Copy::of("w", "train").attempt(2).state(State::Suspended)]);
    assert!(!bench.take().iter().any(|line| line.starts_with("Absent")), "the other does not run");
}

#[test]
fn a_later_attempt_that_waits_is_removed_for_one_that_waits_for_room_to_go_on() {
    let mut bench = Bench::forgetful(&["a", "b", "c"]);
    bench.apply(DispatchEvent::WorkloadChanged(committed("w", "a", 2)));
    bench.tells("a", vec![Copy::of("w", "train").attempt(2)]);
    assert_eq!(bench.take().last().map(String::as_str), Some("Run w/2 on a"));
    bench.observe("a", "w", 2, State::Waiting);
    bench.take();
    bench.tells("b", has_job_and(State::Waiting));
    assert_eq!(bench.take(), ["Absent w/3 on b"], "both would begin as soon as there is room");
}

#[test]
fn the_end_of_a_later_attempt_that_is_being_removed_keeps_nothing_waiting() {
    let mut bench = Bench::forgetful(&["b", "c"]);
    bench.apply(DispatchEvent::WorkloadChanged(committed("w", "b", 3)));
    bench.tells("b", vec![Copy::of("w", "train")]);
    assert_eq!(bench.take().last().map(String::as_str), Some("Run w/3 on b"));
    bench.tells("c", vec![Copy::of("w", "train").attempt(4).state(State::Waiting)]);
    assert_eq!(bench.take(), ["Absent w/4 on c"]);
    bench.observe("c", "w", 4, State::Succeeded);
    assert_eq!(bench.take(), ["ack w/4 to c"], "it ended before it was told");
    bench.observe("c", "w", 4, State::Gone);
    assert_eq!(bench.take(), ["forget w/4 on c"]);
}

#[test]
fn a_later_attempt_whose_pods_outlive_its_workload_does_not_count_as_one_that_runs() {
    let mut bench = Bench::forgetful(&["a", "b"]);
    bench.apply(DispatchEvent::WorkloadChanged(committed("w", "a", 2)));
    bench.tells("a", vec![Copy::of("w", "train").attempt(2)]);
    bench.tells("b", vec![]);
    bench.take();
    bench.tells("b", vec![Copy::of("w", "train").going()]);
    assert_eq!(bench.take(), ["Absent w/3 on b"], "it is about to be gone");
}

/// Attempt 3, stopped, is left alone on `b` while attempt 2 runs on `a`, whose jobs go elsewhere after a minute.
fn left_alone(clusters: &[&str]) -> Bench {
    let mut bench = Bench::forgetful(clusters);
    bench.rules("a", DisconnectPolicy::Duplicate { after: 60_000 });
    bench.tells("a", vec![]);
    for cluster in clusters.iter().filter(|name| **name > "b") {
        bench.tells(cluster, vec![]);
    }
    bench.rules("b", DisconnectPolicy::Fence { after: 10_000 });
    bench.later(600_000);
    bench.runs("w", "a", 2);
    bench.tells("b", stopped(3));
    assert_eq!(bench.take(), ["Run w/2 on a"]);
    bench
}

#[test]
fn an_attempt_whose_cluster_is_lost_is_given_up_before_a_later_one_goes_on() {
    let mut bench = left_alone(&["a", "b"]);
    bench.down("a");
    bench.later(60_000);
    assert_eq!(bench.take(), ["retry w: Admitting remote lost, Previously: \"Ready\""]);
    let retrying =
        WorkloadFacts { check: Some(("mk".into(), CheckStatus::Retry)), ..committed("w", "a", 2) };
    bench.written(WriteOutcome::Done, retrying.clone());
    assert_eq!(bench.take(), ["Absent w/2 on a"]);
    bench.apply(DispatchEvent::WorkloadChanged(WorkloadFacts { evicted: true, ..retrying }));
    assert_eq!(bench.take(), ["release w"]);
    bench.written(WriteOutcome::Done, WorkloadFacts { attempt: 2, evicted: true, ..facts("w") });
    bench.reserve(WorkloadFacts { attempt: 2, ..facts("w") });
    assert_eq!(bench.take(), ["commit w/3 on b, known as w"]);
}

#[test]
fn a_later_attempt_does_not_go_on_past_the_circuit_breaker() {
    let mut bench = left_alone(&["a", "b", "c"]);
    bench.down("a");
    bench.down("c");
    bench.later(60_000);
    assert_eq!(bench.take(), ["breaker Some(\"2 of 3 clusters were lost at about one time\")"]);
    bench.later(600_000);
    assert!(bench.take().is_empty(), "people look first");
}

/// Attempt 3, which runs on `b`, is being committed over attempt 2, which runs on `a`.
fn being_committed() -> Bench {
    let mut bench = Bench::forgetful(&["a", "b"]);
    bench.apply(DispatchEvent::WorkloadChanged(committed("w", "a", 2)));
    bench.tells("a", vec![Copy::of("w", "train").attempt(2)]);
    bench.tells("b", vec![Copy::of("w", "train").attempt(3)]);
    assert_eq!(bench.take().last().map(String::as_str), Some("commit w/3 on b, known as w"));
    bench
}

#[test]
fn what_a_fence_has_stopped_while_it_was_committed_goes_on_once_nothing_is_left_of_the_other() {
    let mut bench = being_committed();
    bench.observe("b", "w", 3, State::Suspended);
    bench.written(WriteOutcome::Done, committed("w", "b", 3));
    assert_eq!(bench.take(), ["Absent w/2 on a"], "they would run side by side");
    bench.observe("a", "w", 2, State::Gone);
    assert_eq!(bench.take(), ["forget w/2 on a", "Run w/3 on b"]);
}

#[test]
fn what_its_fence_may_have_stopped_while_its_cluster_is_away_waits_for_what_is_left_of_the_other() {
    let mut bench = being_committed();
    bench.down("b");
    bench.written(WriteOutcome::Done, committed("w", "b", 3));
    assert_eq!(
        bench.take(),
        ["mirror w/3 from b", "Absent w/2 on a"],
        "nobody knows whether it still runs"
    );
    bench.apply(DispatchEvent::SessionOpened { name: "b".into() });
    assert!(!bench.take().iter().any(|line| line.starts_with("Run")), "it has not told yet");
    bench.tells("b", stopped(3));
    assert!(!bench.take().iter().any(|line| line.starts_with("Run")), "its fence has stopped it");
    bench.observe("a", "w", 2, State::Gone);
    assert_eq!(bench.take(), ["forget w/2 on a", "Run w/3 on b"]);
}

#[test]
fn the_end_of_a_later_attempt_holds_nothing_up_while_another_cluster_is_silent() {
    let mut bench = Bench::forgetful(&["a", "b", "c"]);
    bench.apply(DispatchEvent::WorkloadChanged(committed("w", "a", 2)));
    bench.tells("b", vec![Copy::of("w", "train").attempt(3).state(State::Succeeded)]);
    let said = bench.take();
    assert!(!said.is_empty() && said.iter().all(|line| line == "ack w/3 to b"), "{said:?}");
    bench.tells("a", vec![]);
    bench.tells("c", vec![]);
    assert_eq!(
        bench.take().last().map(String::as_str),
        Some("commit w/3 on b, known as w"),
        "it counts all the same"
    );
    bench.written(WriteOutcome::Done, committed("w", "b", 3));
    assert_eq!(bench.take().last().map(String::as_str), Some("finish w/3 from b: true"));
}

/// The cluster was told to remove a later attempt before the store was lost, and says of that that it is gone.
#[test]
fn quota_goes_back_when_a_later_attempt_than_was_asked_for_is_gone() {
    let mut bench = Bench::forgetful(&["a"]);
    bench.apply(DispatchEvent::WorkloadChanged(WorkloadFacts {
        evicted: true,
        ..committed("w", "a", 4)
    }));
    bench.tells("a", vec![]);
    assert_eq!(bench.take(), ["Absent w/4 on a"]);
    bench.observe("a", "w", 5, State::Gone);
    assert_eq!(bench.take(), ["forget w/5 on a", "release w"]);
}

/// It is known what a cluster has of a workload before it is known whether another has a later one.
#[test]
fn later_attempt_on_same_cluster_stays_until_all_report() {
    let mut bench = Bench::forgetful(&["a", "b"]);
    bench.apply(DispatchEvent::WorkloadChanged(committed("w", "a", 1)));
    bench.apply(DispatchEvent::SessionOpened { name: "a".into() });
    bench.observe("a", "w", 3, State::Running);
    assert!(bench.take().is_empty(), "nothing is retried");
    bench.tells("a", vec![Copy::of("w", "train")]);
    assert_eq!(bench.take(), ["commit w/3 on a, known as w"]);
}

#[test]
fn of_two_copies_of_one_attempt_the_one_that_has_run_is_adopted() {
    for (runs, offered) in [("a", "b"), ("b", "a")] {
        let mut bench = Bench::forgetful(&["a", "b"]);
        let offer = Copy::of("old", "train").state(State::Evicted).with(|it| it.has_job = false);
        bench.tells(offered, vec![offer]);
        bench.tells(runs, vec![Copy::of("old", "train").state(State::Succeeded)]);
        bench.applied();
        assert_eq!(bench.take().last(), Some(&format!("commit new/3 on {runs}, known as old")));
    }
}

/// The API's watch is faster than the answer to the write.
#[test]
fn adopted_copy_that_ended_is_finished_and_not_run() {
    let mut bench = Bench::forgetful(&["a"]);
    bench.tells("a", vec![Copy::of("old", "train").state(State::Succeeded)]);
    bench.applied();
    bench.take();
    let adopted =
        WorkloadFacts { cluster_uid: Some("old".into()), version: 7, ..committed("new", "a", 3) };
    bench.apply(DispatchEvent::WorkloadChanged(adopted.clone()));
    assert!(!bench.take().iter().any(|action| action.starts_with("Run")));
    bench.written(WriteOutcome::Done, adopted);
    assert_eq!(bench.take(), ["finish new/3 from a: true"]);
}

/// The hub hears of the copy first, and then, from a slow watch, that its workload has finished.
#[test]
fn ended_workloads_copy_is_removed_in_either_order() {
    let mut bench = Bench::forgetful(&["a"]);
    bench.tells("a", vec![Copy::of("w", "train").state(State::Succeeded)]);
    bench.take();
    bench.apply(DispatchEvent::WorkloadChanged(WorkloadFacts {
        finished: true,
        ..committed("w", "a", 3)
    }));
    assert!(bench.take().contains(&"Absent w/3 on a".to_owned()));
}

/// A restored store names an attempt that was removed long ago. Its cluster says so before the other cluster has spoken.
#[test]
fn attempt_that_is_gone_on_its_cluster_is_not_run_there_again() {
    let mut bench = Bench::forgetful(&["a", "b"]);
    bench.apply(DispatchEvent::WorkloadChanged(committed("w", "a", 1)));
    bench.tells("a", vec![Copy::of("w", "train").attempt(1).state(State::Gone)]);
    assert!(bench.take().is_empty(), "b may have a later one");
    bench.tells("b", vec![]);
    let decided = bench.take();
    assert!(decided.len() == 1 && decided[0].starts_with("retry w"), "{decided:?}");
}

/// The end of a later attempt is known, and the cluster of the one that the API names is given up but for the circuit breaker. LastObservation to
/// run it, that cluster would begin anew, once it is back, what has ended elsewhere.
#[test]
fn silent_cluster_is_not_told_to_run_what_has_ended() {
    let mut bench = Bench::forgetful(&["a", "b"]);
    for cluster in ["a", "b"] {
        bench.rules(cluster, DisconnectPolicy::Duplicate { after: 1_000 });
    }
    bench.apply(DispatchEvent::WorkloadChanged(committed("w", "a", 1)));
    bench.later(600_000);
    bench.take();
    bench.tells("b", vec![Copy::of("w", "train").attempt(2).state(State::Succeeded)]);
    let said = bench.take();
    assert!(!said.iter().any(|line| line.starts_with("Run")), "{said:?}");
}
