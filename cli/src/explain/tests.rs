//! Each cause as text and JSON, one snapshot file per case.

use serde_json::{Value, json};
use switchyard_api::v1beta2::{
    AdmissionCheck, ClusterQueue, Cohort, LocalQueue, MultiKueueCluster, MultiKueueConfig,
    ResourceFlavor, Topology, Workload,
};

use super::*;

mod topology;

const NOW: &str = "2026-11-21T10:10:00Z";

/// Namespace `team` with LocalQueue `main` of ClusterQueue `cq`, and what a test adds.
struct World {
    stores: Stores,
    config: Option<&'static str>,
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "the tables below read better without references"
)]
fn made<K: serde::de::DeserializeOwned>(
    kind: &str,
    name: &str,
    namespace: Option<&str>,
    spec: Value,
) -> K {
    let metadata = json!({"name": name, "namespace": namespace, "uid": format!("uid-{name}"),
        "creationTimestamp": "2026-11-21T10:00:00Z"});
    let object = json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": metadata, "spec": spec});
    serde_json::from_value(object).unwrap()
}

/// A resource group of cpu with quotas by flavor: `nominal`, or with limits
/// `nominal/borrowing/lending` (`-` for none).
fn group(flavors: &[(&str, &str)]) -> Value {
    let quota = |quota: &str| {
        let mut parts = quota.split('/');
        let mut resource = json!({"name": "cpu", "nominalQuota": parts.next()});
        for limit in ["borrowingLimit", "lendingLimit"] {
            if let Some(value) = parts.next().filter(|value| *value != "-") {
                resource[limit] = json!(value);
            }
        }
        resource
    };
    let flavors: Vec<Value> = flavors
        .iter()
        .map(|(name, nominal)| json!({"name": name, "resources": [quota(nominal)]}))
        .collect();
    json!([{"coveredResources": ["cpu"], "flavors": flavors}])
}

fn spec(flavors: &[(&str, &str)], more: Value) -> Value {
    merged(json!({"namespaceSelector": {}, "resourceGroups": group(flavors)}), more)
}

fn merged(mut base: Value, more: Value) -> Value {
    if let (Some(base), Value::Object(more)) = (base.as_object_mut(), more) {
        base.extend(more);
    }
    base
}

fn condition(type_: &str, status: &str, reason: &str, message: &str) -> Value {
    json!({"type": type_, "status": status, "reason": reason, "message": message,
        "lastTransitionTime": "2026-11-21T10:04:00Z"})
}

impl World {
    fn new() -> Self {
        let stores = Stores::default();
        let namespace = json!({"metadata": {"name": "team", "labels": {"kubernetes.io/metadata.name": "team"}}});
        stores.namespaces.insert(serde_json::from_value(namespace).unwrap());
        Self { stores, config: None }
            .flavor("default", json!({}))
            .local_queue("main", json!({"clusterQueue": "cq"}))
    }

    fn flavor(self, name: &str, spec: Value) -> Self {
        self.stores.resource_flavors.insert(made::<ResourceFlavor>(
            "ResourceFlavor",
            name,
            None,
            spec,
        ));
        self
    }

    fn queue(self, name: &str, flavors: &[(&str, &str)], more: Value) -> Self {
        self.stores.cluster_queues.insert(made::<ClusterQueue>(
            "ClusterQueue",
            name,
            None,
            spec(flavors, more),
        ));
        self
    }

    /// A second ClusterQueue in cohort `all`, with LocalQueue `other`.
    fn other(self, quota: &str) -> Self {
        self.queue("other", &[("default", quota)], json!({"cohortName": "all"}))
            .local_queue("other", json!({"clusterQueue": "other"}))
    }

    fn cohort(self, name: &str, spec: Value) -> Self {
        self.stores.cohorts.insert(made::<Cohort>("Cohort", name, None, spec));
        self
    }

