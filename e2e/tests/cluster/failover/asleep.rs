//! An agent that slept past its lease, or restarts without its hub.
use anyhow::{Context, ensure};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::ListParams;
use switchyard_agent::memory::LEASE;
use switchyard_e2e::auditor::{self, FindingKind};
use switchyard_e2e::fleet::{Fleet, HUB, NAMESPACE, Tenant};
use switchyard_e2e::wait::eventually;
use switchyard_e2e::{ClusterSpec, NodeSpec, Process, Requests, fixture};

use super::{AFTER, SOON, fenced, workload};

const WORKER: &str = "worker";

/// Until the worker has so many pods of the tenant, and its Workload there says whether it may run.
async fn running(fleet: &Fleet, tenant: &Tenant<'_>, runs: bool) {
    eventually(SOON, format!("the job's running to be {runs}"), async || {
        let workloads = tenant.worker_workloads(WORKER).list(&ListParams::default()).await?.items;
        let active = workloads.first().context("no Workload")?.spec.active != Some(false);
        let pods = fleet.pods(WORKER, tenant.name()).await?;
        ensure!(active == runs && (pods == 1) == runs, "active {active}, {pods} pods");
        Ok(())
    })
    .await
    .unwrap();
}

/// When the fence comes, as the agent remembers it.
async fn fence(fleet: &Fleet) -> anyhow::Result<Timestamp> {
    let leases: Api<Lease> = Api::namespaced(fleet.worker(WORKER).admin.clone(), NAMESPACE);
    let spec = leases.get(LEASE).await?.spec.context("an empty Lease")?;
    let (renewed, lasts) =
        spec.renew_time.zip(spec.lease_duration_seconds).context("no lease yet")?;
    Ok(renewed.0 + SignedDuration::from_secs(lasts.into()) + AFTER)
}

/// Until the fence has come, without a renewal of the lease.
async fn lapse(fleet: &Fleet) {
    eventually(SOON, "the fence to come", async || {
        let left = fence(fleet).await?.duration_since(Timestamp::now());
        ensure!(left.is_negative(), "{left} are left");
        Ok(())
    })
    .await
    .unwrap();
}

/// The agent's notes about the hub's workloads.
fn written(fleet: &Fleet) -> Requests {
    let user = format!("system:serviceaccount:{NAMESPACE}:switchyard-agent");
    let requests = fleet.worker(WORKER).requests_by(&user).unwrap();
    requests.writes().only(|request| matches!(request.resource.as_str(), "jobs" | "workloads"))
}

#[test]
fn agent_that_slept_or_restarted_stops_fenced_job_first() {
    fixture::run(async {
        auditor::expect(&[FindingKind::UsageDiffers], "programs that sleep write no status");
        let worker = ClusterSpec::new(WORKER).node(NodeSpec::new("n1").cpu(8)).audited();
        let fleet = Fleet::builder("fence").agent(worker).start().await.unwrap();
        fleet.hub().apply([fenced(WORKER)]).await.unwrap();
        fleet.connect().await.unwrap();
        let quota = [("cpu", "4")];
        let tenant = fleet.tenant("fence").hub(&quota).worker(WORKER, &quota).make().await.unwrap();
        tenant.submit(tenant.job("a").cpu("1").run_forever()).await.unwrap();
        running(&fleet, &tenant, true).await;
        eventually(SOON, "the lease to be remembered", async || fence(&fleet).await).await.unwrap();

        // It stands still past its lease. When it wakes, it does nothing else for the hub than to stop the job.
        fleet.with(WORKER, Process::pause).unwrap().unwrap();
        fleet.kill(HUB);
        lapse(&fleet).await;
        let before = written(&fleet);
        fleet.with(WORKER, Process::resume).unwrap().unwrap();
        running(&fleet, &tenant, false).await;
        let since = written(&fleet).since(&before);
        let made = since.only(|request| !matches!(request.verb.as_str(), "PATCH" | "PUT"));
        assert_eq!(made.total(), 0, "only stopped: {since:?}");
        fleet.start_hub().await.unwrap();
        running(&fleet, &tenant, true).await;

        // The process ends with the hub away; the next one finds no hub, and remembers.
        eventually(SOON, "the lease to be remembered", async || {
            ensure!(fence(&fleet).await? > Timestamp::now(), "an old one");
            Ok(())
        })
        .await
        .unwrap();
        fleet.kill(WORKER);
        fleet.kill(HUB);
        lapse(&fleet).await;
        fleet.restart_agent(WORKER).unwrap();
        running(&fleet, &tenant, false).await;
        fleet.start_hub().await.unwrap();
        running(&fleet, &tenant, true).await;
        let dispatch = workload(&tenant).await.unwrap().status.unwrap().dispatch.unwrap();
        assert_eq!(
            (dispatch.attempt, dispatch.history),
            (1, Vec::new()),
            "it went on where it was"
        );
    });
}
