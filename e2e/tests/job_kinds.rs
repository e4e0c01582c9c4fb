//! Jobs of other kinds than Job, with their real CRD, which is installed only when everything runs. Nobody runs the
//! kind's own controller: the test says what it would say.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod bed;

use std::time::Duration;

use anyhow::ensure;
use bed::Bed;
use kube::{
    Api, ResourceExt as _,
    api::{DynamicObject, Patch, PatchParams},
};
use serde_json::{Value, json};
use switchyard_api::conditions;
use switchyard_e2e::fleet::Fleet;
use switchyard_e2e::wait::eventually;
use switchyard_e2e::{Cluster, ClusterSpec, NodeSpec, Part, Parts, fixture, queues};

const CONFIG: &str = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n";
const FRAMEWORKS: &str = "integrations: {frameworks: [batch/job, jobset.x-k8s.io/jobset, ray.io/rayjob]}\n";
const API: &str = "jobset.x-k8s.io/v1alpha2";
/// Longer than anything here takes on a busy machine.
const SOON: Duration = Duration::from_secs(180);

/// Installs the CRD of JobSet, as its module has it.
async fn install_job_set(cluster: &Cluster) {
    let source = tokio::task::spawn_blocking(|| {
        Parts::new()?.source_dir(Part::Kueue, "sigs.k8s.io/jobset").map_err(anyhow::Error::from)
    });
    let crds = source.await.unwrap().unwrap().join("config/components/crd/bases");
    cluster.apply_dir(crds).await.unwrap();
}

/// A JobSet of a leader and two workers, of one cpu each.
fn job_set(namespace: &str, queue: &str, name: &str) -> Value {
    let container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": 1}}});
    let template = json!({
        "metadata": {"labels": {"app": name}}, "spec": {"restartPolicy": "Never", "containers": [container]},
    });
    let group = |name: &str, parallelism: i32| {
        let spec = json!({"parallelism": parallelism, "completions": parallelism, "template": template});
        json!({"name": name, "replicas": 1, "template": {"spec": spec}})
    };
    json!({
        "apiVersion": API, "kind": "JobSet",
        "metadata": {"name": name, "namespace": namespace, "labels": {"kueue.x-k8s.io/queue-name": queue}},
        "spec": {"replicatedJobs": [group("leader", 1), group("worker", 2)]},
    })
}

async fn job_sets(cluster: &Cluster, namespace: &str) -> Api<DynamicObject> {
    cluster.dynamic(API, "JobSet", namespace).await.unwrap()
}

/// Waits until a JobSet is as it should be, and gives it.
async fn until(api: &Api<DynamicObject>, name: &str, what: &str, right: impl Fn(&Value) -> bool) -> Value {
    let check = async || {
        let found = serde_json::to_value(api.get(name).await?)?;
        ensure!(right(&found), "spec {} status {}", found["spec"], found["status"]);
        Ok(found)
    };
    eventually(SOON, format!("JobSet {name}: {what}"), check).await.unwrap()
}

/// Says what the JobSet controller would.
async fn report(api: &Api<DynamicObject>, name: &str, active: i32, succeeded: i32, condition: Option<&str>) {
    let of = |name: &str| json!({"name": name, "active": active, "ready": active, "succeeded": succeeded, "failed": 0, "suspended": 0});
    let conditions: Vec<Value> = condition
        .into_iter()
        .map(|type_| {
            json!({
                "type": type_, "status": "True", "reason": "AllJobsCompleted", "message": "jobset completed successfully",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            })
        })
        .collect();
    let status = json!({"replicatedJobsStatus": [of("leader"), of("worker")], "conditions": conditions});
    api.patch_status(name, &PatchParams::default(), &Patch::Merge(json!({ "status": status }))).await.unwrap();
}

fn runs(job: &Value) -> bool {
    job["spec"]["suspend"] == false
}

fn node_selectors(job: &Value) -> Vec<Value> {
    let groups = job["spec"]["replicatedJobs"].as_array().unwrap();
    groups.iter().map(|group| group["template"]["spec"]["template"]["spec"]["nodeSelector"].clone()).collect()
}

