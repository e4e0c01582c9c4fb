//! Disconnected clusters: policies and fences.

use super::copies::{Copy, adopted};
use super::*;

#[test]
fn evicted_on_silent_cluster_keeps_quota() {
    let mut bench = Bench::running();
    bench.apply(DispatchEvent::SessionClosed { name: "a".into() });
    bench.apply(DispatchEvent::WorkloadChanged(committed("w", "a", 1).with(|it| {
        it.evicted = true;
        it.cluster = None;
    })));
    assert_eq!(bench.take(), ["Absent w/1 on a"]);
    bench.later(24 * 3_600_000);
    assert!(bench.take().is_empty(), "it may run there");
    bench.connect("a", &["w"]);
    bench.observe("a", "w", 1, State::Running);
    assert!(bench.take().is_empty(), "its tombstone is under way");
    bench.observe("a", "w", 1, State::Gone);
    assert_eq!(bench.take(), ["forget w/1 on a", "release w"]);
}

#[test]
fn restart_keeps_evicted_quota_until_all_inventories() {
    let mut bench = Bench::new(DispatchMode::BestFit, &[("a", 4000, 4000)]);
    bench.rules("b", LossPolicy::Hold);
    bench.apply(DispatchEvent::WorkloadChanged(committed("w", "b", 1).with(|it| {
        it.evicted = true;
        it.cluster = None;
    })));
    assert!(bench.take().is_empty());
    bench.connect("b", &[]);
    assert_eq!(bench.take(), ["release w"]);
    // It holds quota there for a committed attempt: an earlier process may have sent `Run`.
    let mut bench = Bench::new(DispatchMode::BestFit, &[("a", 4000, 4000)]);
    bench.apply(DispatchEvent::SessionOpened { name: "a".into() });
    bench.apply(DispatchEvent::WorkloadChanged(committed("w", "a", 1).with(|it| {
        it.evicted = true;
        it.cluster = None;
    })));
    bench.observe("a", "w", 1, State::Reserved);
    bench.apply(DispatchEvent::InventoryComplete {
        cluster: "a".into(),
        uids: Uids::from(["w".into()]),
    });
    assert_eq!(bench.take(), ["Absent w/1 on a"]);
    bench.observe("a", "w", 1, State::Gone);
    assert_eq!(bench.take(), ["forget w/1 on a", "release w"]);
}

#[test]
fn hold_policy_reassigns_nothing() {
    let mut bench = Bench::running();
    bench.apply(DispatchEvent::SessionClosed { name: "a".into() });
    bench.later(24 * 3_600_000);
    assert!(bench.take().is_empty());
    bench.connect("a", &["w"]);
    bench.observe("a", "w", 1, State::Running);
    assert!(bench.take().is_empty());
}

/// The agent of cluster `a` is not ready. Then the cluster disconnects (`lost`) or stays connected.
#[rstest::rstest]
#[case::a_fence_cannot_be_seen_to(LossPolicy::Fence { after: 60_000 }, false, None)]
#[case::nor_once_the_agent_is_gone_as_well(LossPolicy::Fence { after: 60_000 }, true, None)]
#[case::a_held_job_stays(LossPolicy::Hold, false, None)]
#[case::what_may_run_twice_goes_elsewhere(LossPolicy::Duplicate { after: 60_000 }, false, Some(60_000))]
fn an_agent_that_cannot_act_stops_nothing(
    #[case] on_disconnect: LossPolicy,
    #[case] lost: bool,
    #[case] given_up: Option<i64>,
) {
    let mut bench = Bench::running();
    bench.rules("a", on_disconnect);
    bench.take();
    bench.apply(DispatchEvent::AgentReadiness { name: "a".into(), ready: false });
    if lost {
        bench.apply(DispatchEvent::SessionClosed { name: "a".into() });
    }
    bench.later(given_up.unwrap_or(24 * 3_600_000) - 1);
    assert!(bench.take().is_empty());
    bench.later(1);
    assert_eq!(bench.take().len(), usize::from(given_up.is_some()));
}

