//! Jobs that change their size while they run on a worker of a hub: one worker has an agent, one runs single mode behind a
//! kubeconfig.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::ensure;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::json;
use switchyard_api::conditions;
use switchyard_api::v1beta2::Workload;
use switchyard_e2e::fixture::{self, Shared};
use switchyard_e2e::fleet::{Fleet, FleetBuilder, HUB, Tenant};
use switchyard_e2e::job::JobBuilder;
use switchyard_e2e::wait::{always, eventually};
use switchyard_e2e::{Cluster, ClusterSpec, NodeSpec, queues};

use crate::elastic::{ELASTIC, REPLACES, is_gated, said};

/// Longer than anything here takes on a busy machine.
const SOON: Duration = Duration::from_secs(120);
const CONFIG: &str = "\
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
integrations:
  frameworks: [batch/job]
";

static FLEET: Shared<Fleet> = Shared::new(|| {
    Box::pin(async {
        let fleet = start(Fleet::builder("elastic").bare(worker("east"))).await?;
        fleet.add_single("east").await?;
        await_webhook(fleet.worker("east")).await?;
        Ok(fleet)
    })
});

fn worker(name: &str) -> ClusterSpec {
    ClusterSpec::new(name).node(NodeSpec::new("n1").cpu(64))
}

/// With worker `west`, which has an agent.
async fn start(fleet: FleetBuilder) -> anyhow::Result<Fleet> {
    let fleet = fleet
        .agent(worker("west"))
        .config(CONFIG)
        .agent_config(CONFIG)
        .agent_webhooks()
        .start()
        .await?;
    fleet.hub().apply([queues::agent_cluster("west")]).await?;
    fleet.connect().await?;
    for cluster in [fleet.worker("west"), fleet.hub()] {
        await_webhook(cluster).await?;
    }
    Ok(fleet)
}

/// Waits until jobs with a queue are held back.
async fn await_webhook(cluster: &Cluster) -> anyhow::Result<()> {
    let jobs: Api<Job> = Api::namespaced(cluster.admin.clone(), "default");
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    let probe = serde_json::from_value(JobBuilder::new("default", "probe").queue("main").build())?;
    eventually(SOON, "the webhook of jobs", async || {
        let made = jobs.create(&dry, &probe).await?;
        ensure!(made.spec.and_then(|spec| spec.suspend) == Some(true), "it is let through");
        Ok(())
    })
    .await
}

async fn fleet() -> &'static Fleet {
    FLEET.get().await.unwrap()
}

/// A tenant whose elastic job `train` goes to one worker.
struct Scene<'a> {
    fleet: &'a Fleet,
    tenant: Tenant<'a>,
    worker: &'static str,
}

impl<'a> Scene<'a> {
    /// With two pods of one core, that run until they are deleted.
    async fn new(
        fleet: &'a Fleet,
        stem: &str,
        worker: &'static str,
        (here, there): (&str, &str),
    ) -> Self {
        let tenant = fleet
            .tenant(stem)
            .hub(&[("cpu", here)])
            .worker(worker, &[("cpu", there)])
            .make()
            .await
            .unwrap();
        let job =
            tenant.job("train").annotation(ELASTIC, "true").parallelism(2).completions(10).cpu("1");
        tenant.submit(job.run_forever()).await.unwrap();
        Self { fleet, tenant, worker }
    }

    async fn resize(&self, pods: u32) {
        let patch = Patch::Merge(json!({"spec": {"parallelism": pods}}));
        self.tenant.hub_jobs().patch("train", &PatchParams::default(), &patch).await.unwrap();
    }

    /// The uids of its pods that run on the worker, and how many wait behind their gate.
    async fn pods(&self) -> anyhow::Result<(BTreeSet<String>, usize)> {
        let api: Api<Pod> =
            Api::namespaced(self.fleet.worker(self.worker).admin.clone(), self.tenant.name());
        let pods = api.list(&ListParams::default()).await?.items;
        let pods: Vec<_> =
            pods.into_iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()).collect();
        let runs = |pod: &&Pod| {
            pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running")
        };
        ensure!(!pods.iter().any(|pod| runs(&pod) && is_gated(pod)), "a pod runs behind its gate");
        let run = pods.iter().filter(runs).filter_map(|pod| pod.uid()).collect();
        Ok((run, pods.iter().filter(|pod| is_gated(pod)).count()))
    }

    async fn running(&self, running: usize, waiting: usize) -> BTreeSet<String> {
        let check = async || {
            let (run, gated) = self.pods().await?;
            ensure!((run.len(), gated) == (running, waiting), "{} run, {gated} wait", run.len());
            Ok(run)
        };
        eventually(SOON, format!("{running} pods that run and {waiting} that wait"), check)
            .await
            .unwrap()
    }

    /// The job's workload on the hub that is not over, once it counts so many pods and is on the worker.
    async fn live(&self, pods: i32) -> Workload {
        let check = async || {
            let all = self.tenant.hub_workloads().list(&ListParams::default()).await?.items;
            let live: Vec<_> =
                all.into_iter().filter(|it| said(it, conditions::FINISHED).0 != "True").collect();
            let [one] = &live[..] else { anyhow::bail!("{} workloads", live.len()) };
            let counted = one.spec.pod_sets[0].count;
            ensure!(
                counted == pods && said(one, conditions::ADMITTED).0 == "True",
                "{counted} pods: {}",
                Tenant::told(one)
            );
            Ok(one.clone())
        };
        eventually(SOON, format!("one workload of {pods} pods"), check).await.unwrap()
    }

    async fn copy(&self) -> Job {
        self.tenant.worker_jobs(self.worker).get("train").await.unwrap()
    }

    async fn delete(self) {
        self.tenant.hub_jobs().delete("train", &DeleteParams::background()).await.unwrap();
        self.tenant.await_empty(self.worker, SOON).await.unwrap();
    }
}

