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
fn dropped_attempt_that_is_gone_is_retried() {
    for is_reported in [true, false] {
        let mut bench = Bench::new(DispatchMode::BestFit, &[("b", 4000, 4000)]);
        bench.rules("a", LossPolicy::Hold);
        bench.apply(DispatchEvent::WorkloadChanged(dropped()));
        bench.apply(DispatchEvent::SessionOpened { name: "a".into() });
        if is_reported {
            bench.observe("a", "w", 3, State::Gone);
        }
        let uids = [].into_iter().collect();
        bench.apply(DispatchEvent::InventoryComplete { cluster: "a".into(), uids });
        let said = bench.take().join("\n");
        assert!(said.contains("retry w") && said.contains("no longer exists"), "{said}");
    }
}

#[test]
fn dropped_attempt_of_a_renamed_cluster_is_left_alone() {
    let mut bench = Bench::new(DispatchMode::BestFit, &[("b", 4000, 4000)]);
    bench.apply(DispatchEvent::WorkloadChanged(dropped()));
    bench.observe("b", "w", 1, State::Running);
    let said = bench.take();
    assert!(said.iter().all(|line| !line.starts_with("Absent")), "{said:?}");
}
