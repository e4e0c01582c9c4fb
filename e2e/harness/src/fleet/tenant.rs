//! A tenant: the objects of one test in a shared fleet. It has a namespace, a flavor, and queues on the hub and on workers.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use k8s_openapi::api::batch::v1::Job;
use kube::Api;
use serde_json::json;
use switchyard::status::{JobRow, row};
use switchyard_api::v1beta2::Workload;

use super::{Fleet, HUB, READY};
use crate::queues::{self, ClusterQueue, ResourceFlavor};
use crate::wait::eventually;
use crate::{JobBuilder, names, ready};

/// The LocalQueue of every tenant.
const QUEUE: &str = "main";

/// Describes a tenant; [`TenantBuilder::make`] creates it.
pub struct TenantBuilder<'a> {
    fleet: &'a Fleet,
    name: String,
    hub: Vec<(String, String)>,
    workers: Vec<(String, Vec<(String, String)>)>,
}

impl<'a> TenantBuilder<'a> {
    pub(super) fn new(fleet: &'a Fleet, stem: &str) -> Self {
        Self { fleet, name: names::unique(stem), hub: Vec::new(), workers: Vec::new() }
    }

    /// Uses the name of an earlier tenant, to create its objects again.
    #[must_use]
    pub fn again(mut self, name: &str) -> Self {
        name.clone_into(&mut self.name);
        self
    }

    /// Sets its quota on the hub.
    #[must_use]
    pub fn hub(mut self, quota: &[(&str, &str)]) -> Self {
        self.hub = owned(quota);
        self
    }

    /// Adds a worker cluster for its jobs, and its quota there.
    #[must_use]
    pub fn worker(mut self, cluster: &str, quota: &[(&str, &str)]) -> Self {
        self.workers.push((cluster.to_owned(), owned(quota)));
        self
    }

    /// Creates all objects. Namespace, ClusterQueues, flavor, AdmissionCheck and MultiKueueConfig have one name.
    ///
    /// # Errors
    /// When an API server refuses something.
    pub async fn make(self) -> anyhow::Result<Tenant<'a>> {
        let namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.name}});
        for (cluster, quota) in &self.workers {
            let cluster = self.fleet.worker(cluster);
            cluster.apply([namespace.clone()]).await?;
            cluster.apply(self.queues(quota, None)).await?;
        }
        let clusters: Vec<&str> = self.workers.iter().map(|(name, _)| name.as_str()).collect();
        let hub = self.fleet.hub();
        hub.apply([namespace]).await?;
        hub.apply(queues::multikueue(&self.name, &clusters)).await?;
        hub.apply(self.queues(&self.hub, Some(&self.name))).await?;
        // Wait for the queues: a Job created before the hub knows its queue gets no `managedBy`, which is immutable.
        // Wait for the service accounts: pods are refused before.
        for cluster in clusters.into_iter().chain([HUB]) {
            self.await_queue(cluster).await?;
            self.fleet.worker(cluster).await_service_account(&self.name, "default").await?;
        }
        ready::managed_by_webhook(hub, (&self.name, QUEUE), READY).await?;
        Ok(Tenant { fleet: self.fleet, name: self.name })
    }

    async fn await_queue(&self, cluster: &str) -> anyhow::Result<()> {
        ready::local_queue(self.fleet.worker(cluster), &self.name, QUEUE, READY).await
    }

    fn queues(&self, quota: &[(String, String)], check: Option<&str>) -> Vec<serde_json::Value> {
        let quota: Vec<(&str, &str)> =
            quota.iter().map(|(name, amount)| (name.as_str(), amount.as_str())).collect();
        let mut queue = ClusterQueue::new(&self.name).group(&self.name, &quota);
        if let Some(check) = check {
            queue = queue.admission_check(check);
        }
        let local = queues::local_queue(&self.name, QUEUE, &self.name);
        vec![ResourceFlavor::new(&self.name).build(), queue.build(), local]
    }
}

