//! The images as pods of the chart: a hub on one cluster, an agent on another, two replicas of each.
//! The page about upgrades brings them from one release to the next.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{EvictParams, ListParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use switchyard_e2e::fleet::NAMESPACE;
use switchyard_e2e::nodes::NodeImage;
use switchyard_e2e::wait::eventually;
use switchyard_e2e::{Cluster, ClusterSpec, Environment, JobBuilder, fixture, job, queues, ready};

use super::reader::{WAIT, apply, shell};
use super::release::Release;
use super::{Kubectl, SOON, TAG};
use crate::common::shell::{self, Shell};

const README: &str = "README.md";
const UPGRADE: &str = "docs/upgrade.md";
/// The version of the release before.
const EARLIER: &str = "0.0.9";

/// Where jobs are.
const TEAM: &str = "team";
/// The job that runs during the upgrade.
const LONG: &str = "long";
/// Longer than two upgrades take, one after the other, on a busy machine.
const UPGRADES: Duration = Duration::from_secs(2 * WAIT.as_secs());
/// How often a Job is created during an update.
const PERIOD: Duration = Duration::from_millis(100);

#[test]
fn pods_of_the_chart_stand_drains_and_updates() {
    fixture::run_on_real_nodes(async {
        let release = tokio::task::spawn_blocking(Release::find).await.unwrap();
        let hub = ClusterSpec::new("hub").real_node([release.image("switchyard-hub")]);
        let agent = [release.image("switchyard-agent"), NodeImage::Busybox];
        let worker = ClusterSpec::new("east").real_node(agent);
        let environment =
            Environment::builder("installed").cluster(hub).cluster(worker).start().await.unwrap();
        let shell = Arc::new(shell(&environment, &["hub", "east"], &release).await);
        let (hub, worker) = (environment.cluster("hub"), environment.cluster("east"));
        install(&shell, &release, hub, worker).await;
        queues(hub, worker).await;
        runs(hub, "first").await;
        is_drained(hub, "switchyard-hub").await;
        runs(hub, "second").await;
        is_drained(worker, "switchyard-agent").await;
        runs(hub, "third").await;
        is_updated(&shell, hub, worker).await;
        runs(hub, "fourth").await;
        for cluster in [hub, worker] {
            never_restarted(cluster).await;
        }
    });
}

/// Installs the release before, as the pages say. Its chart has another version, so that it names
/// other images; their digests are the same.
async fn install(shell: &Shell, release: &Release, hub: &Cluster, worker: &Cluster) {
    let earlier = tempfile::tempdir().unwrap();
    write_earlier_chart(release, earlier.path());
    let package = format!("dist/switchyard-{TAG}.tgz");
    let helm = shell::commands(README, "### A hub and two workers").swap_remove(0);
    assert!(helm.contains(&package), "{helm}");
    shell.link("earlier", earlier.path());
    shell.run(&helm.replace(&package, "earlier/switchyard"));

    let added = shell.run("switchyard cluster add east --chart earlier/switchyard -o json");
    let added: Value = serde_json::from_str(&added).unwrap();
    // In the shell of the worker's administrator.
    let of_worker = Shell::new(&[worker]).await;
    of_worker.link("earlier", earlier.path());
    of_worker.run(added["commands"].as_str().unwrap());
    ready::worker_cluster(hub, "east", SOON).await.unwrap();
    available(worker, "switchyard-agent").await.unwrap();
}

/// The release's chart with an earlier version, as a folder.
fn write_earlier_chart(release: &Release, dir: &Path) {
    let package = release.folder().join(format!("switchyard-{TAG}.tgz"));
    let unpacked = Command::new("tar").arg("-xzf").arg(package).arg("-C").arg(dir).status();
    assert!(unpacked.unwrap().success());
    let file = dir.join("switchyard/Chart.yaml");
    let text = std::fs::read_to_string(&file).unwrap();
    assert_eq!(text.matches(TAG).count(), 2, "{text}");
    std::fs::write(file, text.replace(TAG, EARLIER)).unwrap();
}