#[test]
fn restart_ignores_fence_of_agent_that_was_not_ready() {
    for (case, unable, back) in [
        ("as it is known", true, false),
        ("where nothing is known", false, false),
        ("once it was back", true, true),
    ] {
        let mut bench = Bench::new(DispatchMode::BestFit, &[("b", 4000, 4000)]);
        bench.rules("a", LossPolicy::Fence { after: 60_000 });
        if unable {
            bench.apply(DispatchEvent::AgentWasNotReady { name: "a".into() });
        }
        if back {
            bench.connect("a", &["w"]);
            bench.down("a");
            // The watch event is late.
            bench.apply(DispatchEvent::AgentWasNotReady { name: "a".into() });
        }
        bench.apply(DispatchEvent::WorkloadChanged(committed("w", "a", 1)));
        bench.take();
        bench.later(24 * 3_600_000);
        let given_up = bench.take().iter().any(|line| line.starts_with("retry w"));
        assert_eq!(given_up, !unable || back, "{case}");
    }
}

#[test]
fn agent_that_is_not_ready_gets_no_offer() {
    let mut bench = Bench::new(DispatchMode::BestFit, &[("a", 4000, 4000), ("b", 2000, 4000)]);
    bench.apply(DispatchEvent::AgentReadiness { name: "a".into(), ready: false });
    bench.reserve(facts("w"));
    assert_eq!(bench.take(), ["Reserve w/1 on b"]);
    // Its offer is withdrawn and not repeated.
    bench.apply(DispatchEvent::AgentReadiness { name: "b".into(), ready: false });
    let done = bench.take();
    assert!(
        done.contains(&"Absent w/1 on b".to_owned())
            && !done.iter().any(|line| line.contains("Reserve")),
        "{done:?}"
    );
    bench.apply(DispatchEvent::AgentReadiness { name: "a".into(), ready: true });
    bench.reserve(facts("w"));
    assert!(bench.take().iter().any(|line| line.starts_with("Reserve") && line.ends_with("on a")));
}

#[test]
fn give_up_policy_ends_attempt_after_timeout() {
    let mut bench = Bench::running();
    bench.rules("a", LossPolicy::GiveUp);
    bench.apply(DispatchEvent::SessionClosed { name: "a".into() });
    bench.later(899_999);
    assert!(bench.take().is_empty());
    bench.later(1);
    assert_eq!(bench.take(), ["retry w: Admitting remote lost, Previously: \"Ready\""]);
    let retrying =
        committed("w", "a", 1).with(|it| it.check = Some(("mk".into(), CheckStatus::Retry)));
    bench.written(WriteOutcome::Done, retrying.clone());
    bench.apply(DispatchEvent::WorkloadChanged(retrying.with(|it| it.evicted = true)));
    assert_eq!(bench.take(), ["Absent w/1 on a", "release w"]);
    bench.written(
        WriteOutcome::Done,
        facts("w").with(|it| {
            it.attempt = 1;
            it.evicted = true;
        }),
    );
    bench.reserve(facts("w").with(|it| it.attempt = 1));
    bench.observe("b", "w", 2, State::Reserved);
    assert_eq!(bench.take(), ["Reserve w/2 on b", "commit w/2 on b"]);
    bench.written(WriteOutcome::Done, committed("w", "b", 2));
    assert_eq!(bench.take(), ["Run w/2 on b"]);
    bench.connect("a", &["w"]);
    bench.observe("a", "w", 1, State::Running);
    assert!(bench.take().is_empty(), "its tombstone is under way");
    bench.observe("a", "w", 1, State::Succeeded);
    assert!(!bench.take().iter().any(|line| line.starts_with("finish")), "it was given up");
}

#[test]
fn deleted_cluster_counts_as_lost() {
    let mut bench = Bench::running();
    bench.apply(DispatchEvent::ClusterDeleted { name: "a".into() });
    bench.apply(DispatchEvent::SessionClosed { name: "a".into() });
    bench.later(900_000);
    assert_eq!(bench.take(), ["retry w: Admitting remote lost, Previously: \"Ready\""]);
}

