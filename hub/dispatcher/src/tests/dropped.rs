//! Attempts that the API drops, as with stock Kueue's CRDs.

use super::copies::HOUR;
use super::*;

/// The API keeps the cluster.
fn dropped() -> WorkloadFacts {
    committed("w", "a", 0)
}

#[test]
fn dropped_attempt_is_written_again_and_its_job_runs_on() {
    let mut bench = Bench::running();
    bench.apply(DispatchEvent::WorkloadChanged(dropped()));
    assert_eq!(bench.take(), ["commit w/1 on a, known as w"]);
    bench.written(WriteOutcome::Done, committed("w", "a", 1));
    assert_eq!(bench.take(), ["mirror w/1 from a"]);
}

#[test]
fn attempt_that_the_api_drops_again_is_written_at_a_pace() {
    let mut bench = Bench::running();
    bench.apply(DispatchEvent::WorkloadChanged(dropped()));
    let mut writes = 0;
    for _ in 0..600 {
        let said = bench.take();
        assert!(
            said.iter().all(|line| line.starts_with("commit w/1") || line.starts_with("mirror")),
            "the job is left alone: {said:?}"
        );
        if said.iter().any(|line| line.starts_with("commit")) {
            writes += 1;
            bench.written(WriteOutcome::Failed, dropped());
        }
        bench.later(100);
    }
    assert!((3..30).contains(&writes), "{writes} writes in a minute");
}

#[test]
fn new_hub_takes_dropped_attempt_from_its_cluster() {
    let mut bench = Bench::new(DispatchMode::BestFit, &[("b", 4000, 4000)]);
    bench.rules("a", LossPolicy::Hold);
    bench.apply(DispatchEvent::WorkloadChanged(dropped()));
    assert!(bench.take().is_empty(), "nothing is sent until the cluster has reported");
    bench.apply(DispatchEvent::SessionOpened { name: "a".into() });
    bench.observe("a", "w", 3, State::Running);
    assert_eq!(bench.take(), ["commit w/3 on a, known as w"]);
}

#[test]
fn end_of_dropped_attempt_is_written() {
    let mut bench = Bench::running();
    bench.apply(DispatchEvent::WorkloadChanged(dropped()));
    bench.observe("a", "w", 1, State::Succeeded);
    assert_eq!(bench.take(), ["commit w/1 on a, known as w"]);
    bench.written(WriteOutcome::Done, committed("w", "a", 1));
    assert_eq!(bench.take(), ["finish w/1 from a: true"]);
}

#[test]
fn sent_attempt_is_written_again_before_its_report() {
    let mut bench = Bench::new(DispatchMode::BestFit, &[("a", 2000, 4000)]);
    bench.apply(DispatchEvent::WorkloadChanged(committed("w", "a", 2)));
    assert_eq!(bench.take(), ["Run w/2 on a"]);
    bench.apply(DispatchEvent::WorkloadChanged(dropped()));
    assert_eq!(bench.take(), ["commit w/2 on a, known as w"]);
}

#[test]
fn dropped_attempt_without_report_stays_until_evicted() {
    let mut bench = Bench::new(DispatchMode::BestFit, &[("b", 4000, 4000)]);
    bench.rules("a", LossPolicy::Hold);
    bench.apply(DispatchEvent::WorkloadChanged(dropped()));
    bench.connect("a", &[]);
    bench.later(HOUR);
    assert!(bench.take().is_empty(), "its copy may lack the marks");

    bench.apply(DispatchEvent::WorkloadChanged(dropped().with(|it| it.evicted = true)));
    assert_eq!(bench.take(), ["Absent w/1 on a"]);
    bench.observe("a", "w", 1, State::Gone);
    assert_eq!(bench.take(), ["forget w/1 on a", "release w"]);
}

#[test]
fn dropped_attempt_is_not_removed_under_another_name() {
    let mut bench = Bench::new(DispatchMode::BestFit, &[("b", 4000, 4000)]);
    bench.apply(DispatchEvent::WorkloadChanged(dropped()));
    bench.observe("b", "w", 1, State::Running);
    let said = bench.take();
    assert!(said.iter().all(|line| !line.starts_with("Absent")), "{said:?}");
}
