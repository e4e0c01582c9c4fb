//! Jobs without a ready pod, with the policy `onStuck`.

use super::*;

const AFTER: i64 = 600_000;

/// The facts of a workload with the policy, on a cluster, after moves from these clusters.
fn placed(cluster: &str, attempt: u64, times: u32, left: &[&str]) -> WorkloadFacts {
    WorkloadFacts { stuck: stuck(times, left), ..committed("w", cluster, attempt) }
}

fn stuck(times: u32, left: &[&str]) -> StuckFacts {
    StuckFacts {
        policy: Some(StuckPolicy { after: AFTER, times }),
        moves: u32::try_from(left.len()).unwrap(),
        clusters: left.iter().map(|name| Name::from(*name)).collect(),
    }
}

impl Bench {
    /// `w` runs on the cluster. Its pods are ready, or were examined and are not.
    fn pods(&mut self, cluster: &str, attempt: u64, no_ready_pod: bool) {
        let running = observation("w", attempt, State::Running);
        self.observed(cluster, Observation { no_ready_pod, ..running });
    }

    /// `w` is on the cluster without a ready pod.
    fn stuck_on(
        clusters: &[(&str, i64, i64)],
        cluster: &str,
        attempt: u64,
        times: u32,
        left: &[&str],
    ) -> Self {
        let mut bench = Self::new(DispatchMode::BestFit, clusters);
        bench.apply(DispatchEvent::WorkloadChanged(placed(cluster, attempt, times, left)));
        bench.pods(cluster, attempt, true);
        bench.take();
        bench
    }

    /// The withdrawn `w` has left the cluster, and is queued again. Returns its facts.
    fn left(&mut self, cluster: &str, attempt: u64, left: &[&str]) -> WorkloadFacts {
        let evicted =
            placed(cluster, attempt, 3, left).with(|it| (it.cluster, it.evicted) = (None, true));
        self.written(WriteOutcome::Done, evicted.clone());
        self.take();
        self.observe(cluster, "w", attempt, State::Gone);
        assert_eq!(self.take().last().map(String::as_str), Some("release w"));
        let released = evicted.with(|it| it.reserved = false);
        self.written(WriteOutcome::Done, released.clone());
        self.take();
        WorkloadFacts { version: 0, ..released.with(|it| it.evicted = false) }
    }

    /// Seconds until the workload is withdrawn. None: not within a day.
    fn withdrawn_after(&mut self) -> Option<i64> {
        let from = self.now;
        let day = from + 86_400_000;
        while let Some(at) = self.dispatcher.next_wakeup().filter(|at| *at < day) {
            self.later((at - self.now).max(1));
            if self.take().iter().any(|line| line.contains("No pod of it was ready")) {
                return Some((self.now - from) / 1_000);
            }
        }
        None
    }
}

const TWO: [(&str, i64, i64); 2] = [("a", 4000, 4000), ("b", 4000, 4000)];

#[test]
fn job_without_ready_pod_moves_and_avoids_its_last_cluster() {
    let mut bench = Bench::stuck_on(&TWO, "a", 1, 3, &[]);
    assert_eq!(bench.withdrawn_after(), Some(600));
    let released = bench.left("a", 1, &["a"]);
    // `a` has the same room, and is first in the MultiKueueConfig.
    bench.reserve(released);
    let offered = bench.take();
    assert!(offered.iter().any(|line| line == "Reserve w/2 on b"), "{offered:?}");
}

#[test]
fn stuck_job_refuses_its_cluster_for_the_time_said() {
    let mut bench = Bench::stuck_on(&TWO, "a", 3, 3, &["b"]);
    assert_eq!(bench.withdrawn_after(), Some(1_200));
    let released = bench.left("a", 3, &["b", "a"]);
    let config = ClusterConfig { cordoned: true, ..ClusterConfig::default() };
    bench.apply(DispatchEvent::ClusterConfigured { name: "b".into(), config });
    bench.take();
    let mut is_offered_after = |seconds: i64| {
        bench.later(seconds * 1_000);
        bench.reserve(released.clone());
        bench.take().iter().any(|line| line.starts_with("Reserve w/4 on a"))
    };
    assert!(!is_offered_after(0));
    assert!(!is_offered_after(1_190));
    assert!(is_offered_after(20));
}

#[test]
fn job_with_ready_pod_stays() {
    let mut bench = Bench::stuck_on(&TWO, "a", 1, 3, &[]);
    bench.later(AFTER - 1_000);
    bench.pods("a", 1, false);
    assert_eq!(bench.withdrawn_after(), None);
    // The time begins again.
    bench.pods("a", 1, true);
    assert_eq!(bench.withdrawn_after(), Some(600));
}

#[test]
fn time_without_reports_does_not_count() {
    let mut bench = Bench::stuck_on(&TWO, "a", 1, 3, &[]);
    bench.later(AFTER - 1_000);
    bench.down("a");
    assert_eq!(bench.withdrawn_after(), None);
    bench.connect("a", &["w"]);
    bench.pods("a", 1, true);
    assert_eq!(bench.withdrawn_after(), Some(600));

    let mut bench = Bench::stuck_on(&TWO, "a", 1, 3, &[]);
    bench.apply(DispatchEvent::AgentReadiness { name: "a".into(), ready: false });
    assert_eq!(bench.withdrawn_after(), None);
    bench.apply(DispatchEvent::AgentReadiness { name: "a".into(), ready: true });
    assert_eq!(bench.withdrawn_after(), Some(600));
}

