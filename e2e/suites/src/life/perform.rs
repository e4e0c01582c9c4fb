//! Does what the plan says, as users, administrators and failures do it.

use std::time::Duration;

use anyhow::Context as _;
use clap::Parser as _;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use switchyard_api::v1beta2::{ClusterQueue, LocalQueue, Workload};
use switchyard_api::{conditions, names};
use switchyard_e2e::Cluster;
use switchyard_e2e::fleet::{Fleet, HUB};

use super::action::{Action, Deletion, PodEnd, Policy, Scheduling};
use super::plan::WORKERS;
use super::subject::{Kind, Subject};
use super::{NAMESPACE, world};

/// How long an action may take.
const WITHIN: Duration = Duration::from_secs(30);

/// The result of an action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Done(String),
    /// There was nothing of which it could be done.
    Idle,
    /// The API server or the command line says no, or it took too long.
    Refused(String),
}

/// Does it.
pub(crate) async fn perform(fleet: &Fleet, action: &Action) -> Outcome {
    match tokio::time::timeout(WITHIN, attempt(fleet, action)).await {
        Ok(Ok(Some(text))) => Outcome::Done(text),
        Ok(Ok(None)) => Outcome::Idle,
        Ok(Err(error)) if is_gone(&error) => Outcome::Idle,
        Ok(Err(error)) => Outcome::Refused(format!("{error:#}").replace('\n', " ")),
        Err(_) => Outcome::Refused(format!("not done within {WITHIN:?}")),
    }
}

fn is_gone(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(kube::Error::Api(status)) if status.code == 404)
}

/// A note beside the action; none if it did nothing.
async fn attempt(fleet: &Fleet, action: &Action) -> anyhow::Result<Option<String>> {
    let hub = fleet.hub();
    match action {
        Action::Create(subject) => create(hub, subject).await,
        Action::Recreate { kind, how, subject } => recreate(hub, *kind, *how, subject).await,
        Action::Delete { name, kind, how } => delete(hub, name, *kind, *how).await,
        Action::Resize { name, kind, size } => resize(hub, name, *kind, *size).await,
        Action::Move { name, pick, to } => {
            let Some(workload) = one(workloads_of(hub, name).await?, *pick) else {
                return Ok(None);
            };
            command(
                hub,
                &[
                    "move",
                    &format!("Workload/{}", workload.name_any()),
                    "--to",
                    to,
                    "-n",
                    NAMESPACE,
                ],
            )
            .await
        }
        Action::Deactivate { name, pick } => {
            activate(hub, one(workloads_of(hub, name).await?, *pick), false).await
        }
        Action::Activate { name } => activate(hub, inactive(hub, name).await?, true).await,
        Action::DeleteWorkload { name, pick } => {
            let Some(workload) = one(workloads_of(hub, name).await?, *pick) else {
                return Ok(None);
            };
            workloads(hub).delete(&workload.name_any(), &DeleteParams::default()).await?;
            Ok(Some(workload.name_any()))
        }
        Action::EvictOnWorker { name, pick } => {
            let workload = one(workloads_of(hub, name).await?, *pick);
            let on = workload.as_ref().and_then(|it| it.status.as_ref()?.cluster_name.clone());
            let (Some(workload), Some(on)) = (workload, on) else { return Ok(None) };
            Ok(activate(fleet.worker(&on), [workload], false)
                .await?
                .map(|done| format!("{done} on {on}")))
        }
        Action::Suspend { name, kind } if kind.is_job() => {
            patch(hub, *kind, name, &json!({"spec": {"suspend": true}})).await
        }
        Action::Suspend { .. } => Ok(None),
        Action::ChangeQueue { name, kind, queue } => {
            label(hub, *kind, name, names::QUEUE_NAME, queue).await
        }
        Action::ChangePriority { name, kind, class } => {
            label(hub, *kind, name, names::PRIORITY_CLASS, class).await
        }
        Action::EndPod { name, pick, end } => end_pod(fleet, name, *pick, *end).await,
        Action::StopQueue { cluster, queue, policy } => {
            let queues: Api<ClusterQueue> = Api::all(fleet.worker(cluster).admin.clone());
            queues.patch(queue, &PatchParams::default(), &stop(*policy)).await?;
            done()
        }
        Action::StopLocalQueue { cluster, queue, policy } => {
            let queues: Api<LocalQueue> =
                Api::namespaced(fleet.worker(cluster).admin.clone(), NAMESPACE);
            queues.patch(queue, &PatchParams::default(), &stop(*policy)).await?;
            done()
        }
        Action::SetQuota { cluster, queue, cpu } => {
            set_quota(fleet.worker(cluster), queue, *cpu).await
        }
        Action::LeadQueue { to } => {
            let queues: Api<LocalQueue> = Api::namespaced(hub.admin.clone(), NAMESPACE);
            if queues
                .get_opt("d")
                .await?
                .is_some_and(|queue| queue.spec.cluster_queue.as_deref() == Some(*to))
            {
                return Ok(None);
            }
            gone(queues.delete("d", &DeleteParams::default()).await)?;
            create_until_taken(hub, &world::local_queue("d", to)).await?;
            done()
        }
        Action::Schedule { cluster, how } => {
            let how = match how {
                Scheduling::Uncordon => "uncordon",
                Scheduling::Cordon => "cordon",
                Scheduling::Drain => "drain",
            };
            command(hub, &["cluster", how, cluster]).await
        }
        Action::Restart { program, away } => restart(fleet, program, *away).await,
    }
}