fn owned(quota: &[(&str, &str)]) -> Vec<(String, String)> {
    quota.iter().map(|(name, amount)| ((*name).to_owned(), (*amount).to_owned())).collect()
}

/// A namespace with queues on a fleet.
pub struct Tenant<'a> {
    fleet: &'a Fleet,
    name: String,
}

impl Tenant<'_> {
    /// The namespace, and the name of its ClusterQueues and its flavor.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A job for its queue.
    pub fn job(&self, name: &str) -> JobBuilder {
        JobBuilder::new(&self.name, name).queue(QUEUE)
    }

    /// Creates a job on the hub.
    ///
    /// # Errors
    /// When the hub's API refuses it.
    pub async fn submit(&self, job: JobBuilder) -> anyhow::Result<Job> {
        job.create(&self.fleet.hub().admin).await
    }

    /// As [`Self::submit`], with retries: if the API server calls the webhooks of a replica that has just died, it refuses the
    /// job.
    ///
    /// # Errors
    /// When the job is still refused after `within`.
    pub async fn submit_until_taken(
        &self,
        job: JobBuilder,
        within: Duration,
    ) -> anyhow::Result<Job> {
        eventually(within, "the hub to take a job", async || self.submit(job.clone()).await).await
    }

    /// Its jobs on the hub.
    pub fn hub_jobs(&self) -> Api<Job> {
        Api::namespaced(self.fleet.hub().admin.clone(), &self.name)
    }

    /// Its jobs on a worker.
    pub fn worker_jobs(&self, cluster: &str) -> Api<Job> {
        Api::namespaced(self.fleet.worker(cluster).admin.clone(), &self.name)
    }

    /// Its Workloads on the hub.
    pub fn hub_workloads(&self) -> Api<Workload> {
        Api::namespaced(self.fleet.hub().admin.clone(), &self.name)
    }

    /// The first Workload of a job on the hub.
    ///
    /// # Errors
    /// When it has none.
    pub async fn workload_of(&self, job: &str) -> anyhow::Result<Workload> {
        let all = self.hub_workloads().list(&kube::api::ListParams::default()).await?.items;
        let owned = |it: &Workload| {
            it.metadata.owner_references.iter().flatten().any(|owner| owner.name == job)
        };
        all.into_iter().find(owned).with_context(|| format!("job {job} has no Workload on the hub"))
    }

    /// Its Workloads on a worker.
    pub fn worker_workloads(&self, cluster: &str) -> Api<Workload> {
        Api::namespaced(self.fleet.worker(cluster).admin.clone(), &self.name)
    }

    /// The row of a job, as `switchyard get jobs` shows it.
    ///
    /// # Errors
    /// When it has no Workload.
    pub async fn status(&self, job: &str) -> anyhow::Result<JobRow> {
        let workloads = self.hub_workloads().list(&kube::api::ListParams::default()).await?;
        let found = workloads.items.iter().map(row).find(|row| row.job == job);
        found.ok_or_else(|| anyhow::anyhow!("job {job} has no Workload on the hub"))
    }

    /// Waits until [`Self::status`] of a job satisfies a predicate.
    ///
    /// # Errors
    /// After the deadline, with the last status.
    pub async fn await_status(
        &self,
        job: &str,
        what: &str,
        within: Duration,
        right: impl Fn(&JobRow) -> bool,
    ) -> anyhow::Result<JobRow> {
        eventually(within, format!("job {job}: {what}"), async || {
            let row = self.status(job).await?;
            ensure!(right(&row), "{} on {:?}: {}", row.state, row.cluster, row.reason);
            Ok(row)
        })
        .await
    }

    /// Waits until the tenant's only Workload on a worker has this class and priority.
    ///
    /// # Errors
    /// After the deadline, with the present priority.
    pub async fn await_priority(
        &self,
        cluster: &str,
        class: &str,
        priority: i32,
        within: Duration,
    ) -> anyhow::Result<Workload> {
        eventually(
            within,
            format!("priority {priority} by class {class} on {cluster}"),
            async || {
                let workloads = self
                    .worker_workloads(cluster)
                    .list(&kube::api::ListParams::default())
                    .await?
                    .items;
                let workload = workloads.into_iter().next().context("there is no Workload")?;
                let has = workload.spec.priority_class_ref.as_ref().map(|it| it.name.as_str());
                ensure!(
                    has == Some(class) && workload.spec.priority == Some(priority),
                    "{:?}",
                    workload.spec.priority
                );
                Ok(workload)
            },
        )
        .await
    }

    /// Changes the priority class of a job that runs on a worker, and then the value of the class. Checks that the Workload on
    /// the worker follows, and that the job keeps running.
    ///
    /// # Errors
    /// When an object does not follow.
    pub async fn changes_priority(&self, cluster: &str, within: Duration) -> anyhow::Result<()> {
        let class = |name: &str| format!("{}-{name}", self.name);
        let (low, high) = (class("low"), class("high"));
        self.fleet
            .hub()
            .apply([queues::priority_class(&low, 1), queues::priority_class(&high, 100)])
            .await?;
        self.submit(self.job("urgent").priority_class(&low).run_forever()).await?;
        eventually(within, "urgent to run", async || {
            let status = self.worker_jobs(cluster).get("urgent").await?.status;
            ensure!(status.and_then(|status| status.active) == Some(1), "it does not run");
            Ok(())
        })
        .await?;
        let before = self.await_priority(cluster, &low, 1, within).await?;
        let label = json!({"metadata": {"labels": {switchyard_api::names::PRIORITY_CLASS: high}}});
        let params = kube::api::PatchParams::default();
        self.hub_jobs().patch("urgent", &params, &kube::api::Patch::Merge(label)).await?;
        self.await_priority(cluster, &high, 100, within).await?;
        self.fleet.hub().apply([queues::priority_class(&high, 200)]).await?;
        let after = self.await_priority(cluster, &high, 200, within).await?;
        ensure!(before.metadata.uid == after.metadata.uid, "the Workload was made anew");
        let job = self.worker_jobs(cluster).get("urgent").await?;
        ensure!(job.spec.is_some_and(|spec| spec.suspend != Some(true)), "the job was stopped");
        self.hub_jobs().delete("urgent", &kube::api::DeleteParams::background()).await?;
        self.await_empty(cluster, within).await
    }

    /// Waits until none of its jobs and Workloads is left on a worker.
    ///
    /// # Errors
    /// After the deadline, with the objects that are left.
    pub async fn await_empty(&self, cluster: &str, within: Duration) -> anyhow::Result<()> {
        eventually(within, format!("{} on {cluster} to be empty", self.name), async || {
            let jobs =
                self.worker_jobs(cluster).list(&kube::api::ListParams::default()).await?.items;
            let workloads =
                self.worker_workloads(cluster).list(&kube::api::ListParams::default()).await?.items;
            let left: Vec<String> = jobs.iter().map(kube::ResourceExt::name_any).collect();
            ensure!(
                left.is_empty() && workloads.is_empty(),
                "jobs {left:?}, {} workloads",
                workloads.len()
            );
            Ok(())
        })
        .await
    }

    /// A Workload's status in a few lines, for the message of a failed test.
    #[must_use]
    pub fn told(workload: &Workload) -> String {
        let status = workload.status.clone().unwrap_or_default();
        let attempt = status.dispatch.map_or(0, |dispatch| dispatch.attempt);
        let mut lines = vec![format!(
            "attempt {attempt}, cluster {:?}",
            status.cluster_name.unwrap_or_default()
        )];
        let conditions = status.conditions.iter();
        lines.extend(
            conditions
                .map(|it| format!("{} {} {}: {}", it.type_, it.status, it.reason, it.message)),
        );
        let checks = status.admission_checks.iter();
        lines.extend(checks.map(|it| format!("check {} {:?}: {}", it.name, it.state, it.message)));
        lines.extend(status.requeue_state.iter().map(|it| format!("{it:?}")));
        lines.join("\n  ")
    }
}