#[test]
fn job_stays_without_policy_moves_or_another_cluster() {
    let only: [(&str, i64, i64); 1] = [("a", 4000, 4000)];
    let too_small = [("a", 4000, 4000), ("b", 500, 500)];
    for (case, mut bench) in [
        ("its only cluster", Bench::stuck_on(&only, "a", 1, 3, &[])),
        ("the other is too small", Bench::stuck_on(&too_small, "a", 1, 3, &[])),
        ("all moves are used", Bench::stuck_on(&TWO, "a", 3, 2, &["a", "b"])),
    ] {
        assert_eq!(bench.withdrawn_after(), None, "{case}");
    }
    let mut bench = Bench::new(DispatchMode::BestFit, &TWO);
    bench.apply(DispatchEvent::WorkloadChanged(committed("w", "a", 1)));
    bench.pods("a", 1, true);
    assert_eq!(bench.withdrawn_after(), None, "no policy");
}

#[test]
fn return_to_a_cluster_takes_twice_the_time() {
    for (left, seconds) in [
        (&["b"] as &[&str], 1_200),
        (&["b", "a", "b"], 2_400),
        (&["b", "b", "b", "b", "b"], 19_200),
    ] {
        let mut bench = Bench::stuck_on(&TWO, "a", 9, 10, left);
        assert_eq!(bench.withdrawn_after(), Some(seconds), "{left:?}");
    }
    let three = [("a", 4000, 4000), ("b", 4000, 4000), ("c", 4000, 4000)];
    let mut bench = Bench::stuck_on(&three, "a", 2, 10, &["b"]);
    assert_eq!(bench.withdrawn_after(), Some(600), "c has not been tried");
}

#[test]
fn job_that_the_cluster_does_not_start_moves() {
    for state in [State::Reserved, State::Waiting] {
        let mut bench = Bench::new(DispatchMode::BestFit, &TWO);
        bench.apply(DispatchEvent::WorkloadChanged(placed("a", 1, 3, &[])));
        bench.observe("a", "w", 1, state);
        bench.take();
        assert_eq!(bench.withdrawn_after(), Some(600), "{state:?}");
    }
    let mut bench = Bench::new(DispatchMode::BestFit, &TWO);
    bench.apply(DispatchEvent::WorkloadChanged(placed("a", 1, 3, &[])));
    bench.observe("a", "w", 1, State::Suspended);
    bench.take();
    assert_eq!(bench.withdrawn_after(), None, "a fence stopped it");
}

#[test]
fn outlook_names_time_and_obstacles() {
    let next = |bench: &Bench| bench.dispatcher.stuck("w", bench.now).map(|stuck| stuck.next);
    let bench = Bench::stuck_on(&TWO, "a", 1, 3, &[]);
    let at = bench.now + AFTER;
    assert_eq!(next(&bench), Some(StuckOutlook::Withdraw { at, wait: AFTER }));
    let bench = Bench::stuck_on(&TWO[..1], "a", 1, 3, &[]);
    assert_eq!(next(&bench), Some(StuckOutlook::NoOtherCluster));
    let bench = Bench::stuck_on(&TWO, "a", 2, 1, &["a"]);
    assert_eq!(next(&bench), Some(StuckOutlook::NoMovesLeft));
    let mut bench = Bench::stuck_on(&TWO, "a", 1, 3, &[]);
    bench.pods("a", 1, false);
    assert_eq!(next(&bench), None);
}

#[test]
fn user_may_move_it_back_at_once() {
    let mut bench = Bench::stuck_on(&TWO, "a", 1, 3, &[]);
    assert_eq!(bench.withdrawn_after(), Some(600));
    bench.written(WriteOutcome::Done, placed("b", 2, 3, &["a"]));
    bench.pods("b", 2, false);
    bench.take();
    let moved = WorkloadFacts { move_request: Some((2, "a".into())), ..placed("b", 2, 3, &["a"]) };
    bench.apply(DispatchEvent::WorkloadChanged(moved));
    let said = bench.take();
    assert!(said.iter().any(|line| line.contains("Moved from worker cluster")), "{said:?}");
}

/// The facts of a first replica on `a`. All replicas ask for this much.
fn first_replica(all: i64) -> WorkloadFacts {
    WorkloadFacts { replica: Some(Replica::First(pods(all))), ..placed("a", 1, 3, &[]) }
}

#[test]
fn first_replica_moves_where_all_replicas_have_room() {
    for (case, all, room, expected) in [
        ("room for all", 3_000, 4_000, Some(600)),
        ("room for one", 3_000, 2_000, None),
        ("a single replica", 1_000, 2_000, Some(600)),
    ] {
        let mut bench =
            Bench::new(DispatchMode::BestFit, &[("a", 4_000, 4_000), ("b", room, 4_000)]);
        bench.apply(DispatchEvent::WorkloadChanged(first_replica(all)));
        bench.pods("a", 1, true);
        bench.take();
        assert_eq!(bench.withdrawn_after(), expected, "{case}");
    }
}

#[test]
fn later_replica_is_never_withdrawn_as_stuck() {
    for state in [State::Running, State::Waiting] {
        let mut bench = Bench::new(DispatchMode::BestFit, &TWO);
        let at_first = Some(Replica::FirstOnCluster("a".into()));
        let facts = WorkloadFacts { replica: at_first, ..placed("a", 1, 3, &[]) };
        bench.apply(DispatchEvent::WorkloadChanged(facts));
        let report = observation("w", 1, state);
        bench.observed("a", Observation { no_ready_pod: true, ..report });
        bench.take();
        assert_eq!(bench.withdrawn_after(), None, "{state:?}");
    }
}
