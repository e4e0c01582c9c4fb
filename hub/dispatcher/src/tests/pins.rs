//! Flavor pins: the flavors that clusters must use.

use super::*;

fn charged(uid: &str, flavor: &str) -> WorkloadFacts {
    WorkloadFacts { charged: charge(flavor), ..facts(uid) }
}

fn rules(is_off: bool, mapping: &[(Option<&str>, &str, &str)]) -> DispatchEvent {
    let name = |(cluster, flavor, worker): &(Option<&str>, &str, &str)| FlavorName {
        cluster: cluster.map(Name::from),
        flavor: (*flavor).into(),
        worker_flavor: (*worker).into(),
    };
    let mapping = mapping.iter().map(name).collect();
    DispatchEvent::PinsConfigured { check: "mk".into(), rules: PinRules { is_off, mapping } }
}

/// Two clusters with flavor `default` that enforce pins.
fn bench() -> Bench {
    let mut bench = Bench::new(DispatchMode::BestFit, &[("a", 2000, 4000), ("b", 4000, 4000)]);
    bench.apply(rules(false, &[]));
    bench
}

#[test]
fn cluster_without_the_charged_flavor_is_not_asked() {
    let mut bench = bench();
    bench.reserve(charged("w", "spot"));
    let out = bench.take();
    assert!(out.iter().all(|it| !it.starts_with("Reserve")), "{out:?}");
    let says = "flavor spot, which the hub charged for cpu, is not in ClusterQueue cq";
    assert!(out[0].starts_with("give back w") && out[0].contains(says), "{out:?}");
    // Further reports leave it parked, also once the API shows its quota as released.
    bench.apply(DispatchEvent::WorkloadChanged(facts("w")));
    bench.capacity("a", 3000, 4000);
    assert!(bench.take().is_empty());
}

#[test]
fn mapping_names_the_flavor_on_the_cluster() {
    let mut bench = bench();
    bench.apply(rules(false, &[(Some("b"), "spot", "default")]));
    bench.reserve(charged("w", "spot"));
    assert_eq!(bench.take(), ["Reserve w/1 on b"]);
    assert_eq!(bench.dispatcher.flavor_pins("w", "b"), *charge("default"));
    assert_eq!(bench.dispatcher.flavor_pins("w", "a"), *charge("spot"));
}

#[test]
fn policy_none_pins_nothing() {
    let mut bench = bench();
    bench.apply(rules(true, &[]));
    bench.reserve(charged("w", "spot"));
    assert_eq!(bench.take(), ["Reserve w/1 on a"]);
    assert!(bench.dispatcher.flavor_pins("w", "a").is_empty());
}

#[test]
fn new_rules_renew_offers_and_requeue_parked_workloads() {
    let mut bench = bench();
    bench.reserve(charged("parked", "spot"));
    bench.reserve(charged("w", "default"));
    bench.take();
    bench.apply(rules(false, &[(None, "spot", "default")]));
    let out = bench.take();
    assert!(out.contains(&"wake parked".to_owned()), "{out:?}");
    assert!(out.contains(&"Absent w/1 on a".to_owned()), "{out:?}");
    assert!(out.iter().any(|it| it.starts_with("Reserve w/2")), "{out:?}");
    bench.apply(rules(false, &[(None, "spot", "default")]));
    assert!(bench.take().is_empty(), "nothing new");
}

#[test]
fn refusal_counts_until_another_flavor_is_charged() {
    let mut bench = Bench::new(DispatchMode::BestFit, &[("a", 2000, 4000)]);
    bench.apply(rules(false, &[(None, "spot", "default")]));
    bench.reserve(charged("w", "default"));
    assert_eq!(bench.take(), ["Reserve w/1 on a"]);
    bench.observe("a", "w", 1, State::Unfit);
    assert!(bench.take().iter().any(|it| it.starts_with("give back w")));
    bench.apply(DispatchEvent::WorkloadChanged(facts("w")));
    bench.reserve(charged("w", "default"));
    assert!(bench.take().iter().all(|it| !it.starts_with("Reserve")), "it has refused");
    bench.reserve(charged("w", "spot"));
    assert!(bench.take().iter().any(|it| it.starts_with("Reserve w/")), "it is asked for another");
}

