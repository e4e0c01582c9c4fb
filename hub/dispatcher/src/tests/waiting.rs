//! Copies that wait on several clusters, and their preemption gates.

use super::*;

const TIMEOUT: i64 = 300_000;

impl Bench {
    /// A workload that is offered to all three clusters.
    fn waiting(timeout: Option<i64>) -> Self {
        let mut bench =
            Self::new(DispatchMode::AllAtOnce, &[("a", 0, 0), ("b", 0, 0), ("c", 0, 0)]);
        bench.dispatcher.settings.preemption_timeout = timeout;
        bench.apply(DispatchEvent::WorkloadChanged(WorkloadFacts {
            nominated: all(),
            ..facts("w").with(|it| it.reserved = true)
        }));
        assert_eq!(bench.take(), ["Reserve w/1 on a", "Reserve w/1 on b", "Reserve w/1 on c"]);
        bench
    }

    /// A cluster's report of its copy and gate, in milliseconds after the start.
    fn gate(&mut self, cluster: &str, opened: Option<i64>, blocked: Option<i64>) {
        let gate = Some(PreemptionGate { opened, blocked: blocked.map(|at| START + at) });
        self.gate_of(cluster, 1, State::Waiting, gate);
    }

    fn gate_of(&mut self, cluster: &str, attempt: u64, state: State, gate: Option<PreemptionGate>) {
        self.observed(cluster, Observation { gate, ..observation("w", attempt, state) });
    }

    fn open(&self) -> Vec<&'static str> {
        let is_open = |cluster: &&str| {
            self.dispatcher.gate("w", &Name::from(*cluster)).is_some_and(|it| it.opened.is_some())
        };
        ["a", "b", "c"].into_iter().filter(is_open).collect()
    }
}

fn all() -> Vec<Name> {
    vec!["a".into(), "b".into(), "c".into()]
}

#[test]
fn refusal_with_kueues_dispatchers_keeps_copy() {
    let because = |code: &str| vec![Reason::new(code, "no")];
    for (case, state, reasons, stays) in [
        ("it can never fit as things are", State::Unfit, because("ExceedsMaxQuota"), true),
        ("its namespace is missing", State::Unfit, because("NamespaceNotFound"), true),
        ("the agent may not", State::Refused, because("Forbidden"), true),
        ("evicted before it was chosen", State::Evicted, because("Preempted"), true),
        ("the hub could not send it", State::Refused, because(CANNOT_SEND), false),
        ("its Workload is void", State::Evicted, because("OutOfSync"), false),
        (
            "somebody deleted it",
            State::Evicted,
            because(switchyard_proto::DELETED_ON_WORKER),
            false,
        ),
        ("it is gone", State::Gone, Vec::new(), false),
    ] {
        for mode in [
            DispatchMode::AllAtOnce,
            DispatchMode::Incremental { step: 2, round: TIMEOUT },
            DispatchMode::External,
        ] {
            let mut bench = Bench::new(mode, &[("a", 0, 0), ("b", 0, 0)]);
            bench.apply(DispatchEvent::WorkloadChanged(WorkloadFacts {
                nominated: vec!["a".into(), "b".into()],
                ..facts("w").with(|it| it.reserved = true)
            }));
            bench.take();
            bench.observe("b", "w", 1, State::Waiting);
            bench.observe_with("a", "w", 1, state, reasons.clone());
            bench.later(60_000);
            assert_eq!(bench.take().is_empty(), stays, "{case}, {mode:?}");
            bench.observe("b", "w", 1, State::Reserved);
            let chosen = bench.take();
            assert!(
                chosen.iter().any(|line| line.starts_with("commit w/") && line.ends_with("on b"))
                    || !stays,
                "{case}: {chosen:?}"
            );
        }
    }
}

#[test]
fn copy_on_silent_cluster_stays_and_wins_after_return() {
    let mut bench = Bench::waiting(None);
    bench.observe("a", "w", 1, State::Waiting);
    bench.observe("b", "w", 1, State::Waiting);
    bench.down("a");
    bench.later(60_000);
    bench.connect("a", &["w"]);
    assert!(bench.take().is_empty(), "neither is the list of those nominated another one");
    bench.down("a");
    bench.observe("a", "w", 1, State::Reserved);
    assert!(bench.take().is_empty());
    bench.connect("a", &["w"]);
    assert_eq!(bench.take(), ["commit w/1 on a"]);
}

