//! Changes of ClusterQueues, Cohorts and LocalQueues.

use rstest::rstest;

use crate::fixtures::{Stage, cohort, cq, lq, wl};
use crate::{Event, LocalQueueKey};

#[test]
fn objects_may_arrive_in_any_order() {
    let mut stage = Stage::new();
    stage.apply(Event::LocalQueueDeleted { key: LocalQueueKey::new("ns", "main") });
    stage.submit(wl("a").request("cpu", 1));
    assert_eq!(stage.why("a"), "Misconfigured: LocalQueue main doesn't exist");
    stage.apply(Event::LocalQueue(lq("main", "main")));
    assert_eq!(stage.why("a"), "Misconfigured: ClusterQueue main doesn't exist");
    stage.queue(cq("main").quota("default", "cpu", 10));
    assert_eq!(stage.admit(), ["a"]);
}

#[test]
fn deleted_local_queue_removes_its_workloads() {
    let mut stage = Stage::new();
    stage.queue(cq("main").quota("default", "cpu", 10));
    stage.submit(wl("a").request("cpu", 1));
    stage.apply(Event::LocalQueueDeleted { key: LocalQueueKey::new("ns", "main") });
    assert_eq!(stage.order("main"), "");
    assert_eq!(stage.cycle(), [""; 0]);
}

#[test]
fn terminating_queue_admits_nothing_and_keeps_its_charge() {
    let mut stage = Stage::new();
    stage.queue(cq("main").quota("default", "cpu", 10));
    stage.submit(wl("a").request("cpu", 1));
    stage.admit();
    stage.submit(wl("b").request("cpu", 1));
    stage.queue(crate::ClusterQueue { deleting: true, ..cq("main").quota("default", "cpu", 10) });
    assert_eq!(stage.cycle(), [""; 0]);
    assert_eq!(stage.reserved("main"), 1);
    let condition = stage.engine.cluster_queue("main").unwrap().active_condition();
    assert_eq!(condition.1, "Terminating");
    assert_eq!(condition.2, "Can't admit new workloads; clusterQueue is terminating");
}

#[test]
fn quota_cut_below_usage_admits_nothing_until_freed() {
    let mut stage = Stage::new();
    stage.queue(cq("main").quota("default", "cpu", 10));
    stage.submit(wl("a").request("cpu", 6));
    stage.admit();
    stage.queue(cq("main").quota("default", "cpu", 4));
    let available = stage.engine.cluster_queue("main").unwrap().quota[0].available;
    assert_eq!(available.get(), -2000);
    stage.submit(wl("b").request("cpu", 1));
    assert_eq!(stage.admit_all(), [""; 0]);
    assert_eq!(
        stage.why("b"),
        "WaitingForQuota: couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor \
         default, 1 more needed"
    );
    stage.delete("a");
    stage.wait(1);
    assert_eq!(stage.admit(), ["b"]);
}

#[test]
fn removed_flavor_keeps_its_charge() {
    let mut stage = Stage::new();
    let both = || cq("main").quota("default", "cpu", 10).quota("spot", "cpu", 10);
    stage.queue(both());
    stage.submit(wl("a").request("cpu", 6));
    stage.admit();
    stage.queue(cq("main").quota("spot", "cpu", 10));
    stage.submit(wl("b").request("cpu", 6));
    assert_eq!(stage.cycle(), ["admit b: main x 1 cpu 6 on spot"]);
    stage.queue(both());
    let reserved: Vec<_> = stage
        .engine
        .cluster_queue("main")
        .unwrap()
        .quota
        .iter()
        .map(|quota| quota.reserved.get() / 1000)
        .collect();
    assert_eq!(reserved, [6, 6]);
}

#[test]
fn queue_takes_its_usage_to_another_cohort() {
    let mut stage = Stage::new();
    stage.apply(Event::LocalQueue(lq("lender", "lender")));
    stage.queue(cq("main").cohort("one").quota("default", "cpu", 0));
    stage.queue(cq("lender").cohort("one").quota("default", "cpu", 10));
    stage.submit(wl("a").request("cpu", 8));
    assert_eq!(stage.admit(), ["a"]);
    stage.submit(wl("b").queue("lender").request("cpu", 5));
    assert_eq!(stage.admit_all(), [""; 0]);
    stage.queue(cq("main").cohort("two").quota("default", "cpu", 0));
    stage.wait(1);
    assert_eq!(stage.admit(), ["b"]);
    stage.delete("a");
    assert_eq!(stage.reserved("main"), 0);
}

#[test]
fn queues_below_a_cycle_of_cohorts_wait_until_it_is_broken() {
    let mut stage = Stage::new();
    stage.apply(Event::LocalQueue(lq("free", "free")));
    stage.queue(cq("main").cohort("a").quota("default", "cpu", 10));
    stage.queue(cq("free").cohort("elsewhere").quota("default", "cpu", 10));
    for (name, parent) in [("a", "b"), ("b", "c"), ("c", "a")] {
        stage.apply(Event::Cohort(cohort(name).below(parent).limited("default", "cpu", 5, -1, -1)));
    }
    stage.submit(wl("stuck").request("cpu", 1));
    stage.submit(wl("other").queue("free").request("cpu", 1));
    assert_eq!(stage.admit_all(), ["other"]);
    assert_eq!(stage.why("stuck"), "Suspended: ClusterQueue main is inactive");
    stage.apply(Event::Cohort(cohort("c").limited("default", "cpu", 5, -1, -1)));
    stage.wait(1);
    assert_eq!(stage.engine.cluster_queue("main").unwrap().quota[0].potential.get(), 25_000);
    assert_eq!(stage.admit(), ["stuck"]);
}

#[test]
fn cohort_as_its_own_parent_is_a_cycle() {
    let mut stage = Stage::new();
    stage.apply(Event::Cohort(cohort("a").below("a")));
    stage.queue(cq("main").cohort("a").quota("default", "cpu", 10));
    assert!(!stage.engine.cluster_queue("main").unwrap().active_condition().0);
    stage.apply(Event::CohortDeleted { name: "a".into() });
    assert!(stage.engine.cluster_queue("main").unwrap().active_condition().0);
}

#[rstest]
#[case::of_one_that_never_had_an_object(false, "[big]")]
#[case::of_an_object_which_kueue_would_not_do(true, "big")]
fn cohort_deletion_retries_parked_workloads(#[case] explicit: bool, #[case] order: &str) {
    let mut stage = Stage::new();
    stage.queue(cq("main").cohort("team").quota("default", "cpu", 4));
    if explicit {
        stage.apply(Event::Cohort(cohort("team").below("all")));
    }
    stage.wait(1);
    stage.submit(wl("big").request("cpu", 5));
    assert_eq!(stage.admit_all(), [""; 0]);
    assert_eq!(stage.order("main"), "[big]");
    stage.apply(Event::CohortDeleted { name: "team".into() });
    stage.wait(1);
    stage.engine.flush_inadmissible(stage.now);
    assert_eq!(stage.order("main"), order);
}

#[test]
fn changes_are_reported_once() {
    let mut stage = Stage::new();
    stage.queue(cq("main").quota("default", "cpu", 10));
    stage.engine.changed();
    stage.submit(wl("a").request("cpu", 1));
    let changed = stage.engine.changed();
    assert!(changed.cluster_queues.contains("main"));
    assert!(changed.local_queues.contains(&LocalQueueKey::new("ns", "main")));
    assert_eq!(stage.engine.changed(), crate::ChangedQueues::default());
    stage.admit();
    assert!(stage.engine.changed().cluster_queues.contains("main"));
}
