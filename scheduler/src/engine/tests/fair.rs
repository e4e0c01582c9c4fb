//! Fair sharing: order of entries, victims and status.

use crate::fixtures::{Stage, cohort, cq, lq, wl};
use crate::{
    ClusterQueue, Engine, EngineSettings, Event, FairStrategy, PreemptionPolicy, PreemptionRules,
    PreemptionSettings,
};

fn settings() -> EngineSettings {
    EngineSettings { fair_sharing: true, ..EngineSettings::default() }
}

fn reclaiming(queue: ClusterQueue) -> ClusterQueue {
    let preemption = PreemptionRules {
        reclaim_within_cohort: PreemptionPolicy::Any,
        ..PreemptionRules::default()
    };
    ClusterQueue { preemption, ..queue }
}

/// Queues `a`, `b` and `c` in one cohort of 12 cores, each with a LocalQueue of its name.
fn three(weights: [i64; 3]) -> Stage {
    let mut stage = Stage::with_preemption(settings());
    stage.apply(Event::Cohort(cohort("all").limited("default", "cpu", 12, -1, -1)));
    for (name, fair_weight_milli) in ["a", "b", "c"].into_iter().zip(weights) {
        stage.apply(Event::LocalQueue(lq(name, name)));
        let queue = reclaiming(cq(name).cohort("all").quota("default", "cpu", 0));
        stage.queue(ClusterQueue { fair_weight_milli, ..queue });
    }
    stage
}

/// Submits and admits `count` workloads of one core each.
fn fill(stage: &mut Stage, queue: &str, count: usize) {
    for number in 0..count {
        stage.submit(wl(&format!("{queue}{number:02}")).queue(queue).request("cpu", 1));
    }
    assert_eq!(stage.admit_all().len(), count);
}

fn share(stage: &Stage, queue: &str) -> i64 {
    stage.engine.cluster_queue(queue).unwrap().weighted_share
}

#[test]
fn share_is_borrowed_over_lendable_by_weight() {
    let mut stage = three([1000, 2000, 0]);
    fill(&mut stage, "a", 6);
    fill(&mut stage, "b", 3);
    assert_eq!((share(&stage, "a"), share(&stage, "b"), share(&stage, "c")), (500, 125, 0));
    fill(&mut stage, "c", 1);
    assert_eq!(share(&stage, "c"), i64::MAX, "it borrows and weighs nothing");
    assert_eq!(stage.engine.cohort("all").unwrap().weighted_share, 0, "a root borrows from nobody");
    assert_eq!(stage.engine.cohort("unknown"), None);
}

#[test]
fn lowest_share_goes_before_age_and_priority() {
    let mut stage = three([1000; 3]);
    fill(&mut stage, "a", 4);
    fill(&mut stage, "b", 2);
    stage.submit(wl("from-a").queue("a").request("cpu", 1).priority(100));
    stage.submit(wl("from-b").queue("b").request("cpu", 1).at(9));
    stage.submit(wl("from-c").queue("c").request("cpu", 1).at(10));
    assert_eq!(stage.admit(), ["from-c", "from-b", "from-a"]);
}

#[test]
fn non_borrowing_entry_goes_before_a_lower_share() {
    let mut stage = three([1000; 3]);
    stage.queue(reclaiming(
        cq("c").cohort("all").quota("default", "cpu", 4).quota("spot", "cpu", 0),
    ));
    stage.queue(cq("lender").cohort("all").quota("spot", "cpu", 100));
    // `c` borrows `spot`, and nothing of its request.
    stage.submit(wl("big").queue("c").request("cpu", 90));
    assert_eq!(stage.admit(), ["big"]);
    stage.submit(wl("from-a").queue("a").request("cpu", 1));
    stage.submit(wl("from-c").queue("c").request("cpu", 1).at(9));
    assert_eq!(stage.admit(), ["from-c", "from-a"]);
}

#[test]
fn highest_shares_are_preempted_until_fair() {
    let mut stage = three([1000; 3]);
    fill(&mut stage, "a", 8);
    fill(&mut stage, "b", 4);
    stage.submit(wl("new").queue("c").request("cpu", 3));
    let told: Vec<_> =
        stage.cycle().into_iter().filter(|text| text.starts_with("preempt")).collect();
    assert_eq!(told.len(), 3, "{told:?}");
    assert!(
        told.iter()
            .all(|text| text.starts_with("preempt a") && text.ends_with("InCohortFairSharing")),
        "{told:?}"
    );
}

#[test]
fn higher_share_preempts_nothing() {
    let mut stage = three([1000; 3]);
    fill(&mut stage, "a", 6);
    fill(&mut stage, "b", 6);
    stage.submit(wl("new").queue("a").request("cpu", 1));
    assert!(!stage.cycle().iter().any(|text| text.starts_with("preempt")));
}

#[test]
fn queue_within_nominal_reclaims_whatever_the_shares() {
    let mut stage = three([1000; 3]);
    stage.queue(reclaiming(cq("c").cohort("all").quota("default", "cpu", 4)));
    fill(&mut stage, "a", 8);
    fill(&mut stage, "b", 8);
    stage.submit(wl("owner").queue("c").request("cpu", 4));
    let told: Vec<_> =
        stage.cycle().into_iter().filter(|text| text.starts_with("preempt")).collect();
    assert_eq!(told.len(), 4, "{told:?}");
    assert!(told.iter().all(|text| text.ends_with("InCohortReclamation")), "{told:?}");
}

#[test]
fn second_strategy_preempts_one_large_workload() {
    use FairStrategy::{LessThanInitialShare, LessThanOrEqualToFinalShare};
    for (fair_strategies, goes) in [
        (vec![LessThanOrEqualToFinalShare, LessThanInitialShare], true),
        (vec![LessThanOrEqualToFinalShare], false),
    ] {
        let mut stage = Stage::around(Engine::with_preemption(
            settings(),
            PreemptionSettings { fair_strategies, ..PreemptionSettings::default() },
        ));
        stage.apply(Event::Cohort(cohort("all").limited("default", "cpu", 12, -1, -1)));
        for name in ["a", "b"] {
            stage.apply(Event::LocalQueue(lq(name, name)));
            stage.queue(reclaiming(cq(name).cohort("all").quota("default", "cpu", 0)));
        }
        stage.submit(wl("large").queue("a").request("cpu", 12));
        assert_eq!(stage.admit(), ["large"]);
        // With 6 of 12 cores it would have half; without `large` its queue would have nothing.
        stage.submit(wl("new").queue("b").request("cpu", 6));
        assert_eq!(
            stage.cycle().contains(&"preempt large for new: InCohortFairSharing".to_owned()),
            goes
        );
    }
}