#[test]
fn cordoned_cluster_has_no_copy() {
    let mut bench = Bench::waiting(None);
    let rules = ClusterConfig { cordoned: true, ..ClusterConfig::default() };
    bench.apply(DispatchEvent::ClusterConfigured { name: "a".into(), config: rules });
    assert_eq!(bench.take()[0], "Absent w/1 on a");
}

#[test]
fn evicted_workload_is_offered_to_all_again_at_once() {
    let mut bench = Bench::waiting(None);
    bench.observe("b", "w", 1, State::Reserved);
    bench.written(WriteOutcome::Done, committed("w", "b", 1));
    bench.observe("b", "w", 1, State::Running);
    for cluster in ["a", "c"] {
        bench.observe(cluster, "w", 1, State::Gone);
    }
    bench.take();
    bench.observe("b", "w", 1, State::Evicted);
    assert!(bench.take()[0].starts_with("retry w"));
    let evicted = WorkloadFacts {
        nominated: Vec::new(),
        ..committed("w", "b", 1).with(|it| {
            it.evicted = true;
            it.cluster = None;
        })
    };
    bench.written(WriteOutcome::Done, evicted);
    bench.observe("b", "w", 1, State::Gone);
    assert_eq!(bench.take().last().map(String::as_str), Some("release w"));
    bench.written(WriteOutcome::Done, facts("w").with(|it| it.attempt = 1));
    bench.take();
    bench.apply(DispatchEvent::WorkloadChanged(WorkloadFacts {
        nominated: all(),
        ..facts("w").with(|it| {
            it.attempt = 1;
            it.reserved = true;
        })
    }));
    let offers: Vec<String> =
        bench.take().into_iter().filter(|line| line.starts_with("Reserve")).collect();
    assert_eq!(offers, ["Reserve w/2 on a", "Reserve w/2 on b", "Reserve w/2 on c"]);
}

#[test]
fn longest_blocked_gate_opens_first_next_after_timeout() {
    let mut bench = Bench::waiting(Some(TIMEOUT));
    bench.gate("c", None, None);
    assert!(bench.take().is_empty() && bench.open().is_empty(), "nobody asks for it");
    bench.gate("b", None, Some(2_000));
    assert_eq!((bench.take(), bench.open()), (vec!["Reserve w/1 on b".to_owned()], vec!["b"]));
    bench.gate("c", None, Some(3_000));
    bench.gate("a", None, Some(1_000));
    bench.later(TIMEOUT - 1);
    assert!(bench.take().is_empty(), "b has its time");
    bench.later(1);
    assert_eq!((bench.take(), bench.open()), (vec!["Reserve w/1 on a".to_owned()], vec!["a", "b"]));
    bench.later(TIMEOUT);
    assert_eq!(
        (bench.take(), bench.open()),
        (vec!["Reserve w/1 on c".to_owned()], vec!["a", "b", "c"])
    );
}

#[test]
fn gate_closed_by_cluster_lets_next_one_open() {
    let mut bench = Bench::waiting(Some(TIMEOUT));
    bench.gate("a", None, Some(0));
    let opened = bench.dispatcher.gate("w", &"a".into()).and_then(|gate| gate.opened);
    bench.take();
    bench.gate("a", None, Some(0));
    bench.gate("b", None, Some(500));
    assert!(bench.take().is_empty(), "it has not been told yet");
    bench.gate("a", opened, None);
    bench.gate("a", None, None);
    assert_eq!((bench.take(), bench.open()), (vec!["Reserve w/1 on b".to_owned()], vec!["b"]));
}

/// The agent reported a gate as open that it was about to open, and restarted before.
#[test]
fn gate_reported_closed_by_a_new_session_stays_open() {
    let mut bench = Bench::waiting(Some(TIMEOUT));
    bench.gate("a", None, Some(0));
    let opened = bench.dispatcher.gate("w", &"a".into()).and_then(|gate| gate.opened);
    bench.gate("a", opened, None);
    bench.down("a");
    bench.apply(DispatchEvent::SessionOpened { name: "a".into() });
    bench.gate("a", None, Some(0));
    bench.gate("b", None, Some(500));
    assert_eq!(bench.open(), ["a"], "the agent opens it again");
}

