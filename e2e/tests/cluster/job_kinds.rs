//! Jobs of other kinds than Job, with their real CRDs, which are installed only when everything runs. The kinds' own controllers do
//! not run: the tests write their statuses.
pub(crate) mod external;
pub(crate) mod samples;
pub(crate) mod table;

use crate::bed::Bed;
use crate::common::install_crds_of;
use anyhow::ensure;
use kube::{
    Api, ResourceExt as _,
    api::{DynamicObject, Patch, PatchParams},
};
use serde_json::{Value, json};
use switchyard_e2e::fleet::Fleet;
use switchyard_e2e::wait::eventually;
use switchyard_e2e::{Cluster, ClusterSpec, NodeSpec, fixture, queues};
use table::{Jobs, SOON};

pub(crate) const CONFIG: &str = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n";
pub(crate) const FRAMEWORKS: &str = "\
featureGates: {SparkApplicationIntegration: true}
integrations:
  frameworks:
  - batch/job
  - jobset.x-k8s.io/jobset
  - kubeflow.org/tfjob
  - kubeflow.org/pytorchjob
  - kubeflow.org/paddlejob
  - kubeflow.org/xgboostjob
  - kubeflow.org/jaxjob
  - kubeflow.org/mpijob
  - ray.io/rayjob
  - ray.io/raycluster
  - ray.io/rayservice
  - workload.codeflare.dev/appwrapper
  - sparkoperator.k8s.io/sparkapplication
  - trainer.kubeflow.org/trainjob
";
pub(crate) const EXTERNAL: &str =
    "multiKueue: {externalFrameworks: [{name: Flock.v1.birds.example.com}]}\n";
const API: &str = "jobset.x-k8s.io/v1alpha2";

async fn install_job_set(cluster: &Cluster) {
    install_crds_of(cluster, "sigs.k8s.io/jobset", "config/components/crd/bases").await;
}

/// A JobSet of a leader and two workers, of one cpu each.
fn job_set(namespace: &str, queue: &str, name: &str) -> Value {
    let container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": 1}}});
    let template = json!({
        "metadata": {"labels": {"app": name}}, "spec": {"restartPolicy": "Never", "containers": [container]},
    });
    let group = |name: &str, parallelism: i32| {
        let spec =
            json!({"parallelism": parallelism, "completions": parallelism, "template": template});
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
async fn until(
    api: &Api<DynamicObject>,
    name: &str,
    what: &str,
    right: impl Fn(&Value) -> bool,
) -> Value {
    let check = async || {
        let found = serde_json::to_value(api.get(name).await?)?;
        ensure!(right(&found), "spec {} status {}", found["spec"], found["status"]);
        Ok(found)
    };
    eventually(SOON, format!("JobSet {name}: {what}"), check).await.unwrap()
}

/// Says what the JobSet controller would.
async fn report(
    api: &Api<DynamicObject>,
    name: &str,
    active: i32,
    succeeded: i32,
    condition: Option<&str>,
) {
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
    let status =
        json!({"replicatedJobsStatus": [of("leader"), of("worker")], "conditions": conditions});
    api.patch_status(name, &PatchParams::default(), &Patch::Merge(json!({ "status": status })))
        .await
        .unwrap();
}

fn runs(job: &Value) -> bool {
    job["spec"]["suspend"] == false
}

fn node_selectors(job: &Value) -> Vec<Value> {
    let groups = job["spec"]["replicatedJobs"].as_array().unwrap();
    groups
        .iter()
        .map(|group| group["template"]["spec"]["template"]["spec"]["nodeSelector"].clone())
        .collect()
}

#[test]
fn kind_installed_later_is_queued() {
    fixture::run(async {
        // Ready, with the kind enabled and no such kind.
        let bed = Bed::configured("jobset", FRAMEWORKS).await;
        let (cluster, namespace) = (bed.cluster(), bed.namespace.as_str());
        install_job_set(cluster).await;
        let flavor = queues::ResourceFlavor::new(&bed.name).node_label("pool", "gpu");
        let objects = queues::in_flavor(namespace, &bed.name, flavor, &[("cpu", "4")]);
        cluster.apply(objects).await.unwrap();
        let api = job_sets(cluster, namespace).await;

        cluster.apply([job_set(namespace, "queue", "first")]).await.unwrap();
        let first = until(&api, "first", "started", runs).await;
        assert_eq!(node_selectors(&first), [json!({"pool": "gpu"}), json!({"pool": "gpu"})]);
        let workload = bed.workload_of("first").await;
        let pod_sets: Vec<(&str, i32)> =
            workload.spec.pod_sets.iter().map(|it| (it.name.as_str(), it.count)).collect();
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
fn jobs_of_every_kind_run_here_and_elsewhere() {
    fixture::run(async {
        let config = format!("{CONFIG}{FRAMEWORKS}{EXTERNAL}");
        let west = ClusterSpec::new("west").node(NodeSpec::new("n1").cpu(64));
        let fleet = Fleet::builder("kinds").agent(west).config(&config).agent_config(&config);
        let fleet = fleet.manifests(external::roles()).start().await.unwrap();
        let (hub, west) = (fleet.hub(), fleet.worker("west"));
        hub.apply([queues::agent_cluster("west")]).await.unwrap();
        fleet.connect().await.unwrap();
        // Both run, and neither cluster knew the kinds.
        table::install_crds(&[hub, west]).await.unwrap();
        hub.apply([external::crd()]).await.unwrap();
        west.apply([external::crd()]).await.unwrap();
        // A RayJob's submitter asks for memory, too.
        let quota = [("cpu", "100"), ("memory", "100Gi")];
        let tenant = fleet.tenant("kinds").hub(&quota).worker("west", &quota).make().await.unwrap();
        let namespace = tenant.name();
        let samples = samples::samples();
        let runs = samples.iter().map(async |sample| {
            let (here, there) = (
                Jobs::new(sample, hub, namespace).await?,
                Jobs::new(sample, west, namespace).await?,
            );
            futures::try_join!(
                table::runs_here(&there, namespace, "main"),
                table::runs_there(&here, &there, namespace, "main"),
            )
        });
        let (outcomes, external) = futures::join!(
            futures::future::join_all(runs),
            external::runs_there(hub, west, namespace)
        );
        // Last, because it ends hub and agent.
        let external = match external {
            Ok(()) => external::is_handed_back(&fleet, namespace).await,
            failed => failed,
        };
        let outcomes = outcomes.into_iter().map(|outcome| outcome.map(|_| ())).chain([external]);
        let failures: Vec<String> =
            outcomes.filter_map(Result::err).map(|error| format!("{error:#}")).collect();
        assert!(failures.is_empty(), "{}", failures.join("\n"));
    });
}
