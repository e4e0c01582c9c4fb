//! A store restored from a backup: forgotten attempts and ends.

use super::copies::{Copy, again};
use super::*;

fn stopped(attempt: u64) -> Vec<Copy> {
    vec![Copy::of("w", "train").attempt(attempt).state(State::Suspended)]
}

/// Attempt 2 runs on `a`. The cluster of a later attempt was disconnected until then.
fn sent_elsewhere_meanwhile() -> Bench {
    let mut bench = Bench::forgetful(&["a", "b"]);
    bench.tells("a", vec![]);
    bench.rules("b", LossPolicy::Fence { after: 10_000 });
    bench.later(600_000);
    bench.runs("w", "a", 2);
    assert_eq!(bench.take(), ["Run w/2 on a"]);
    bench
}

#[test]
fn stopped_later_attempt_is_spared_while_earlier_runs() {
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
fn stopped_later_attempt_resumes_when_earlier_is_gone() {
    let mut bench = sent_elsewhere_meanwhile();
    bench.tells("b", stopped(3));
    bench
        .apply(DispatchEvent::WorkloadChanged(committed("w", "a", 2).with(|it| it.evicted = true)));
    assert_eq!(bench.take(), ["Absent w/2 on a"]);
    bench.observe("a", "w", 2, State::Gone);
    assert_eq!(bench.take(), ["forget w/2 on a", "release w"]);
    bench.written(
        WriteOutcome::Done,
        facts("w").with(|it| {
            it.attempt = 2;
            it.evicted = true;
        }),
    );
    bench.reserve(facts("w").with(|it| it.attempt = 2));
    assert_eq!(bench.take(), ["commit w/3 on b, known as w"]);
    bench.written(WriteOutcome::Done, committed("w", "b", 3));
    assert_eq!(bench.take(), ["Run w/3 on b"]);
}

#[test]
fn stopped_later_attempt_waits_for_remains_of_others() {
    let mut bench = Bench::forgetful(&["a", "b"]);
    bench.tells("a", vec![]);
    bench.tells("b", stopped(3));
    bench.observe("a", "w", 1, State::Running);
    bench.take();
    bench.reserve(facts("w").with(|it| it.attempt = 2));
    assert_eq!(bench.take(), ["Absent w/1 on a"]);
    bench.observe("a", "w", 1, State::Gone);
    assert_eq!(bench.take(), ["forget w/1 on a", "commit w/3 on b, known as w"]);
}

/// Its cluster stopped it and may resume it, or evicted it.
fn has_job_and(state: State) -> Vec<Copy> {
    vec![Copy::of("w", "train").attempt(3).state(state)]
}

#[test]
fn waiting_later_attempt_resumes_unless_earlier_runs() {
    let mut bench = Bench::forgetful(&["a", "b"]);
    bench.tells("a", vec![]);
    bench.tells("b", has_job_and(State::Waiting));
    bench.reserve(facts("w").with(|it| it.attempt = 1));
    assert_eq!(bench.take(), ["orphan w/3 on b", "commit w/3 on b, known as w"]);

    let mut bench = sent_elsewhere_meanwhile();
    bench.tells("b", has_job_and(State::Waiting));
    assert_eq!(bench.take(), ["Absent w/3 on b"], "it would run as soon as there is room");
}

#[test]
fn evicted_later_attempt_is_gone_before_next_begins() {
    let mut bench = Bench::forgetful(&["a", "b"]);
    bench.tells("a", vec![]);
    bench.tells("b", has_job_and(State::Evicted));
    bench.reserve(facts("w").with(|it| it.attempt = 1));
    assert_eq!(bench.take(), ["orphan w/3 on b", "commit w/3 on b, known as w"]);
    bench.written(WriteOutcome::Done, committed("w", "b", 3));
    let said = bench.take().join("\n");
    assert!(said.contains("retry w") && said.contains("evicted on worker cluster"), "{said}");
}

#[test]
fn later_end_blocks_nothing_while_earlier_runs() {
    let mut bench = sent_elsewhere_meanwhile();
    bench.tells("b", vec![Copy::of("w", "train").attempt(3).state(State::Succeeded)]);
    let said = bench.take();
    assert!(!said.is_empty() && said.iter().all(|line| line == "ack w/3 to b"), "{said:?}");
}

#[test]
fn end_of_earlier_attempt_removes_no_copy_under_commit() {
    let committing = || {
        let mut bench = sent_elsewhere_meanwhile();
        bench.tells("b", vec![Copy::of("w", "train").attempt(3)]);
        assert_eq!(bench.take(), ["commit w/3 on b, known as w"]);
        bench.observe("a", "w", 2, State::Succeeded);
        assert!(bench.take().is_empty(), "the write decides");
        bench
    };
    let mut bench = committing();
    bench.written(WriteOutcome::Done, committed("w", "b", 3));
    let said = bench.take();
    assert!(!said.iter().any(|line| line.starts_with("Absent w/3")), "{said:?}");
    assert!(said.contains(&"ack w/2 to a".to_owned()), "{said:?}");
    let mut bench = committing();
    bench.written(WriteOutcome::Superseded, committed("w", "a", 2));
    assert_eq!(bench.take(), ["Absent w/3 on b"]);
    bench.later(60_000);
    let said = bench.take();
    assert!(said.contains(&"finish w/2 from a: true".to_owned()), "{said:?}");
}

#[test]
fn silent_cluster_may_run_committed_attempt() {
    let later = |told: bool| {
        let mut bench = Bench::forgetful(&["a", "b"]);
        bench.later(2 * 3_600_000);
        if told {
            bench.tells("a", vec![]);
        }
        bench.dispatcher.track(committed("w", "a", 2));
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
fn ended_job_is_sent_nowhere() {
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
    bench.apply(DispatchEvent::WorkloadChanged(
        over(committed("w", "a", 1)).with(|it| it.finished = true),
    ));
    assert_eq!(bench.take(), ["Absent w/1 on a"]);

    let mut bench = Bench::forgetful(&["a", "b"]);
    bench.apply(DispatchEvent::WorkloadChanged(committed("w", "a", 1)));
    bench.take();
    bench.apply(DispatchEvent::WorkloadChanged(over(committed("w", "a", 1))));
    bench.tells("b", vec![Copy::of("w", "train").attempt(2)]);
    assert!(bench.take().is_empty(), "its end counts, although a later attempt runs");
    bench.apply(DispatchEvent::WorkloadChanged(
        over(committed("w", "a", 1)).with(|it| it.finished = true),
    ));
    assert!(bench.take().contains(&"Absent w/2 on b".to_owned()));

    let mut bench = Bench::forgetful(&["a"]);
    bench.apply(DispatchEvent::WorkloadChanged(over(committed("w", "a", 1))));
    bench.tells("a", vec![Copy::of("w", "train").attempt(1).state(State::Failed)]);
    assert_eq!(bench.take(), ["finish w/1 from a: false"], "its cluster still has it");

    let mut bench = Bench::forgetful(&["a"]);
    bench.tells("a", vec![]);
    bench.apply(DispatchEvent::WorkloadChanged(
        over(committed("w", "a", 1)).with(|it| it.deleting = true),
    ));
    assert_eq!(bench.take(), ["Absent w/1 on a"], "its owner has deleted it");
}

#[test]
fn job_is_sent_after_jobless_copy_is_gone() {
    let mut bench = Bench::forgetful(&["a"]);
    bench.tells(
        "a",
        vec![Copy::of("old", "train").state(State::Waiting).with(|it| it.has_job = false)],
    );
    bench.applied();
    assert_eq!(bench.take(), ["orphan old/3 on a", "Absent old/3 on a"]);
    bench.later(1_000);
    bench.written(WriteOutcome::Done, again().with(|it| it.reserved = true));
    bench.later(60_000);
    bench.take();
    bench.observe("a", "old", 3, State::Gone);
    assert_eq!(bench.take()[..2], ["forget old/3 on a", "Reserve new/1 on a"]);
    assert_eq!(
        bench.dispatcher.waiting_by_job.len(),
        1,
        "it is found by its job while it looks for a cluster"
    );
    bench.observe("a", "new", 1, State::Reserved);
    bench.written(WriteOutcome::Done, committed("new", "a", 1));
    assert!(bench.dispatcher.waiting_by_job.is_empty());
}

#[test]
fn evicted_copy_of_unknown_job_is_removed() {
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

/// An agent older than the hub may report a preemption as `Evicted`.
#[test]
fn copy_of_unknown_job_has_grace_from_its_eviction() {
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
fn committed_attempt_waits_while_later_one_is_possible() {
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
fn eviction_from_backup_releases_quota_after_inventories() {
    let mut bench = Bench::forgetful(&["a", "b"]);
    bench
        .apply(DispatchEvent::WorkloadChanged(committed("w", "a", 2).with(|it| it.evicted = true)));
    bench.tells("a", vec![]);
    bench.observe("a", "w", 2, State::Gone);
    assert_eq!(bench.take(), ["Absent w/2 on a", "forget w/2 on a"], "b may run a later one");
    bench.tells("b", vec![]);
    assert_eq!(bench.take(), ["release w"]);
}

#[test]
fn waiting_later_attempt_is_removed_while_earlier_runs() {
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
fn waiting_later_attempt_is_removed_for_suspended_one() {
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
fn end_of_removed_later_attempt_blocks_nothing() {
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
fn later_attempt_with_leftover_pods_does_not_count_as_running() {
    let mut bench = Bench::forgetful(&["a", "b"]);
    bench.apply(DispatchEvent::WorkloadChanged(committed("w", "a", 2)));
    bench.tells("a", vec![Copy::of("w", "train").attempt(2)]);
    bench.tells("b", vec![]);
    bench.take();
    bench.tells("b", vec![Copy::of("w", "train").going()]);
    assert_eq!(bench.take(), ["Absent w/3 on b"], "it is about to be gone");
}

/// Attempt 3, stopped, is spared on `b` while attempt 2 runs on `a`. The policy of `a` gives up
/// after a minute.
fn left_alone(clusters: &[&str]) -> Bench {
    let mut bench = Bench::forgetful(clusters);
    bench.rules("a", LossPolicy::Duplicate { after: 60_000 });
    bench.tells("a", vec![]);
    for cluster in clusters.iter().filter(|name| **name > "b") {
        bench.tells(cluster, vec![]);
    }
    bench.rules("b", LossPolicy::Fence { after: 10_000 });
    bench.later(600_000);
    bench.runs("w", "a", 2);
    bench.tells("b", stopped(3));
    assert_eq!(bench.take(), ["Run w/2 on a"]);
    bench
}

#[test]
fn lost_attempt_is_given_up_before_later_one_resumes() {
    let mut bench = left_alone(&["a", "b"]);
    bench.down("a");
    bench.later(60_000);
    assert_eq!(bench.take(), ["retry w: Admitting remote lost, Previously: \"Ready\""]);
    let retrying =
        committed("w", "a", 2).with(|it| it.check = Some(("mk".into(), CheckStatus::Retry)));
    bench.written(WriteOutcome::Done, retrying.clone());
    assert_eq!(bench.take(), ["Absent w/2 on a"]);
    bench.apply(DispatchEvent::WorkloadChanged(retrying.with(|it| it.evicted = true)));
    assert_eq!(bench.take(), ["release w"]);
    bench.written(
        WriteOutcome::Done,
        facts("w").with(|it| {
            it.attempt = 2;
            it.evicted = true;
        }),
    );
    bench.reserve(facts("w").with(|it| it.attempt = 2));
    assert_eq!(bench.take(), ["commit w/3 on b, known as w"]);
}

#[test]
fn later_attempt_waits_for_open_breaker() {
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
fn fenced_during_commit_resumes_when_other_is_gone() {
    let mut bench = being_committed();
    bench.observe("b", "w", 3, State::Suspended);
    bench.written(WriteOutcome::Done, committed("w", "b", 3));
    assert_eq!(bench.take(), ["Absent w/2 on a"], "they would run side by side");
    bench.observe("a", "w", 2, State::Gone);
    assert_eq!(bench.take(), ["forget w/2 on a", "Run w/3 on b"]);
}

#[test]
fn possibly_fenced_attempt_waits_for_remains_of_other() {
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
fn later_end_blocks_nothing_while_another_is_silent() {
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

/// A tombstone from before the store loss: the cluster reports that the later attempt is gone.
#[test]
fn gone_later_attempt_releases_quota() {
    let mut bench = Bench::forgetful(&["a"]);
    bench
        .apply(DispatchEvent::WorkloadChanged(committed("w", "a", 4).with(|it| it.evicted = true)));
    bench.tells("a", vec![]);
    assert_eq!(bench.take(), ["Absent w/4 on a"]);
    bench.observe("a", "w", 5, State::Gone);
    assert_eq!(bench.take(), ["forget w/5 on a", "release w"]);
}

/// The cluster reports the workload before it is known whether another has a later attempt.
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
fn copy_that_ran_wins_over_evicted_copy() {
    for (runs, offered) in [("a", "b"), ("b", "a")] {
        let mut bench = Bench::forgetful(&["a", "b"]);
        let offer = Copy::of("old", "train").state(State::Evicted).with(|it| it.has_job = false);
        bench.tells(offered, vec![offer]);
        bench.tells(runs, vec![Copy::of("old", "train").state(State::Succeeded)]);
        bench.applied();
        assert_eq!(bench.take().last(), Some(&format!("commit new/3 on {runs}, known as old")));
    }
}

/// The watch event arrives before the answer to the write.
#[test]
fn adopted_copy_that_ended_is_finished_and_not_run() {
    let mut bench = Bench::forgetful(&["a"]);
    bench.tells("a", vec![Copy::of("old", "train").state(State::Succeeded)]);
    bench.applied();
    bench.take();
    let adopted = WorkloadFacts {
        version: 7,
        ..committed("new", "a", 3).with(|it| it.cluster_uid = Some("old".into()))
    };
    bench.apply(DispatchEvent::WorkloadChanged(adopted.clone()));
    assert!(!bench.take().iter().any(|action| action.starts_with("Run")));
    bench.written(WriteOutcome::Done, adopted);
    assert_eq!(bench.take(), ["finish new/3 from a: true"]);
}

/// The hub learns of the copy first. A slow watch then shows that the workload has finished.
#[test]
fn copy_of_ended_workload_is_removed_in_either_order() {
    let mut bench = Bench::forgetful(&["a"]);
    bench.tells("a", vec![Copy::of("w", "train").state(State::Succeeded)]);
    bench.take();
    bench.apply(DispatchEvent::WorkloadChanged(
        committed("w", "a", 3).with(|it| it.finished = true),
    ));
    assert!(bench.take().contains(&"Absent w/3 on a".to_owned()));
}

/// A restored store names an attempt that was removed long ago. Its cluster reports this before the
/// other cluster reports.
#[test]
fn gone_attempt_is_not_run_there_again() {
    let mut bench = Bench::forgetful(&["a", "b"]);
    bench.apply(DispatchEvent::WorkloadChanged(committed("w", "a", 1)));
    bench.tells("a", vec![Copy::of("w", "train").attempt(1).state(State::Gone)]);
    assert!(bench.take().is_empty(), "b may have a later one");
    bench.tells("b", vec![]);
    let decided = bench.take();
    assert!(decided.len() == 1 && decided[0].starts_with("retry w"), "{decided:?}");
}

/// The cluster of the committed attempt removed a later one. It never goes back to the earlier one.
#[test]
fn committed_attempt_is_gone_with_a_later_one() {
    for was_sent in [false, true] {
        let mut bench = Bench::forgetful(&["a"]);
        bench.apply(DispatchEvent::WorkloadChanged(committed("w", "a", 1)));
        if was_sent {
            bench.tells("a", vec![]);
            assert_eq!(bench.take(), ["Run w/1 on a"]);
        }
        bench.tells("a", vec![Copy::of("w", "train").attempt(2).state(State::Gone)]);
        let decided = bench.take();
        assert!(decided.len() == 1 && decided[0].starts_with("retry w"), "{decided:?}");
    }
}

/// The end of a later attempt is known, and only the breaker keeps the committed attempt. If its
/// cluster ran it after a reconnect, the job would start again after its end.
#[test]
fn silent_cluster_gets_no_run_for_ended_attempt() {
    let mut bench = Bench::forgetful(&["a", "b"]);
    for cluster in ["a", "b"] {
        bench.rules(cluster, LossPolicy::Duplicate { after: 1_000 });
    }
    bench.apply(DispatchEvent::WorkloadChanged(committed("w", "a", 1)));
    bench.later(600_000);
    bench.take();
    bench.tells("b", vec![Copy::of("w", "train").attempt(2).state(State::Succeeded)]);
    let said = bench.take();
    assert!(!said.iter().any(|line| line.starts_with("Run")), "{said:?}");
}
