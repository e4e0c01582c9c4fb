//! `waitForPodsReady.recoveryTimeout`: a job that was ready, and has lost a pod that does not come back, gives its quota
//! back and is queued again.

use crate::bed::{Bed, WAIT};
use crate::common::events;
use anyhow::{Context as _, ensure};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use serde_json::json;
use switchyard_api::{conditions, v1beta2::Workload};
use switchyard_e2e::fleet::{Fleet, Tenant};
use switchyard_e2e::{
    Cluster, ClusterSpec, JobBuilder, NodeSpec, fixture, job, queues, wait::eventually,
};

/// Long enough for pods to start on a busy machine, and a short patience afterwards.
const SECTIONS: &str = "waitForPodsReady: {timeout: 60s, recoveryTimeout: 2s, requeuingStrategy: {backoffBaseSeconds: 1}}";
const READY: &str = "All pods reached readiness and the workload is running";

/// Two pods, and a pod that fails does not end the job.
fn pair(job: JobBuilder) -> JobBuilder {
    job.parallelism(2).completions(2).backoff_limit(6).run_forever()
}

/// Whether the nodes take pods.
async fn take_pods(cluster: &Cluster, take: bool) {
    let nodes: Api<Node> = Api::all(cluster.admin.clone());
    for node in nodes.list(&ListParams::default()).await.unwrap() {
        let patch = Patch::Merge(json!({"spec": {"unschedulable": !take}}));
        nodes.patch(&node.name_any(), &PatchParams::default(), &patch).await.unwrap();
    }
}

/// Takes one of a job's pods away, while no node takes another in its place.
async fn lose_a_pod(cluster: &Cluster, namespace: &str, job: &str) {
    take_pods(cluster, false).await;
    let pods: Api<Pod> = Api::namespaced(cluster.admin.clone(), namespace);
    let of_job = job::pods_of(job);
    let pod = pods.list(&of_job).await.unwrap().items.pop().unwrap();
    pods.delete(&pod.name_any(), &DeleteParams::default().grace_period(0)).await.unwrap();
}

#[test]
fn a_pod_that_does_not_come_back_costs_the_job_its_quota() {
    fixture::run(async {
        let bed = Bed::configured("lost", SECTIONS).await;
        bed.simple(&[("cpu", "2")]).await;
        pair(bed.job("lost")).create(bed.admin()).await.unwrap();
        bed.expect("lost", "PodsReady", "True", "Started", READY).await;
        // Its condition stays visible: it is not admitted again at once.
        bed.stop_local_queue("Hold").await;
        bed.local_queue_condition("queue", "False", "Stopped", "LocalQueue is stopped").await;
        let before = Timestamp::now();
        lose_a_pod(bed.cluster(), &bed.namespace, "lost").await;

        let name = bed.workload_of("lost").await.name_any();
        let late = format!("Exceeded the PodsReady timeout {}/{name}", bed.namespace);
        bed.expect("lost", "Evicted", "True", "PodsReadyTimeout", &late).await;
        let waited = bed.time("lost", "Evicted").await.as_second() - before.as_second();
        assert!(waited >= 2, "evicted after {waited} s");
        bed.suspended("lost", true).await;
        bed.expect(
            "lost",
            "PodsReady",
            "False",
            "WaitForStart",
            "Not all pods are ready or succeeded",
        )
        .await;
        bed.expect(
            "lost",
            "Requeued",
            "True",
            "BackoffFinished",
            "The workload backoff was finished",
        )
        .await;
        let status = bed.workload_of("lost").await.status.unwrap();
        assert_eq!(status.admission, None);
        assert_eq!(status.requeue_state.unwrap().count, Some(1));
        assert_eq!(
            serde_json::to_value(status.scheduling_stats.unwrap().evictions).unwrap(),
            json!([{"reason": "PodsReadyTimeout", "underlyingCause": "WaitForRecovery", "count": 1}])
        );
        bed.event(&name, "EvictedDueToPodsReadyTimeout", &late).await;

        take_pods(bed.cluster(), true).await;
        bed.stop_local_queue("None").await;
        bed.running("lost").await;
        bed.expect("lost", "Evicted", "False", "QuotaReserved", &format!("Previously: {late}"))
            .await;
    });
}