/// The engine charges two flavors in turn. The hub asks a cluster that refused both with neither.
#[test]
fn refusal_is_kept_for_each_charge() {
    let mut bench = Bench::new(DispatchMode::BestFit, &[("a", 2000, 4000)]);
    bench.apply(rules(false, &[(None, "spot", "default")]));
    for (charge, asked) in [("default", true), ("spot", true), ("default", false), ("spot", false)]
    {
        bench.reserve(charged("w", charge));
        let offers: Vec<String> =
            bench.take().into_iter().filter(|it| it.starts_with("Reserve")).collect();
        assert_eq!(offers.len(), usize::from(asked), "{charge}: {offers:?}");
        if asked {
            let attempt = bench.dispatcher.entries["w"].highest_attempt;
            bench.observe("a", "w", attempt, State::Unfit);
        }
        bench.apply(DispatchEvent::WorkloadChanged(facts("w")));
        bench.take();
    }
}

/// For example, another user has a job of that name.
#[test]
fn refused_object_is_refused_in_all_flavors() {
    let mut bench = Bench::new(DispatchMode::BestFit, &[("a", 2000, 4000)]);
    bench.apply(rules(false, &[(None, "spot", "default")]));
    bench.reserve(charged("w", "default"));
    bench.observe("a", "w", 1, State::Refused);
    bench.apply(DispatchEvent::WorkloadChanged(facts("w")));
    bench.take();
    bench.reserve(charged("w", "spot"));
    let out = bench.take();
    assert!(out.iter().all(|it| !it.starts_with("Reserve")), "{out:?}");
}

/// The engine charges flavors in turn. If the hub waited for the end of the refusal, each round
/// would ask the refusing cluster first.
#[test]
fn flavor_that_no_cluster_has_is_retried_before_refusals_end() {
    let settings =
        DispatcherSettings { refusal_backoff: (320_000, 320_000), ..DispatcherSettings::default() };
    let first = settings.return_backoff.0;
    let mut bench = Bench::with(settings, &[("a", 2000, 4000)]);
    bench.apply(rules(false, &[]));
    bench.reserve(charged("w", "default"));
    bench.observe("a", "w", 1, State::Refused);
    bench.take();
    bench.reserve(charged("w", "spot"));
    let out = bench.take();
    let until = format!("give back w until {}", bench.now + first);
    assert!(out.iter().any(|it| it.starts_with(&until)), "{out:?}");
}

#[test]
fn refusal_after_a_change_of_the_queue_counts() {
    let settings =
        DispatcherSettings { refusal_backoff: (20_000, 320_000), ..DispatcherSettings::default() };
    let mut bench = Bench::with(settings, &[("a", 2000, 4000)]);
    bench.apply(rules(false, &[]));
    bench.reserve(charged("w", "default"));
    bench.observe("a", "w", 1, State::Refused);
    bench.capacity("a", 3000, 5000);
    bench.reserve(charged("w", "default"));
    bench.later(1_000);
    let attempt = bench.dispatcher.entries["w"].highest_attempt;
    bench.observe("a", "w", attempt, State::Unfit);
    bench.take();
    bench.reserve(charged("w", "default"));
    let out = bench.take();
    assert!(out.iter().all(|it| !it.starts_with("Reserve")), "{out:?}");
}

/// The API never showed the reservation, so nothing but the parked workload names the check.
#[test]
fn new_mapping_forgets_refusals_of_parked_workload() {
    let mut bench = Bench::new(DispatchMode::BestFit, &[("a", 2000, 4000)]);
    bench.apply(rules(false, &[]));
    let without_check = |facts: WorkloadFacts| facts.with(|it| it.check = None);
    bench.reserve(without_check(charged("w", "default")));
    bench.observe("a", "w", 1, State::Unfit);
    bench.apply(DispatchEvent::WorkloadChanged(without_check(facts("w"))));
    assert!(bench.take().iter().any(|it| it.starts_with("give back w")));
    bench.apply(rules(false, &[(None, "spot", "default")]));
    assert!(bench.take().contains(&"wake w".to_owned()));
    bench.reserve(without_check(charged("w", "default")));
    let out = bench.take();
    assert!(out.iter().any(|it| it.starts_with("Reserve w/")), "{out:?}");
}

