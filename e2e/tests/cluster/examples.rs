//! The manifests of `examples`, applied as they are.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::ensure;
use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use kube::Api;
use kube::api::PostParams;
use serde_json::Value;
use switchyard_api::v1beta2::{LocalQueue, Workload};
use switchyard_e2e::fleet::{Fleet, NAMESPACE};
use switchyard_e2e::single::Single;
use switchyard_e2e::wait::eventually;
use switchyard_e2e::{Cluster, ClusterSpec, Environment, NodeSpec, fixture, paths, queues};

use crate::common::leader_worker_set;
use crate::job_kinds::table::install_crds;

/// Longer than anything here takes on a busy machine.
const WAIT: Duration = Duration::from_secs(120);
/// The namespace and the LocalQueue of all examples.
const TEAM: &str = "team-a";
const QUEUE: &str = "main";

fn examples(path: &str) -> PathBuf {
    paths::root().join("examples").join(path)
}

fn read(path: &str) -> String {
    std::fs::read_to_string(examples(path)).unwrap()
}

/// One name for each Workload that the examples of jobs lead to. Pods of a group share one.
fn jobs() -> BTreeSet<String> {
    let mut jobs = BTreeSet::new();
    for entry in std::fs::read_dir(examples("jobs")).unwrap() {
        let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        let objects: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
        for object in objects {
            let labels = &object["metadata"]["labels"];
            if labels["kueue.x-k8s.io/queue-name"] != QUEUE {
                continue;
            }
            let own = &object["metadata"]["name"];
            let group = labels.get("kueue.x-k8s.io/pod-group-name").unwrap_or(own);
            jobs.insert(format!("{} {group}", object["kind"]));
        }
    }
    jobs
}

/// Waits until the namespace has its account, and the API server calls the webhooks.
async fn takes_pods(cluster: &Cluster) {
    let accounts: Api<ServiceAccount> = Api::namespaced(cluster.admin.clone(), TEAM);
    let account = eventually(WAIT, "the account of the namespace", async || {
        accounts.get("default").await?;
        Ok(())
    });
    account.await.unwrap();
    let pods: Api<Pod> = Api::namespaced(cluster.admin.clone(), TEAM);
    let pod: Pod = serde_saphyr::from_str(&read("jobs/pod.yaml")).unwrap();
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    let gated = eventually(WAIT, "a pod to be gated", async || {
        let made = pods.create(&dry_run, &pod).await?;
        let gates = made.spec.and_then(|spec| spec.scheduling_gates).unwrap_or_default();
        ensure!(!gates.is_empty(), "the webhooks are not called");
        Ok(())
    });
    gated.await.unwrap();
}

#[test]
fn examples_of_one_cluster_reserve_quota_for_each_kind() {
    fixture::run(async {
        // Without a node, no pod ends, so every Workload keeps its quota.
        let controllers =
            ["deployment-controller", "replicaset-controller", "statefulset-controller"];
        let spec = controllers.into_iter().fold(ClusterSpec::new("one"), ClusterSpec::controller);
        let environment = Environment::builder("examples").cluster(spec).start().await.unwrap();
        let cluster = environment.cluster("one");
        cluster.install().await.unwrap();
        install_crds(&[cluster]).await.unwrap();
        leader_worker_set::install(cluster).await;
        let _single = Single::start_configured(cluster, &read("single/config.yaml")).await.unwrap();
        cluster.apply_yaml(&read("single/queues.yaml")).await.unwrap();
        takes_pods(cluster).await;
        cluster.apply_dir(examples("jobs")).await.unwrap();

        let jobs = jobs();
        let queues: Api<LocalQueue> = Api::namespaced(cluster.admin.clone(), TEAM);
        let workloads: Api<Workload> = Api::namespaced(cluster.admin.clone(), TEAM);
        let reserved = eventually(WAIT, "every example to have quota", async || {
            let status = queues.get(QUEUE).await?.status.unwrap_or_default();
            let names: Vec<String> = workloads
                .list(&Default::default())
                .await?
                .items
                .into_iter()
                .filter_map(|workload| workload.metadata.name)
                .collect();
            let reserving = usize::try_from(status.reserving_workloads).unwrap_or_default();
            ensure!(
                reserving == jobs.len() && status.pending_workloads == 0,
                "{reserving} of {} have quota, {} wait: jobs {jobs:#?}, Workloads {names:#?}",
                jobs.len(),
                status.pending_workloads
            );
            Ok(())
        });
        reserved.await.unwrap();
    });
}

#[test]
fn examples_of_a_hub_send_a_job_to_a_worker() {
    fixture::run(async {
        let worker = |name: &str| ClusterSpec::new(name).node(NodeSpec::new("node").cpu(8));
        let fleet = Fleet::builder("examples-hub").agent(worker("east")).bare(worker("west"));
        let fleet = fleet.start().await.unwrap();
        fleet.start_single("west").await.unwrap();
        let (_, kubeconfig) =
            fleet.worker("west").service_account(NAMESPACE, "switchyard-remote-hub").await.unwrap();
        // As `switchyard cluster add west` makes it.
        let secret = queues::kubeconfig_secret(NAMESPACE, "west-kubeconfig", &kubeconfig);
        fleet.hub().apply([secret]).await.unwrap();
        // For two workers with agents: the same without the clusters.
        fleet.hub().apply_yaml(&read("fleet/hub.yaml")).await.unwrap();
        fleet.hub().apply_yaml(&read("hub/queues.yaml")).await.unwrap();
        for worker in ["east", "west"] {
            fleet.worker(worker).apply_yaml(&read("worker/queues.yaml")).await.unwrap();
        }
        fleet.connect().await.unwrap();
        fleet.connected("west").await.unwrap();

        fleet.hub().apply_yaml(&read("hub/job.yaml")).await.unwrap();
        let workloads: Api<Workload> = Api::namespaced(fleet.hub().admin.clone(), TEAM);
        let sent = eventually(WAIT, "the job to be sent to a worker", async || {
            let found = workloads.list(&Default::default()).await?.items;
            let status = found.first().and_then(|workload| workload.status.as_ref());
            let cluster = status.and_then(|status| status.cluster_name.as_deref());
            ensure!(matches!(cluster, Some("east" | "west")), "{status:?}");
            Ok(())
        });
        sent.await.unwrap();
    });
}
