//! Jobs that leave a cluster: evicted by the worker, by the hub, or by a user; and Kueue's own dispatchers.
use std::time::Duration;

use crate::common::fleet;
use anyhow::ensure;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use switchyard_api::conditions;
use switchyard_api::v1beta2::{ClusterQueue, LocalQueue, Workload, WorkloadStatus};
use switchyard_e2e::fleet::{Fleet, Tenant};
use switchyard_e2e::wait::eventually;
use switchyard_e2e::{ClusterSpec, NodeSpec, fixture, job, queues};

const SOON: Duration = Duration::from_secs(120);

/// The only Workload of a tenant on the hub.
async fn workload(tenant: &Tenant<'_>) -> anyhow::Result<Workload> {
    let mut all = tenant.hub_workloads().list(&ListParams::default()).await?.items;
    ensure!(all.len() == 1, "{} workloads", all.len());
    Ok(all.remove(0))
}

async fn await_workload(
    tenant: &Tenant<'_>,
    what: &str,
    is: impl Fn(&WorkloadStatus) -> bool,
) -> Workload {
    eventually(SOON, what.to_owned(), async || {
        let workload = workload(tenant).await?;
        ensure!(is(&workload.status.clone().unwrap_or_default()), "{}", Tenant::told(&workload));
        Ok(workload)
    })
    .await
    .unwrap()
}

async fn stop(cluster: &switchyard_e2e::Cluster, name: &str, policy: &str) {
    let queues: Api<ClusterQueue> = Api::all(cluster.admin.clone());
    let patch: Value = json!({"spec": {"stopPolicy": policy}});
    queues.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
}

#[test]
fn evicted_by_a_worker_it_runs_on_another() {
    fixture::run(async {
        let fleet = fleet().await;
        let quota = [("cpu", "2")];
        let tenant =
            fleet.tenant("evicted").hub(&quota).worker("west", &quota).worker("east", &quota);
        let tenant = tenant.make().await.unwrap();
        await_queue(fleet, tenant.name()).await;
        tenant.submit(tenant.job("long").cpu("2").run_forever()).await.unwrap();
        let row = tenant
            .await_status("long", "dispatched", SOON, |row| row.cluster.is_some())
            .await
            .unwrap();
        let first = row.cluster.unwrap();
        let second = if first == "west" { "east" } else { "west" };
        fleet.await_pods(&first, tenant.name(), 1).await.unwrap();
        stop(fleet.worker(&first), tenant.name(), "HoldAndDrain").await;
        let moved = await_workload(&tenant, "the other cluster", |status| {
            status.cluster_name.as_deref() == Some(second)
        })
        .await;
        let status = moved.status.unwrap();
        assert_eq!(status.dispatch.unwrap().attempt, 2);
        let evictions = status.scheduling_stats.unwrap().evictions;
        assert_eq!(
            (evictions.len(), evictions[0].reason.as_str(), evictions[0].count),
            (1, "AdmissionCheck", 1)
        );
        fleet.await_pods(second, tenant.name(), 1).await.unwrap();
        fleet.await_pods(&first, tenant.name(), 0).await.unwrap();
        tenant.await_empty(&first, SOON).await.unwrap();
    });
}

#[test]
fn deactivated_job_frees_quota_when_nothing_runs() {
    fixture::run(async {
        let fleet = fleet().await;
        let quota = [("cpu", "2")];
        let tenant = fleet
            .tenant("inactive")
            .hub(&quota)
            .worker("west", &[("cpu", "4")])
            .make()
            .await
            .unwrap();
        await_queue(fleet, tenant.name()).await;
        tenant.submit(tenant.job("long").cpu("2").run_forever()).await.unwrap();
        fleet.await_pods("west", tenant.name(), 1).await.unwrap();
        let name = workload(&tenant).await.unwrap().metadata.name.unwrap();
        let patch = json!({"spec": {"active": false}});
        tenant
            .hub_workloads()
            .patch(&name, &PatchParams::default(), &Patch::Merge(patch))
            .await
            .unwrap();
        await_workload(&tenant, "no quota", |status| {
            !conditions::is_true(&status.conditions, "QuotaReserved")
        })
        .await;
        tenant.await_empty("west", SOON).await.unwrap();
        fleet.await_pods("west", tenant.name(), 0).await.unwrap();
        let patch = json!({"spec": {"active": true}});
        tenant
            .hub_workloads()
            .patch(&name, &PatchParams::default(), &Patch::Merge(patch))
            .await
            .unwrap();
        let again = await_workload(&tenant, "west again", |status| {
            status.cluster_name.as_deref() == Some("west")
        })
        .await;
        assert_eq!(again.status.unwrap().dispatch.unwrap().attempt, 2);
        fleet.await_pods("west", tenant.name(), 1).await.unwrap();
    });
}

