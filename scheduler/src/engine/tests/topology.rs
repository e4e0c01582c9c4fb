//! Topology-aware scheduling in the engine: two racks of two hosts with four CPUs each.

use std::collections::BTreeMap;

use crate::fixtures::{Stage, cq, flavor, wl};
use crate::{
    Admission, Amount, AssignedDomain, CapacityLeaf, CheckPhase, CheckState, ClusterQueue,
    DelayedTopology, EngineSettings, Event, HOSTNAME_LABEL, Occupant, PodSetAssignment,
    PreemptionPolicy, PreemptionRules, ResourceFlavor, TopologyAssignment, TopologyGates,
    TopologyRequest, Workload, WorkloadKey,
};

const RACK: &str = "rack";

fn host(name: &str, rack: &str, cpu: i64) -> Event {
    let labels = [("pool", "a"), (RACK, rack), (HOSTNAME_LABEL, name)];
    Event::CapacityLeaf(Box::new(CapacityLeaf {
        name: name.into(),
        labels: labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
        taints: Vec::new(),
        capacity: [("cpu".into(), Amount::new(cpu)), ("pods".into(), Amount::new(110))].into(),
    }))
}

fn settings() -> EngineSettings {
    EngineSettings { topology: Some(TopologyGates::default()), ..EngineSettings::default() }
}

fn stage() -> Stage {
    furnished(Stage::with(settings()))
}

fn furnished(mut stage: Stage) -> Stage {
    let levels = vec![RACK.into(), HOSTNAME_LABEL.into()];
    stage.apply(Event::Topology { name: "racks".into(), levels });
    let racks = ResourceFlavor { topology_name: Some("racks".into()), ..flavor("default") };
    stage.apply(Event::ResourceFlavor(racks.label("pool", "a")));
    for (name, rack) in [("h1", "r1"), ("h2", "r1"), ("h3", "r2"), ("h4", "r2")] {
        stage.apply(host(name, rack, 4000));
    }
    stage.queue(cq("main").quota("default", "cpu", 1000));
    stage
}

/// A gang of pods of three CPUs in one rack.
fn gang(name: &str, pods: i32) -> Workload {
    let mut workload = wl(name).pods("main", pods).request("cpu", 3);
    let request = TopologyRequest { required: Some(RACK.into()), ..TopologyRequest::default() };
    workload.pod_sets[0].topology = Some(Box::new(request));
    workload
}

/// An admission that another client wrote.
fn written(domains: &[(&str, i32)]) -> Option<Admission> {
    let domain = |(host, count): &(&str, i32)| AssignedDomain {
        values: vec![(*host).into()],
        count: *count,
    };
    let topology = TopologyAssignment {
        levels: vec![HOSTNAME_LABEL.into()],
        domains: domains.iter().map(domain).collect(),
    };
    let pod_set = PodSetAssignment {
        name: "main".into(),
        flavors: BTreeMap::from([("cpu".into(), "default".into())]),
        usage: BTreeMap::from([("cpu".into(), Amount::new(1))]),
        count: 1,
        topology: Some(topology),
        delayed: None,
    };
    Some(Admission { cluster_queue: "main".into(), pod_sets: vec![pod_set] })
}

/// Free CPUs of each domain, in thousandths.
fn free(stage: &Stage) -> Vec<i64> {
    let view = stage.engine.topology("default").expect("the flavor has a topology");
    view.domains.iter().map(|domain| domain.amounts["cpu"].free.get()).collect()
}

#[test]
fn waiting_workload_with_failed_nodes_is_placed_anew() {
    let mut stage = stage();
    let mut marked = gang("a", 2);
    marked.unhealthy_nodes = vec!["h1".into()];
    stage.submit(marked);
    stage.admit_all();
    assert_eq!(free(&stage), [2000, 1000, 1000, 8000, 4000, 4000]);
}

/// Kueue 0.19.2 acts on the failed nodes of the moment when the delay began.
#[test]
fn recovered_node_keeps_its_pods() {
    for (still_failed, moved) in [(&["h1"][..], 1), (&[], 0)] {
        let mut stage = stage();
        stage.submit(gang("a", 1));
        assert_eq!(stage.admit_all(), ["a"]);
        stage.change("a", |workload| workload.unhealthy_nodes = vec!["h1".into()]);
        let nodes = || still_failed.iter().map(|node| (*node).into()).collect();
        stage.change("a", |workload| workload.unhealthy_nodes = nodes());
        stage.wait(1);
        assert_eq!(stage.cycle().len(), moved, "{still_failed:?}");
    }
}

