//! Bad objects by table: the reason of a workload behind them, and that another queue still admits
//! in the same cycle.

use rstest::rstest;

use crate::fixtures::{Stage, cohort, cq, flavor, lq, wl};
use crate::{
    Amount, ClusterQueue, Decision, EngineSettings, Event, FlavorQuotas, PreemptionPolicy,
    PreemptionRules, Quota, ResourceGroup,
};

/// A queue of five cores with these limits.
fn limited(borrowing: Option<i64>, lending: Option<i64>) -> ClusterQueue {
    let mut queue = cq("main").quota("default", "cpu", 5);
    let quota = &mut queue.resource_groups[0].flavors[0].resources[0].1;
    quota.borrowing_limit = borrowing.map(Amount::new);
    quota.lending_limit = lending.map(Amount::new);
    queue
}

/// More flavors or resources than an API server accepts.
fn wide(flavors: usize, resources: usize) -> ClusterQueue {
    let covered: Vec<crate::Name> = (0..resources)
        .map(|number| if number == 0 { "cpu".into() } else { format!("r{number}").into() })
        .collect();
    let quotas = covered
        .iter()
        .map(|name| (name.clone(), Quota { nominal: Amount::new(5000), ..Quota::default() }));
    let quotas: Vec<_> = quotas.collect();
    let flavors = (0..flavors).map(|number| FlavorQuotas {
        name: format!("f{number}").into(),
        resources: quotas.clone(),
    });
    let group = ResourceGroup { covered_resources: covered, flavors: flavors.collect() };
    ClusterQueue { resource_groups: vec![group], ..ClusterQueue::new("main") }
}

fn cycle_of_cohorts(stage: &mut Stage) {
    stage.apply(Event::Cohort(cohort("a").below("b")));
    stage.apply(Event::Cohort(cohort("b").below("c")));
    stage.apply(Event::Cohort(cohort("c").below("a")));
    stage.queue(cq("main").cohort("a").quota("default", "cpu", 5));
}

fn two_parents(stage: &mut Stage) {
    for parent in ["left", "right"] {
        stage.apply(Event::Cohort(cohort(parent).limited("default", "cpu", 2, -1, -1)));
        stage.apply(Event::Cohort(cohort("a").below(parent)));
    }
    stage.queue(cq("main").cohort("a").quota("default", "cpu", 5));
}

fn weights(stage: &mut Stage, milli: i64) {
    let weightless =
        |name: &str| ClusterQueue { fair_weight_milli: milli, ..cq(name).cohort("all") };
    stage.queue(weightless("main").quota("default", "cpu", 5));
    stage.queue(weightless("twin").quota("default", "cpu", 5));
    let mut all = cohort("all");
    all.fair_weight_milli = milli;
    stage.apply(Event::Cohort(all));
}

fn reclaiming(mut queue: ClusterQueue) -> ClusterQueue {
    let (within_cluster_queue, reclaim_within_cohort) =
        (PreemptionPolicy::Any, PreemptionPolicy::Any);
    queue.preemption = PreemptionRules {
        within_cluster_queue,
        reclaim_within_cohort,
        ..PreemptionRules::default()
    };
    queue
}

const ADMITTED: &str = "it has quota";
const INACTIVE: &str = "Suspended: ClusterQueue main is inactive";
const ONE_MORE: &str = "WaitingForQuota: couldn't assign flavors to pod set main: insufficient unused quota for cpu in \
                        flavor default, 1 more needed";

/// Each case builds the ClusterQueue `main`; workload `a` requests `cores` of it.
#[rstest]
#[case::cohorts_in_a_cycle(cycle_of_cohorts, 1, INACTIVE)]
#[case::a_cohort_that_is_its_own_parent(|stage: &mut Stage| {
    stage.apply(Event::Cohort(cohort("a").below("a")));
    stage.queue(cq("main").cohort("a").quota("default", "cpu", 5));
}, 1, INACTIVE)]
#[case::a_cycle_that_was_broken_again(|stage: &mut Stage| {
    cycle_of_cohorts(stage);
    stage.apply(Event::CohortDeleted { name: "c".into() });
}, 5, ADMITTED)]
#[case::of_two_parents_the_last_counts(two_parents, 7, ADMITTED)]
#[case::the_first_of_two_parents_lends_nothing(
    two_parents,
    8,
    "ExceedsMaxQuota: couldn't assign flavors to pod set main: \
    insufficient quota for cpu in flavor default, previously considered podsets requests (0) + current podset request (8) \
    > maximum capacity (7)"
)]
#[case::a_quota_below_zero(|stage: &mut Stage| stage.queue(cq("main").quota("default", "cpu", -5)), 1,
    "ExceedsMaxQuota: couldn't assign flavors to pod set main: insufficient quota for cpu in flavor default, previously \
    considered podsets requests (0) + current podset request (1) > maximum capacity (-5)")]
#[case::a_borrowing_limit_below_zero_without_a_cohort(|stage: &mut Stage| stage.queue(limited(Some(-1000), None)), 5, ADMITTED)]
#[case::borrowing_without_a_cohort(|stage: &mut Stage| stage.queue(limited(Some(5000), Some(5000))), 6,
    "ExceedsMaxQuota: couldn't assign flavors to pod set main: insufficient quota for cpu in flavor default, previously \
    considered podsets requests (0) + current podset request (6) > maximum capacity (5)")]