#[expect(clippy::unnecessary_wraps, reason = "the end of each action")]
fn done() -> anyhow::Result<Option<String>> {
    Ok(Some(String::new()))
}

/// Nothing to delete is as good as deleted.
pub(crate) fn gone<T>(result: kube::Result<T>) -> kube::Result<()> {
    match result {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        other => other.map(drop),
    }
}

fn stop(policy: Policy) -> Patch<Value> {
    Patch::Merge(json!({"spec": {"stopPolicy": format!("{policy:?}")}}))
}

pub(crate) fn workloads(cluster: &Cluster) -> Api<Workload> {
    Api::namespaced(cluster.admin.clone(), NAMESPACE)
}

async fn api(cluster: &Cluster, kind: Kind) -> anyhow::Result<Api<DynamicObject>> {
    let (version, kind) = kind.api();
    cluster.dynamic(version, kind, NAMESPACE).await
}

/// Whether an object belongs to the job of this name: it has the name, or the name with more behind it.
pub(crate) fn is_of(object: &str, name: &str) -> bool {
    object.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
}

/// The unfinished Workloads of a job on the hub.
async fn workloads_of(hub: &Cluster, name: &str) -> anyhow::Result<Vec<Workload>> {
    let mut all = workloads(hub).list(&ListParams::default()).await?.items;
    all.retain(|it| {
        let conditions =
            it.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
        let of = is_of(&it.name_any(), name)
            || it.owner_references().iter().any(|owner| is_of(&owner.name, name));
        of && !conditions::is_true(conditions, conditions::FINISHED)
    });
    Ok(all)
}

async fn inactive(hub: &Cluster, name: &str) -> anyhow::Result<Vec<Workload>> {
    let mut all = workloads_of(hub, name).await?;
    all.retain(|it| it.spec.active == Some(false));
    Ok(all)
}

/// One of several.
fn one<T>(mut all: Vec<T>, pick: usize) -> Option<T> {
    let index = pick.checked_rem(all.len())?;
    Some(all.swap_remove(index))
}

async fn activate(
    cluster: &Cluster,
    all: impl IntoIterator<Item = Workload>,
    active: bool,
) -> anyhow::Result<Option<String>> {
    let mut names = Vec::new();
    for workload in all {
        let patch = Patch::Merge(json!({"spec": {"active": active}}));
        workloads(cluster).patch(&workload.name_any(), &PatchParams::default(), &patch).await?;
        names.push(workload.name_any());
    }
    Ok((!names.is_empty()).then(|| names.join(", ")))
}

async fn create(hub: &Cluster, subject: &Subject) -> anyhow::Result<Option<String>> {
    let api = api(hub, subject.kind).await?;
    for object in subject.objects() {
        api.create(&PostParams::default(), &serde_json::from_value(object)?).await?;
    }
    done()
}

