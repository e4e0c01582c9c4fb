//! Room on nodes orders offers, and refuses none.

use super::affinity::bound;
use super::*;
use crate::capacity::{FlavorRoom, NodeBin};

/// Rooms of the only flavor: so many nodes with room for one pod of [`facts`] each.
fn nodes(nodes: i64) -> BTreeMap<Name, FlavorRoom> {
    let free = BTreeMap::from([("cpu".into(), 1_999), ("pods".into(), 110)]);
    let bin = NodeBin { nodes, free, taints: Vec::new() };
    let bins = if nodes > 0 { vec![bin] } else { Vec::new() };
    BTreeMap::from([("default".into(), FlavorRoom { bins, ..FlavorRoom::default() })])
}

impl Bench {
    /// Quota for four workloads, and these rooms.
    fn rooms(&mut self, cluster: &str, rooms: BTreeMap<Name, FlavorRoom>) {
        let report = CapacityReport { rooms, ..report(queues(4000, 4000)) };
        self.apply(DispatchEvent::CapacityReported { cluster: cluster.into(), report });
        self.take();
    }

    fn two_clusters(a: BTreeMap<Name, FlavorRoom>, b: BTreeMap<Name, FlavorRoom>) -> Self {
        let clusters = [("a", 4000, 4000), ("b", 4000, 4000)];
        let mut bench = Self::new(DispatchMode::BestFit, &clusters);
        bench.rooms("a", a);
        bench.rooms("b", b);
        bench
    }
}

#[test]
fn cluster_without_room_on_nodes_is_asked_last() {
    let unknown = BTreeMap::new;
    let rows = [
        ("both have room: by order", nodes(1), nodes(1), &[][..], "a"),
        ("room before none", nodes(0), nodes(1), &[][..], "b"),
        ("unknown before none", nodes(0), unknown(), &[][..], "b"),
        ("room before unknown", unknown(), nodes(1), &[][..], "b"),
        ("none has room: by order", nodes(0), nodes(0), &[][..], "a"),
        ("room before preference", nodes(0), nodes(1), &[("preferred-clusters", "a")][..], "b"),
        ("preference before known", nodes(1), unknown(), &[("preferred-clusters", "b")][..], "b"),
        ("none has room: preference", nodes(0), nodes(0), &[("preferred-clusters", "b")][..], "b"),
        ("a rule is no preference", nodes(0), nodes(1), &[("clusters", "a")][..], "a"),
    ];
    for (case, a, b, rules, to) in rows {
        let mut bench = Bench::two_clusters(a, b);
        bench.reserve(bound("w", rules));
        assert_eq!(bench.take(), [format!("Reserve w/1 on {to}")], "{case}");
    }
}

#[test]
fn full_nodes_refuse_no_offer() {
    let mut bench = Bench::two_clusters(nodes(0), nodes(1));
    bench.reserve(facts("w"));
    assert_eq!(bench.take(), ["Reserve w/1 on b"]);
    bench.observe("b", "w", 1, State::Unfit);
    assert_eq!(bench.take(), ["Absent w/1 on b", "Reserve w/1 on a"]);
    bench.observe("a", "w", 1, State::Reserved);
    assert_eq!(bench.take(), ["commit w/1 on a"]);
}

#[test]
fn burst_fills_no_cluster_beyond_its_nodes() {
    let mut bench = Bench::two_clusters(nodes(1), nodes(1));
    bench.reserve(facts("u"));
    assert_eq!(bench.take(), ["Reserve u/1 on a"]);
    bench.observe("a", "u", 1, State::Reserved);
    bench.take();
    // The quota report overtakes the report of nodes.
    bench.rooms("a", nodes(1));
    bench.reserve(facts("v"));
    assert_eq!(bench.take(), ["Reserve v/1 on b"]);
    // Its pod never got a node, such as one that ended at once: the room counts again.
    bench.later(10_000);
    bench.take();
    bench.reserve(facts("w"));
    assert_eq!(bench.take(), ["Reserve w/1 on a"]);
}

/// `a` has quota for one workload. It has reserved that quota and not yet reported it.
#[test]
fn report_of_rooms_alone_releases_no_quota() {
    let mut bench = Bench::new(DispatchMode::BestFit, &[("a", 1000, 4000), ("b", 4000, 4000)]);
    let report = |bench: &mut Bench, rooms| {
        let report = CapacityReport { rooms, ..report(queues(1000, 4000)) };
        bench.apply(DispatchEvent::CapacityReported { cluster: "a".into(), report });
        assert!(bench.take().is_empty(), "no workload is offered again");
    };
    report(&mut bench, nodes(3));
    bench.rooms("b", nodes(3));
    bench.reserve(facts("u"));
    assert_eq!(bench.take(), ["Reserve u/1 on a"]);
    bench.observe("a", "u", 1, State::Reserved);
    bench.take();
    report(&mut bench, nodes(2));
    bench.reserve(facts("v"));
    assert_eq!(bench.take(), ["Reserve v/1 on b"], "u still has the quota");
    bench.observe("b", "v", 1, State::Reserved);
    bench.take();
    bench.now += 10_000;
    bench.reserve(facts("w"));
    assert_eq!(bench.take(), ["Reserve w/1 on a"], "the last report of quota has u");
}

#[test]
fn room_of_a_lost_session_does_not_count() {
    let mut bench = Bench::two_clusters(nodes(0), nodes(1));
    for cluster in ["a", "b"] {
        bench.apply(DispatchEvent::SessionClosed { name: cluster.into() });
        bench.connect(cluster, &[]);
        bench.capacity(cluster, 4000, 4000);
    }
    bench.take();
    bench.reserve(facts("w"));
    assert_eq!(bench.take(), ["Reserve w/1 on a"], "nothing is known of nodes");
}
