//! Programs that are killed while jobs queue and run: nothing is lost, nothing runs twice.
mod outages;

use std::time::Duration;

use crate::common::fleet;
use anyhow::ensure;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::ListParams;
use switchyard_e2e::fleet::{Fleet, HUB, Tenant};
use switchyard_e2e::wait::eventually;
use switchyard_e2e::{fixture, job};
use tokio::sync::Mutex;
use tokio::task::JoinHandle;

const SOON: Duration = Duration::from_secs(120);
/// Both tests of this file kill programs of the one fleet.
static ONE_AT_A_TIME: Mutex<()> = Mutex::const_new(());

/// Jobs that run, and jobs that wait for them.
const JOBS: usize = 8;

#[test]
fn a_killed_hub_loses_no_job_and_runs_none_twice() {
    fixture::run(async {
        let _turn = ONE_AT_A_TIME.lock().await;
        let fleet = fleet().await;
        let (tenant, made) = queued_and_running(fleet, "hub-dies").await;
        fleet.kill(HUB);
        // While it is away, jobs end on the worker.
        end_running(fleet, &tenant).await;
        fleet.start_hub().await.unwrap();
        all_complete_once(fleet, &tenant, made).await;
    });
}

#[test]
fn a_killed_agent_loses_no_job_and_runs_none_twice() {
    fixture::run(async {
        let _turn = ONE_AT_A_TIME.lock().await;
        let fleet = fleet().await;
        let (tenant, made) = queued_and_running(fleet, "agent-dies").await;
        fleet.kill("west");
        // While it is away, jobs end beside it.
        end_running(fleet, &tenant).await;
        fleet.restart_agent("west").unwrap();
        all_complete_once(fleet, &tenant, made).await;
    });
}

/// Half of the jobs run on west, the others wait for quota. Also gives the task that counts pods.
async fn queued_and_running<'a>(fleet: &'a Fleet, stem: &str) -> (Tenant<'a>, JoinHandle<usize>) {
    let tenant = fleet
        .tenant(stem)
        .hub(&[("cpu", "4")])
        .worker("west", &[("cpu", "8")])
        .make()
        .await
        .unwrap();
    let made = watch_pods(fleet, &tenant);
    let job = |i: usize| tenant.job(&format!("job-{i}")).cpu("1");
    for i in 0..JOBS / 2 {
        tenant.submit(job(i).run_forever()).await.unwrap();
    }
    fleet.await_pods("west", tenant.name(), JOBS / 2).await.unwrap();
    for i in JOBS / 2..JOBS {
        tenant.submit(job(i).run_for(Duration::from_secs(8))).await.unwrap();
        let name = format!("job-{i}");
        eventually(SOON, format!("the Workload of {name}"), async || {
            tenant.workload_of(&name).await
        })
        .await
        .unwrap();
    }
    (tenant, made)
}

/// Ends the jobs that run on west.
async fn end_running(fleet: &Fleet, tenant: &Tenant<'_>) {
    for i in 0..JOBS / 2 {
        let (west, name) = (&fleet.worker("west").admin, format!("job-{i}"));
        job::pods_succeed(west, tenant.name(), &name).await.unwrap();
    }
    fleet.await_pods("west", tenant.name(), 0).await.unwrap();
}

/// Each job completes on the hub, and the worker made one pod for each: none ran twice.
async fn all_complete_once(fleet: &Fleet, tenant: &Tenant<'_>, made: JoinHandle<usize>) {
    for i in 0..JOBS {
        job::complete(&fleet.hub().admin, tenant.name(), &format!("job-{i}"), SOON).await.unwrap();
    }
    let made =
        tokio::time::timeout(SOON, made).await.expect("the watch of pods does not end").unwrap();
    assert_eq!(made, JOBS, "pods");
    tenant.await_empty("west", SOON).await.unwrap();
    eventually(SOON, "every Workload to be finished", async || {
        let workloads = tenant.hub_workloads().list(&ListParams::default()).await?.items;
        let attempts: Vec<i64> = workloads
            .iter()
            .filter_map(|workload| Some(workload.status.as_ref()?.dispatch.as_ref()?.attempt))
            .collect();
        ensure!(attempts == vec![1; JOBS], "attempts {attempts:?}");
        Ok(())
    })
    .await
    .unwrap();
}

/// Counts the pods that the worker ever had, until all jobs of the tenant have completed.
fn watch_pods(fleet: &Fleet, tenant: &Tenant<'_>) -> JoinHandle<usize> {
    let pods: Api<Pod> = Api::namespaced(fleet.worker("west").admin.clone(), tenant.name());
    let jobs = tenant.hub_jobs();
    tokio::spawn(async move {
        let mut seen = std::collections::BTreeSet::new();
        loop {
            if let Ok(found) = pods.list(&ListParams::default()).await {
                seen.extend(found.items.into_iter().filter_map(|pod| pod.metadata.uid));
            }
            let done = jobs.list(&ListParams::default()).await.map(|jobs| {
                jobs.items.iter().filter(|found| job::has_condition(found, "Complete")).count()
            });
            if done.is_ok_and(|done| done == JOBS) {
                return seen.len();
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
}