/// Kueue 0.19.2 acts on the checks of the moment when the delay began.
#[test]
fn check_that_is_pending_again_delays_placement() {
    for (phase, placed) in [(CheckPhase::Ready, 1), (CheckPhase::Pending, 0)] {
        let mut stage = stage();
        let check = |state| CheckState { name: "provisioned".into(), state };
        let mut delayed = gang("a", 1);
        delayed.reservation = written(&[("h1", 1)]);
        let pod_sets = delayed.reservation.iter_mut().flat_map(|it| &mut it.pod_sets);
        for pod_set in pod_sets {
            (pod_set.topology, pod_set.delayed) = (None, Some(DelayedTopology::Pending));
        }
        delayed.checks = vec![check(CheckPhase::Ready)];
        stage.submit(delayed);
        stage.change("a", |workload| workload.checks = vec![check(phase)]);
        stage.wait(1);
        assert_eq!(stage.cycle().len(), placed, "{phase:?}");
    }
}

/// Kueue 0.19.2 also preempts the evicted workload in this cycle, and its reason becomes `Preempted`.
#[test]
fn workload_evicted_for_its_node_is_not_preempted_too() {
    let mut stage = furnished(Stage::with_preemption(settings()));
    let preemption = PreemptionRules {
        within_cluster_queue: PreemptionPolicy::LowerPriority,
        ..PreemptionRules::default()
    };
    stage.queue(ClusterQueue { preemption, ..cq("main").quota("default", "cpu", 1000) });
    stage.submit(gang("kept", 2).priority(2));
    stage.submit(gang("failed", 2));
    assert_eq!(stage.admit_all(), ["kept", "failed"]);
    stage.change("failed", |workload| workload.unhealthy_nodes = vec!["h3".into()]);
    stage.submit(gang("waits", 2).priority(1).at(1));
    stage.wait(1);
    let decisions = stage.cycle();
    assert_eq!(decisions[0], "evict failed from h3");
    assert!(decisions[1].ends_with("Pending the preemption of 1 workload(s)"), "{decisions:?}");
    assert_eq!(decisions.len(), 2, "{decisions:?}");
}

#[test]
fn explanation_has_the_search_that_found_no_place() {
    let mut stage = stage();
    stage.submit(gang("a", 2));
    stage.submit(gang("b", 1).at(1));
    stage.submit(gang("c", 2).at(2));
    assert_eq!(stage.admit_all(), ["a", "b"]);
    let key = WorkloadKey::new("ns", "c");
    let found = stage.engine.explain(&key, stage.now).and_then(|it| it.placement);
    let found = found.expect("no rack has room for both pods");
    let best: Vec<_> = found.best.iter().map(|best| (&*best.values[0], best.fits)).collect();
    assert_eq!((best, found.fits, found.leaves), (vec![("r2", 1), ("r2", 1)], 1, 4));
    let taken =
        crate::LeafObstacle::Resource { resource: "cpu".into(), taken_by: Occupant::Workloads };
    assert_eq!((&found.obstructed[0].obstacle, found.obstructed[0].leaves), (&taken, 3));
    stage.delete("a");
    stage.wait(1);
    assert_eq!(stage.admit_all(), ["c"]);
}

#[test]
fn hand_written_assignments_count_and_leave_no_trace() {
    let mut stage = stage();
    let before = free(&stage);
    for (name, domains) in [
        ("nowhere", &[("h9", 2)][..]),
        ("more", &[("h1", i32::MAX)]),
        ("twice", &[("h2", 1), ("h2", 1)]),
        ("negative", &[("h3", -7)]),
    ] {
        let mut workload = gang(name, 1);
        (workload.reservation, workload.admitted) = (written(domains), true);
        stage.submit(workload);
    }
    assert_eq!(free(&stage), [0, 0, 0, 8000, 4000, 4000]);
    stage.submit(gang("fits", 2).at(1));
    assert_eq!(stage.admit_all(), ["fits"]);
    for name in ["nowhere", "more", "twice", "negative", "fits"] {
        stage.delete(name);
    }
    assert_eq!(free(&stage), before);
}

#[test]
fn absurd_capacities_are_tolerated() {
    let mut stage = stage();
    for cpu in [i64::MAX, i64::MIN, 0, -1] {
        stage.apply(host("h1", "r1", cpu));
        stage.apply(host("h2", "r1", cpu));
        stage.submit(gang("a", 2));
        stage.wait(1);
        assert_eq!(stage.admit_all(), ["a"], "{cpu}");
        stage.delete("a");
    }
    // Without a label of a level, a leaf belongs to no domain.
    stage.apply(Event::CapacityLeaf(Box::new(CapacityLeaf {
        name: "h1".into(),
        labels: [("pool".to_owned(), "a".to_owned())].into(),
        taints: Vec::new(),
        capacity: BTreeMap::new(),
    })));
    assert_eq!(free(&stage).len(), 5);
}