#[test]
fn open_gate_of_earlier_attempt_counts_until_later_reported() {
    let mut bench = Bench::waiting(Some(TIMEOUT));
    bench.gate("a", None, Some(0));
    assert_eq!(bench.open(), ["a"]);
    // It is gone on b. The next offer there raises the attempt everywhere.
    bench.observe("b", "w", 1, State::Gone);
    bench.later(30_000);
    bench.take();
    let closed = PreemptionGate { opened: None, blocked: Some(START) };
    bench.gate_of("c", 2, State::Waiting, Some(closed));
    assert!(bench.open().is_empty(), "a has not taken its copy away yet");
    bench.gate_of("a", 2, State::Waiting, Some(PreemptionGate::default()));
    assert_eq!(bench.open(), ["c"]);
}

#[test]
fn restart_opens_no_gate_before_inventories_or_timeout() {
    for (case, reports, leaves, at) in [
        ("all have reported", true, false, 0),
        ("one is silent", false, false, TIMEOUT),
        ("one has reported, and is disconnected", true, true, TIMEOUT),
    ] {
        let settings = DispatcherSettings {
            mode: DispatchMode::AllAtOnce,
            preemption_timeout: Some(TIMEOUT),
            ..DispatcherSettings::default()
        };
        let mut bench =
            Bench { dispatcher: Dispatcher::new(settings, START), now: START, log: Vec::new() };
        bench.apply(DispatchEvent::CheckConfigured {
            name: "mk".into(),
            clusters: vec!["a".into(), "b".into()],
        });
        for cluster in ["a", "b"] {
            bench.rules(cluster, LossPolicy::Hold);
        }
        bench.connect("a", &[]);
        if reports {
            bench.connect("b", &[]);
        }
        if leaves {
            bench.apply(DispatchEvent::SessionClosed { name: "b".into() });
        }
        bench.apply(DispatchEvent::WorkloadChanged(WorkloadFacts {
            nominated: vec!["a".into(), "b".into()],
            ..facts("w").with(|it| it.reserved = true)
        }));
        if !reports || leaves {
            bench.written(
                WriteOutcome::Done,
                WorkloadFacts {
                    nominated: vec!["a".into()],
                    ..facts("w").with(|it| it.reserved = true)
                },
            );
        }
        bench.gate("a", None, Some(0));
        bench.later(at - 1);
        assert_eq!(bench.open().is_empty(), at > 0, "{case}");
        bench.later(1);
        assert_eq!(bench.open(), ["a"], "{case}");
    }
}

#[test]
fn gate_opened_by_earlier_process_counts() {
    let mut bench = Bench::new(DispatchMode::AllAtOnce, &[("a", 0, 0), ("b", 0, 0)]);
    bench.dispatcher.settings.preemption_timeout = Some(TIMEOUT);
    let opened = Some(bench.now - 1_000);
    bench.dispatcher.track(facts("w"));
    bench.gate_of("a", 5, State::Waiting, Some(PreemptionGate { opened, blocked: None }));
    bench.apply(DispatchEvent::WorkloadChanged(WorkloadFacts {
        nominated: vec!["a".into(), "b".into()],
        ..facts("w").with(|it| it.reserved = true)
    }));
    bench.gate_of(
        "b",
        6,
        State::Waiting,
        Some(PreemptionGate { opened: None, blocked: Some(START) }),
    );
    assert!(bench.open().is_empty());
    bench.later(TIMEOUT - 1_000);
    assert_eq!(bench.open(), ["b"]);
}

#[test]
fn copies_without_feature_have_no_gate() {
    let mut bench = Bench::waiting(None);
    assert_eq!(bench.dispatcher.gate("w", &"a".into()), None);
    bench.gate("a", None, Some(0));
    assert!(bench.take().is_empty() && bench.open().is_empty());
    let mut bench = Bench::waiting(Some(TIMEOUT));
    assert_eq!(bench.dispatcher.gate("w", &"a".into()), Some(PreemptionGate::default()));
    bench.observe("a", "w", 1, State::Reserved);
    bench.take();
}