#[test]
fn drained_on_the_hub_it_stops_and_comes_back() {
    fixture::run(async {
        let fleet = fleet().await;
        let quota = [("cpu", "2")];
        let tenant = fleet
            .tenant("drained")
            .hub(&quota)
            .worker("east", &[("cpu", "4")])
            .make()
            .await
            .unwrap();
        await_queue(fleet, tenant.name()).await;
        tenant.submit(tenant.job("short").cpu("1").run_forever()).await.unwrap();
        fleet.await_pods("east", tenant.name(), 1).await.unwrap();
        stop(fleet.hub(), tenant.name(), "HoldAndDrain").await;
        await_workload(&tenant, "no quota", |status| {
            !conditions::is_true(&status.conditions, "QuotaReserved")
        })
        .await;
        tenant.await_empty("east", SOON).await.unwrap();
        stop(fleet.hub(), tenant.name(), "None").await;
        eventually(SOON, "its pods to end", async || {
            job::pods_succeed(&fleet.worker("east").admin, tenant.name(), "short").await?;
            let short = tenant.hub_jobs().get("short").await?;
            ensure!(job::has_condition(&short, "Complete"), "{:?}", short.status);
            Ok(())
        })
        .await
        .unwrap();
        let finished = await_workload(&tenant, "finished", |status| {
            conditions::is_true(&status.conditions, "Finished")
        })
        .await;
        assert_eq!(finished.status.unwrap().dispatch.unwrap().attempt, 2);
    });
}

fn has_quota(workload: &Workload) -> bool {
    let conditions =
        workload.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    conditions::is_true(conditions, "QuotaReserved")
}

#[test]
fn job_preempted_on_hub_frees_quota_when_nothing_runs() {
    fixture::run(async {
        let fleet = fleet().await;
        // The worker has room for both: only the hub's quota stands between them.
        let (quota, room) =
            ([("cpu", "8"), ("nvidia.com/gpu", "2")], [("cpu", "8"), ("nvidia.com/gpu", "8")]);
        let tenant =
            fleet.tenant("preempted").hub(&quota).worker("west", &room).make().await.unwrap();
        let queues: Api<ClusterQueue> = Api::all(fleet.hub().admin.clone());
        let patch = json!({"spec": {"preemption": {"withinClusterQueue": "LowerPriority"}}});
        queues.patch(tenant.name(), &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
        let class = format!("{}-high", tenant.name());
        let high = json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadPriorityClass",
            "metadata": {"name": class}, "value": 1000,
        });
        fleet.hub().apply([high]).await.unwrap();
        await_queue(fleet, tenant.name()).await;

        let low = tenant
            .job("low")
            .gpu(2)
            .run_forever()
            .pod_annotation("e2e.switchyard.dev/stop-after", "3s");
        tenant.submit(low).await.unwrap();
        fleet.await_pods("west", tenant.name(), 1).await.unwrap();
        tenant
            .submit(tenant.job("high").gpu(2).run_forever().priority_class(&class))
            .await
            .unwrap();
        eventually(SOON, "high to get quota", async || {
            let high = tenant.workload_of("high").await?;
            ensure!(has_quota(&high), "high: {}", Tenant::told(&high));
            Ok(())
        })
        .await
        .unwrap();
        // An object that is gone before quota is released is gone when the release is seen.
        let jobs = tenant.worker_jobs("west").list(&ListParams::default()).await.unwrap().items;
        assert!(
            jobs.iter().all(|job| job.metadata.name.as_deref() != Some("low")),
            "low is still there: {jobs:#?}"
        );
        let pods: Api<Pod> = Api::namespaced(fleet.worker("west").admin.clone(), tenant.name());
        let of_low = job::pods_of("low");
        assert!(
            pods.list_metadata(&of_low).await.unwrap().items.is_empty(),
            "pods of low are still there"
        );

        fleet.await_pods("west", tenant.name(), 1).await.unwrap();
        let waiting = tenant.workload_of("low").await.unwrap();
        assert!(!has_quota(&waiting), "{}", Tenant::told(&waiting));
        tenant.hub_jobs().delete("high", &kube::api::DeleteParams::background()).await.unwrap();
        eventually(SOON, "low to run again", async || {
            let low = tenant.workload_of("low").await?;
            let status = low.status.clone().unwrap_or_default();
            ensure!(
                status.dispatch.is_some_and(|it| it.attempt >= 2),
                "low: {}",
                Tenant::told(&low)
            );
            Ok(())
        })
        .await
        .unwrap();
    });
}

