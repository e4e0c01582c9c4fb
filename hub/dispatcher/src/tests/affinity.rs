//! Affinity: which clusters get an offer, and in which order.

use switchyard_syntax::affinity::Affinity;

use super::*;

/// A workload with these annotations, without their prefix.
pub(super) fn bound(uid: &str, rules: &[(&str, &str)]) -> WorkloadFacts {
    let annotations = rules
        .iter()
        .map(|(key, text)| (format!("switchyard.dev/{key}"), (*text).to_owned()))
        .collect();
    WorkloadFacts { affinity: Affinity::of(Some(&annotations), None).map(Arc::new), ..facts(uid) }
}

impl Bench {
    fn label(&mut self, cluster: &str, region: &str, cost: i32) {
        let labels = BTreeMap::from([("region".to_owned(), region.to_owned())]);
        let rules = ClusterConfig { labels, cost, ..ClusterConfig::default() };
        self.apply(DispatchEvent::ClusterConfigured { name: cluster.into(), config: rules });
    }

    /// `a` and `b` in `eu`, `c` in `us`. The fullest with room comes first: `a`, `b`, `c`.
    fn labelled(mode: DispatchMode) -> Self {
        let mut bench = Self::new(mode, &[("a", 2000, 4000), ("b", 3000, 4000), ("c", 4000, 4000)]);
        for (name, region) in [("a", "eu"), ("b", "eu"), ("c", "us")] {
            bench.label(name, region, 0);
        }
        bench.take();
        bench
    }
}

