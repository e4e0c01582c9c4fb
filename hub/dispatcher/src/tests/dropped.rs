//! Attempts that the API drops, as with stock Kueue's CRDs.

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
            bench.written(WriteOutcome::Done, dropped());
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
fn new_attempt_begins_if_cluster_has_no_copy() {
    let mut bench = Bench::new(DispatchMode::BestFit, &[("b", 4000, 4000)]);
    bench.rules("a", LossPolicy::Hold);
    bench.apply(DispatchEvent::WorkloadChanged(dropped()));
    bench.connect("a", &[]);
    assert_eq!(bench.take(), ["commit w/1 on a"]);
    bench.written(WriteOutcome::Done, committed("w", "a", 1));
    assert_eq!(bench.take(), ["Run w/1 on a"]);
}
