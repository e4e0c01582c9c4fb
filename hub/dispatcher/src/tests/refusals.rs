//! Refusals, and when clusters are tried again.

use super::*;

const SECOND: i64 = 1_000;

impl Bench {
    /// One cluster refuses the workload, whose quota is in memory.
    fn refused() -> Self {
        let mut bench = Self::new(DispatchMode::BestFit, &[("a", 4000, 4000)]);
        bench.reserve(facts("w"));
        bench.take();
        bench.observe("a", "w", 1, State::Refused);
        let until = bench.now + 10 * SECOND;
        let given_back =
            format!("give back w until {until}: No worker cluster can run it: a: a says no");
        assert_eq!(bench.take(), ["Absent w/1 on a", &given_back]);
        bench.observe("a", "w", 1, State::Gone);
        bench.take();
        bench
    }

    fn scheduling(&mut self, cluster: &str, cordoned: bool, draining: bool) {
        let rules = ClusterConfig { cordoned, draining, ..ClusterConfig::default() };
        self.apply(DispatchEvent::ClusterConfigured { name: cluster.into(), config: rules });
    }

    fn reports(&mut self, queues: BTreeMap<(Name, Name), LocalQueueCapacity>) {
        self.apply(DispatchEvent::CapacityReported { cluster: "a".into(), report: report(queues) });
    }

    /// The engine reserves quota again.
    fn offers_again(&mut self) -> bool {
        self.reserve(facts("w"));
        self.take().iter().any(|line| line.starts_with("Reserve w/"))
    }
}

fn closed() -> BTreeMap<(Name, Name), LocalQueueCapacity> {
    let mut queues = queues(4000, 4000);
    queues.values_mut().for_each(|queue| queue.inactive = Some("it is stopped".to_owned()));
    queues
}

#[test]
fn refusing_cluster_is_asked_again_with_backoff() {
    let mut bench = Bench::refused();
    for seconds in [10, 20, 40, 80, 160, 320, 320] {
        bench.later(seconds * SECOND - 1);
        assert!(!bench.offers_again(), "within {seconds} s");
        bench.later(1);
        assert!(bench.offers_again(), "after {seconds} s");
        let attempt = bench.dispatcher.entries["w"].highest_attempt;
        bench.observe("a", "w", attempt, State::Refused);
        bench.observe("a", "w", attempt, State::Gone);
        bench.take();
    }
}

#[test]
fn changed_cluster_is_asked_at_once() {
    type Change = fn(&mut Bench);
    let changes: [(&str, bool, Change); 8] = [
        ("it is back", true, |bench| {
            bench.down("a");
            bench.connect("a", &[]);
            bench.capacity("a", 4000, 4000);
        }),
        ("it is uncordoned", true, |bench| {
            bench.scheduling("a", true, false);
            bench.scheduling("a", false, false);
        }),
        ("its agent can act again", true, |bench| {
            bench.apply(DispatchEvent::AgentReadiness { name: "a".into(), ready: false });
            bench.apply(DispatchEvent::AgentReadiness { name: "a".into(), ready: true });
        }),
        ("its queue is open again", true, |bench| {
            bench.reports(closed());
            bench.reports(queues(4000, 4000));
        }),
        ("its queue was made again", true, |bench| {
            bench.reports(BTreeMap::new());
            bench.capacity("a", 4000, 4000);
        }),
        ("its queue has more quota", true, |bench| bench.capacity("a", 6000, 6000)),
        ("its queue is less used", false, |bench| bench.capacity("a", 3000, 4000)),
        ("its policy is another", false, |bench| bench.rules("a", LossPolicy::GiveUp)),
    ];
    for (case, asked, change) in changes {
        let mut bench = Bench::refused();
        bench.later(SECOND);
        change(&mut bench);
        // The scan budget of the cluster allows it now.
        bench.later(SECOND);
        assert_eq!(bench.take().contains(&"wake w".to_owned()), asked, "{case}");
        assert_eq!(bench.offers_again(), asked, "{case}");
    }
}

