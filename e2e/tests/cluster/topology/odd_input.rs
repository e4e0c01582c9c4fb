//! Wrong topologies, nodes and assignments: each has its message, and others go on.

use anyhow::ensure;
use k8s_openapi::api::core::v1::Node;
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, Patch, PatchParams},
};
use serde_json::{Value, json};
use switchyard_api::v1beta2::{Topology, Workload};
use switchyard_e2e::{NodeSpec, fixture, wait::eventually};

use super::node_of;
use super::racks::{BLOCK, HOST, PREFERRED, RACK, REQUIRED, Racks, SLICE_LEVEL, SLICE_SIZE};
use crate::bed::WAIT;

#[test]
fn wrong_requests_are_refused_with_field_and_reason() {
    fixture::run(async {
        let racks = Racks::new("refused").await;
        let bed = &racks.bed;
        let cases: [(&[(&str, &str)], &str); 8] = [
            (
                &[(REQUIRED, RACK), (PREFERRED, RACK)],
                "must not contain more than one topology annotation",
            ),
            (&[(REQUIRED, "not a label")], "name part must consist of"),
            (
                &[("kueue.x-k8s.io/podset-unconstrained-topology", "maybe")],
                "must be a boolean value",
            ),
            (&[(SLICE_LEVEL, RACK)], "must be set when"),
            (&[(SLICE_SIZE, "1")], "may not be set when"),
            (&[(SLICE_LEVEL, RACK), (SLICE_SIZE, "two")], "must be a numeric value"),
            (&[(SLICE_LEVEL, RACK), (SLICE_SIZE, "0")], "must be greater than or equal to 1"),
            (&[(SLICE_LEVEL, RACK), (SLICE_SIZE, "9")], "must not be greater than pod set count 1"),
        ];
        for (annotations, expected) in cases {
            let job = annotations
                .iter()
                .fold(bed.job("wrong"), |job, (key, value)| job.pod_annotation(key, value));
            let error = job.create(bed.admin()).await.unwrap_err().to_string();
            let field = "spec.template.metadata.annotations";
            assert!(error.contains(expected) && error.contains(field), "{annotations:?}: {error}");
        }
        // A level of no topology shows when the workload is tried.
        let job = bed.job("unknown").pod_annotation(REQUIRED, "example.com/zone");
        job.create(bed.admin()).await.unwrap();
        let message = format!(
            "couldn't assign flavors to pod set main: Flavor \"{}\" does not contain the requested level",
            bed.name
        );
        bed.expect("unknown", "QuotaReserved", "False", "NoMatchingFlavor", &message).await;
    });
}

#[test]
fn topology_deleted_under_a_gang_leaves_it_running() {
    fixture::run(async {
        let racks = Racks::new("deleted").await;
        let bed = &racks.bed;
        let job = bed.job("gang").run_forever().cpu("2").parallelism(2).completions(2);
        job.pod_annotation(REQUIRED, HOST).create(bed.admin()).await.unwrap();
        let before = racks.running("gang", 2).await;
        racks.delete_topology().await;
        let deleting = async || {
            let topology = racks.topology().await?;
            ensure!(
                topology.is_some_and(|it| it.metadata.deletion_timestamp.is_some()),
                "not deleted"
            );
            Ok(())
        };
        eventually(WAIT, "the deletion", deleting).await.unwrap();
        // Its finalizer keeps it, so placement goes on too.
        bed.job("next").run_forever().cpu("1").create(bed.admin()).await.unwrap();
        racks.running("next", 1).await;
        // Forced away, the queue stops and says why; the gang runs on.
        let topologies: Api<Topology> = Api::all(bed.admin().clone());
        let none = json!({"metadata": {"finalizers": null}});
        topologies.patch(&bed.name, &PatchParams::default(), &Patch::Merge(none)).await.unwrap();
        let message = format!(
            "Can't admit new workloads: there is no Topology \"{0}\" for TAS flavor \"{0}\".",
            bed.name
        );
        bed.cluster_queue_condition("False", "TopologyNotFound", &message).await;
        let after = racks.running("gang", 2).await;
        let uids = |pods: &[k8s_openapi::api::core::v1::Pod]| {
            let mut uids: Vec<_> = pods.iter().map(|pod| pod.uid()).collect();
            uids.sort();
            uids
        };
        assert_eq!(uids(&after), uids(&before));
    });
}