const LOST: &str = "retry w: Admitting remote lost, Previously: \"Ready\"";

#[test]
fn fenced_job_goes_elsewhere_only_after_agent_stopped_it() {
    let mut bench = Bench::running();
    bench.rules("a", LossPolicy::Fence { after: 20_000 });
    assert_eq!(bench.take(), ["Run w/1 on a"], "the agent has to know");
    bench.later(30_000);
    bench.down("a");
    // Lease and fence, an eighth more, the margin, and the grace period of its pods.
    bench.later(50_000 + 6_250 + 10_000 + 5_000 - 1);
    assert!(bench.take().is_empty());
    bench.later(1);
    assert_eq!(bench.take(), [LOST]);
}

#[test]
fn unknown_fence_counts_as_hold() {
    let mut bench = Bench::running();
    bench.rules("a", LossPolicy::Fence { after: 20_000 });
    bench.later(29_999);
    bench.down("a");
    bench.rules("a", LossPolicy::Fence { after: 0 });
    bench.take();
    bench.later(24 * 3_600_000);
    assert!(bench.take().is_empty());

    let mut bench = Bench::running();
    bench.rules("a", LossPolicy::Fence { after: 600_000 });
    bench.later(30_000);
    bench.down("a");
    bench.rules("a", LossPolicy::Fence { after: 0 });
    bench.take();
    bench.later(600_000);
    assert!(bench.take().is_empty(), "it goes by what it was told");
}

#[test]
fn fence_set_again_counts_only_after_delivery() {
    let mut bench = Bench::running();
    bench.rules("a", LossPolicy::Fence { after: 20_000 });
    bench.later(30_000);
    bench.rules("a", LossPolicy::Hold);
    bench.later(1_000);
    bench.down("a");
    bench.rules("a", LossPolicy::Fence { after: 20_000 });
    bench.take();
    bench.later(24 * 3_600_000);
    assert!(bench.take().is_empty(), "it may have heard that it is to hold");

    let mut bench = Bench::running();
    bench.rules("a", LossPolicy::Fence { after: 20_000 });
    bench.later(30_000);
    bench.down("a");
    bench.rules("a", LossPolicy::Hold);
    bench.later(1_000);
    bench.rules("a", LossPolicy::Fence { after: 20_000 });
    bench.take();
    bench.later(71_250);
    assert_eq!(bench.take(), [LOST], "what was said while it was away has not been heard");
}

#[test]
fn workload_policy_overrides_cluster_policy() {
    let says = |loss| WorkloadFacts { on_disconnect: Some(loss), ..committed("w", "a", 1) };
    let mut bench = Bench::running();
    bench.apply(DispatchEvent::WorkloadChanged(says(LossPolicy::Duplicate { after: 40_000 })));
    bench.down("a");
    bench.later(40_000);
    assert_eq!(bench.take(), [LOST], "the cluster would keep it");

    let mut bench = Bench::running();
    bench.rules("a", LossPolicy::Duplicate { after: 0 });
    bench.apply(DispatchEvent::WorkloadChanged(says(LossPolicy::Hold)));
    bench.down("a");
    bench.later(24 * 3_600_000);
    assert!(bench.take().is_empty());
}

#[test]
fn own_fence_is_announced_and_counts_only_after_delivery() {
    let fenced = |after| WorkloadFacts {
        on_disconnect: Some(LossPolicy::Fence { after }),
        ..committed("w", "a", 1)
    };
    let mut bench = Bench::running();
    bench.apply(DispatchEvent::WorkloadChanged(fenced(20_000)));
    assert_eq!(bench.take(), ["Run w/1 on a"], "the agent has to know");
    assert_eq!(bench.dispatcher.fence("w", &"a".into()), Some(20_000));
    bench.later(29_999);
    bench.down("a");
    bench.later(24 * 3_600_000);
    assert!(bench.take().is_empty(), "it may not have heard it");

    let mut bench = Bench::running();
    bench.apply(DispatchEvent::WorkloadChanged(fenced(20_000)));
    bench.take();
    bench.later(30_000);
    bench.down("a");
    bench.later(71_250 - 1);
    assert!(bench.take().is_empty());
    bench.later(1);
    assert_eq!(bench.take(), [LOST]);
}

