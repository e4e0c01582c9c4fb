//! Fair sharing: who goes first, who gives way, and what status shows.

use crate::fixtures::{Stage, cohort, cq, lq, wl};
use crate::{
    ClusterQueue, Engine, Event, FairStrategy, Preemption, PreemptionPolicy, PreemptionRules,
    Settings,
};

fn settings() -> Settings {
    Settings { fair_sharing: true, ..Settings::default() }
}

fn reclaiming(queue: ClusterQueue) -> ClusterQueue {
    let preemption = PreemptionRules {
        reclaim_within_cohort: PreemptionPolicy::Any,
        ..PreemptionRules::default()
    };
    ClusterQueue { preemption, ..queue }
}

/// Queues `a`, `b` and `c` below one cohort that has 12 cores, each with a LocalQueue of its name.
fn three(weights: [i64; 3]) -> Stage {
    let mut stage = Stage::preempting(settings());
    stage.apply(Event::Cohort(cohort("all").limited("default", "cpu", 12, -1, -1)));
    for (name, fair_weight_milli) in ["a", "b", "c"].into_iter().zip(weights) {
        stage.apply(Event::LocalQueue(lq(name, name)));
        let queue = reclaiming(cq(name).cohort("all").quota("default", "cpu", 0));
        stage.queue(ClusterQueue { fair_weight_milli, ..queue });
    }
    stage
}

/// Submits `count` workloads of one core each to a queue and admits them.
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
fn the_share_is_what_is_borrowed_of_what_could_be_lent_by_weight() {
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
fn the_lowest_share_goes_first_whatever_the_age_and_priority() {
    let mut stage = three([1000; 3]);
    fill(&mut stage, "a", 4);
    fill(&mut stage, "b", 2);
    stage.submit(wl("from-a").queue("a").request("cpu", 1).priority(100));
    stage.submit(wl("from-b").queue("b").request("cpu", 1).at(9));
    stage.submit(wl("from-c").queue("c").request("cpu", 1).at(10));
    assert_eq!(stage.admit(), ["from-c", "from-b", "from-a"]);
}

#[test]
fn what_does_not_borrow_goes_before_a_lower_share() {
    let mut stage = three([1000; 3]);
    stage.queue(reclaiming(
        cq("c").cohort("all").quota("default", "cpu", 4).quota("spot", "cpu", 0),
    ));
    stage.queue(cq("lender").cohort("all").quota("spot", "cpu", 100));
    // `c` borrows a lot of `spot`, and nothing of what it asks for.
    stage.submit(wl("big").queue("c").request("cpu", 90));
    assert_eq!(stage.admit(), ["big"]);
    stage.submit(wl("from-a").queue("a").request("cpu", 1));
    stage.submit(wl("from-c").queue("c").request("cpu", 1).at(9));
    assert_eq!(stage.admit(), ["from-c", "from-a"]);
}

#[test]
fn those_with_the_highest_share_give_way_until_it_is_fair() {
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
fn nobody_gives_way_to_a_higher_share() {
    let mut stage = three([1000; 3]);
    fill(&mut stage, "a", 6);
    fill(&mut stage, "b", 6);
    stage.submit(wl("new").queue("a").request("cpu", 1));
    assert!(!stage.cycle().iter().any(|text| text.starts_with("preempt")));
}

#[test]
fn within_its_own_quota_a_queue_takes_back_whatever_the_shares() {
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
fn the_second_strategy_lets_one_large_workload_go() {
    use FairStrategy::{LessThanInitialShare, LessThanOrEqualToFinalShare};
    for (fair_strategies, goes) in [
        (vec![LessThanOrEqualToFinalShare, LessThanInitialShare], true),
        (vec![LessThanOrEqualToFinalShare], false),
    ] {
        let mut stage = Stage::around(Engine::preempting(
            settings(),
            Preemption { fair_strategies, ..Preemption::default() },
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
