//! Clusters that report workloads of other clusters.

use super::*;

/// Whether an action concerns the workload itself or its cluster.
fn touches(line: &str) -> bool {
    [
        "finish",
        "retry",
        "commit",
        "release",
        "mirror",
        "give back",
        "record",
        "Reserve",
        "Run",
        "Absent w/1 on a",
    ]
    .iter()
    .any(|verb| line.starts_with(verb))
}

#[test]
fn other_clusters_observation_neither_ends_nor_moves() {
    for state in [
        State::Waiting,
        State::Reserved,
        State::Unfit,
        State::Running,
        State::Suspended,
        State::Evicted,
        State::Succeeded,
        State::Failed,
        State::Gone,
        State::Refused,
    ] {
        let mut bench = Bench::running();
        bench.observe("b", "w", 1, state);
        bench.later(1_000);
        let log = bench.take();
        assert!(!log.iter().any(|line| touches(line)), "{state:?}: {log:?}");
        bench.observe("a", "w", 1, State::Succeeded);
        let log = bench.take();
        assert!(log.contains(&"finish w/1 from a: true".to_owned()), "{state:?}: {log:?}");
    }
}

#[test]
fn impossible_attempt_is_rejected() {
    let mut bench = Bench::running();
    for attempt in [1 << 30, 1 << 52, u64::MAX] {
        bench.observe("b", "w", attempt, State::Running);
        assert_eq!(bench.take(), [format!("disbelieve w/{attempt} on b")]);
    }
    // A restored store may have forgotten some attempts.
    bench.observe("b", "w", 40, State::Running);
    assert!(bench.take().iter().any(|line| line == "Absent w/40 on b"));
}
