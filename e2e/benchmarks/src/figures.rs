//! The cost of a fleet: latency of one job, API writes per job, memory. `cargo xtask figures` prints it.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{DeleteParams, ListParams};

use crate::fleet::{Fleet, HUB, NAMESPACE, Tenant};
use crate::progress::Progress;
use crate::quantiles::Quantiles;
use crate::wait::eventually;
use crate::{ClusterSpec, NodeSpec, Requests, job, queues};

/// The only worker.
const WORKER: &str = "worker";
/// How long one job may take.
const SOON: Duration = Duration::from_secs(60);
/// Looks for a pod are this far apart: below what is measured.
const LOOK: Duration = Duration::from_millis(2);

/// Requests of Switchyard's programs to the API servers, without leases.
#[derive(Clone, Debug)]
pub struct Writes {
    /// Writes of the hub, on the hub's cluster.
    pub hub: Requests,
    /// Writes of the agent, on the worker's cluster.
    pub worker: Requests,
}

/// A hub and one worker, their API servers keeping an audit log.
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

/// A tenant with room for everything that is measured.
///
/// # Errors
/// When an API server refuses something.
pub async fn tenant<'a>(fleet: &'a Fleet, stem: &str) -> anyhow::Result<Tenant<'a>> {
    let quota = [("cpu", "2000")];
    let tenant = fleet.tenant(stem).hub(&quota).worker(WORKER, &quota).make().await?;
    // The first job finds out that the queues are there; it is not measured.
    tenant.submit(tenant.job("first")).await?;
    job::complete(&fleet.hub().admin, tenant.name(), "first", SOON).await?;
    tenant.await_empty(WORKER, SOON).await?;
    Ok(tenant)
}

/// From the creation of a job on the hub to its pod on the worker, for `count` jobs, one at a time, in their order.
///
/// # Errors
/// When a job does not run.
pub async fn latencies(
    fleet: &Fleet,
    tenant: &Tenant<'_>,
    count: usize,
) -> anyhow::Result<Vec<Duration>> {
    let pods: Api<Pod> = Api::namespaced(fleet.worker(WORKER).admin.clone(), tenant.name());
    let mut times = Vec::with_capacity(count);
    let mut progress = Progress::new("jobs, one at a time", count);
    for i in 0..count {
        progress.at(i);
        let name = format!("latency-{i}");
        let of_job = ListParams::default().labels(&format!("batch.kubernetes.io/job-name={name}"));
        let start = Instant::now();
        tenant.submit(tenant.job(&name).cpu("1").run_for(Duration::from_millis(10))).await?;
        while pods.list_metadata(&of_job).await?.items.is_empty() {
            ensure!(start.elapsed() < SOON, "{name} has no pod after {SOON:?}");
            tokio::time::sleep(LOOK).await;
        }
        times.push(start.elapsed());
        job::complete(&fleet.hub().admin, tenant.name(), &name, SOON).await?;
    }
    Ok(times)
}

/// Runs `count` jobs at once until nothing is left of them on the worker, and says what was written for them.
///
/// # Errors
/// When a job does not complete.
pub async fn writes(fleet: &Fleet, tenant: &Tenant<'_>, count: usize) -> anyhow::Result<Writes> {
    let before = written(fleet)?;
    let mut progress = Progress::new("jobs created", count);
    for i in 0..count {
        progress.at(i);
        tenant
            .submit(tenant.job(&format!("counted-{i}")).cpu("1").run_for(Duration::from_secs(1)))
            .await?;
    }
    let within = SOON + Duration::from_millis(200) * u32::try_from(count).unwrap_or(u32::MAX);
    let mut progress = Progress::new("jobs complete", count);
    eventually(within, "all jobs to complete", async || {
        let jobs = tenant.hub_jobs().list(&ListParams::default()).await?.items;
        let done = jobs.iter().filter(|found| job::has_condition(found, "Complete")).count();
        progress.at(done);
        ensure!(done == jobs.len() && done >= count, "{done} of {}", jobs.len());
        Ok(())
    })
    .await?;
    tenant.await_empty(WORKER, within).await?;
    let after = written(fleet)?;
    Ok(Writes { hub: after.hub.since(&before.hub), worker: after.worker.since(&before.worker) })
}

