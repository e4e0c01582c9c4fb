//! Flavors to which clusters are bound.

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

/// Two clusters with flavor `default` that keep to pins.
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
    bench.apply(rules(false, &[]));
    bench.reserve(charged("w", "default"));
    assert_eq!(bench.take(), ["Reserve w/1 on a"]);
    bench.observe("a", "w", 1, State::Unfit);
    assert!(bench.take().iter().any(|it| it.starts_with("give back w")));
    bench.apply(DispatchEvent::WorkloadChanged(facts("w")));
    bench.reserve(charged("w", "default"));
    assert!(bench.take().iter().all(|it| !it.starts_with("Reserve")), "it has refused");
    bench.apply(rules(false, &[(None, "spot", "default")]));
    bench.reserve(charged("w", "spot"));
    assert!(bench.take().iter().any(|it| it.starts_with("Reserve w/")), "it is asked for another");
}

#[test]
fn cluster_that_cannot_be_pinned_is_second_choice() {
    let mut bench = bench();
    let chooses = |free| CapacityReport { queues: queues(free, 4000), keeps_pins: false };
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
    let report = CapacityReport { queues: queues(2000, 4000), keeps_pins: false };
    bench.apply(DispatchEvent::CapacityReported { cluster: "a".into(), report });
    bench.observed("a", reserved("spot"));
    let out = bench.take();
    assert!(out.iter().any(|it| it.contains("commit")), "stock Kueue chose it: {out:?}");
    let other = bench.dispatcher.other_flavors("w", "a");
    assert_eq!(other, [["main", "cpu", "default", "spot"]]);
}