/// A worker never changes the pins of a copy, so one of an earlier leader has those of its charge.
#[rstest::rstest]
#[case::best_fit(DispatchMode::BestFit)]
#[case::all_at_once(DispatchMode::AllAtOnce)]
fn waiting_copy_of_earlier_leader_is_made_again(#[case] mode: DispatchMode) {
    for state in [State::Waiting, State::Refused, State::Unfit] {
        let mut bench = Bench::new(mode, &[("a", 2000, 4000)]);
        bench.apply(rules(false, &[]));
        bench.observe("a", "w", 1, state);
        let nominated = WorkloadFacts { nominated: vec!["a".into()], ..charged("w", "default") };
        bench.apply(DispatchEvent::WorkloadChanged(nominated.with(|it| it.reserved = true)));
        let out = bench.take();
        assert!(out.contains(&"Absent w/1 on a".to_owned()), "{mode:?} {state:?}: {out:?}");
        assert!(out.contains(&"Reserve w/2 on a".to_owned()), "{mode:?} {state:?}: {out:?}");
    }
}

/// They wait on a cluster whatever it reports, and would hold the hub's quota for ever.
#[test]
fn kueue_dispatcher_returns_charge_that_no_cluster_lists() {
    let mut bench = Bench::new(DispatchMode::AllAtOnce, &[("a", 2000, 4000), ("b", 4000, 4000)]);
    bench.apply(rules(false, &[]));
    bench.reserve(charged("w", "spot"));
    let out = bench.take();
    let says = "flavor spot, which the hub charged for cpu, is not in ClusterQueue cq";
    assert!(out.len() == 1 && out[0].starts_with("give back w"), "{out:?}");
    assert!(out[0].contains(says), "{out:?}");
    bench.reserve(charged("w", "default"));
    let out = bench.take();
    assert!(out.iter().all(|it| !it.starts_with("give back")), "{out:?}");
    // A cluster that has the flavor and is too small changes nothing.
    let mut small = queues(500, 500);
    for queue in small.values_mut() {
        queue.flavors[0].name = "spot".into();
    }
    bench.apply(DispatchEvent::CapacityReported { cluster: "b".into(), report: report(small) });
    bench.reserve(charged("y", "spot"));
    let out = bench.take();
    assert!(out.iter().any(|it| it.starts_with("give back y")), "{out:?}");
    // A cluster that does not enforce pins may use another flavor.
    let report = CapacityReport { queues: queues(2000, 4000), ..CapacityReport::default() };
    bench.apply(DispatchEvent::CapacityReported { cluster: "a".into(), report });
    bench.reserve(charged("x", "spot"));
    let out = bench.take();
    assert!(out.iter().all(|it| !it.starts_with("give back")), "{out:?}");
}

#[test]
fn later_replica_joins_only_a_cluster_with_its_flavor() {
    let mut bench = bench();
    let later = |flavor, cluster: &str| WorkloadFacts {
        replica: Some(Replica::FirstOnCluster(cluster.into())),
        ..charged("w", flavor)
    };
    bench.reserve(later("spot", "b"));
    let out = bench.take();
    let says = "Worker cluster \"b\", which has the first replica: couldn't assign flavors to pod \
                set main: flavor spot, which the hub charged for cpu, is not in ClusterQueue cq";
    assert!(out.len() == 1 && out[0].starts_with("give back w"), "{out:?}");
    assert!(out[0].contains(says), "{out:?}");
    let spot = |free| {
        let mut queues = queues(free, 4000);
        for queue in queues.values_mut() {
            queue.flavors[0].name = "spot".into();
        }
        report(queues)
    };
    bench.apply(DispatchEvent::CapacityReported { cluster: "a".into(), report: spot(3000) });
    assert!(bench.take().is_empty(), "the first replica is elsewhere");
    bench.apply(DispatchEvent::CapacityReported { cluster: "b".into(), report: spot(3000) });
    assert_eq!(bench.take(), ["wake w"]);
    bench.reserve(later("spot", "b"));
    assert_eq!(bench.take(), ["commit w/1 on b"]);
}

