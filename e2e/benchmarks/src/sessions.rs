//! Many agents on one hub: what their sessions cost, and how late the hub shows what they say.
//! `cargo xtask figures --sessions N` prints it; `cargo xtask bench scale` does it with many jobs, too.
//!
//! The hub is the program, on a real control plane. The agents enrol and speak the protocol, but have no cluster. So only the
//! hub is measured.

mod agent;
mod connection;
mod many;
mod shown;

use std::time::{Duration, Instant};

use anyhow::ensure;
use serde_json::{Value, json};
use switchyard_e2e::wait::{eventually, never};

use crate::quantiles::Quantiles;
pub(crate) use connection::Connection;
pub(crate) use many::Many;
pub(crate) use shown::Shown;

/// Jobs of each group of clusters; each runs on a cluster of its own. So many that each changes less often than the hub
/// shows changes of one job on the way.
const JOBS: i64 = 16;
/// Status changes in a second.
const RATE: u32 = 50;
/// How long each part is measured.
const IDLE: Duration = Duration::from_secs(30);
const LOAD: Duration = Duration::from_secs(60);
const SOON: Duration = Duration::from_secs(300);

/// Connects so many agents and prints what is measured.
///
/// # Errors
/// When something does not run.
pub async fn run(count: usize) -> anyhow::Result<()> {
    let build =
        if cfg!(debug_assertions) { "debug build: its times say little" } else { "release build" };
    println!("measured: {} ({build})", switchyard_e2e::paths::binary("switchyard-hub")?.display());
    let mut many = Many::start("sessions", &vec![1; count], false).await?;
    println!("hub without agents: {}", memory(&many)?);
    let took = many.connect().await?;
    println!("{count} agents enrolled and connected in {:.1} s", took.as_secs_f64());

    let mut shown = Shown::start(many.fleet.hub());
    let jobs = many.submit(|room| room.min(JOBS)).await?;
    run_all(&many, &mut shown, jobs, SOON).await?;
    let (cpu, start) = (many.cpu()?, Instant::now());
    tokio::time::sleep(IDLE).await;
    println!("idle: {} of a core, {}", share(&many, cpu, start)?, memory(&many)?);

    let (cpu, start) = (many.cpu()?, Instant::now());
    let lags = shown.change(&many.board, RATE, LOAD).await?;
    let used = share(&many, cpu, start)?;
    let lags = Quantiles::of(lags);
    let rate = lags.count as f64 / LOAD.as_secs_f64();
    println!(
        "{rate:.0} status changes a second for {LOAD:?}: {used} of a core, {}",
        memory(&many)?
    );
    let [p50, p99, max] = [lags.p50, lags.p99, lags.max].map(|seconds| seconds * 1000.0);
    println!(
        "  from an agent's word to the hub's Job: p50 {p50:.0} ms, p99 {p99:.0} ms, max {max:.0} ms"
    );
    many.connected().await
}

/// Waits until so many jobs run, and the hub shows them as running.
///
/// # Errors
/// How many do instead.
pub(crate) async fn run_all(
    many: &Many,
    shown: &mut Shown,
    jobs: usize,
    within: Duration,
) -> anyhow::Result<()> {
    let mut progress = switchyard_e2e::Progress::new("jobs shown as running", jobs);
    eventually(within, "the jobs to run", async || {
        shown.check().map_err(never)?;
        let (active, run) = (shown.active(), many.board.count());
        progress.at(active);
        ensure!(
            active == jobs && run == jobs,
            "{run} of {jobs} run, {active} are shown as running"
        );
        Ok(())
    })
    .await
}

fn share(many: &Many, before: Duration, since: Instant) -> anyhow::Result<String> {
    let used = many.cpu()?.saturating_sub(before).as_secs_f64();
    Ok(format!("{:.1} %", 100.0 * used / since.elapsed().as_secs_f64()))
}

fn memory(many: &Many) -> anyhow::Result<String> {
    let megabytes = |bytes: u64| bytes as f64 / 1e6;
    let (now, peak) = many.memory()?;
    Ok(format!("{:.0} MB (at most {:.0} MB)", megabytes(now), megabytes(peak)))
}

/// A running job's status on a worker, as its controller would write it there.
fn status(failed: i32) -> Value {
    json!({
        "active": 1, "ready": 1, "failed": failed, "terminating": 0, "uncountedTerminatedPods": {},
        "startTime": "2026-01-01T00:00:00Z",
    })
}
