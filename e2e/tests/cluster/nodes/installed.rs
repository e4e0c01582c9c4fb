//! The images as pods of the chart: a hub on one cluster, an agent on another, two replicas of each.

use std::time::Duration;

use anyhow::{Context, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{EvictParams, ListParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::json;
use switchyard::join_token;
use switchyard_e2e::fleet::NAMESPACE;
use switchyard_e2e::nodes::NodeImage;
use switchyard_e2e::wait::eventually;
use switchyard_e2e::{Cluster, ClusterSpec, Environment, JobBuilder, fixture, job, queues, ready};

use super::{Kubectl, SOON, TAG};
use crate::common::helm::{Helm, chart};

/// Where jobs are.
const TEAM: &str = "team";
/// How often a Job is created during an update.
const PERIOD: Duration = Duration::from_millis(100);

#[test]
fn pods_of_the_chart_stand_drains_and_updates() {
    fixture::run_on_real_nodes(async {
        let hub = ClusterSpec::new("hub").real_node([NodeImage::program("switchyard-hub", TAG)]);
        let agent = [NodeImage::program("switchyard-agent", TAG), NodeImage::Busybox];
        let worker = ClusterSpec::new("east").real_node(agent);
        let environment =
            Environment::builder("installed").cluster(hub).cluster(worker).start().await.unwrap();
        let (hub, worker) = (environment.cluster("hub"), environment.cluster("east"));
        install(hub, worker).await;
        queues(hub, worker).await;
        runs(hub, "first").await;
        is_drained(hub, "switchyard-hub").await;
        runs(hub, "second").await;
        is_drained(worker, "switchyard-agent").await;
        runs(hub, "third").await;
        is_updated(hub).await;
        runs(hub, "fourth").await;
        for cluster in [hub, worker] {
            never_restarted(cluster).await;
        }
    });
}

/// By Helm, which waits until all replicas are ready.
async fn install(hub: &Cluster, worker: &Cluster) {
    let chart = chart();
    let address = hub.load_balancer().unwrap();
    let advertise = format!("--set=hub.advertise=https://{address}:7443");
    let flags = ["install", "switchyard", &chart, "--create-namespace", "--wait", "--timeout=5m"];
    Helm::new(Some(hub), NAMESPACE).ok(&[&flags[..], &["--set=mode=hub", &advertise]].concat());
    hub.apply([queues::agent_cluster("east")]).await.unwrap();
    let token = join_token::make(hub.admin.clone(), &join_token::Args::new("east", NAMESPACE))
        .await
        .unwrap();
    let values = [
        "--set=mode=agent".to_owned(),
        format!("--set=agent.hub={}", token.hub_address),
        format!("--set=agent.hubCaSha256={}", token.hub_ca_sha256),
        format!("--set=agent.token={}", token.token),
    ];
    let values: Vec<&str> = values.iter().map(String::as_str).collect();
    Helm::new(Some(worker), NAMESPACE).ok(&[&flags[..], &values].concat());
    ready::worker_cluster(hub, "east", SOON).await.unwrap();
}

async fn queues(hub: &Cluster, worker: &Cluster) {
    let quota = [("cpu", "500m")];
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TEAM}});
    let common = [
        namespace,
        queues::ResourceFlavor::new("any").build(),
        queues::local_queue(TEAM, "main", "main"),
    ];
    worker.apply(common.clone()).await.unwrap();
    worker.apply([queues::ClusterQueue::new("main").group("any", &quota).build()]).await.unwrap();
    hub.apply(common).await.unwrap();
    hub.apply(queues::multikueue("fleet", &["east"])).await.unwrap();
    let queue =
        queues::ClusterQueue::new("main").group("any", &quota).admission_check("fleet").build();
    hub.apply([queue]).await.unwrap();
    ready::local_queue(hub, TEAM, "main", SOON).await.unwrap();
}

fn sample(name: &str) -> JobBuilder {
    JobBuilder::new(TEAM, name).queue("main").cpu("100m").script("echo done")
}

/// A Job of the hub passes its webhooks, which lie behind a Service, and completes on the worker.
async fn runs(hub: &Cluster, name: &str) {
    let created =
        eventually(SOON, "the hub to take a job", async || sample(name).create(&hub.admin).await);
    let spec = created.await.unwrap().spec.unwrap();
    assert_eq!(spec.managed_by.as_deref(), Some("kueue.x-k8s.io/multikueue"), "a webhook marks it");
    job::complete(&hub.admin, TEAM, name, SOON).await.unwrap();
}

