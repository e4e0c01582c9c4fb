//! The same queues for all systems, and the jobs in them.

use std::time::Duration;

use anyhow::ensure;
use k8s_openapi::api::batch::v1::Job;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use switchyard_api::conditions;
use switchyard_api::v1beta2::ClusterQueue;
use switchyard_e2e::queues::{self, ResourceFlavor};
use switchyard_e2e::wait::eventually;
use switchyard_e2e::{Cluster, JobBuilder, ready};

use super::site::Group;

/// The namespace of the jobs, on all clusters.
pub(super) const NAMESPACE: &str = "faults";
/// Names flavor, ClusterQueue, AdmissionCheck and MultiKueueConfig.
const ALL: &str = "all";
const QUEUE: &str = "main";
/// Room for all jobs, everywhere.
const CPUS: &str = "64";
const SOON: Duration = Duration::from_secs(120);

/// Makes the queues on a hub and its workers, whose MultiKueueClusters exist, and waits until they take jobs.
pub(super) async fn make(hub: &Cluster, workers: &[&Cluster]) -> anyhow::Result<()> {
    let namespace =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
    let queue = || queues::ClusterQueue::new(ALL).group(ALL, &[("cpu", CPUS)]);
    let rest =
        [namespace, ResourceFlavor::new(ALL).build(), queues::local_queue(NAMESPACE, QUEUE, ALL)];
    for worker in workers {
        worker.apply(rest.iter().cloned().chain([queue().build()])).await?;
    }
    let names: Vec<&str> = workers.iter().map(|worker| worker.name()).collect();
    hub.apply(queues::multikueue(ALL, &names)).await?;
    hub.apply(rest.iter().cloned().chain([queue().admission_check(ALL).build()])).await?;
    for cluster in workers.iter().chain([&hub]) {
        ready::local_queue(cluster, NAMESPACE, QUEUE, SOON).await?;
    }
    Ok(())
}

/// Has a worker admit jobs, or not.
pub(super) async fn admits(worker: &Cluster, admits: bool) -> anyhow::Result<()> {
    let policy = if admits { "None" } else { "Hold" };
    let queues: Api<ClusterQueue> = Api::all(worker.admin.clone());
    let patch = json!({"spec": {"stopPolicy": policy}});
    queues.patch(ALL, &PatchParams::default(), &Patch::Merge(patch)).await?;
    eventually(
        SOON,
        format!("the queue on {} to be of stopPolicy {policy}", worker.name()),
        async || {
            let status = queues.get(ALL).await?.status.unwrap_or_default();
            let active = conditions::is_true(&status.conditions, conditions::ACTIVE);
            ensure!(active == admits, "{:?}", status.conditions);
            Ok(())
        },
    )
    .await
}

/// The name of a job.
pub(super) fn name(group: &Group, turn: usize, index: usize) -> String {
    format!("{}-{turn}-{index}", group.stem)
}

/// A job of a group, which runs until it is deleted. All systems get the same object: stock Kueue's webhooks, which would
/// fill in more, are not registered.
pub(super) fn job(group: &Group, name: &str) -> JobBuilder {
    let job = plain(name).run_forever().pod_field("terminationGracePeriodSeconds", json!(1));
    match group.on_disconnect {
        Some(policy) => job.annotation("switchyard.dev/on-disconnect", policy),
        None => job,
    }
}

/// A job of a second, by which one sees that the system works.
pub(super) fn probe(name: &str) -> JobBuilder {
    plain(name).run_for(Duration::from_secs(1))
}

fn plain(name: &str) -> JobBuilder {
    let managed_by = json!("kueue.x-k8s.io/multikueue");
    JobBuilder::new(NAMESPACE, name)
        .queue(QUEUE)
        .cpu("1")
        .suspended()
        .field("managedBy", managed_by)
}

/// The jobs on a cluster.
pub(super) fn jobs(cluster: &Cluster) -> Api<Job> {
    Api::namespaced(cluster.admin.clone(), NAMESPACE)
}