#[test]
fn fence_in_first_assignment_counts_as_delivered() {
    let mut bench = Bench::new(DispatchMode::BestFit, &[("a", 4000, 4000)]);
    let fence = Some(LossPolicy::Fence { after: 20_000 });
    bench.reserve(WorkloadFacts { on_disconnect: fence, ..facts("w") });
    bench.observe("a", "w", 1, State::Reserved);
    bench.written(
        WriteOutcome::Done,
        WorkloadFacts { on_disconnect: fence, ..committed("w", "a", 1) },
    );
    assert_eq!(bench.take(), ["Reserve w/1 on a", "commit w/1 on a", "Run w/1 on a"]);
    bench.down("a");
    bench.later(71_250);
    assert_eq!(bench.take(), [LOST]);
}

/// The agent runs the copy by a policy that the hub has forgotten.
#[test]
fn fence_of_adopted_copy_counts_only_after_delivery() {
    let is_given_up = |contact: i64| {
        let mut bench = Bench::forgetful_under(LossPolicy::Fence { after: 20_000 }, &["a"]);
        bench.tells("a", vec![Copy::of("old", "train")]);
        bench.applied();
        bench.written(WriteOutcome::Done, adopted("a", 3));
        bench.later(contact);
        bench.down("a");
        bench.take();
        bench.later(24 * 3_600_000);
        !bench.take().is_empty()
    };
    assert!(!is_given_up(29_999));
    assert!(is_given_up(30_000));
}

#[test]
fn fence_without_agent_falls_back_to_cluster_policy() {
    let mut bench = Bench::running();
    let rules = ClusterConfig {
        on_disconnect: LossPolicy::GiveUp,
        unfenced: true,
        ..ClusterConfig::default()
    };
    bench.apply(DispatchEvent::ClusterConfigured { name: "a".into(), config: rules });
    bench.apply(DispatchEvent::WorkloadChanged(WorkloadFacts {
        on_disconnect: Some(LossPolicy::Fence { after: 0 }),
        ..committed("w", "a", 1)
    }));
    assert_eq!((bench.take(), bench.dispatcher.fence("w", &"a".into())), (vec![], None));
    bench.down("a");
    bench.later(899_999);
    assert!(bench.take().is_empty());
    bench.later(1);
    assert_eq!(bench.take(), [LOST]);
}

#[test]
fn duplicate_policy_starts_elsewhere_and_keeps_one() {
    let mut bench = Bench::running();
    bench.rules("a", LossPolicy::Duplicate { after: 40_000 });
    bench.take();
    bench.down("a");
    bench.later(39_999);
    assert!(bench.take().is_empty());
    bench.later(1);
    assert_eq!(bench.take(), [LOST]);
    bench.runs("w", "b", 2);
    assert_eq!(bench.take(), ["Absent w/1 on a", "Run w/2 on b"], "the lower attempt is to go");
    bench.connect("a", &["w"]);
    bench.observe("a", "w", 1, State::Running);
    assert!(bench.take().is_empty());
    bench.observe("a", "w", 1, State::Succeeded);
    assert_eq!(bench.take(), ["ack w/1 to a"], "nobody waits for its end");
}

#[test]
fn declared_lost_moves_jobs_at_once_for_this_loss_only() {
    let declared = |bench: &mut Bench, declared_lost| {
        let rules = ClusterConfig { declared_lost, ..ClusterConfig::default() };
        bench.apply(DispatchEvent::ClusterConfigured { name: "a".into(), config: rules });
    };
    let mut bench = Bench::running();
    declared(&mut bench, true);
    assert!(bench.take().is_empty(), "it is connected");
    declared(&mut bench, false);
    bench.down("a");
    declared(&mut bench, true);
    assert_eq!(bench.take(), [LOST]);
}

