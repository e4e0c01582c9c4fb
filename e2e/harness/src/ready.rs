//! Waits until programs are ready, webhooks act, queues are active and worker clusters are connected. Also for stock Kueue.

use std::fmt::Display;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::Api;
use kube::api::PostParams;
use serde_json::json;
use switchyard_api::conditions;
use switchyard_api::v1beta2::{LocalQueue, MultiKueueCluster};

use crate::wait::{eventually, never};
use crate::{Cluster, JobBuilder, http};

/// Waits until a program answers a request for `path` on this loopback port with success. `running` checks its process.
///
/// # Errors
/// At once when `running` fails. After the deadline: the last answer.
pub async fn program(
    name: impl Display,
    running: impl Fn() -> anyhow::Result<()>,
    (port, path): (u16, &str),
    within: Duration,
) -> anyhow::Result<()> {
    eventually(within, format!("{name} to be ready"), async || {
        running().map_err(never)?;
        http::get(port, path).await.map(drop)
    })
    .await
}

/// Waits until a LocalQueue is Active.
///
/// # Errors
/// After the deadline: its other condition.
pub async fn local_queue(
    cluster: &Cluster,
    namespace: &str,
    name: &str,
    within: Duration,
) -> anyhow::Result<()> {
    let queues: Api<LocalQueue> = Api::namespaced(cluster.admin.clone(), namespace);
    let what = format!("LocalQueue {namespace}/{name} on {} to be active", cluster.name());
    eventually(within, what, async || {
        check_active(&queues.get(name).await?.status.unwrap_or_default().conditions)
    })
    .await
}

/// Waits until the webhook gates new pods with this queue.
///
/// # Errors
/// After the deadline.
pub async fn pod_webhook(
    cluster: &Cluster,
    (namespace, queue): (&str, &str),
    within: Duration,
) -> anyhow::Result<()> {
    let pods: Api<Pod> = Api::namespaced(cluster.admin.clone(), namespace);
    let probe = serde_json::from_value(json!({
        "metadata": {"name": "probe", "labels": {"kueue.x-k8s.io/queue-name": queue}},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }))?;
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    eventually(within, format!("the webhook of pods on {}", cluster.name()), async || {
        let made = pods.create(&dry, &probe).await?;
        let gates = made.spec.and_then(|spec| spec.scheduling_gates).unwrap_or_default();
        ensure!(!gates.is_empty(), "the pod is not gated");
        Ok(())
    })
    .await
}

/// Waits until the webhook of the hub marks new jobs of this queue as its own: the mark of a job cannot
/// be changed later.
///
/// # Errors
/// After the deadline.
pub async fn managed_by_webhook(
    hub: &Cluster,
    (namespace, queue): (&str, &str),
    within: Duration,
) -> anyhow::Result<()> {
    answered_job(hub, (namespace, queue), within, |made| {
        ensure!(made.spec.is_some_and(|spec| spec.managed_by.is_some()), "the job is not marked");
        Ok(())
    })
    .await
}

/// Waits until the webhook suspends new Jobs with a queue.
///
/// # Errors
/// After the deadline.
pub async fn job_webhook(
    cluster: &Cluster,
    namespace: &str,
    within: Duration,
) -> anyhow::Result<()> {
    answered_job(cluster, (namespace, "none"), within, |made| {
        let suspended = made.spec.and_then(|spec| spec.suspend);
        ensure!(suspended == Some(true), "suspend is {suspended:?}");
        Ok(())
    })
    .await
}

/// Creates a job by dry runs until the answer is right.
async fn answered_job(
    cluster: &Cluster,
    (namespace, queue): (&str, &str),
    within: Duration,
    right: impl Fn(Job) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let jobs: Api<Job> = Api::namespaced(cluster.admin.clone(), namespace);
    let probe = serde_json::from_value(JobBuilder::new(namespace, "probe").queue(queue).build())?;
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    eventually(within, format!("the webhook of jobs on {}", cluster.name()), async || {
        right(jobs.create(&dry, &probe).await?)
    })
    .await
}

/// Waits until the validating webhooks refuse a wrong ResourceFlavor.
///
/// # Errors
/// After the deadline.
pub async fn validating_webhooks(cluster: &Cluster, within: Duration) -> anyhow::Result<()> {
    let (api_version, kind) = ("kueue.x-k8s.io/v1beta2", "ResourceFlavor");
    let flavors = cluster.dynamic(api_version, kind, "").await?;
    let wrong = serde_json::from_value(json!({
        "apiVersion": api_version, "kind": kind, "metadata": {"name": "probe"},
        "spec": {"nodeLabels": {"a": "not a value"}},
    }))?;
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    eventually(within, format!("the validating webhooks on {}", cluster.name()), async || {
        let answer = flavors.create(&dry, &wrong).await;
        let error = answer.err().context("the wrong flavor is accepted")?.to_string();
        ensure!(error.contains("denied the request"), "{error}");
        Ok(())
    })
    .await
}

/// Waits until the hub reports that a worker cluster is connected.
///
/// # Errors
/// After the deadline: its other condition.
pub async fn worker_cluster(hub: &Cluster, name: &str, within: Duration) -> anyhow::Result<()> {
    let clusters: Api<MultiKueueCluster> = Api::all(hub.admin.clone());
    eventually(within, format!("MultiKueueCluster {name} to be active"), async || {
        check_active(&clusters.get(name).await?.status.unwrap_or_default().conditions)
    })
    .await
}

fn check_active(known: &[Condition]) -> anyhow::Result<()> {
    let active = conditions::find(known, conditions::ACTIVE);
    let shown = active.map(|active| format!("{}: {}", active.reason, active.message));
    ensure!(conditions::is_true(known, conditions::ACTIVE), "Active has {shown:?}");
    Ok(())
}