/// Deletes the tenant's jobs, and waits until letting go of them costs no more writes.
async fn clear(tenant: &Tenant<'_>) -> anyhow::Result<()> {
    tenant
        .hub_jobs()
        .delete_collection(&DeleteParams::background(), &ListParams::default())
        .await?;
    eventually(SOON, "the Workloads to go", async || {
        let left = tenant.hub_workloads().list_metadata(&ListParams::default()).await?.items.len();
        ensure!(left == 0, "{left} left");
        Ok(())
    })
    .await?;
    tenant.await_empty(WORKER, SOON).await
}

fn written(fleet: &Fleet) -> anyhow::Result<Writes> {
    let of = |cluster: &str, account: &str| {
        let user = format!("system:serviceaccount:{NAMESPACE}:{account}");
        let requests = fleet.environment().cluster(cluster).requests_by(&user)?;
        anyhow::Ok(requests.writes().only(|request| request.resource != "leases"))
    };
    Ok(Writes { hub: of(HUB, "switchyard-hub")?, worker: of(WORKER, "switchyard-agent")? })
}

/// Requests that are not events.
#[must_use]
pub fn without_events(requests: &Requests) -> Requests {
    requests.only(|request| request.resource != "events")
}

/// Measures everything and prints it.
///
/// # Errors
/// When something does not run.
pub async fn run(jobs: usize, burst: usize) -> anyhow::Result<()> {
    let hub = crate::paths::binary("switchyard-hub")?;
    let build =
        if cfg!(debug_assertions) { "debug build: its times say little" } else { "release build" };
    println!("measured: {} and the programs beside it ({build})", hub.display());
    let fleet = fleet("figures").await?;
    let tenant = tenant(&fleet, "figures").await?;
    println!("memory, idle: {}", memory(&fleet)?);
    let times = latencies(&fleet, &tenant, jobs).await?;
    let times = Quantiles::of(times);
    let [p50, p90, p99, max] =
        [times.p50, times.p90, times.p99, times.max].map(|seconds| seconds * 1000.0);
    println!("job on the hub to pod on the worker, {jobs} jobs, one at a time:");
    println!("  p50 {p50:.0} ms, p90 {p90:.0} ms, p99 {p99:.0} ms, max {max:.0} ms");
    clear(&tenant).await?;
    let start = Instant::now();
    let writes = writes(&fleet, &tenant, burst).await?;
    println!("{burst} jobs at once until collected: {:.1} s", start.elapsed().as_secs_f64());
    print_writes("hub", &writes.hub, burst);
    print_writes("worker", &writes.worker, burst);
    println!("memory, after {burst} jobs: {}", memory(&fleet)?);
    Ok(())
}

fn print_writes(cluster: &str, requests: &Requests, jobs: usize) {
    let per = |count: u64| count as f64 / jobs as f64;
    let events = requests.total() - without_events(requests).total();
    println!(
        "writes per job on the {cluster}: {:.2}, and {:.2} events",
        per(without_events(requests).total()),
        per(events)
    );
    for (request, count) in &requests.0 {
        let resource = if request.subresource.is_empty() {
            request.resource.clone()
        } else {
            format!("{}/{}", request.resource, request.subresource)
        };
        println!("  {:<7} {:<28} {} {:>7.2}", request.verb, resource, request.code, per(*count));
    }
}

fn memory(fleet: &Fleet) -> anyhow::Result<String> {
    let rss = |name: &str| -> anyhow::Result<f64> {
        Ok(fleet.with(name, crate::Process::rss)?? as f64 / 1e6)
    };
    Ok(format!(
        "hub {:.0} MB, agent {:.0} MB",
        rss(HUB).context("hub")?,
        rss(WORKER).context("agent")?
    ))
}