fn pods(cluster: &Cluster) -> Api<Pod> {
    Api::namespaced(cluster.admin.clone(), NAMESPACE)
}

/// The pod that leads.
async fn leader(cluster: &Cluster) -> anyhow::Result<String> {
    let pods: Vec<String> =
        pods(cluster).list(&ListParams::default()).await?.items.iter().map(Pod::name_any).collect();
    let leases: Api<Lease> = Api::namespaced(cluster.admin.clone(), NAMESPACE);
    let leases = leases.list(&ListParams::default()).await?.items;
    let holders: Vec<String> =
        leases.into_iter().filter_map(|lease| lease.spec?.holder_identity).collect();
    let leading =
        pods.into_iter().find(|pod| holders.iter().any(|holder| holder.contains(pod.as_str())));
    leading.with_context(|| format!("none of its pods leads: {holders:?}"))
}

/// A node is drained: another pod leads, and the budget keeps it until a new one is ready, for which there is no node before
/// the drain is over.
async fn is_drained(cluster: &Cluster, name: &str) {
    let kubectl = Kubectl::new(cluster);
    let node = cluster.real_node_name().unwrap();
    let leading = leader(cluster).await.unwrap();
    kubectl.run(&["cordon", &node]).unwrap();
    pods(cluster).evict(&leading, &EvictParams::default()).await.unwrap();
    eventually(SOON, "another pod to lead", async || {
        let now = leader(cluster).await?;
        ensure!(now != leading, "{now} leads");
        Ok(())
    })
    .await
    .unwrap();
    let drain = [
        "drain",
        &node,
        "--ignore-daemonsets",
        "--delete-emptydir-data",
        "--force",
        "--timeout=5s",
    ];
    let refused = kubectl.run(&drain).unwrap_err().to_string();
    assert!(refused.contains("violate the pod's disruption budget"), "{refused}");
    kubectl.run(&["uncordon", &node]).unwrap();
    available(cluster, name).await.unwrap();
}

/// Waits until a Deployment has all its replicas, of its newest template.
async fn available(cluster: &Cluster, name: &str) -> anyhow::Result<()> {
    eventually(SOON, format!("{name} to be available"), async || is_available(cluster, name).await)
        .await
}

async fn is_available(cluster: &Cluster, name: &str) -> anyhow::Result<()> {
    let deployments: Api<Deployment> = Api::namespaced(cluster.admin.clone(), NAMESPACE);
    let deployment = deployments.get(name).await?;
    let (wanted, status) = (Some(2), deployment.status.unwrap_or_default());
    let observed = status.observed_generation == deployment.metadata.generation;
    let counts = [status.updated_replicas, status.available_replicas, status.replicas];
    ensure!(observed && counts.iter().all(|count| *count == wanted), "{status:?}");
    Ok(())
}

/// A new template replaces pod after pod, and meanwhile every Job is taken.
async fn is_updated(hub: &Cluster) {
    let round = "--set=controllerManager.manager.podAnnotations.round=two";
    Helm::new(Some(hub), NAMESPACE).ok(&[
        "upgrade",
        "switchyard",
        &chart(),
        "--reset-then-reuse-values",
        round,
    ]);
    let jobs: Api<k8s_openapi::api::batch::v1::Job> = Api::namespaced(hub.admin.clone(), TEAM);
    let job = serde_json::from_value(sample("asked").build()).unwrap();
    let asked = PostParams { dry_run: true, ..PostParams::default() };
    let (mut taken, mut refused) = (0, Vec::new());
    let start = std::time::Instant::now();
    while is_available(hub, "switchyard-hub").await.is_err() {
        assert!(start.elapsed() < SOON, "the update does not end");
        match jobs.create(&asked, &job).await {
            Ok(_) => taken += 1,
            Err(error) => refused.push(error.to_string()),
        }
        tokio::time::sleep(PERIOD).await;
    }
    println!("{taken} jobs were taken during an update of {:.1?}", start.elapsed());
    assert!(
        refused.is_empty(),
        "{} of {} were refused: {refused:?}",
        refused.len(),
        refused.len() + taken
    );
}

/// The kubelet's probes never had a container killed.
async fn never_restarted(cluster: &Cluster) {
    for pod in pods(cluster).list(&ListParams::default()).await.unwrap().items {
        let containers =
            pod.status.clone().and_then(|status| status.container_statuses).unwrap_or_default();
        assert!(
            containers.iter().all(|it| it.restart_count == 0),
            "{}: {containers:?}",
            pod.name_any()
        );
    }
}