/// Creates an object as soon as nothing of its name is there any more.
async fn create_until_taken(hub: &Cluster, object: &Value) -> anyhow::Result<()> {
    let (version, kind) = (object["apiVersion"].as_str(), object["kind"].as_str());
    let api =
        hub.dynamic(version.context("a version")?, kind.context("a kind")?, NAMESPACE).await?;
    let object = serde_json::from_value(object.clone())?;
    loop {
        match api.create(&PostParams::default(), &object).await {
            Err(kube::Error::Api(status)) if status.reason == "AlreadyExists" => {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            other => return Ok(other.map(drop)?),
        }
    }
}

async fn recreate(
    hub: &Cluster,
    kind: Kind,
    how: Deletion,
    subject: &Subject,
) -> anyhow::Result<Option<String>> {
    let deleted = match delete(hub, subject.name, kind, how).await {
        Err(error) if is_gone(&error) => None,
        other => other?,
    };
    for object in subject.objects() {
        create_until_taken(hub, &object).await?;
    }
    Ok(Some(deleted.map_or_else(|| "there was none".to_owned(), |_| String::new())))
}

async fn delete(
    hub: &Cluster,
    name: &str,
    kind: Kind,
    how: Deletion,
) -> anyhow::Result<Option<String>> {
    let api = api(hub, kind).await?;
    let params = match how {
        Deletion::Background => DeleteParams::background(),
        Deletion::Foreground => DeleteParams::foreground(),
    };
    if kind != Kind::PodGroup {
        api.delete(name, &params).await?;
        return done();
    }
    let pods = api.list_metadata(&ListParams::default()).await?.items;
    let members: Vec<String> =
        pods.iter().map(kube::ResourceExt::name_any).filter(|pod| is_of(pod, name)).collect();
    for pod in &members {
        gone(api.delete(pod, &params).await)?;
    }
    // As in Kueue, what is left of a group waits for pods in their place, until its Workload is deleted.
    gone(workloads(hub).delete(name, &DeleteParams::default()).await)?;
    Ok((!members.is_empty()).then(String::new))
}

async fn patch(
    hub: &Cluster,
    kind: Kind,
    name: &str,
    patch: &Value,
) -> anyhow::Result<Option<String>> {
    api(hub, kind).await?.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await?;
    done()
}

async fn resize(
    hub: &Cluster,
    name: &str,
    kind: Kind,
    size: u32,
) -> anyhow::Result<Option<String>> {
    let spec = match kind {
        Kind::IndexedJob => json!({"parallelism": size, "completions": size}),
        Kind::Job | Kind::PartialJob | Kind::ElasticJob => json!({"parallelism": size}),
        Kind::StatefulSet | Kind::Deployment => json!({"replicas": size}),
        Kind::CronJob => json!({"jobTemplate": {"spec": {"parallelism": size}}}),
        Kind::Pod | Kind::PodGroup => return Ok(None),
    };
    patch(hub, kind, name, &json!({ "spec": spec })).await
}

async fn label(
    hub: &Cluster,
    kind: Kind,
    name: &str,
    label: &str,
    value: &str,
) -> anyhow::Result<Option<String>> {
    if kind == Kind::PodGroup {
        return Ok(None);
    }
    patch(hub, kind, name, &json!({"metadata": {"labels": {label: value}}})).await
}

async fn end_pod(
    fleet: &Fleet,
    name: &str,
    pick: usize,
    end: PodEnd,
) -> anyhow::Result<Option<String>> {
    let mut found = Vec::new();
    for cluster in WORKERS.map(|name| fleet.worker(name)) {
        let api: Api<Pod> = Api::namespaced(cluster.admin.clone(), NAMESPACE);
        let pods = api.list(&ListParams::default()).await?.items;
        let runs = |pod: &Pod| {
            pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running")
        };
        found.extend(
            pods.into_iter()
                .filter(|pod| is_of(&pod.name_any(), name) && runs(pod))
                .map(|pod| (cluster, pod)),
        );
    }
    let Some((cluster, pod)) = one(found, pick) else { return Ok(None) };
    let (api, name): (Api<Pod>, String) =
        (Api::namespaced(cluster.admin.clone(), NAMESPACE), pod.name_any());
    match end {
        PodEnd::Deleted => drop(api.delete(&name, &DeleteParams::default()).await?),
        PodEnd::Failed => {
            drop(api.patch_status(&name, &PatchParams::default(), &ended("Failed", 1)).await?)
        }
        PodEnd::Succeeded => {
            drop(api.patch_status(&name, &PatchParams::default(), &ended("Succeeded", 0)).await?)
        }
    }
    Ok(Some(format!("{name} on {}", cluster.name())))
}

/// The status that a kubelet writes for a pod that has ended.
fn ended(phase: &str, code: i32) -> Patch<Value> {
    let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let terminated =
        json!({"exitCode": code, "reason": phase, "startedAt": now, "finishedAt": now});
    let container = json!({
        "name": "main", "image": "example.org/job:1", "imageID": "", "ready": false, "started": false, "restartCount": 0,
        "state": {"terminated": terminated},
    });
    let ready = json!({"type": "Ready", "status": "False", "reason": "PodCompleted", "lastTransitionTime": now});
    Patch::Strategic(
        json!({"status": {"phase": phase, "containerStatuses": [container], "conditions": [ready]}}),
    )
}

async fn set_quota(cluster: &Cluster, queue: &str, cpu: u32) -> anyhow::Result<Option<String>> {
    let queues: Api<ClusterQueue> = Api::all(cluster.admin.clone());
    let patch = json!([
        {"op": "replace", "path": "/spec/resourceGroups/0/flavors/0/resources/0/nominalQuota", "value": cpu.to_string()},
    ]);
    let patch: Patch<()> = Patch::Json(serde_json::from_value(patch)?);
    queues.patch(queue, &PatchParams::default(), &patch).await?;
    done()
}

/// `switchyard` with these arguments, on the hub.
async fn command(hub: &Cluster, arguments: &[&str]) -> anyhow::Result<Option<String>> {
    let kubeconfig = hub.kubeconfig().display().to_string();
    let all =
        ["switchyard", "--kubeconfig", &kubeconfig].into_iter().chain(arguments.iter().copied());
    let mut out = Vec::new();
    switchyard::run(switchyard::Args::try_parse_from(all)?, &mut out).await?;
    Ok(Some(String::from_utf8_lossy(&out).trim().replace('\n', " ")))
}

async fn restart(fleet: &Fleet, program: &str, away: Duration) -> anyhow::Result<Option<String>> {
    static ONE_AT_A_TIME: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
    let _turn = ONE_AT_A_TIME.lock().await;
    fleet.kill(program);
    tokio::time::sleep(away).await;
    if program == HUB {
        fleet.start_hub().await?;
    } else {
        fleet.restart_agent(program)?;
    }
    done()
}
