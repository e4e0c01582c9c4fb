//! A queue is charged for what its pods ask for, for as long as they run.

use std::time::Duration;

use anyhow::ensure;
use clap::Parser as _;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use switchyard::ExitStatus;
use switchyard_api::v1beta2::ClusterQueue;
use switchyard_e2e::fleet::{Fleet, Tenant};
use switchyard_e2e::wait::{always, eventually};
use switchyard_e2e::{Cluster, JobBuilder, fixture};

use crate::common::fleet;

const SOON: Duration = Duration::from_secs(120);
/// For how long it is seen that nothing changes.
const WHILE: Duration = Duration::from_secs(3);

/// How long the pods of [`ends_slowly`] take to end: longer than [`WHILE`] and what comes before it.
const ENDING: &str = "20s";

fn ends_slowly(job: JobBuilder) -> JobBuilder {
    job.run_forever().pod_annotation("e2e.switchyard.dev/stop-after", ENDING)
}

/// The CPU that a ClusterQueue is charged.
async fn charged(cluster: &Cluster, queue: &str) -> anyhow::Result<String> {
    let queues: Api<ClusterQueue> = Api::all(cluster.admin.clone());
    let status = queues.get(queue).await?.status.unwrap_or_default();
    let usage = status
        .flavors_reservation
        .first()
        .and_then(|flavor| flavor.resources.first())
        .map(|it| it.total.0.clone());
    Ok(usage.unwrap_or_default())
}

async fn await_charge(cluster: &Cluster, queue: &str, cpu: &str) {
    eventually(SOON, format!("{queue} to be charged {cpu} on {}", cluster.name()), async || {
        let is = charged(cluster, queue).await?;
        ensure!(is == cpu, "charged {is}");
        Ok(())
    })
    .await
    .unwrap();
}

async fn is_active(tenant: &Tenant<'_>, cluster: &str, job: &str, count: i32) {
    eventually(SOON, format!("{job} to have {count} pods on {cluster}"), async || {
        let status = tenant.worker_jobs(cluster).get(job).await?.status.unwrap_or_default();
        ensure!(status.active == Some(count), "{:?}", status.active);
        Ok(())
    })
    .await
    .unwrap();
}

async fn patch_job(tenant: &Tenant<'_>, job: &str, patch: Value) {
    let jobs: Api<Job> = tenant.hub_jobs();
    jobs.patch(job, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
}

async fn deactivate(tenant: &Tenant<'_>, job: &str) {
    let workload = tenant.workload_of(job).await.unwrap().name_any();
    let patch = Patch::Merge(json!({"spec": {"active": false}}));
    tenant.hub_workloads().patch(&workload, &PatchParams::default(), &patch).await.unwrap();
}

async fn on_west<'a>(fleet: &'a Fleet, name: &str, cpu: &str) -> Tenant<'a> {
    let quota = [("cpu", cpu)];
    fleet.tenant(name).hub(&quota).worker("west", &quota).make().await.unwrap()
}

/// How a job is stopped for good.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Stop {
    Deactivated,
    DeactivatedThenDeleted,
    OutOfTime,
    WorkloadDeleted,
    Deleted,
    DeletedInForeground,
}

#[test]
fn a_deactivated_job_is_charged_until_its_last_pod_has_ended() {
    is_charged_until_its_last_pod_has_ended(Stop::Deactivated);
}

#[test]
fn deactivated_then_deleted_job_is_charged_until_pods_end() {
    is_charged_until_its_last_pod_has_ended(Stop::DeactivatedThenDeleted);
}

#[test]
fn a_job_out_of_time_is_charged_until_its_last_pod_has_ended() {
    is_charged_until_its_last_pod_has_ended(Stop::OutOfTime);
}

#[test]
fn a_deleted_job_is_charged_until_its_last_pod_has_ended() {
    is_charged_until_its_last_pod_has_ended(Stop::Deleted);
}

#[test]
fn job_deleted_in_foreground_is_charged_until_pods_end() {
    is_charged_until_its_last_pod_has_ended(Stop::DeletedInForeground);
}

#[test]
fn job_with_deleted_workload_is_charged_until_pods_end() {
    is_charged_until_its_last_pod_has_ended(Stop::WorkloadDeleted);
}

