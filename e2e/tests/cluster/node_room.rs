//! Room on nodes: a job goes where its pods have nodes, and by quota where no cluster has any.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use kube::api::{DeleteParams, ListParams};
use kube::{Api, ResourceExt};
use serde_json::json;
use switchyard::status::JobRow;
use switchyard_api::names;
use switchyard_api::v1beta2::{AgentCapacity, MultiKueueCluster, Workload};
use switchyard_e2e::fleet::{Fleet, Tenant};
use switchyard_e2e::wait::eventually;
use switchyard_e2e::{ClusterSpec, JobBuilder, NodeSpec, fixture, queues};

use crate::common::WORKERS;
use crate::trouble::{command, cordon, why};

const SOON: Duration = Duration::from_secs(60);

/// The cpu that the hub shows as free on a cluster's nodes, once it is what is expected.
pub(crate) async fn shows_on_nodes(
    fleet: &Fleet,
    tenant: &Tenant<'_>,
    cluster: &str,
    is_expected: impl Fn(&str) -> bool,
) -> String {
    let clusters: Api<MultiKueueCluster> = Api::all(fleet.hub().admin.clone());
    eventually(SOON, format!("cpu on nodes of {cluster}"), async || {
        let agent = clusters.get(cluster).await?.status.and_then(|status| status.agent);
        let rows = agent.context("no agent")?.capacity;
        let is_row = |row: &&AgentCapacity| row.flavor == tenant.name() && row.resource == "cpu";
        let row = rows.iter().find(is_row).context("no row")?;
        let free = row.free_on_nodes.as_ref().context("not known")?.0.clone();
        ensure!(is_expected(&free), "{row:?}");
        Ok(free)
    })
    .await
    .unwrap()
}

/// Submits a job, and waits until it is on a cluster. A cluster that answers later than 3 s is passed
/// over, so a job that is on another one is submitted again, at most twice.
async fn runs_on(tenant: &Tenant<'_>, job: JobBuilder, name: &str, cluster: &str) {
    for left in (0..3).rev() {
        tenant.submit(job.clone()).await.unwrap();
        let on_one = |row: &JobRow| row.cluster.is_some();
        let row = tenant.await_status(name, cluster, SOON, on_one).await.unwrap();
        if row.cluster.as_deref() == Some(cluster) {
            return;
        }
        assert!(left > 0, "{name} is on {:?}", row.cluster);
        tenant.hub_jobs().delete(name, &DeleteParams::background()).await.unwrap();
        let of = async |cluster: &str| {
            let jobs = tenant.worker_jobs(cluster).list(&ListParams::default()).await?.items;
            anyhow::Ok(jobs.iter().any(|job| job.name_any() == name))
        };
        let gone = async || {
            let workloads = tenant.hub_workloads().list(&ListParams::default()).await?.items;
            let is_its =
                |it: &Workload| it.owner_references().iter().any(|owner| owner.name == name);
            ensure!(!workloads.iter().any(is_its), "its Workload is still there");
            ensure!(!of("west").await? && !of("east").await?, "its copy is still there");
            Ok(())
        };
        eventually(SOON, format!("{name} to be deleted"), gone).await.unwrap();
    }
}

/// Both clusters have quota for all jobs. A pod of others takes most of the node of `west`, which
/// every job prefers.
#[test]
fn job_goes_where_its_pods_have_nodes() {
    fixture::run(async {
        let worker = |name: &str| ClusterSpec::new(name).node(NodeSpec::new("n1").cpu(8));
        let fleet = Fleet::builder("room").agent(worker("west")).agent(worker("east"));
        let fleet = fleet.start().await.unwrap();
        let container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": "6"}}});
        let other = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "other", "namespace": "default"},
            "spec": {"nodeName": "n1", "containers": [container]},
        });
        fleet.worker("west").apply([other]).await.unwrap();
        fleet.hub().apply(WORKERS.map(queues::agent_cluster)).await.unwrap();
        fleet.connect().await.unwrap();
        let quota = [("cpu", "32")];
        let tenant = fleet.tenant("room").hub(&[("cpu", "12")]);
        let tenant = tenant.worker("west", &quota).worker("east", &quota).make().await.unwrap();
        let job = |name: &str, cpu: &str| {
            let job = tenant.job(name).cpu(cpu).run_forever();
            job.annotation(names::PREFERRED_CLUSTERS, "west")
        };
        shows_on_nodes(&fleet, &tenant, "west", |free| free == "2").await;
        shows_on_nodes(&fleet, &tenant, "east", |free| free == "8").await;
        runs_on(&tenant, job("small", "1"), "small", "west").await;
        shows_on_nodes(&fleet, &tenant, "west", |free| free == "1").await;
        // Each of its pods finds room on `west`, but both together only on `east`.
        let gang = job("gang", "1").parallelism(2).completions(2);
        runs_on(&tenant, gang, "gang", "east").await;
        runs_on(&tenant, job("large", "4"), "large", "east").await;

        // No cluster has room for the next one. It goes where it would by quota.
        cordon(&fleet, "east", true).await;
        shows_on_nodes(&fleet, &tenant, "east", |free| free == "0").await;
        runs_on(&tenant, job("full", "4"), "full", "west").await;

        shows_on_nodes(&fleet, &tenant, "west", |free| free == "1").await;
        let shown = command(&fleet, &["get", "clusters", "--capacity"]).await;
        let is_row = |line: &&str| line.starts_with("west") && line.contains(tenant.name());
        let cells: Vec<&str> = shown.lines().find(is_row).unwrap().split_whitespace().collect();
        assert!(shown.contains("AVAILABLE   ON NODES   ON ONE"), "{shown}");
        assert_eq!(cells[cells.len() - 2..], ["1", "1"], "{shown}");
        // The hub's quota is used up, so this job waits there.
        tenant.submit(job("waits", "8")).await.unwrap();
        tenant
            .await_status("waits", "no cluster", SOON, |row| row.cluster.is_none())
            .await
            .unwrap();
        let why = why(&fleet, &tenant, "waits").await;
        let says = "its pods would wait for a node: a pod of main requests cpu 8, and no node has";
        assert_eq!(why.matches(says).count(), 2, "{why}");
    });
}
