//! The life of a job of each kind. It waits while its queue is held, is admitted, and its operator runs its pods. It ends, and
//! leaves nothing.

use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use switchyard_api::conditions;
use switchyard_api::v1beta2::{ClusterQueue, Workload};
use switchyard_e2e::fleet::Fleet;
use switchyard_e2e::wait::{always, eventually};
use switchyard_e2e::{Cluster, fixture, queues};

use super::samples::Sample;
use super::{ALONE, WEST};

/// Longer than any step takes on a busy machine.
const SOON: Duration = Duration::from_secs(120);
/// How long it is watched that a job waits.
const WATCHED: Duration = Duration::from_secs(1);
/// The name of the job.
const NAME: &str = "sample";
const QUEUE: &str = "main";
const QUOTA: [(&str, &str); 2] = [("cpu", "100"), ("memory", "100Gi")];

/// A job of a cluster that Switchyard runs in single mode.
///
/// # Errors
/// The step that failed.
pub(super) async fn single(fleet: &Fleet, sample: &Sample) -> anyhow::Result<()> {
    let (cluster, namespace) = (fleet.worker(ALONE), fixture::unique(&sample.kind.to_lowercase()));
    cluster
        .apply([json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})])
        .await?;
    let queue = queues::ClusterQueue::new(&namespace).group(&namespace, &QUOTA).build();
    let local = queues::local_queue(&namespace, QUEUE, &namespace);
    cluster.apply([queues::ResourceFlavor::new(&namespace).build(), queue, local]).await?;
    let here = Side::new(sample, cluster, &namespace).await?;
    here.hold().await?;
    here.create().await?;
    here.waits().await?;
    here.release().await?;
    here.pods_run().await?;
    here.shows("running", sample.runs).await?;
    if let Some(ended) = sample.ended {
        here.shows("succeeded", ended).await?;
        here.finished().await?;
        here.quota_is_free().await?;
    }
    here.delete().await?;
    here.leaves_nothing().await
}

/// A job of the hub, which runs on its worker.
///
/// # Errors
/// The step that failed.
pub(super) async fn dispatched(fleet: &Fleet, sample: &Sample) -> anyhow::Result<()> {
    let tenant =
        fleet.tenant(&sample.kind.to_lowercase()).hub(&QUOTA).worker(WEST, &QUOTA).make().await?;
    let here = Side::new(sample, fleet.hub(), tenant.name()).await?;
    let there = Side::new(sample, fleet.worker(WEST), tenant.name()).await?;
    here.hold().await?;
    here.create().await?;
    here.waits().await?;
    ensure!(
        there.jobs.get_opt(NAME).await?.is_none(),
        "{}",
        there.what("there while its queue on the hub is held")
    );
    here.release().await?;
    there.pods_run().await?;
    here.shows("running", sample.runs).await?;
    here.is_left_alone().await?;
    if let Some(ended) = sample.ended {
        here.shows("succeeded", ended).await?;
        here.finished().await?;
        here.quota_is_free().await?;
        // Its copy goes with that.
        there.leaves_nothing().await?;
    }
    here.is_left_alone().await?;
    here.delete().await?;
    here.leaves_nothing().await?;
    there.leaves_nothing().await
}

/// The jobs of one kind in a namespace of one cluster, whose ClusterQueue has its name.
struct Side<'a> {
    sample: &'a Sample,
    cluster: &'a str,
    namespace: String,
    jobs: Api<DynamicObject>,
    workloads: Api<Workload>,
    pods: Api<Pod>,
    queues: Api<ClusterQueue>,
}

impl<'a> Side<'a> {
    async fn new(
        sample: &'a Sample,
        cluster: &'a Cluster,
        namespace: &str,
    ) -> anyhow::Result<Self> {
        Ok(Self {
            sample,
            cluster: cluster.name(),
            namespace: namespace.to_owned(),
            jobs: cluster.dynamic(sample.api, sample.kind, namespace).await?,
            workloads: Api::namespaced(cluster.admin.clone(), namespace),
            pods: Api::namespaced(cluster.admin.clone(), namespace),
            queues: Api::all(cluster.admin.clone()),
        })
    }

    fn what(&self, what: &str) -> String {
        format!("{} on {}: {what}", self.sample.kind, self.cluster)
    }

    async fn hold(&self) -> anyhow::Result<()> {
        self.stop_policy("Hold").await
    }

    async fn release(&self) -> anyhow::Result<()> {
        self.stop_policy("None").await
    }

    async fn stop_policy(&self, policy: &str) -> anyhow::Result<()> {
        let patch = Patch::Merge(json!({"spec": {"stopPolicy": policy}}));
        let patched = self.queues.patch(&self.namespace, &PatchParams::default(), &patch).await;
        patched.with_context(|| self.what(&format!("stopPolicy {policy}")))?;
        Ok(())
    }