/// The flavors of a copy's quota say nothing about the next attempt.
#[test]
fn next_attempt_has_no_flavors_of_the_last_one() {
    let mut bench = Bench::new(DispatchMode::BestFit, &[("a", 2000, 4000)]);
    bench.apply(rules(false, &[]));
    bench.reserve(charged("w", "default"));
    let flavors = Some(charge("spot"));
    bench.observed("a", Observation { flavors, ..observation("w", 1, State::Reserved) });
    bench.take();
    assert!(bench.dispatcher.flavor_mismatches("w", "a").is_empty());
    bench.observe("a", "w", 2, State::Reserved);
    let out = bench.take();
    assert!(out.iter().any(|it| it == "commit w/2 on a"), "{out:?}");
}

#[test]
fn cluster_that_cannot_be_pinned_is_second_choice() {
    let mut bench = bench();
    let chooses = |free| CapacityReport { queues: queues(free, 4000), ..CapacityReport::default() };
    let spot = |free| {
        let mut report = chooses(free);
        for queue in report.queues.values_mut() {
            queue.flavors[0].name = "spot".into();
        }
        report
    };
    // `a` fits most tightly, and would use another flavor.
    bench.apply(DispatchEvent::CapacityReported { cluster: "a".into(), report: spot(1000) });
    bench.reserve(charged("w", "default"));
    assert_eq!(bench.take(), ["Reserve w/1 on b"]);
    bench.observe("b", "w", 1, State::Unfit);
    assert!(bench.take().contains(&"Reserve w/1 on a".to_owned()), "no refusal, a preference");
    assert_eq!(bench.dispatcher.flavor_pins("w", "a"), *charge("default"), "sent all the same");
}

/// An earlier leader offered attempt 1 for another charge.
#[test]
fn copy_of_an_earlier_charge_is_not_committed() {
    let mut bench = bench();
    bench.reserve(charged("w", "default"));
    assert_eq!(bench.take(), ["Reserve w/1 on a"]);
    let reserved = |flavor| {
        let flavors = Some(charge(flavor));
        Observation { flavors, ..observation("w", 1, State::Reserved) }
    };
    bench.observed("a", reserved("spot"));
    let out = bench.take();
    assert_eq!(out[0], "Absent w/1 on a");
    assert!(out.iter().any(|it| it.starts_with("Reserve w/")), "{out:?}");
    assert!(out.iter().all(|it| !it.contains("commit")), "{out:?}");
    // Once more, the cluster refuses what it must use.
    bench.observed("a", Observation { attempt: 2, ..reserved("spot") });
    let out = bench.take();
    assert!(out.iter().all(|it| !it.contains("on a") || it.starts_with("Absent")), "{out:?}");
    let mut bench = Bench::new(DispatchMode::BestFit, &[("a", 2000, 4000)]);
    bench.apply(rules(false, &[]));
    bench.reserve(charged("w", "default"));
    bench.take();
    let report = CapacityReport { queues: queues(2000, 4000), ..CapacityReport::default() };
    bench.apply(DispatchEvent::CapacityReported { cluster: "a".into(), report });
    bench.observed("a", reserved("spot"));
    let out = bench.take();
    assert!(out.iter().any(|it| it.contains("commit")), "stock Kueue chose it: {out:?}");
    let mismatches = bench.dispatcher.flavor_mismatches("w", "a");
    let [pod_set, resource, pin, used] = ["main", "cpu", "default", "spot"].map(str::to_owned);
    assert_eq!(mismatches, [FlavorMismatch { pod_set, resource, pin, used }]);
}