#[case::a_borrowing_limit_below_zero_in_a_cohort(
    |stage: &mut Stage| stage.queue(ClusterQueue { cohort: Some("all".into()), ..limited(Some(-1000), None) }), 4, ADMITTED)]
#[case::a_lending_limit_below_zero(
    |stage: &mut Stage| stage.queue(ClusterQueue { cohort: Some("all".into()), ..limited(None, Some(-1000)) }), 5, ADMITTED)]
#[case::limits_beyond_all(
    |stage: &mut Stage| stage.queue(ClusterQueue { cohort: Some("all".into()), ..limited(Some(i64::MAX), Some(i64::MAX)) }),
    5, ADMITTED)]
#[case::a_request_that_overflows(|stage: &mut Stage| stage.queue(cq("main").quota("default", "cpu", 5)), i64::MAX,
    "ExceedsMaxQuota: couldn't assign flavors to pod set main: insufficient quota for cpu in flavor default, previously \
    considered podsets requests (0) + current podset request (9223372036854775807m) > maximum capacity (5)")]
#[case::a_quota_that_overflows(|stage: &mut Stage| stage.queue(cq("main").quota("default", "cpu", i64::MAX)), i64::MAX, ADMITTED)]
#[case::a_flavor_that_does_not_exist(|stage: &mut Stage| stage.queue(cq("main").quota("absent", "cpu", 5)), 1, INACTIVE)]
#[case::more_flavors_than_allowed(|stage: &mut Stage| {
    (0..300).for_each(|number| stage.apply(Event::ResourceFlavor(flavor(&format!("f{number}")))));
    stage.queue(wide(300, 1));
}, 5, ADMITTED)]
#[case::more_resources_than_allowed(|stage: &mut Stage| {
    stage.apply(Event::ResourceFlavor(flavor("f0")));
    stage.queue(wide(1, 300));
}, 5, ADMITTED)]
#[case::no_weight(|stage: &mut Stage| weights(stage, 0), 6, ADMITTED)]
#[case::a_weight_below_zero(|stage: &mut Stage| weights(stage, -1000), 6, ADMITTED)]
#[case::a_weight_beyond_all(|stage: &mut Stage| weights(stage, i64::MAX), 6, ADMITTED)]
#[case::a_queue_without_groups(|stage: &mut Stage| stage.queue(ClusterQueue::new("main")), 1,
    "NoMatchingFlavor: couldn't assign flavors to pod set main: resource cpu unavailable in ClusterQueue")]
#[case::a_group_without_flavors(|stage: &mut Stage| {
    let group = ResourceGroup { covered_resources: vec!["cpu".into()], flavors: Vec::new() };
    stage.queue(ClusterQueue { resource_groups: vec![group], ..ClusterQueue::new("main") });
}, 1, "NoMatchingFlavor: couldn't assign flavors to pod set main: resource cpu unavailable in ClusterQueue")]
#[case::a_queue_without_groups_and_zero_asked(|stage: &mut Stage| stage.queue(ClusterQueue::new("main")), 0, ADMITTED)]
#[case::a_queue_that_was_cut_below_what_it_uses(|stage: &mut Stage| {
    stage.queue(cq("main").quota("default", "cpu", 5));
    stage.submit(wl("before").request("cpu", 5));
    stage.admit_all();
    stage.queue(cq("main").quota("default", "cpu", 1));
}, 1, ONE_MORE)]
#[case::a_preemptor_whose_queue_has_no_weight(|stage: &mut Stage| {
    weights(stage, 0);
    let weightless = ClusterQueue { fair_weight_milli: 0, ..cq("main").cohort("all").quota("default", "cpu", 5) };
    stage.queue(reclaiming(weightless));
}, 6, ADMITTED)]
fn bad_object_affects_only_its_workloads(
    #[case] bad: impl Fn(&mut Stage),
    #[case] cores: i64,
    #[case] rendered: &str,
    #[values(false, true)] fair_sharing: bool,
) {
    let mut stage =
        Stage::with_preemption(EngineSettings { fair_sharing, ..EngineSettings::default() });
    stage.apply(Event::LocalQueue(lq("healthy", "healthy")));
    stage.queue(cq("healthy").quota("default", "cpu", 5));
    bad(&mut stage);
    stage.submit(wl("a").request("cpu", cores));
    stage.submit(wl("fine").queue("healthy").request("cpu", 5).at(9));
    let first = stage.engine.cycle(stage.now).decisions;
    let admitted = |decision: &Decision| matches!(decision, Decision::Reserve { key, .. } if &*key.name == "fine");
    assert!(first.iter().any(admitted), "a healthy queue waits for nobody: {first:?}");
    for _ in 0..3 {
        stage.cycle();
    }
    assert_eq!(stage.why("a"), rendered);
    // An explanation harms no object either.
    assert!(stage.engine.explain(&crate::WorkloadKey::new("ns", "a"), stage.now).is_some());
}