async fn queues(hub: &Cluster, worker: &Cluster) {
    let quota = [("cpu", "500m")];
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TEAM}});
    let common = vec![
        namespace,
        queues::ResourceFlavor::new("any").build(),
        queues::local_queue(TEAM, "main", "main"),
    ];
    apply(worker, common.clone()).await;
    apply(worker, vec![queues::ClusterQueue::new("main").group("any", &quota).build()]).await;
    apply(hub, common).await;
    apply(hub, queues::multikueue("fleet", &["east"])).await;
    let queue =
        queues::ClusterQueue::new("main").group("any", &quota).admission_check("fleet").build();
    apply(hub, vec![queue]).await;
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
    kubectl.run(&["cordon", &node]).unwrap();
    // The budget counts the pods a moment after they are ready.
    let leading = eventually(SOON, "the pod that leads to be evicted", async || {
        let leading = leader(cluster).await?;
        pods(cluster).evict(&leading, &EvictParams::default()).await?;
        Ok(leading)
    });
    let leading = leading.await.unwrap();
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
        "--timeout=20s",
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

/// The page's commands replace pod after pod by those of the next release. Meanwhile every Job is
/// taken, and the pod of a running job stays.
async fn is_updated(shell: &Arc<Shell>, hub: &Cluster, worker: &Cluster) {
    let mut commands = shell::commands(UPGRADE, "### With Helm");
    let (first, last) = (commands.remove(0), commands.pop().unwrap());
    assert!(first == last && first.starts_with("switchyard check"), "{first} {last}");
    let warning = format!("is of version {EARLIER}, this command line of {TAG}");
    shell.until(&first, &[&warning], WAIT).await;

    sample(LONG).script("sleep 600").create(&hub.admin).await.unwrap();
    let before = pod_of_long_job(worker).await;
    let upgrade = tokio::task::spawn_blocking({
        let shell = Arc::clone(shell);
        move || commands.iter().for_each(|line| _ = shell.run(line))
    });
    let jobs: Api<Job> = Api::namespaced(hub.admin.clone(), TEAM);
    let job = serde_json::from_value(sample("asked").build()).unwrap();
    let asked = PostParams { dry_run: true, ..PostParams::default() };
    let (mut taken, mut refused) = (0, Vec::new());
    let start = Instant::now();
    while !upgrade.is_finished() || is_available(hub, "switchyard-hub").await.is_err() {
        assert!(start.elapsed() < UPGRADES, "the upgrade does not end");
        match jobs.create(&asked, &job).await {
            Ok(_) => taken += 1,
            Err(error) => refused.push(error.to_string()),
        }
        tokio::time::sleep(PERIOD).await;
    }
    upgrade.await.unwrap();
    println!("{taken} jobs were taken during an upgrade of {:.1?}", start.elapsed());
    assert!(
        refused.is_empty(),
        "{} of {} were refused: {refused:?}",
        refused.len(),
        refused.len() + taken
    );
    for (cluster, name) in [(hub, "switchyard-hub"), (worker, "switchyard-agent")] {
        available(cluster, name).await.unwrap();
        leads_in_version(cluster, &format!("{name}:{TAG}@sha256:")).await;
    }
    shell.until(&last, &["All checks passed."], WAIT).await;
    assert_eq!(pod_of_long_job(worker).await, before);
}

/// The uid, the node and the restarts of the running pod of [`LONG`].
async fn pod_of_long_job(worker: &Cluster) -> Value {
    let pods: Api<Pod> = Api::namespaced(worker.admin.clone(), TEAM);
    let own = ListParams::default().labels(&format!("batch.kubernetes.io/job-name={LONG}"));
    eventually(SOON, "the long job to run", async || {
        let mut pods = pods.list(&own).await?.items;
        ensure!(pods.len() == 1, "{} pods", pods.len());
        let pod = pods.remove(0);
        let status = pod.status.clone().unwrap_or_default();
        ensure!(status.phase.as_deref() == Some("Running"), "{status:?}");
        let containers = status.container_statuses.unwrap_or_default();
        let restarts: Vec<i32> = containers.iter().map(|it| it.restart_count).collect();
        Ok(json!({"uid": pod.uid(), "node": pod.spec.unwrap().node_name, "restarts": restarts}))
    })
    .await
    .unwrap()
}

/// Waits until the pods are those of an image, and one of them leads.
async fn leads_in_version(cluster: &Cluster, image: &str) {
    eventually(SOON, format!("a pod of {image} to lead"), async || {
        let leader = leader(cluster).await?;
        for pod in pods(cluster).list(&ListParams::default()).await?.items {
            let name = pod.name_any();
            let container = pod.spec.context("a spec")?.containers.remove(0);
            let is_newest = container.image.is_some_and(|it| it.contains(image));
            ensure!(is_newest, "{name} is there, and {leader} leads");
        }
        Ok(())
    })
    .await
    .unwrap();
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
