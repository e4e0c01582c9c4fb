//! `waitForPodsReady.blockAdmission`: one workload is admitted at a time, once the pods of all admitted ones are ready.

use std::time::Duration;

use crate::bed::{Bed, WAIT};
use anyhow::ensure;
use kube::api::ListParams;
use switchyard_e2e::fleet::Fleet;
use switchyard_e2e::{ClusterSpec, NodeSpec, fixture, job, queues, wait::eventually};

#[test]
fn the_next_is_admitted_when_the_pods_of_all_are_ready() {
    fixture::run(async {
        let bed = Bed::configured("block", "waitForPodsReady: {blockAdmission: true}").await;
        bed.set_up([bed.member("q", "4").build()], &["q"]).await;
        let slow = |name| bed.job_in("q", name).pod_annotation(job::START_AFTER, "3s");
        slow("first").create(bed.admin()).await.unwrap();
        bed.expect_true("first", "QuotaReserved").await;
        bed.job_in("q", "second").create(bed.admin()).await.unwrap();
        bed.job_in("q", "third")
            .run_for(Duration::from_millis(100))
            .create(bed.admin())
            .await
            .unwrap();
        bed.expect_true("first", "PodsReady").await;
        for name in ["second", "third"] {
            bed.expect_true(name, "QuotaReserved").await;
        }
        let ready = bed.time("first", "PodsReady").await;
        for name in ["second", "third"] {
            let reserved = bed.time(name, "QuotaReserved").await;
            assert!(
                reserved >= ready,
                "{name} got quota at {reserved}, the first was ready at {ready}"
            );
        }
        job::complete(bed.admin(), &bed.namespace, "third", WAIT).await.unwrap();

        // A job whose pods never start blocks the others, and their conditions name it.
        bed.job_in("q", "stuck")
            .pod_annotation(job::START_AFTER, "1h")
            .create(bed.admin())
            .await
            .unwrap();
        bed.expect_true("stuck", "Admitted").await;
        bed.expect(
            "stuck",
            "PodsReady",
            "False",
            "WaitForStart",
            "Not all pods are ready or succeeded",
        )
        .await;
        bed.job_in("q", "waits").create(bed.admin()).await.unwrap();
        let message = "waiting for all admitted workloads to be in PodsReady condition";
        bed.expect("waits", "QuotaReserved", "False", "WaitingForPodsReady", message).await;
        bed.delete_job("stuck").await;
        bed.expect_true("waits", "Admitted").await;
    });
}

/// Readiness is the worker's matter: the hub hears that it gave up, and tries another.
#[test]
fn a_dispatched_job_whose_pods_do_not_get_ready_goes_elsewhere() {
    fixture::run(async {
        let spec = |name: &str| ClusterSpec::new(name).node(NodeSpec::new("n1").cpu(8));
        let config = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\nwaitForPodsReady: {timeout: 3s}\n";
        let fleet =
            Fleet::builder("ready").agent(spec("west")).agent(spec("east")).agent_config(config);
        let fleet = fleet.start().await.unwrap();
        fleet.hub().apply(["west", "east"].map(queues::agent_cluster)).await.unwrap();
        fleet.connect().await.unwrap();
        let quota = [("cpu", "4")];
        let tenant =
            fleet.tenant("ready").hub(&quota).worker("west", &quota).worker("east", &quota);
        let tenant = tenant.make().await.unwrap();
        tenant.submit(tenant.job("stuck").pod_annotation(job::START_AFTER, "1h")).await.unwrap();
        let tried = async || {
            let workload = tenant.hub_workloads().list(&ListParams::default()).await?.items.pop();
            let history = workload.and_then(|it| it.status?.dispatch).unwrap_or_default().history;
            let reasons: Vec<&str> = history.iter().map(|past| past.reason.as_str()).collect();
            ensure!(
                reasons.len() >= 2 && reasons.iter().all(|it| *it == "EvictedOnWorker"),
                "{history:?}"
            );
            ensure!(history[0].cluster_name != history[1].cluster_name, "{history:?}");
            Ok(())
        };
        eventually(WAIT, "two clusters to have given up", tried).await.unwrap();
    });
}