/// The Workload changed after the engine's decision, before the dispatcher read both.
#[test]
fn reservation_of_an_older_version_brings_its_charge() {
    let mut bench = bench();
    bench.apply(rules(false, &[(None, "spot", "default")]));
    bench.reserve(charged("w", "spot"));
    bench.observe("b", "w", 1, State::Unfit);
    bench.apply(DispatchEvent::WorkloadChanged(WorkloadFacts { version: 7, ..facts("w") }));
    bench.reserve(WorkloadFacts { version: 6, ..charged("w", "default") });
    assert_eq!(bench.dispatcher.entries["w"].facts.charged, charge("default"));
}

/// An earlier leader's late write reserved quota in other flavors.
#[rstest::rstest]
#[case::other_flavors(Some("spot"))]
#[case::no_flavors(None)]
fn quota_in_the_api_is_the_charge(#[case] shown: Option<&str>) {
    let shown = shown.map(charge).unwrap_or_default();
    let held = WorkloadFacts { charged: shown.clone(), version: 7, ..facts("w") };
    let held = held.with(|it| it.reserved = true);
    let mut bench = bench();
    bench.apply(rules(false, &[(None, "spot", "default")]));
    bench.apply(DispatchEvent::WorkloadChanged(held));
    bench.reserve(WorkloadFacts { version: 6, ..charged("w", "default") });
    assert_eq!(bench.dispatcher.entries["w"].facts.charged, shown);
}

#[test]
fn commit_for_another_charge_is_decided_again() {
    let mut bench = bench();
    bench.apply(rules(false, &[(Some("b"), "spot", "default")]));
    bench.reserve(charged("w", "default"));
    let flavors = Some(charge("default"));
    bench.observed("a", Observation { flavors, ..observation("w", 1, State::Reserved) });
    assert_eq!(bench.take(), ["Reserve w/1 on a", "commit w/1 on a"]);
    let held = WorkloadFacts { version: 7, ..charged("w", "spot") };
    bench.written(WriteOutcome::Superseded, held.with(|it| it.reserved = true));
    bench.later(100);
    assert_eq!(bench.take(), ["Absent w/1 on a", "Reserve w/1 on b"]);
    let observation = observation("w", 1, State::Reserved);
    let event = DispatchEvent::Observed { cluster: "b".into(), observation };
    let actions = bench.dispatcher.apply(event, bench.now);
    let flavors = |action: &DispatchAction| match action {
        DispatchAction::Write { write, .. } => match &**write {
            WorkloadWrite::Commit { charged, .. } => Some(charged.clone()),
            _ => None,
        },
        _ => None,
    };
    assert_eq!(actions.iter().find_map(flavors), Some(charge("spot")));
}

/// The cluster reports the copy to a new leader, which already knows the workload.
#[rstest::rstest]
#[case::stock_kueue(false)]
#[case::switchyard(true)]
fn waiting_copy_keeps_its_place_where_pins_mean_nothing(#[case] enforces_pins: bool) {
    let mut bench = Bench::new(DispatchMode::AllAtOnce, &[("a", 2000, 4000)]);
    bench.apply(rules(false, &[]));
    bench.down("a");
    let held = charged("w", "default").with(|it| it.reserved = true);
    let nominated = WorkloadFacts { nominated: vec!["a".into()], ..held };
    bench.apply(DispatchEvent::WorkloadChanged(nominated));
    bench.apply(DispatchEvent::SessionOpened { name: "a".into() });
    let report = CapacityReport { enforces_pins, ..report(queues(2000, 4000)) };
    bench.apply(DispatchEvent::CapacityReported { cluster: "a".into(), report });
    bench.observe("a", "w", 1, State::Waiting);
    let uids = ["w".into()].into();
    bench.apply(DispatchEvent::InventoryComplete { cluster: "a".into(), uids });
    let out = bench.take();
    let is_withdrawn = out.contains(&"Absent w/1 on a".to_owned());
    assert_eq!(is_withdrawn, enforces_pins, "{out:?}");
}
