//! A store that was restored from a backup: what it has forgotten of attempts and ends.

use super::copies::{Copy, again};
use super::*;

#[test]
fn a_job_that_shows_its_end_is_sent_nowhere() {
    let over = |facts: Facts| Facts { job_ended: Some(true), ..facts };
    let mut bench = Bench::forgetful(&["a", "b"]);
    bench.apply(Event::Workload(over(committed("w", "a", 1))));
    bench.reserve(over(again()));
    bench.tells("a", vec![]);
    bench.tells("b", vec![]);
    bench.later(10_000);
    assert!(bench.take().is_empty(), "its cluster would make it anew");
    bench.apply(Event::Workload(committed("w", "a", 1)));
    assert!(bench.take().is_empty(), "who makes these facts has not looked");
    bench.apply(Event::Workload(Facts { finished: true, ..over(committed("w", "a", 1)) }));
    assert_eq!(bench.take(), ["Absent w/1 on a"]);

    let mut bench = Bench::forgetful(&["a"]);
    bench.apply(Event::Workload(over(committed("w", "a", 1))));
    bench.tells("a", vec![Copy::of("w", "train").attempt(1).state(State::Failed)]);
    assert_eq!(bench.take(), ["finish w/1 from a: false"], "its cluster still has it");

    let mut bench = Bench::forgetful(&["a"]);
    bench.tells("a", vec![]);
    bench.apply(Event::Workload(Facts { deleting: true, ..over(committed("w", "a", 1)) }));
    assert_eq!(bench.take(), ["Absent w/1 on a"], "its owner has deleted it");
}

#[test]
fn a_job_that_waited_for_a_copy_without_a_job_is_sent_once_that_is_gone() {
    let mut bench = Bench::forgetful(&["a"]);
    bench.tells("a", vec![Copy::of("old", "train").state(State::Waiting).with(|it| it.has_job = false)]);
    bench.applied();
    assert_eq!(bench.take(), ["orphan old/3 on a", "Absent old/3 on a"]);
    bench.later(1_000);
    bench.written(Outcome::Done, Facts { reserved: true, ..again() });
    bench.later(60_000);
    bench.take();
    bench.observe("a", "old", 3, State::Gone);
    assert_eq!(bench.take()[..2], ["forget old/3 on a", "Reserve new/1 on a"]);
}