#[test]
fn move_request_asks_refusing_cluster() {
    let mut bench = Bench::refused();
    let asks = || WorkloadFacts { move_request: Some((0, "a".into())), ..facts("w") };
    bench.apply(DispatchEvent::WorkloadChanged(asks()));
    assert_eq!(bench.take(), ["wake w"]);
    bench.reserve(asks());
    assert_eq!(bench.take(), ["Reserve w/2 on a"]);
    bench.observe("a", "w", 2, State::Refused);
    bench.take();
    bench.apply(DispatchEvent::WorkloadChanged(asks()));
    bench.reserve(asks());
    assert!(bench.take()[0].starts_with("give back w"), "it was asked, and its answer stands");
}

#[test]
fn lost_or_drained_cluster_has_no_refusal() {
    type Leaving = (&'static str, fn(&mut Bench), &'static str, fn(&mut Bench));
    let cases: [Leaving; 2] = [
        (
            "drained, then uncordoned",
            |bench| bench.scheduling("a", true, true),
            "a: cordoned",
            |bench| bench.scheduling("a", false, false),
        ),
        (
            "lost, then back",
            |bench| {
                bench.rules("a", LossPolicy::Duplicate { after: 0 });
                bench.down("a");
            },
            "a: not connected",
            |bench| {
                bench.connect("a", &["w"]);
                bench.observe("a", "w", 1, State::Gone);
                bench.capacity("a", 4000, 4000);
            },
        ),
    ];
    for (case, leave, said, come_back) in cases {
        let mut bench = Bench::new(DispatchMode::BestFit, &[("a", 4000, 4000)]);
        bench.runs("w", "a", 1);
        leave(&mut bench);
        assert!(bench.take().iter().any(|line| line.starts_with("retry w: ")), "{case}");
        let evicted = committed("w", "a", 1).with(|it| {
            it.evicted = true;
            it.check = Some(("mk".into(), CheckStatus::Retry));
        });
        bench.written(WriteOutcome::Done, evicted);
        bench.observe("a", "w", 1, State::Gone);
        bench.take();
        bench.written(WriteOutcome::Done, facts("w").with(|it| it.attempt = 1));
        // A shorter loss costs no reservation.
        bench.later(10 * SECOND);
        bench.reserve(facts("w").with(|it| it.attempt = 1));
        let log = bench.take();
        let given_back = format!("No worker cluster can run it: {said}");
        assert!(
            log.iter().any(|line| line.starts_with("give back w") && line.ends_with(&given_back)),
            "{case}: {log:?}"
        );
        bench.later(2 * SECOND);
        come_back(&mut bench);
        bench.later(SECOND);
        assert!(bench.take().contains(&"wake w".to_owned()), "{case}");
        bench.reserve(facts("w").with(|it| it.attempt = 1));
        assert!(bench.take().contains(&"Reserve w/2 on a".to_owned()), "{case}");
    }
}

#[test]
fn refusal_without_reasons_gets_default_reason() {
    for (state, said) in [
        (State::Refused, "a: refused it, and gives no reason"),
        (State::Evicted, "a: evicted it, and gives no reason"),
        (State::Gone, "a: its copy was deleted there"),
    ] {
        let mut bench = Bench::new(DispatchMode::BestFit, &[("a", 4000, 4000)]);
        bench.reserve(facts("w"));
        bench.take();
        bench.observe_with("a", "w", 1, state, Vec::new());
        let log = bench.take();
        assert!(
            log.iter().any(|line| line.ends_with(&format!("No worker cluster can run it: {said}"))),
            "{log:?}"
        );
    }
}

#[test]
fn unfit_workload_starts_no_other_checks() {
    let mut bench = Bench::new(DispatchMode::BestFit, &[("a", 500, 500)]);
    let reserved = MemoryReservation { check: "mk".into(), needs_other_checks: true };
    bench.apply(DispatchEvent::QuotaReserved { facts: facts("w"), reserved });
    let log = bench.take();
    assert!(
        log.len() == 1 && log[0].starts_with("give back w until 1070000: No worker"),
        "{log:?}"
    );
}