#[test]
fn odd_nodes_count_for_what_they_have() {
    fixture::run(async {
        let racks = Racks::new("odd").await;
        let (bed, pool) = (&racks.bed, racks.bed.name.as_str());
        for index in 0..super::racks::HOSTS {
            racks.delete_node(&racks.host(index)).await;
        }
        let node = |name: &str| NodeSpec::new(format!("{pool}-{name}")).cpu(4).label("pool", pool);
        let placed = |name: &str| node(name).label(BLOCK, "b").label(RACK, "r");
        let host = format!("{pool}-one");
        let nodes = [
            // It has no rack.
            node("rackless").label(BLOCK, "b"),
            // Both claim one hostname: their capacity is one leaf's.
            placed("one"),
            placed("two").label(HOST, host.as_str()),
            placed("empty").resource("cpu", "0"),
            placed("vast").resource("cpu", "9223372036854775"),
        ];
        bed.cluster().add_nodes(&nodes).await.unwrap();
        // A node that cannot be read at all is refused by the API server.
        let admin: Api<Node> = Api::all(bed.admin().clone());
        let negative = json!({"status": {"allocatable": {"cpu": "-4"}}});
        let refused = admin
            .patch_status(
                &format!("{pool}-empty"),
                &PatchParams::default(),
                &Patch::Merge(negative),
            )
            .await;
        assert!(refused.is_err(), "{refused:?}");
        let job = bed.job("many").run_forever().cpu("1").parallelism(3).completions(3);
        job.create(bed.admin()).await.unwrap();
        for pod in racks.running("many", 3).await {
            let node = node_of(&pod).trim_start_matches(pool).trim_start_matches('-').to_owned();
            assert!(["one", "two", "vast"].contains(&node.as_str()), "{node}");
        }
        for node in nodes {
            racks.delete_node(node.name()).await;
        }
    });
}

/// A Workload by hand with an assignment, as another client may write it.
async fn hand_written(
    racks: &Racks,
    name: &str,
    count: i32,
    slices: Value,
) -> Result<(), kube::Error> {
    let bed = &racks.bed;
    let workload: Workload = serde_json::from_value(json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
        "metadata": {"name": name, "namespace": bed.namespace},
        "spec": {"queueName": "queue", "active": true, "podSets": [{
            "name": "main", "count": count, "topologyRequest": {"required": HOST},
            "template": {"spec": {"restartPolicy": "Never", "containers": [
                {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]}},
        }]},
    }))
    .unwrap();
    let workloads: Api<Workload> = Api::namespaced(bed.admin().clone(), &bed.namespace);
    workloads.create(&Default::default(), &workload).await?;
    let condition = |type_: &str| {
        json!({"type": type_, "status": "True", "reason": "R", "message": "by hand",
            "lastTransitionTime": "2026-01-01T00:00:00Z"})
    };
    let status = json!({"status": {
        "conditions": [condition("QuotaReserved"), condition("Admitted")],
        "admission": {"clusterQueue": bed.name, "podSetAssignments": [{
            "name": "main", "count": count, "flavors": {"cpu": bed.name}, "resourceUsage": {"cpu": format!("{count}m")},
            "topologyAssignment": {"levels": [HOST], "slices": slices},
        }]},
    }});
    workloads.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await.map(drop)
}

#[test]
fn hand_written_assignments_are_counted_and_disturb_no_others() {
    fixture::run(async {
        let racks = Racks::new("written").await;
        let bed = &racks.bed;
        let universal = |host: String, domains: i32, pods: i32| json!([{"domainCount": domains, "valuesPerLevel": [{"universal": host}], "podCounts": {"universal": pods}}]);
        // Stopped, so that only the hand writes admissions.
        bed.stop_cluster_queue("Hold").await;
        hand_written(&racks, "nowhere", 2, universal("no-such-host".into(), 1, 2)).await.unwrap();
        hand_written(&racks, "more", 1, universal(racks.host(0), 1, 1000)).await.unwrap();
        hand_written(&racks, "packed", 1, universal(racks.host(1), i32::MAX, 1)).await.unwrap();
        let roots: Vec<String> =
            (0..10_000).map(|at| format!("{:05}-{}", at, "x".repeat(50))).collect();
        let many = json!([{"domainCount": 10_000, "valuesPerLevel": [{"individual": {"roots": roots}}],
            "podCounts": {"universal": 1}}]);
        hand_written(&racks, "many", 10_000, many).await.unwrap();
        // Above what etcd takes, the writer gets the API server's word.
        let roots: Vec<String> =
            (0..30_000).map(|at| format!("{:05}-{}", at, "x".repeat(50))).collect();
        let vast = json!([{"domainCount": 30_000, "valuesPerLevel": [{"individual": {"roots": roots}}],
            "podCounts": {"universal": 1}}]);
        let refused = hand_written(&racks, "vast", 30_000, vast).await.unwrap_err().to_string();
        assert!(refused.contains("too large"), "{refused}");
        bed.stop_cluster_queue("None").await;
        // Two hosts are charged beyond their capacity; the six others are free.
        let job = bed.job("next").run_forever().cpu("1").parallelism(24).completions(24);
        job.create(bed.admin()).await.unwrap();
        for pod in racks.running("next", 24).await {
            let host = node_of(&pod);
            assert!(![racks.host(0), racks.host(1)].contains(&host.to_owned()), "{host}");
        }
        let workloads: Api<Workload> = Api::namespaced(bed.admin().clone(), &bed.namespace);
        for name in ["nowhere", "more", "packed", "many", "vast"] {
            workloads.delete(name, &DeleteParams::default()).await.unwrap();
        }
    });
}