#[test]
fn a_kind_that_comes_later_is_queued_as_if_it_had_always_been_there() {
    fixture::run(async {
        // Ready, with the kind enabled and no such kind.
        let bed = Bed::configured("jobset", FRAMEWORKS).await;
        let (cluster, namespace) = (bed.cluster(), bed.namespace.as_str());
        install_job_set(cluster).await;
        let flavor = queues::ResourceFlavor::new(&bed.name).node_label("pool", "gpu").build();
        bed.simple(&[("cpu", "4")]).await;
        cluster.apply([flavor]).await.unwrap();
        let api = job_sets(cluster, namespace).await;

        cluster.apply([job_set(namespace, "queue", "first")]).await.unwrap();
        let first = until(&api, "first", "started", runs).await;
        assert_eq!(node_selectors(&first), [json!({"pool": "gpu"}), json!({"pool": "gpu"})]);
        let workload = bed.workload_of("first").await;
        let pod_sets: Vec<(&str, i32)> = workload.spec.pod_sets.iter().map(|it| (it.name.as_str(), it.count)).collect();
        assert_eq!(pod_sets, [("leader", 1), ("worker", 2)]);
        assert!(workload.name_any().starts_with("jobset-first-"), "{}", workload.name_any());

        // Not suspended by its user, and there is no room: it is held.
        cluster.apply([job_set(namespace, "queue", "second")]).await.unwrap();
        bed.expect("second", "QuotaReserved", "False", "WaitingForQuota", "").await;
        until(&api, "second", "suspended", |job| job["spec"]["suspend"] == true).await;

        report(&api, "first", 1, 0, None).await;
        report(&api, "first", 0, 1, Some("Completed")).await;
        bed.expect("first", "Finished", "True", "Succeeded", "jobset completed successfully").await;
        until(&api, "second", "started", runs).await;

        bed.stop_cluster_queue("HoldAndDrain").await;
        let written = job_set(namespace, "queue", "second");
        let stopped = until(&api, "second", "stopped", |job| job["spec"]["suspend"] == true).await;
        assert_eq!(node_selectors(&stopped), [Value::Null, Value::Null], "as its user wrote it");
        let labels = "/spec/replicatedJobs/0/template/spec/template/metadata/labels";
        assert_eq!(stopped.pointer(labels), written.pointer(labels));
        bed.stop_cluster_queue("None").await;
        until(&api, "second", "started again", runs).await;
        api.delete("second", &Default::default()).await.unwrap();
        api.delete("first", &Default::default()).await.unwrap();
        bed.no_workloads().await;
    });
}

#[test]
fn a_job_set_is_dispatched_and_its_status_flows_back() {
    fixture::run(async {
        let config = format!("{CONFIG}{FRAMEWORKS}");
        let west = ClusterSpec::new("west").node(NodeSpec::new("n1").cpu(16));
        let fleet = Fleet::builder("kinds").agent(west).config(&config).agent_config(&config).start().await.unwrap();
        let (hub, west) = (fleet.hub(), fleet.worker("west"));
        hub.apply([queues::agent_cluster("west")]).await.unwrap();
        fleet.connect().await.unwrap();
        // Both run, and neither cluster knew the kind.
        install_job_set(hub).await;
        install_job_set(west).await;
        let tenant = fleet.tenant("sets").hub(&[("cpu", "4")]).worker("west", &[("cpu", "8")]).make().await.unwrap();
        let namespace = tenant.name();
        let (here, there) = (job_sets(hub, namespace).await, job_sets(west, namespace).await);

        let created = hub.apply([job_set(namespace, "main", "train")]).await.unwrap();
        let spec = &created[0].data["spec"];
        assert_eq!((&spec["suspend"], &spec["managedBy"]), (&json!(true), &json!("kueue.x-k8s.io/multikueue")));
        eventually(SOON, "the copy", async || Ok(there.get("train").await?)).await.unwrap();
        let copy = until(&there, "train", "started there", runs).await;
        assert_eq!(copy["spec"]["managedBy"], Value::Null);
        assert_eq!(copy["metadata"]["labels"]["kueue.x-k8s.io/multikueue-origin"], "multikueue");

        report(&there, "train", 1, 0, None).await;
        let shown = |job: &Value| job["status"]["replicatedJobsStatus"][1]["active"] == 1;
        let local = until(&here, "train", "its status shown", shown).await;
        assert_eq!(local["spec"]["suspend"], true, "nothing runs on the hub");
        report(&there, "train", 0, 1, Some("Completed")).await;
        let completed = |job: &Value| job["status"]["conditions"][0]["type"] == "Completed";
        until(&here, "train", "completed", completed).await;
        eventually(SOON, "its Workload finished", async || {
            let workloads = tenant.hub_workloads().list(&Default::default()).await?.items;
            let status = workloads.first().and_then(|workload| workload.status.clone()).unwrap_or_default();
            ensure!(conditions::is_true(&status.conditions, conditions::FINISHED), "{:?}", status.conditions);
            Ok(())
        })
        .await
        .unwrap();
        eventually(SOON, "the copy to be collected", async || {
            ensure!(there.get_opt("train").await?.is_none(), "it is still there");
            Ok(())
        })
        .await
        .unwrap();
    });
}