/// Where the job has been, and why it left.
fn history(workload: &Workload) -> Vec<(String, String)> {
    let dispatch = workload.status.iter().filter_map(|status| status.dispatch.as_ref());
    dispatch
        .flat_map(|it| &it.history)
        .map(|past| (past.cluster_name.clone(), past.reason.clone()))
        .collect()
}

/// The worker counts, by its own configuration: the hub's, which would have given up at once, is for jobs that run on the hub.
#[test]
fn a_dispatched_job_that_has_lost_a_pod_for_good_goes_elsewhere() {
    fixture::run(async {
        let spec = |name: &str| ClusterSpec::new(name).node(NodeSpec::new("n1").cpu(8));
        let config = |sections: &str| {
            format!("apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n{sections}\n")
        };
        let fleet = Fleet::builder("lost")
            .agent(spec("west"))
            .agent(spec("east"))
            .agent_config(config(SECTIONS));
        let fleet = fleet
            .config(config("waitForPodsReady: {timeout: 1s, recoveryTimeout: 1s}"))
            .start()
            .await
            .unwrap();
        fleet.hub().apply(["west", "east"].map(queues::agent_cluster)).await.unwrap();
        fleet.connect().await.unwrap();
        let quota = [("cpu", "2")];
        let tenant = fleet.tenant("lost").hub(&quota).worker("west", &quota).worker("east", &quota);
        let tenant = tenant.make().await.unwrap();
        tenant
            .submit(pair(tenant.job("lost")).pod_annotation(job::START_AFTER, "3s"))
            .await
            .unwrap();
        let first =
            tenant.await_status("lost", "sent", WAIT, |row| row.cluster.is_some()).await.unwrap();
        let first = first.cluster.unwrap();
        let name = tenant.workload_of("lost").await.unwrap().name_any();
        let ready = async || {
            let status =
                tenant.worker_workloads(&first).get(&name).await?.status.unwrap_or_default();
            ensure!(
                conditions::is_true(&status.conditions, conditions::PODS_READY),
                "{:?}",
                status.conditions
            );
            Ok(())
        };
        eventually(WAIT, "the worker to see the pods ready", ready).await.unwrap();
        assert_eq!(history(&tenant.workload_of("lost").await.unwrap()), []);

        let worker = fleet.worker(&first);
        lose_a_pod(worker, tenant.name(), "lost").await;
        let late = format!("Exceeded the PodsReady timeout {}/{name}", tenant.name());
        events::told(&worker.admin, &name, "EvictedDueToPodsReadyTimeout", &late).await;
        let other = if first == "west" { "east" } else { "west" };
        let moved = async || {
            let workload = tenant.workload_of("lost").await?;
            let told = Tenant::told(&workload);
            ensure!(
                history(&workload) == [(first.clone(), "EvictedOnWorker".to_owned())],
                "{told}"
            );
            let status = workload.status.unwrap_or_default();
            ensure!(status.cluster_name.as_deref() == Some(other), "{told}");
            let evicted = conditions::find(&status.conditions, conditions::EVICTED)
                .context("never evicted")?;
            let why = format!(
                "Workload evicted on worker cluster: \"{first}\", resetting for re-admission"
            );
            ensure!(evicted.message.contains(&why), "{told}");
            Ok(())
        };
        eventually(WAIT, format!("the job to go to {other}"), moved).await.unwrap();
        fleet.await_pods(other, tenant.name(), 2).await.unwrap();
        tenant.await_empty(&first, WAIT).await.unwrap();
    });
}