    fn local_queue(self, name: &str, spec: Value) -> Self {
        self.stores.local_queues.insert(made::<LocalQueue>("LocalQueue", name, Some("team"), spec));
        self
    }

    fn topology(self, name: &str) -> Self {
        let levels = json!({"levels": [{"nodeLabel": "kubernetes.io/hostname"}]});
        self.stores.topologies.insert(made::<Topology>("Topology", name, None, levels));
        self
    }

    fn check(self, name: &str, active: &str) -> Self {
        let mut check: AdmissionCheck =
            made("AdmissionCheck", name, None, json!({"controllerName": "example.com/check"}));
        let status = json!({"conditions": [condition("Active", active, "Active", "")]});
        check.status = Some(serde_json::from_value(status).unwrap());
        self.stores.admission_checks.insert(check);
        self
    }

    fn workload(self, name: &str, cpu: &str, spec: Value, status: Value) -> Self {
        let base = json!({"queueName": "main", "podSets": [pods("main", 1, cpu, json!({}))]});
        let mut workload: Workload = made("Workload", name, Some("team"), merged(base, spec));
        workload.status = Some(serde_json::from_value(status).unwrap());
        let owner = json!({"apiVersion": "batch/v1", "kind": "Job", "name": format!("job-{name}"), "uid": "u",
            "controller": true});
        workload.metadata.owner_references = Some(vec![serde_json::from_value(owner).unwrap()]);
        self.stores.workloads.insert(workload);
        self
    }

    /// AdmissionCheck `fleet` with these clusters: name, label `tier`, cost.
    fn fleet(self, clusters: &[(&str, &str, i32)]) -> Self {
        let parameters =
            json!({"apiGroup": "kueue.x-k8s.io", "kind": "MultiKueueConfig", "name": "fleet"});
        let spec = json!({"controllerName": "kueue.x-k8s.io/multikueue", "parameters": parameters});
        let mut check: AdmissionCheck = made("AdmissionCheck", "fleet", None, spec);
        check.status = Some(
            serde_json::from_value(
                json!({"conditions": [condition("Active", "True", "Active", "")]}),
            )
            .unwrap(),
        );
        self.stores.admission_checks.insert(check);
        let names: Vec<&str> = clusters.iter().map(|(name, ..)| *name).collect();
        let config =
            made::<MultiKueueConfig>("MultiKueueConfig", "fleet", None, json!({"clusters": names}));
        self.stores.multi_kueue_configs.insert(config);
        for (name, tier, cost) in clusters {
            let spec = json!({"clusterSource": {"agent": {}}, "cost": cost});
            let mut cluster: MultiKueueCluster = made("MultiKueueCluster", name, None, spec);
            cluster.metadata.labels = Some([("tier".to_owned(), (*tier).to_owned())].into());
            self.stores.multi_kueue_clusters.insert(cluster);
        }
        self
    }

    /// Room on nodes that clusters report: name, cpu on all nodes together and on one.
    fn on_nodes(self, clusters: &[(&str, &str, &str)]) -> Self {
        for (name, all, one) in clusters {
            let cluster = self.stores.multi_kueue_clusters.get("", name).unwrap();
            let mut cluster = MultiKueueCluster::clone(&cluster);
            let row = json!({"localQueue": "team/main", "clusterQueue": "cq", "flavor": "f", "resource": "cpu",
                "nominal": "9", "used": "0", "available": "9", "freeOnNodes": all, "freeOnOneNode": one});
            cluster.status =
                Some(serde_json::from_value(json!({"agent": {"capacity": [row]}})).unwrap());
            self.stores.multi_kueue_clusters.insert(cluster);
        }
        self
    }

    /// The workload with these annotations.
    fn annotated(self, name: &str, annotations: &[(&str, &str)]) -> Self {
        let mut workload = Workload::clone(&self.stores.workloads.get("team", name).unwrap());
        let all = workload.metadata.annotations.get_or_insert_default();
        all.extend(
            annotations
                .iter()
                .map(|(key, text)| (format!("switchyard.dev/{key}"), (*text).to_owned())),
        );
        self.stores.workloads.insert(workload);
        self
    }