/// Waits until a young hub has seen the tenant's queue: before, its webhook cannot know that the queue dispatches.
async fn await_queue(fleet: &Fleet, name: &str) {
    let queues: Api<ClusterQueue> = Api::all(fleet.hub().admin.clone());
    eventually(SOON, format!("ClusterQueue {name} to be active"), async || {
        let status = queues.get(name).await?.status.unwrap_or_default();
        ensure!(conditions::is_true(&status.conditions, "Active"), "{:?}", status.conditions);
        let local: Api<LocalQueue> = Api::namespaced(fleet.hub().admin.clone(), name);
        let local =
            local.list(&ListParams::default()).await?.items.remove(0).status.unwrap_or_default();
        ensure!(conditions::is_true(&local.conditions, "Active"), "{:?}", local.conditions);
        Ok(())
    })
    .await
    .unwrap();
}

/// A hub with one of Kueue's dispatchers and two workers.
async fn dispatching_by(name: &str, dispatcher: &str) -> Fleet {
    let config = format!(
        "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\nmultiKueue:\n  dispatcherName: {dispatcher}\n"
    );
    let mut fleet = Fleet::builder(name).config(config);
    for worker in ["west", "east"] {
        fleet = fleet.agent(ClusterSpec::new(worker).node(NodeSpec::new("n1").cpu(64)));
    }
    let fleet = fleet.start().await.unwrap();
    fleet.hub().apply(["west", "east"].map(queues::agent_cluster)).await.unwrap();
    fleet.connect().await.unwrap();
    fleet
}

#[test]
fn all_at_once_the_first_to_admit_gets_it() {
    fixture::run(async {
        let fleet =
            dispatching_by("at-once", "kueue.x-k8s.io/multikueue-dispatcher-all-at-once").await;
        let tenant = fleet.tenant("race").hub(&[("cpu", "8")]).worker("west", &[("cpu", "1")]);
        let tenant = tenant.worker("east", &[("cpu", "8")]).make().await.unwrap();
        await_queue(&fleet, tenant.name()).await;
        tenant.submit(tenant.job("big").cpu("4").run_for(Duration::from_secs(1))).await.unwrap();
        let nominated = await_workload(&tenant, "nominated or admitted", |status| {
            status.nominated_cluster_names == ["east", "west"] || status.cluster_name.is_some()
        });
        nominated.await;
        let admitted = await_workload(&tenant, "east", |status| {
            status.cluster_name.as_deref() == Some("east")
        })
        .await;
        assert!(admitted.status.unwrap().nominated_cluster_names.is_empty());
        job::complete(&fleet.hub().admin, tenant.name(), "big", SOON).await.unwrap();
        tenant.await_empty("west", SOON).await.unwrap();
        tenant.await_empty("east", SOON).await.unwrap();
    });
}

#[test]
fn another_dispatcher_nominates() {
    fixture::run(async {
        let fleet = dispatching_by("external", "example.com/mine").await;
        let quota = [("cpu", "8")];
        let tenant = fleet.tenant("mine").hub(&quota).worker("west", &quota).worker("east", &quota);
        let tenant = tenant.make().await.unwrap();
        await_queue(&fleet, tenant.name()).await;
        tenant.submit(tenant.job("one").run_for(Duration::from_secs(1))).await.unwrap();
        let waiting = await_workload(&tenant, "reserved", |status| {
            conditions::is_true(&status.conditions, "QuotaReserved")
        })
        .await;
        let patch = json!({"status": {"nominatedClusterNames": ["west"]}});
        let name = waiting.metadata.name.unwrap();
        tenant
            .hub_workloads()
            .patch_status(&name, &PatchParams::default(), &Patch::Merge(patch))
            .await
            .unwrap();
        await_workload(&tenant, "west", |status| status.cluster_name.as_deref() == Some("west"))
            .await;
        job::complete(&fleet.hub().admin, tenant.name(), "one", SOON).await.unwrap();
    });
}