/// Where a workload is, and as which attempt of whose.
fn place(workload: &Workload) -> (Option<String>, Option<i64>, Option<String>) {
    let status = workload.status.clone().unwrap_or_default();
    let dispatch = status.dispatch.unwrap_or_default();
    (status.cluster_name, Some(dispatch.attempt), dispatch.workload_uid.or_else(|| workload.uid()))
}

async fn it_grows_and_shrinks(worker: &'static str) {
    let fleet = fleet().await;
    let scene = Scene::new(fleet, "size", worker, ("8", "8")).await;
    let first = scene.running(2, 0).await;
    let (before, copy) = (scene.live(2).await, scene.copy().await);

    for pods in [3, 5] {
        scene.resize(pods).await;
        let grown = scene.running(usize::try_from(pods).unwrap(), 0).await;
        assert!(grown.is_superset(&first), "the pods of before run on");
        let now = scene.live(i32::try_from(pods).unwrap()).await;
        assert!(now.uid() != before.uid() && now.annotations().contains_key(REPLACES), "{now:?}");
        assert_eq!(place(&now), place(&before), "{}", Tenant::told(&now));
    }
    let old = scene.tenant.hub_workloads().get(&before.name_any()).await.unwrap();
    let (status, reason, _) = said(&old, conditions::FINISHED);
    assert_eq!((status.as_str(), reason.as_str()), ("True", "WorkloadSliceReplaced"));

    scene.resize(1).await;
    let shrunk = scene.running(1, 0).await;
    let kept = scene.live(1).await;
    assert_eq!(place(&kept), place(&before));
    assert!(!shrunk.is_empty());
    assert_eq!(scene.copy().await.uid(), copy.uid(), "it was never made anew");
    scene.delete().await;
}

async fn what_it_grows_by_waits(worker: &'static str) {
    let fleet = fleet().await;
    let scene = Scene::new(fleet, "waits", worker, ("6", "4")).await;
    let first = scene.running(2, 0).await;

    // The worker has no quota for it.
    scene.resize(6).await;
    assert_eq!(scene.running(2, 4).await, first);
    scene.live(6).await;
    scene.resize(3).await;
    assert!(scene.running(3, 0).await.is_superset(&first));
    scene.live(3).await;

    // The hub has none.
    scene.resize(7).await;
    let waits = async || {
        ensure!(scene.pods().await?.0.len() == 3, "its pods changed");
        let parallelism = scene.copy().await.spec.and_then(|spec| spec.parallelism);
        ensure!(parallelism == Some(3), "the worker was told of {parallelism:?}");
        Ok(())
    };
    always(Duration::from_secs(3), "nothing is sent that has no quota", waits).await.unwrap();
    scene.resize(4).await;
    scene.running(4, 0).await;
    scene.live(4).await;
    scene.delete().await;
}

/// The hub learns of its workloads in the order of their names, which says nothing of the one in which they were made.
async fn it_runs_on_while_the_hub_begins_anew() {
    let fleet = start(Fleet::builder("elastic-anew")).await.unwrap();
    let scene = Scene::new(&fleet, "anew", "west", ("8", "8")).await;
    scene.running(2, 0).await;
    for pods in [3, 4, 5, 6] {
        scene.resize(pods).await;
        scene.running(usize::try_from(pods).unwrap(), 0).await;
        scene.live(i32::try_from(pods).unwrap()).await;
    }
    let before = scene.running(6, 0).await;

    fleet.kill(HUB);
    fleet.start_hub().await.unwrap();
    fleet.connected("west").await.unwrap();
    let goes_on = async || {
        ensure!(scene.pods().await?.0 == before, "its pods changed");
        Ok(())
    };
    always(Duration::from_secs(3), "the job runs on", goes_on).await.unwrap();
    await_webhook(fleet.hub()).await.unwrap();
    scene.resize(7).await;
    assert!(scene.running(7, 0).await.is_superset(&before));
    scene.delete().await;
}

#[test]
fn a_job_that_has_grown_runs_on_while_the_hub_begins_anew() {
    fixture::run(it_runs_on_while_the_hub_begins_anew());
}

#[test]
fn a_job_grows_and_shrinks_on_a_worker_with_an_agent() {
    fixture::run(it_grows_and_shrinks("west"));
}

#[test]
fn a_job_grows_and_shrinks_on_a_worker_with_a_kubeconfig() {
    fixture::run(it_grows_and_shrinks("east"));
}

#[test]
fn growth_of_job_waits_for_quota_on_agent_worker() {
    fixture::run(what_it_grows_by_waits("west"));
}

#[test]
fn growth_of_job_waits_for_quota_on_kubeconfig_worker() {
    fixture::run(what_it_grows_by_waits("east"));
}
