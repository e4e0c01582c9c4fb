//! Counts the API writes for dispatched jobs, by the audit logs of a hub and one worker.

use std::time::Duration;

use anyhow::ensure;
use kube::api::ListParams;

use crate::fleet::{Fleet, HUB, NAMESPACE, Tenant};
use crate::wait::eventually;
use crate::{ClusterSpec, NodeSpec, Progress, Requests, job, queues};

/// The only worker.
pub const WORKER: &str = "worker";
/// How long one job may take.
const SOON: Duration = Duration::from_secs(60);

/// Requests of Switchyard's programs to the API servers, without leases.
#[derive(Clone, Debug)]
pub struct Writes {
    /// Writes of the hub, on the hub's cluster.
    pub hub: Requests,
    /// Writes of the agent, on the worker's cluster.
    pub worker: Requests,
}

/// A hub and one worker whose API servers keep an audit log.
///
/// # Errors
/// When a component does not come up.
pub async fn fleet(name: &str) -> anyhow::Result<Fleet> {
    let node = NodeSpec::new("n1").cpu(2000).gpu(512);
    let worker = ClusterSpec::new(WORKER).node(node).audited();
    let fleet = Fleet::builder(name).audited().agent(worker).start().await?;
    fleet.hub().apply([queues::agent_cluster(WORKER)]).await?;
    fleet.connect().await?;
    Ok(fleet)
}

/// A tenant with enough quota for all measured jobs.
///
/// # Errors
/// When an API server refuses something.
pub async fn tenant<'a>(fleet: &'a Fleet, stem: &str) -> anyhow::Result<Tenant<'a>> {
    let quota = [("cpu", "2000")];
    let tenant = fleet.tenant(stem).hub(&quota).worker(WORKER, &quota).make().await?;
    // The first job ends once all queues are active. It is not measured.
    tenant.submit(tenant.job("first")).await?;
    job::complete(&fleet.hub().admin, tenant.name(), "first", SOON).await?;
    tenant.await_empty(WORKER, SOON).await?;
    Ok(tenant)
}

/// Runs `jobs` jobs at once until none is left on the worker, and counts the writes for them.
///
/// # Errors
/// When a job does not complete.
pub async fn count(fleet: &Fleet, tenant: &Tenant<'_>, jobs: usize) -> anyhow::Result<Writes> {
    let before = written(fleet)?;
    let mut progress = Progress::new("jobs created", jobs);
    for i in 0..jobs {
        progress.at(i);
        tenant
            .submit(tenant.job(&format!("counted-{i}")).cpu("1").run_for(Duration::from_secs(1)))
            .await?;
    }
    let within = SOON + Duration::from_millis(200) * u32::try_from(jobs).unwrap_or(u32::MAX);
    let mut progress = Progress::new("jobs complete", jobs);
    eventually(within, "all jobs to complete", async || {
        let found = tenant.hub_jobs().list(&ListParams::default()).await?.items;
        let done = found.iter().filter(|job| job::has_condition(job, "Complete")).count();
        progress.at(done);
        ensure!(done == found.len() && done >= jobs, "{done} of {}", found.len());
        Ok(())
    })
    .await?;
    tenant.await_empty(WORKER, within).await?;
    let after = written(fleet)?;
    Ok(Writes { hub: after.hub.since(&before.hub), worker: after.worker.since(&before.worker) })
}

fn written(fleet: &Fleet) -> anyhow::Result<Writes> {
    let of = |cluster: &str, account: &str| {
        let user = format!("system:serviceaccount:{NAMESPACE}:{account}");
        let requests = fleet.environment().cluster(cluster).requests_by(&user)?;
        anyhow::Ok(requests.writes().only(|request| request.resource != "leases"))
    };
    Ok(Writes { hub: of(HUB, "switchyard-hub")?, worker: of(WORKER, "switchyard-agent")? })
}