    /// A workload with admission gates.
    fn gated(self, gates: &str, status: Value) -> Self {
        let world = self.workload("a", "1", json!({}), status);
        let mut workload = Workload::clone(&world.stores.workloads.get("team", "a").unwrap());
        let annotations = workload.metadata.annotations.get_or_insert_default();
        annotations.insert("kueue.x-k8s.io/admission-gated-by".to_owned(), gates.to_owned());
        world.stores.workloads.insert(workload);
        world
    }

    /// A pending workload, the subject of most cases.
    fn waits(self, cpu: &str) -> Self {
        self.workload("a", cpu, json!({"priority": 5}), json!({}))
    }

    /// A running workload in a ClusterQueue, through its LocalQueue.
    fn runs(self, name: &str, queue: &str, cpu: &str, priority: i32) -> Self {
        let cluster_queue = if queue == "main" { "cq" } else { queue };
        let status = held(cluster_queue, cpu);
        self.workload(name, cpu, json!({"queueName": queue, "priority": priority}), status)
    }

    fn explain(&self, name: &str) -> ExplanationView {
        let workload = self.stores.workloads.get("team", name).unwrap();
        let config = self.config.map(|text| switchyard_config::load(text).unwrap());
        let settings = AssumedConfig::of(config, &self.stores);
        view(&self.stores, &settings, &workload, NOW.parse().unwrap()).unwrap()
    }
}

fn pods(name: &str, count: i32, cpu: &str, pod: Value) -> Value {
    let container = json!({"name": "c", "resources": {"requests": {"cpu": cpu}}});
    json!({"name": name, "count": count, "template": {"spec": merged(json!({"containers": [container]}), pod)}})
}

fn held(cluster_queue: &str, cpu: &str) -> Value {
    let assignment = json!({"name": "main", "count": 1, "flavors": {"cpu": "default"}, "resourceUsage": {"cpu": cpu}});
    json!({
        "conditions": [condition("QuotaReserved", "True", "QuotaReserved", ""), condition("Admitted", "True", "Admitted", "")],
        "admission": {"clusterQueue": cluster_queue, "podSetAssignments": [assignment]},
    })
}

fn five() -> [(&'static str, &'static str); 1] {
    [("default", "5")]
}

fn reclaim(more: Value) -> Value {
    json!({"cohortName": "all", "preemption": merged(json!({"reclaimWithinCohort": "Any"}), more)})
}

