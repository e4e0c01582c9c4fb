//! The cost of a fleet: latency of one job, API writes per job, memory. `cargo xtask figures` prints it.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{DeleteParams, ListParams};
use switchyard_e2e::Progress;
use switchyard_e2e::fleet::{Fleet, HUB, Tenant};
use switchyard_e2e::wait::eventually;
use switchyard_e2e::write_counts::{self, WORKER};
use switchyard_e2e::{Requests, job};

use crate::quantiles::Quantiles;

/// How long one job may take.
const SOON: Duration = Duration::from_secs(60);
/// Looks for a pod are this far apart: below what is measured.
const LOOK: Duration = Duration::from_millis(2);

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
        let of_job = job::pods_of(&name);
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

/// Measures everything and prints it.
///
/// # Errors
/// When something does not run.
pub async fn run(jobs: usize, burst: usize) -> anyhow::Result<()> {
    let hub = switchyard_e2e::paths::binary("switchyard-hub")?;
    let build =
        if cfg!(debug_assertions) { "debug build: its times say little" } else { "release build" };
    println!("measured: {} and the programs beside it ({build})", hub.display());
    let fleet = write_counts::fleet("figures").await?;
    let tenant = write_counts::tenant(&fleet, "figures").await?;
    println!("memory, idle: {}", memory(&fleet)?);
    let times = latencies(&fleet, &tenant, jobs).await?;
    let times = Quantiles::of(times);
    let [p50, p90, p99, max] =
        [times.p50, times.p90, times.p99, times.max].map(|seconds| seconds * 1000.0);
    println!("job on the hub to pod on the worker, {jobs} jobs, one at a time:");
    println!("  p50 {p50:.0} ms, p90 {p90:.0} ms, p99 {p99:.0} ms, max {max:.0} ms");
    clear(&tenant).await?;
    let start = Instant::now();
    let writes = write_counts::count(&fleet, &tenant, burst).await?;
    println!("{burst} jobs at once until collected: {:.1} s", start.elapsed().as_secs_f64());
    print_writes("hub", &writes.hub, burst);
    print_writes("worker", &writes.worker, burst);
    println!("memory, after {burst} jobs: {}", memory(&fleet)?);
    Ok(())
}

fn print_writes(cluster: &str, requests: &Requests, jobs: usize) {
    let per = |count: u64| count as f64 / jobs as f64;
    let events = requests.total() - requests.without_events().total();
    println!(
        "writes per job on the {cluster}: {:.2}, and {:.2} events",
        per(requests.without_events().total()),
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
        Ok(fleet.with(name, switchyard_e2e::Process::rss)?? as f64 / 1e6)
    };
    Ok(format!(
        "hub {:.0} MB, agent {:.0} MB",
        rss(HUB).context("hub")?,
        rss(WORKER).context("agent")?
    ))
}
