//! Placement: why pods find no place, and where they run.

use k8s_openapi::api::core::v1::Node;

use super::*;

const RACK: &str = "rack";
const HOST: &str = "kubernetes.io/hostname";

impl World {
    /// Flavor `default` has topology `racks` of racks and hosts.
    fn racks() -> Self {
        let world = Self::new()
            .flavor("default", json!({"topologyName": "racks", "nodeLabels": {"pool": "a"}}))
            .queue("cq", &[("default", "100")], json!({}));
        let levels = json!({"levels": [{"nodeLabel": RACK}, {"nodeLabel": HOST}]});
        world.stores.topologies.insert(made::<Topology>("Topology", "racks", None, levels));
        world
    }

    /// A ready node of the flavor, with a change.
    fn node(self, host: &str, rack: &str, cpu: &str, change: &Value) -> Self {
        let mut node = json!({
            "metadata": {"name": host, "labels": {"pool": "a", RACK: rack, HOST: host}}, "spec": {},
            "status": {
                "allocatable": {"cpu": cpu, "pods": "110"},
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        });
        switchyard_jobs::apply_merge(&mut node, change);
        self.stores.nodes.insert(serde_json::from_value::<Node>(node).unwrap());
        self
    }

    fn gang(self, count: i32, request: Value) -> Self {
        let mut pod_set = pods("main", count, "2", json!({}));
        pod_set["topologyRequest"] = request;
        self.workload("a", "2", json!({"podSets": [pod_set]}), json!({}))
    }
}

#[test]
fn best_domains_and_left_out_nodes_are_named() {
    let taint =
        json!({"spec": {"taints": [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]}});
    let unready = json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}});
    let world = World::racks()
        .node("h1", "r1", "4", &json!({}))
        .node("h2", "r1", "4", &json!({}))
        .node("h3", "r2", "1", &json!({}))
        .node("h4", "r2", "8", &taint)
        .node("h5", "r2", "8", &unready)
        .node("h6", "r2", "8", &json!({"metadata": {"labels": {RACK: null}}}))
        .node("h7", "r2", "8", &json!({"spec": {"unschedulable": true}}))
        .node("h8", "r2", "8", &json!({"metadata": {"labels": {"pool": "b"}}}))
        .gang(5, json!({"required": RACK}));
    let view = world.explain("a");
    let text = text::render_text(&view, NOW.parse().unwrap());
    let from = text.find("\nPod set main finds no place").unwrap();
    let to = text.find("\nWorked out").unwrap();
    insta::assert_snapshot!(text[from..to].trim(), @r"
    Pod set main finds no place in topology racks (flavor default): 5 pods in one domain of rack
    LEVEL                    BEST DOMAIN   FITS   LACKS
    rack                     r1            4      1
    kubernetes.io/hostname   r1/h1         2      3
    4 pods fit on all 4 nodes together; these take no pod:
      1: the pods do not tolerate taint gpu=yes:NoSchedule (h4)
      1: the node has less cpu than a pod requests (h3)
      1: the node has no label rack (h6)
      1: the node is cordoned (h7)
      1: the node is not ready (h5)
    ");
    assert_eq!(view.change.as_deref(), Some("one domain of rack takes 5 pods; r1 takes 4"));
}

#[test]
fn pods_that_find_a_place_have_no_placement_to_explain() {
    let world = World::racks()
        .node("h1", "r1", "4", &json!({}))
        .node("h2", "r1", "4", &json!({}))
        .gang(4, json!({"required": RACK}));
    assert!(world.explain("a").placement.is_none());
}

#[test]
fn running_pods_show_their_domains_and_failed_nodes() {
    let mut status = held("cq", "2");
    let slices = json!([{
        "domainCount": 2, "valuesPerLevel": [{"individual": {"prefix": "h", "roots": ["1", "2"]}}],
        "podCounts": {"individual": [2, 1]},
    }]);
    status["admission"]["podSetAssignments"][0]["topologyAssignment"] =
        json!({"levels": [HOST], "slices": slices});
    status["unhealthyNodes"] = json!([{"name": "h2"}]);
    let world = World::racks().workload("a", "2", json!({}), status);
    let text = text::render_text(&world.explain("a"), NOW.parse().unwrap());
    let from = text.find("\nPlaces of").unwrap();
    insta::assert_snapshot!(text[from..].trim(), @r"
    Places of pod set main, by kubernetes.io/hostname:
    DOMAIN   PODS
    h1       2
    h2       1
    Failed nodes, to be replaced: h2
    ");
}
