//! Stock Kueue's CRDs replace Switchyard's under a running hub. They lack fields of it, such as the
//! attempt of a dispatch. The jobs must not notice.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::PostParams;
use kube::{Api, ResourceExt as _};
use switchyard::status::JobState;
use switchyard_e2e::fleet::{Fleet, HUB, Tenant};
use switchyard_e2e::wait::{always, eventually};
use switchyard_e2e::{ClusterSpec, NodeSpec, Part, Parts, fixture, job, queues};

const SOON: Duration = Duration::from_secs(60);
const WHILE: Duration = Duration::from_secs(5);
const WORKLOADS: &str = "workloads.kueue.x-k8s.io";

/// Replaces the CRD of Workloads by Kueue's, as its manifests have it.
async fn kueues_crd(fleet: &Fleet) {
    let source = Parts::new().unwrap().own_source_dir(Part::Kueue).unwrap();
    let file = source.join("config/components/crd/bases/kueue.x-k8s.io_workloads.yaml");
    let text = std::fs::read_to_string(file).unwrap();
    let mut theirs: CustomResourceDefinition = serde_saphyr::from_str(&text).unwrap();
    let crds: Api<CustomResourceDefinition> = Api::all(fleet.hub().admin.clone());
    eventually(SOON, "the CRD to be replaced", async || {
        theirs.metadata.resource_version = crds.get(WORKLOADS).await?.resource_version();
        crds.replace(WORKLOADS, &PostParams::default(), &theirs).await?;
        Ok(())
    })
    .await
    .unwrap();
}

/// The attempt of a job, as the API has it.
async fn attempt(tenant: &Tenant<'_>, job: &str) -> anyhow::Result<Option<i64>> {
    let status = tenant.workload_of(job).await?.status.context("no status")?;
    ensure!(status.cluster_name.as_deref() == Some("west"), "{:?}", status.cluster_name);
    Ok(status.dispatch.map(|dispatch| dispatch.attempt))
}

/// The uid of a job's only pod.
async fn pod(fleet: &Fleet, tenant: &Tenant<'_>, job: &str) -> anyhow::Result<String> {
    let pods: Api<Pod> = Api::namespaced(fleet.worker("west").admin.clone(), tenant.name());
    let pods = pods.list(&job::pods_of(job)).await?.items;
    let [pod] = &pods[..] else { anyhow::bail!("{} pods", pods.len()) };
    ensure!(pod.metadata.deletion_timestamp.is_none(), "it is being deleted");
    pod.uid().context("no uid")
}

#[test]
fn jobs_run_on_when_kueues_crds_drop_their_attempts() {
    fixture::run(async {
        let west = ClusterSpec::new("west").node(NodeSpec::new("n1").cpu(8));
        let fleet = Fleet::builder("other-crds").agent(west);
        let fleet = fleet.start().await.unwrap();
        fleet.hub().apply([queues::agent_cluster("west")]).await.unwrap();
        fleet.connect().await.unwrap();
        let quota = [("cpu", "4")];
        let tenant = fleet.tenant("drops").hub(&quota).worker("west", &quota).make().await.unwrap();
        tenant.submit(tenant.job("runs").cpu("1").run_forever()).await.unwrap();
        tenant
            .await_status("runs", "running", SOON, |row| row.state == JobState::Running)
            .await
            .unwrap();
        let first = pod(&fleet, &tenant, "runs").await.unwrap();
        assert_eq!(attempt(&tenant, "runs").await.unwrap(), Some(1));

        kueues_crd(&fleet).await;
        eventually(SOON, "the attempt to be dropped", async || {
            let attempt = attempt(&tenant, "runs").await?;
            ensure!(attempt.is_none(), "{attempt:?}");
            Ok(())
        })
        .await
        .unwrap();
        let goes_on = async || {
            ensure!(pod(&fleet, &tenant, "runs").await? == first, "another pod");
            Ok(())
        };
        always(WHILE, "the job to run on", goes_on).await.unwrap();
        fleet.kill(HUB);
        fleet.start_hub().await.unwrap();
        always(WHILE, "the job to run on under a new hub", goes_on).await.unwrap();

        fleet.reinstall_hub().await.unwrap();
        eventually(SOON, "the attempt to be written again", async || {
            let attempt = attempt(&tenant, "runs").await?;
            ensure!(attempt == Some(1), "{attempt:?}");
            Ok(())
        })
        .await
        .unwrap();
        goes_on().await.unwrap();
    });
}