    /// Creates it, once the webhooks of its operator and of Switchyard are called: its kind may be new.
    async fn create(&self) -> anyhow::Result<()> {
        let labels = json!({"kueue.x-k8s.io/queue-name": QUEUE});
        let job: DynamicObject = serde_json::from_value(json!({
            "apiVersion": self.sample.api, "kind": self.sample.kind,
            "metadata": {"name": NAME, "namespace": self.namespace, "labels": labels}, "spec": self.sample.spec,
        }))?;
        let dry = PostParams { dry_run: true, ..PostParams::default() };
        eventually(SOON, self.what("its webhooks"), async || {
            let made = self.jobs.create(&dry, &job).await?;
            ensure!(self.is_marked(&made), "it is let through: {}", made.data["spec"]);
            Ok(())
        })
        .await?;
        self.jobs
            .create(&PostParams::default(), &job)
            .await
            .with_context(|| self.what("created"))?;
        Ok(())
    }

    /// Whether it is suspended, or its pods are marked for queueing.
    fn is_marked(&self, job: &DynamicObject) -> bool {
        match self.sample.suspend {
            Some(field) => job.data.pointer(field) == Some(&json!(true)),
            None => job.data.to_string().contains("kueue.x-k8s.io/pod-suspending-parent"),
        }
    }

    /// It has its Workloads, which have no quota, and stays as it is.
    async fn waits(&self) -> anyhow::Result<()> {
        eventually(SOON, self.what("its Workloads"), async || {
            let workloads = self.workloads.list(&ListParams::default()).await?.items;
            ensure!(workloads.len() == self.sample.workloads, "there are {}", workloads.len());
            Ok(())
        })
        .await?;
        always(WATCHED, self.what("waits"), async || {
            ensure!(self.is_marked(&self.jobs.get(NAME).await?), "it is not suspended");
            let workloads = self.workloads.list(&ListParams::default()).await?.items;
            let admitted = workloads
                .iter()
                .any(|it| it.status.as_ref().is_some_and(|status| status.admission.is_some()));
            ensure!(!admitted, "it has quota");
            let running = self.running().await?;
            ensure!(running == 0, "{running} pods run");
            Ok(())
        })
        .await
    }

    async fn running(&self) -> anyhow::Result<usize> {
        let pods = self.pods.list(&ListParams::default()).await?.items;
        let phase = |pod: &Pod| pod.status.as_ref().and_then(|status| status.phase.clone());
        Ok(pods.iter().filter(|pod| phase(pod).as_deref() == Some("Running")).count())
    }

    /// Its operator has made all its pods, and all run at once.
    async fn pods_run(&self) -> anyhow::Result<()> {
        eventually(SOON, self.what(&format!("{} pods running", self.sample.pods)), async || {
            let running = self.running().await?;
            if running != self.sample.pods {
                let job = self.jobs.get_opt(NAME).await?.map(|job| job.data);
                bail!("{running} run; the job is {job:?}");
            }
            Ok(())
        })
        .await
    }

    /// On the hub: the operator there has made no pods for what another manages.
    async fn is_left_alone(&self) -> anyhow::Result<()> {
        let pods = self.pods.list(&ListParams::default()).await?.items.len();
        let alone = self.sample.managed_by.is_none() || pods == 0;
        ensure!(alone, "{}", self.what(&format!("its operator there made {pods} pods")));
        Ok(())
    }

    async fn shows(&self, what: &str, right: fn(&Value) -> bool) -> anyhow::Result<()> {
        eventually(SOON, self.what(&format!("its status says that it is {what}")), async || {
            let status = self.jobs.get(NAME).await?.data["status"].clone();
            ensure!(right(&status), "{status}");
            Ok(())
        })
        .await
    }

    async fn finished(&self) -> anyhow::Result<()> {
        eventually(SOON, self.what("its Workload finished"), async || {
            for workload in self.workloads.list(&ListParams::default()).await? {
                let status = workload.status.unwrap_or_default();
                let finished = conditions::find(&status.conditions, conditions::FINISHED);
                let succeeded = finished
                    .is_some_and(|it| it.status == conditions::TRUE && it.reason == "Succeeded");
                ensure!(succeeded, "{:?}", status.conditions);
            }
            Ok(())
        })
        .await
    }

    async fn quota_is_free(&self) -> anyhow::Result<()> {
        eventually(SOON, self.what("its quota free"), async || {
            let status = self.queues.get(&self.namespace).await?.status.unwrap_or_default();
            let flavors = status.flavors_reservation.iter().chain(&status.flavors_usage);
            let used: Vec<_> = flavors
                .flat_map(|flavor| &flavor.resources)
                .filter(|it| it.total.0 != "0")
                .collect();
            ensure!(used.is_empty() && status.reserving_workloads == 0, "{used:?}");
            Ok(())
        })
        .await
    }

    async fn delete(&self) -> anyhow::Result<()> {
        self.jobs
            .delete(NAME, &DeleteParams::background())
            .await
            .with_context(|| self.what("deleted"))?;
        Ok(())
    }

    /// The job, its Workloads and its pods are gone, and all quota is free.
    async fn leaves_nothing(&self) -> anyhow::Result<()> {
        eventually(SOON, self.what("nothing left"), async || {
            let workloads = self.workloads.list(&ListParams::default()).await?.items.len();
            let pods = self.pods.list(&ListParams::default()).await?.items.len();
            let there = self.jobs.get_opt(NAME).await?.is_some();
            ensure!(
                !there && workloads + pods == 0,
                "the job: {there}, {workloads} Workloads, {pods} pods"
            );
            Ok(())
        })
        .await?;
        self.quota_is_free().await
    }
}