#[test]
fn cluster_back_in_time_keeps_its_workloads() {
    let mut bench = Bench::running();
    bench.rules("a", LossPolicy::Duplicate { after: 40_000 });
    bench.down("a");
    bench.later(30_000);
    bench.connect("a", &["w"]);
    bench.down("a");
    bench.take();
    bench.later(30_000);
    assert!(bench.take().is_empty(), "each loss counts for itself");
}

#[test]
fn restart_grace_gives_up_nothing() {
    let settings = DispatcherSettings { restart_grace: 50_000, ..DispatcherSettings::default() };
    let mut dispatcher = Dispatcher::new(settings, START);
    let mut apply = |event, now| dispatcher.apply(event, now).iter().map(line).collect::<Vec<_>>();
    let rules = ClusterConfig {
        on_disconnect: LossPolicy::Duplicate { after: 0 },
        ..ClusterConfig::default()
    };
    apply(DispatchEvent::ClusterConfigured { name: "a".into(), config: rules }, START);
    apply(DispatchEvent::WorkloadChanged(committed("w", "a", 1)), START);
    assert!(apply(DispatchEvent::Tick, START + 49_999).is_empty());
    assert_eq!(apply(DispatchEvent::Tick, START + 50_000), [LOST]);
}

#[test]
fn deleted_cluster_leaves_no_state() {
    let mut bench = Bench::running();
    bench.apply(DispatchEvent::ClusterDeleted { name: "a".into() });
    bench.later(900_000);
    let retrying =
        committed("w", "a", 1).with(|it| it.check = Some(("mk".into(), CheckStatus::Retry)));
    bench.written(WriteOutcome::Done, retrying.clone());
    bench.apply(DispatchEvent::WorkloadChanged(retrying.with(|it| it.evicted = true)));
    assert_eq!(bench.take(), [LOST, "Absent w/1 on a", "forget w/1 on a", "release w"]);
    assert_eq!(bench.dispatcher.cluster_view("a").workloads, 0);

    let mut bench = Bench::running();
    bench.apply(DispatchEvent::ClusterDeleted { name: "a".into() });
    bench.apply(DispatchEvent::WorkloadDeleted { uid: "w".into() });
    assert_eq!(bench.take(), ["Absent w/1 on a", "forget w/1 on a"]);
    assert!(!bench.dispatcher.knows("w"));
}

/// The agent follows the fence that an earlier hub process announced, or none.
#[test]
fn changed_fence_counts_only_after_delivery() {
    let waiting = |change: fn(&mut Bench)| {
        let mut bench = Bench::forgetful(&["a"]);
        bench.apply(DispatchEvent::CheckConfigured {
            name: "mk".into(),
            clusters: vec!["a".into(), "b".into()],
        });
        bench.rules("b", LossPolicy::Fence { after: 0 });
        bench.tells("a", vec![]);
        bench.apply(DispatchEvent::WorkloadChanged(facts("w").with(|it| it.reserved = true)));
        change(&mut bench);
        bench.later(1_000);
        bench.take();
        let told = bench.dispatcher.entries.get("w").map(|entry| entry.facts.clone()).unwrap();
        bench.written(WriteOutcome::Done, told);
        bench.later(10 * 60_000);
        bench.take().iter().any(|action| action == "Reserve w/1 on a")
    };
    assert!(waiting(|_| {}), "as far as anybody knows, its agent has stopped what it had");
    assert!(!waiting(|bench| bench.rules("b", LossPolicy::Fence { after: 5_000 })));
    assert!(!waiting(|bench| {
        let on_disconnect = Some(LossPolicy::Fence { after: 5_000 });
        bench.apply(DispatchEvent::WorkloadChanged(WorkloadFacts {
            on_disconnect,
            version: 9,
            ..facts("w").with(|it| it.reserved = true)
        }));
    }));
}