#[test]
fn best_fit_honours_rules_before_room() {
    type Case = (&'static str, &'static [(&'static str, &'static str)], &'static str);
    let cases: [Case; 7] = [
        ("no rule", &[], "a"),
        ("required by name", &[("clusters", "c")], "c"),
        ("required by label", &[("cluster-selector", "region=us")], "c"),
        ("excluded by name", &[("excluded-clusters", "a")], "b"),
        ("excluded by label", &[("excluded-cluster-selector", "region=eu")], "c"),
        ("preferred by name", &[("preferred-clusters", "c")], "c"),
        (
            "preferred twice before once",
            &[("preferred-clusters", "b"), ("preferred-cluster-selector", "region")],
            "b",
        ),
    ];
    for (case, rules, to) in cases {
        let mut bench = Bench::labelled(DispatchMode::BestFit);
        bench.reserve(bound("w", rules));
        assert_eq!(bench.take(), [format!("Reserve w/1 on {to}")], "{case}");
    }
}

#[test]
fn cost_counts_after_preference_and_room_before_both() {
    let mut bench = Bench::labelled(DispatchMode::BestFit);
    bench.label("a", "eu", 30);
    bench.label("b", "eu", 20);
    bench.label("c", "us", 10);
    bench.reserve(facts("w"));
    assert_eq!(bench.take(), ["Reserve w/1 on c"], "the cheapest");
    bench.reserve(bound("v", &[("preferred-cluster-selector", "region=eu")]));
    assert_eq!(bench.take(), ["Reserve v/1 on b"], "the cheapest of those preferred");
    bench.capacity("c", 0, 4000);
    bench.reserve(bound("u", &[("preferred-clusters", "c")]));
    assert_eq!(bench.take(), ["Reserve u/1 on b"], "the preferred one is full");
}

#[test]
fn without_room_workload_waits_at_preferred_cluster() {
    let mut bench = Bench::labelled(DispatchMode::BestFit);
    for name in ["a", "b", "c"] {
        bench.capacity(name, 0, 4000);
    }
    bench.reserve(bound("w", &[("preferred-clusters", "c")]));
    assert_eq!(bench.take(), ["Reserve w/1 on c"]);
}

#[test]
fn every_mode_obeys_required_and_excluded_clusters() {
    let rules = [("cluster-selector", "region=eu"), ("excluded-clusters", "a")];
    for (mode, nominated) in [
        (DispatchMode::AllAtOnce, Some("b")),
        (DispatchMode::Incremental { step: 3, round: 60_000 }, Some("b")),
        (DispatchMode::External, None),
    ] {
        let mut bench = Bench::labelled(mode);
        bench.reserve(bound("w", &rules));
        let log = bench.take();
        assert_eq!(log.len(), 1, "{log:?}");
        if let Some(nominated) = nominated {
            assert!(log[0].ends_with(&format!("Some([{nominated:?}])")), "{log:?}");
        }
        let all = vec!["a".into(), "b".into(), "c".into()];
        let nominated = nominated.map_or(all, |name| vec![Name::from(name)]);
        bench.written(
            WriteOutcome::Done,
            WorkloadFacts { nominated, ..bound("w", &rules).with(|it| it.reserved = true) },
        );
        assert_eq!(bench.take(), ["Reserve w/1 on b"], "{mode:?}");
    }
}

#[test]
fn workload_without_allowed_cluster_gives_quota_back_with_rules() {
    for mode in [
        DispatchMode::BestFit,
        DispatchMode::AllAtOnce,
        DispatchMode::Incremental { step: 3, round: 60_000 },
        DispatchMode::External,
    ] {
        let mut bench = Bench::labelled(mode);
        bench.reserve(bound(
            "w",
            &[("cluster-selector", "region=asia"), ("excluded-clusters", "c")],
        ));
        let requires = "switchyard.dev/cluster-selector requires region=asia";
        assert_eq!(
            bench.take(),
            [format!(
                "give back w until {}: No worker cluster is allowed: a: {requires}; b: {requires}; c: {requires}",
                bench.now + 10_000
            )],
            "{mode:?}"
        );
        bench.label("b", "asia", 0);
        assert_eq!(bench.take(), ["wake w"], "{mode:?}: a label has changed");
    }
}

#[test]
fn changed_affinity_requeues_returned_workload() {
    let mut bench = Bench::labelled(DispatchMode::BestFit);
    bench.reserve(bound("w", &[("clusters", "z")]));
    bench.take();
    bench.apply(DispatchEvent::WorkloadChanged(bound("w", &[("clusters", "z")])));
    assert!(bench.take().is_empty(), "the same rule");
    bench.apply(DispatchEvent::WorkloadChanged(bound("w", &[("clusters", "b")])));
    assert_eq!(bench.take(), ["wake w"]);
    bench.rules("z", LossPolicy::Hold);
    bench.connect("z", &[]);
    bench.capacity("z", 4000, 4000);
    bench.reserve(bound("v", &[("clusters", "z")]));
    bench.take();
    bench.apply(DispatchEvent::CheckConfigured {
        name: "mk".into(),
        clusters: vec!["a".into(), "z".into()],
    });
    assert_eq!(bench.take(), ["wake v"], "its cluster is now one of the configuration's");
}

#[test]
fn offer_to_newly_excluded_cluster_is_withdrawn() {
    let mut bench = Bench::labelled(DispatchMode::BestFit);
    bench.reserve(bound("w", &[("excluded-cluster-selector", "region=us")]));
    bench.take();
    bench.label("a", "us", 0);
    assert_eq!(bench.take(), ["Absent w/1 on a", "Reserve w/1 on b"], "its label has changed");
    bench.apply(DispatchEvent::WorkloadChanged(bound("w", &[("clusters", "c")])));
    assert_eq!(bench.take(), ["Absent w/1 on b", "Reserve w/1 on c"], "its rule has changed");
    bench.observe("b", "w", 1, State::Reserved);
    assert!(bench.take().is_empty(), "quota held where it is not allowed does not count");
}

#[test]
fn running_workload_stays_when_affinity_changes() {
    let mut bench = Bench::running();
    let excluded = bound("w", &[("excluded-clusters", "a"), ("cluster-selector", "region=us")]);
    bench.apply(DispatchEvent::WorkloadChanged(WorkloadFacts {
        affinity: excluded.affinity.clone(),
        ..committed("w", "a", 1)
    }));
    bench.label("a", "us", 99);
    bench.later(60_000);
    assert!(bench.take().is_empty());
    let move_request = Some((1, "b".into()));
    bench.apply(DispatchEvent::WorkloadChanged(WorkloadFacts {
        affinity: excluded.affinity,
        move_request,
        ..committed("w", "a", 1)
    }));
    bench.later(60_000);
    assert!(bench.take().is_empty(), "nor is it moved where a rule does not let it");
    bench.label("b", "us", 0);
    bench.later(60_000);
    let log = bench.take();
    assert!(
        log.first().is_some_and(|line| line.contains("Moved from worker cluster \"a\" to \"b\"")),
        "{log:?}"
    );
}
