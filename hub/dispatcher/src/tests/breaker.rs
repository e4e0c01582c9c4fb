//! Circuit breaker and rate limit.

use super::*;

/// Three clusters whose policy gives up after 15 minutes, with a workload on each of the first two.
fn three() -> Bench {
    let mut bench =
        Bench::new(DispatchMode::BestFit, &[("a", 0, 4000), ("b", 0, 4000), ("c", 4000, 4000)]);
    for name in ["a", "b", "c"] {
        bench.rules(name, LossPolicy::GiveUp);
    }
    bench.runs("v", "a", 1);
    bench.runs("w", "b", 1);
    bench.take();
    bench
}

#[test]
fn breaker_holds_everything_until_released() {
    let mut bench = three();
    bench.down("a");
    bench.later(100_000);
    bench.down("b");
    bench.later(900_000);
    assert_eq!(bench.take(), ["breaker Some(\"2 of 3 clusters were lost at about one time\")"]);
    assert!(bench.dispatcher.breaker().is_some());
    let rules = ClusterConfig {
        on_disconnect: LossPolicy::GiveUp,
        release: Some("now".into()),
        ..ClusterConfig::default()
    };
    bench.apply(DispatchEvent::ClusterConfigured { name: "c".into(), config: rules });
    let log = bench.take();
    assert_eq!(log[0], "breaker None");
    assert_eq!(log.iter().filter(|line| line.starts_with("retry")).count(), 2, "{log:?}");
}

#[test]
fn breaker_closes_when_all_clusters_return() {
    let mut bench = three();
    bench.down("a");
    bench.down("b");
    bench.later(900_000);
    bench.connect("a", &["v"]);
    assert_eq!(bench.take().len(), 1, "opened");
    bench.connect("b", &["w"]);
    assert_eq!(bench.take(), ["breaker None"]);
}

#[test]
fn losses_far_apart_do_not_open_breaker() {
    let mut bench = three();
    bench.down("a");
    bench.later(400_000);
    bench.down("b");
    bench.later(500_000);
    assert!(bench.take()[0].starts_with("retry v"));
}

#[test]
fn most_workloads_lost_at_once_open_breaker() {
    let limits = BreakerLimits { least_workloads: 3, workloads: 50, ..BreakerLimits::default() };
    let mut bench = Bench::new(DispatchMode::BestFit, &[("a", 0, 4000)]);
    bench.dispatcher.settings.breaker_limits = limits;
    for uid in ["t", "u", "v", "w"] {
        bench.runs(uid, "a", 1);
    }
    bench.take();
    for (uid, opens) in [("t", false), ("u", false), ("v", true), ("w", false)] {
        bench.later(1_000);
        bench.observe("a", uid, 1, State::Gone);
        let log = bench.take();
        assert_eq!(log.iter().any(|line| line.starts_with("breaker")), opens, "{uid}: {log:?}");
    }
}

#[test]
fn evictions_are_rate_limited() {
    let limits = BreakerLimits { evictions_per_minute: 60, burst: 2, ..BreakerLimits::default() };
    let mut bench =
        Bench::new(DispatchMode::BestFit, &[("a", 0, 4000), ("b", 0, 4000), ("c", 0, 4000)]);
    bench.dispatcher.settings.breaker_limits = limits;
    bench.rules("a", LossPolicy::Duplicate { after: 10_000 });
    for uid in ["t", "u", "v", "w"] {
        bench.runs(uid, "a", 1);
    }
    bench.down("a");
    bench.take();
    for (wait, given_up) in [(10_000, 2), (999, 0), (1, 1), (1_000, 1)] {
        bench.later(wait);
        assert_eq!(bench.take().len(), given_up, "after {wait}");
    }
}