fn is_charged_until_its_last_pod_has_ended(stop: Stop) {
    fixture::run(async {
        let fleet = fleet().await;
        let (hub, west) = (fleet.hub(), fleet.worker("west"));
        let tenant = on_west(fleet, "stopped", "10").await;
        let mut slow = ends_slowly(tenant.job("slow").cpu("8"));
        if stop == Stop::OutOfTime {
            slow = slow.label("kueue.x-k8s.io/max-exec-time-seconds", "30");
        }
        tenant.submit(slow).await.unwrap();
        is_active(&tenant, "west", "slow", 1).await;
        await_charge(hub, tenant.name(), "8").await;
        await_charge(west, tenant.name(), "8").await;
        let first = tenant.workload_of("slow").await.unwrap();
        match stop {
            Stop::Deactivated | Stop::DeactivatedThenDeleted => deactivate(&tenant, "slow").await,
            Stop::OutOfTime => {}
            Stop::WorkloadDeleted => {
                tenant
                    .hub_workloads()
                    .delete(&first.name_any(), &Default::default())
                    .await
                    .unwrap();
            }
            Stop::DeletedInForeground => {
                drop(tenant.hub_jobs().delete("slow", &DeleteParams::foreground()).await.unwrap());
            }
            Stop::Deleted => {
                drop(tenant.hub_jobs().delete("slow", &DeleteParams::background()).await.unwrap())
            }
        }
        let pods: Api<Pod> = Api::namespaced(west.admin.clone(), tenant.name());
        if stop == Stop::DeactivatedThenDeleted {
            eventually(SOON, "the eviction", async || {
                let status = tenant.workload_of("slow").await?.status.unwrap_or_default();
                ensure!(status.cluster_name.is_none(), "{:?}", status.cluster_name);
                Ok(())
            })
            .await
            .unwrap();
            tenant.hub_jobs().delete("slow", &DeleteParams::background()).await.unwrap();
        }
        eventually(SOON, "the pod to be ending", async || {
            let pods = pods.list(&ListParams::default()).await?.items;
            ensure!(pods.len() == 1 && pods[0].metadata.deletion_timestamp.is_some(), "{pods:?}");
            Ok(())
        })
        .await
        .unwrap();
        tenant.submit(tenant.job("next").cpu("8").run_forever()).await.unwrap();
        always(WHILE, "the charge of a pod that is ending", async || {
            for cluster in [hub, west] {
                let is = charged(cluster, tenant.name()).await?;
                ensure!(is == "8", "{} is charged {is}", cluster.name());
            }
            ensure!(
                tenant.worker_jobs("west").get_opt("next").await?.is_none(),
                "the next job was sent"
            );
            Ok(())
        })
        .await
        .unwrap();
        if stop == Stop::WorkloadDeleted {
            // The job is still there, and would ask again. Its queue is changed once it is suspended.
            let moved = Patch::Merge(
                json!({"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "none"}}}),
            );
            eventually(SOON, "the job to leave its queue", async || {
                tenant
                    .hub_jobs()
                    .patch("slow", &PatchParams::default(), &moved)
                    .await
                    .map_err(Into::into)
            })
            .await
            .unwrap();
        }
        runs_after(&pods, "next", "slow").await;
        await_charge(hub, tenant.name(), "8").await;
    });
}

/// Waits until a job has a pod that has not ended, and sees that another one has none by then.
async fn runs_after(pods: &Api<Pod>, job: &str, other: &str) {
    let has_ended = |pod: &Pod| {
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        matches!(phase, Some("Succeeded" | "Failed"))
    };
    let of = |pods: &[Pod], job: &str| {
        let prefix = format!("{job}-");
        pods.iter().any(|pod| pod.name_any().starts_with(&prefix) && !has_ended(pod))
    };
    let mut together = false;
    eventually(SOON, format!("a pod of {job}"), async || {
        let pods = pods.list(&ListParams::default()).await?.items;
        together |= of(&pods, job) && of(&pods, other);
        ensure!(of(&pods, job), "{} pods", pods.len());
        Ok(())
    })
    .await
    .unwrap();
    assert!(!together, "{job} and {other} had pods at one time");
}

#[test]
fn another_parallelism_is_sent_anew() {
    fixture::run(async {
        let fleet = fleet().await;
        let tenant = on_west(fleet, "resized", "8").await;
        tenant
            .submit(ends_slowly(tenant.job("resized").cpu("1").parallelism(2).completions(4)))
            .await
            .unwrap();
        is_active(&tenant, "west", "resized", 2).await;
        await_charge(fleet.hub(), tenant.name(), "2").await;
        patch_job(&tenant, "resized", json!({"spec": {"parallelism": 3}})).await;
        always(2 * WHILE, "the charge of pods that are ending", async || {
            let is = charged(fleet.hub(), tenant.name()).await?;
            ensure!(is == "2", "charged {is}");
            Ok(())
        })
        .await
        .unwrap();
        is_active(&tenant, "west", "resized", 3).await;
        await_charge(fleet.hub(), tenant.name(), "3").await;
        await_charge(fleet.worker("west"), tenant.name(), "3").await;
    });
}

#[test]
fn as_many_pods_run_as_are_charged() {
    fixture::run(async {
        let fleet = fleet().await;
        let (hub, west) = (fleet.hub(), fleet.worker("west"));
        let tenant = fleet
            .tenant("partial")
            .hub(&[("cpu", "2")])
            .worker("west", &[("cpu", "10")])
            .make()
            .await
            .unwrap();
        let job = tenant.job("partial").cpu("1").parallelism(6).completions(6).run_forever();
        tenant.submit(job.annotation("kueue.x-k8s.io/job-min-parallelism", "1")).await.unwrap();
        is_active(&tenant, "west", "partial", 2).await;
        await_charge(hub, tenant.name(), "2").await;
        await_charge(west, tenant.name(), "2").await;
        always(WHILE, "as many pods as are charged", async || {
            let job = tenant.worker_jobs("west").get("partial").await?;
            ensure!(
                job.spec.as_ref().and_then(|spec| spec.parallelism) == Some(2),
                "{:?}",
                job.spec
            );
            let ours = tenant.hub_jobs().get("partial").await?.spec.unwrap_or_default();
            ensure!(ours.parallelism == Some(6), "what its user wrote stays");
            Ok(())
        })
        .await
        .unwrap();
    });
}

/// The output of `switchyard audit` for the fleet, and its exit code.
async fn audited(fleet: &Fleet, namespace: &str) -> (ExitStatus, String) {
    let path = |cluster: &Cluster| cluster.kubeconfig().display().to_string();
    let west = format!("west={}", path(fleet.worker("west")));
    let hub = path(fleet.hub());
    let command = [
        "switchyard",
        "--kubeconfig",
        &hub,
        "audit",
        "--worker",
        &west,
        "--grace",
        "2",
        "-n",
        namespace,
    ];
    let mut out = Vec::new();
    let verdict = switchyard::run(switchyard::Args::try_parse_from(command).unwrap(), &mut out)
        .await
        .unwrap();
    (verdict, String::from_utf8(out).unwrap())
}

#[test]
fn the_auditor_is_asked_about_a_fleet() {
    fixture::run(async {
        let fleet = fleet().await;
        let tenant = on_west(fleet, "audited", "4").await;
        tenant
            .submit(tenant.job("honest").cpu("1").parallelism(2).completions(2).run_forever())
            .await
            .unwrap();
        is_active(&tenant, "west", "honest", 2).await;
        eventually(SOON, "the hub to show both pods", async || {
            let status = tenant.hub_jobs().get("honest").await?.status.unwrap_or_default();
            ensure!(status.active == Some(2), "{:?}", status.active);
            Ok(())
        })
        .await
        .unwrap();
        let (verdict, text) = audited(fleet, tenant.name()).await;
        assert_eq!(verdict, ExitStatus::Clean, "{text}");
        assert!(text.starts_with("No findings: 0 pods, 1 Workload,"), "{text}");
        assert!(text.contains("2 pods, 1 Workload,"), "{text}");

        // A user runs a pod that should wait in a queue.
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": "stray", "namespace": tenant.name(), "labels": {"kueue.x-k8s.io/managed": "true"},
            },
            "spec": {"containers": [{"name": "c", "image": "i"}]},
        });
        fleet.worker("west").apply([pod]).await.unwrap();
        let (verdict, text) = audited(fleet, tenant.name()).await;
        assert_eq!(verdict, ExitStatus::Faulty, "{text}");
        let want = format!("Pod {}/stray runs, but it has no Workload", tenant.name());
        assert!(text.contains("RunsWithoutAdmission") && text.contains(&want), "{text}");
        let pods: Api<Pod> = Api::namespaced(fleet.worker("west").admin.clone(), tenant.name());
        pods.delete("stray", &DeleteParams::default()).await.unwrap();
    });
}