/// Every cause by name.
fn cases() -> Vec<(&'static str, World)> {
    let plain = || World::new().queue("cq", &five(), json!({}));
    let in_cohort = || World::new().queue("cq", &five(), json!({"cohortName": "all"})).other("5");
    let preempting =
        |preemption: Value| World::new().queue("cq", &five(), json!({"preemption": preemption}));
    let strict = || World::new().queue("cq", &five(), json!({"queueingStrategy": "StrictFIFO"}));
    let first = |world: World, cpu| world.workload("first", cpu, json!({"priority": 9}), json!({}));
    let fair = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\nfairSharing: {preemptionStrategies: [LessThanOrEqualToFinalShare, LessThanInitialShare]}\n";
    vec![
        ("fits and is the head", plain().waits("2")),
        ("fits behind a head that fits", first(plain(), "1").waits("2")),
        ("fits behind a strict head that does not", first(strict(), "6").waits("2")),
        ("own quota in use and no preemption", plain().runs("b", "main", "4", 1).waits("2")),
        ("more than the maximum quota", plain().waits("6")),
        (
            "borrowing limit",
            World::new().queue("cq", &[("default", "5/1")], json!({"cohortName": "all"})).other("5").runs("b", "main", "4", 9).waits("3"),
        ),
        (
            "lending limit",
            World::new().queue("cq", &five(), json!({"cohortName": "all"})).other("5/-/2").runs("b", "main", "4", 9).waits("4"),
        ),
        (
            "cohort members do not borrow",
            World::new().queue("cq", &five(), reclaim(json!({}))).other("5").runs("b", "main", "4", 9).runs("c", "other", "5", 1).waits("3"),
        ),
        ("reclaim is off", in_cohort().runs("b", "other", "8", 1).waits("3")),
        (
            "borrowers have higher priority",
            World::new()
                .queue("cq", &five(), json!({"cohortName": "all", "preemption": {"reclaimWithinCohort": "LowerPriority"}}))
                .other("5")
                .runs("b", "other", "4", 7)
                .runs("c", "other", "4", 6)
                .waits("3"),
        ),
        (
            "a borrower does not preempt borrowers",
            World::new().queue("cq", &five(), reclaim(json!({}))).other("5").runs("b", "other", "6", 1).waits("6"),
        ),
        (
            "borrowing above the threshold",
            World::new()
                .queue(
                    "cq",
                    &five(),
                    reclaim(json!({"borrowWithinCohort": {"policy": "LowerPriority", "maxPriorityThreshold": 1}})),
                )
                .other("5")
                .runs("b", "other", "6", 3)
                .waits("6"),
        ),
        (
            "fair shares forbid preemption",
            World { config: Some(fair), ..World::new() }
                .queue("cq", &five(), reclaim(json!({})))
                .other("5")
                .runs("b", "main", "4", 9)
                .runs("c", "other", "6", 1)
                .waits("4"),
        ),
        (
            "lower priorities are preempted",
            preempting(json!({"withinClusterQueue": "LowerPriority"})).runs("b", "main", "4", 1).waits("2"),
        ),
        (
            "own queue has no lower priority",
            preempting(json!({"withinClusterQueue": "LowerPriority"}))
                .runs("b", "main", "2", 5)
                .runs("c", "main", "3", 8)
                .waits("2"),
        ),
        (
            "borrowers are preempted",
            World::new().queue("cq", &five(), reclaim(json!({}))).other("5").runs("b", "other", "8", 9).waits("5"),
        ),
        (
            "closed preemption gate",
            preempting(json!({"withinClusterQueue": "LowerPriority"}))
                .runs("b", "main", "4", 1)
                .workload(
                    "a",
                    "2",
                    json!({"priority": 5, "preemptionGates": [{"name": "kueue.x-k8s.io/multikueue"}]}),
                    json!({"conditions": [{"type": "BlockedOnPreemptionGates", "status": "True", "reason": "PreemptionGated",
                        "message": "", "lastTransitionTime": "2026-11-21T10:04:00Z"}]}),
                ),
        ),
        (
            "untolerated taint",
            plain().flavor("default", json!({"nodeTaints": [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]})).waits("1"),
        ),
        (
            "affinity excludes the flavor",
            plain()
                .flavor("default", json!({"nodeLabels": {"arch": "arm64"}}))
                .workload("a", "1", json!({"podSets": [pods("main", 1, "1", json!({"nodeSelector": {"arch": "amd64"}}))]}), json!({})),
        ),
        ("missing flavor", World::new().queue("cq", &[("absent", "5")], json!({})).waits("1")),
        ("uncovered resource", plain().workload(
            "a",
            "1",
            json!({"podSets": [{"name": "main", "count": 2, "template": {"spec": {"containers": [
                {"name": "c", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}]}}}]}),
            json!({}),
        )),
        ("the ClusterQueue is stopped", World::new().queue("cq", &five(), json!({"stopPolicy": "Hold"})).waits("1")),
        ("the ClusterQueue does not exist", World::new().waits("1")),
        ("the LocalQueue does not exist", plain().workload("a", "1", json!({"queueName": "nosuch"}), json!({}))),
        (
            "the LocalQueue is stopped",
            plain().local_queue("main", json!({"clusterQueue": "cq", "stopPolicy": "Hold"})).waits("1"),
        ),
        (
            "namespace selector does not match",
            World::new().queue("cq", &five(), json!({"namespaceSelector": {"matchLabels": {"team": "other"}}})).waits("1"),
        ),
        (
            "inactive admission check",
            World::new()
                .queue("cq", &five(), json!({"admissionChecksStrategy": {"admissionChecks": [{"name": "budget"}]}}))
                .check("budget", "False")
                .waits("1"),
        ),
        (
            "admission check retries",
            plain().check("budget", "True").workload(
                "a",
                "1",
                json!({}),
                json!({"admissionChecks": [{"name": "budget", "state": "Retry", "message": "no money left",
                    "lastTransitionTime": "2026-11-21T10:04:00Z"}]}),
            ),
        ),
        (
            "backing off",
            plain().workload(
                "a",
                "1",
                json!({}),
                json!({"requeueState": {"count": 2, "requeueAt": "2026-11-21T10:12:00Z"},
                    "conditions": [condition("Requeued", "False", "PodsReadyTimeout", "")]}),
            ),
        ),
        ("deactivated", plain().workload("a", "1", json!({"active": false}), json!({}))),
        ("admission gate annotation", plain().gated("example.com/budget", json!({}))),
        (
            "job on hold",
            plain().workload(
                "a",
                "1",
                json!({}),
                json!({"conditions": [condition("QuotaReserved", "False", "OnHold", "Job is on hold")]}),
            ),
        ),
        (
            "requests above limits",
            plain().workload(
                "a",
                "1",
                json!({"podSets": [{"name": "main", "count": 1, "template": {"spec": {"containers": [
                    {"name": "c", "resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}}]}}}]}),
                json!({}),
            ),
        ),
        (
            "second pod set gets the rest",
            plain().workload(
                "a",
                "1",
                json!({"podSets": [pods("driver", 1, "2", json!({})), pods("workers", 4, "1", json!({}))]}),
                json!({}),
            ),
        ),
        (
            "the second flavor fits",
            World::new().flavor("spot", json!({})).queue("cq", &[("default", "1"), ("spot", "5")], json!({})).waits("2"),
        ),
        (
            "topology has no nodes",
            plain().topology("racks").flavor("default", json!({"topologyName": "racks", "nodeLabels": {"pool": "a"}})).waits("2"),
        ),
        (
            "cohort cycle",
            in_cohort()
                .cohort("all", json!({"parentName": "above"}))
                .cohort("above", json!({"parentName": "all"}))
                .waits("1"),
        ),
        (
            "recorded reason differs",
            plain().workload(
                "a",
                "1",
                json!({}),
                json!({"conditions": [condition("QuotaReserved", "False", "PendingEvaluation", "Workload is pending evaluation in the scheduling queue")]}),
            ),
        ),
        ("admitted", plain().runs("a", "main", "4", 5)),
        (
            "waiting for a worker cluster",
            plain().workload("a", "4", json!({}), {
                let mut status = held("cq", "4");
                status["conditions"] = json!([condition("QuotaReserved", "True", "QuotaReserved", "")]);
                status["admissionChecks"] = json!([{"name": "fleet", "state": "Pending",
                    "message": "east: insufficient unused quota for cpu in flavor default, 2 more needed; west: not connected",
                    "lastTransitionTime": "2026-11-21T10:04:00Z"}]);
                status["nominatedClusterNames"] = json!(["east", "west"]);
                status
            }),
        ),
        (
            "cluster affinity rules",
            World::new()
                .queue("cq", &five(), json!({
                    "admissionChecksStrategy": {"admissionChecks": [{"name": "fleet"}]},
                    "clusterAffinity": {"excluded": {"selector": {"matchLabels": {"tier": "spot"}}}},
                }))
                .fleet(&[("north", "reserved", 0), ("east", "spot", 1), ("west", "reserved", 30), ("south", "reserved", 10)])
                .workload("a", "4", json!({}), json!({}))
                .annotated("a", &[("preferred-clusters", "west"), ("cluster-selector", "tier"), ("clusters", "east,west,south")]),
        ),
        (
            "full nodes of clusters",
            World::new()
                .queue("cq", &five(), json!({"admissionChecksStrategy": {"admissionChecks": [{"name": "fleet"}]}}))
                .fleet(&[("small", "t", 0), ("few", "t", 0), ("room", "t", 0), ("unknown", "t", 0)])
                .on_nodes(&[("small", "8", "1500m"), ("few", "3", "3"), ("room", "4", "2")])
                .workload("a", "2", json!({"podSets": [pods("main", 2, "2", json!({}))]}), json!({})),
        ),
        (
            "running on a worker cluster",
            plain().workload("a", "4", json!({}), {
                let mut status = held("cq", "4");
                status["clusterName"] = json!("east");
                status["dispatch"] = json!({"attempt": 2});
                status
            }),
        ),
        (
            "no cluster can run it",
            plain().workload(
                "a",
                "1",
                json!({}),
                json!({"conditions": [condition("QuotaReserved", "False", "PendingEvaluation",
                    "No worker cluster can run it: east: namespaces \"team\" not found; west: not connected")]}),
            ),
        ),
        (
            "worker trouble",
            plain().workload("a", "4", json!({}), {
                let mut status = held("cq", "4");
                status["conditions"].as_array_mut().unwrap().push(condition("WorkerTrouble", "True", "Unschedulable",
                    "on \"east\": Unschedulable (count 4): pod a-x: 0/1 nodes are available"));
                status["clusterName"] = json!("east");
                status["dispatch"] = json!({"attempt": 2});
                status
            }),
        ),
        (
            "evicted and left on its cluster",
            plain().workload("a", "4", json!({}), {
                let mut status = held("cq", "4");
                status["conditions"].as_array_mut().unwrap().push(condition("Evicted", "True", "Preempted", "Preempted"));
                status["dispatch"] = json!({"attempt": 2, "clusterName": "east"});
                status
            }),
        ),
        (
            "finished",
            plain().workload(
                "a",
                "1",
                json!({}),
                json!({"conditions": [condition("Finished", "True", "Succeeded", "Job finished successfully")]}),
            ),
        ),
    ]
}

#[test]
fn every_cause_renders_as_text_and_json() {
    for (name, world) in cases() {
        let view = world.explain("a");
        let text = text::render_text(&view, NOW.parse().unwrap());
        let json = Output::Json.render(&view, |_| String::new()).unwrap();
        insta::with_settings!({description => name, omit_expression => true, prepend_module_to_snapshot => false}, {
            insta::assert_snapshot!(name.replace(' ', "_"), format!("{text}\n{json}"));
        });
    }
}

#[test]
fn causes_are_distinct() {
    let mut seen = std::collections::BTreeMap::new();
    for (name, world) in cases() {
        let text = text::render_text(&world.explain("a"), NOW.parse().unwrap());
        if let Some(other) = seen.insert(text, name) {
            panic!("{name} and {other} are told alike");
        }
    }
    assert!(seen.len() >= 20);
}

#[test]
fn fair_sharing_is_detected_in_queue_status() {
    let world = World::new().queue("cq", &five(), json!({}));
    assert!(AssumedConfig::of(None, &world.stores).config.fair_sharing.is_none());
    let mut queue: ClusterQueue = made("ClusterQueue", "cq", None, spec(&five(), json!({})));
    queue.status =
        Some(serde_json::from_value(json!({"fairSharing": {"weightedShare": 0}})).unwrap());
    world.stores.cluster_queues.insert(queue);
    let settings = AssumedConfig::of(None, &world.stores);
    assert_eq!(
        settings.config.fair_sharing.map(|sharing| sharing.preemption_strategies.len()),
        Some(2)
    );
}
