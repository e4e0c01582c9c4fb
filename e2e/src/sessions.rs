//! Many agents on one hub: what their sessions cost, and how late the hub shows what they say.
//! `cargo xtask figures --sessions N` prints it.
//!
//! The hub is the program, on a real control plane. The agents enrol and dial as agents do and say what agents say; behind
//! them is no cluster, so that all that is measured is the hub.

mod agent;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use futures::TryStreamExt as _;
use k8s_openapi::api::batch::v1::Job;
use kube::Api;
use kube::api::ListParams;
use kube::runtime::{WatchStreamExt as _, watcher};
use serde_json::{Value, json};
use switchyard_api::conditions;
use switchyard_api::v1beta2::{LocalQueue, MultiKueueCluster};
use tokio::task::JoinSet;

use crate::fleet::{Fleet, HUB};
use crate::progress::Progress;
use crate::wait::eventually;
use crate::{JobBuilder, Process, queues};
use agent::{Agent, Board, QUEUE};

/// Clusters that one MultiKueueConfig may list.
const GROUP: usize = 20;
/// Jobs of each group; each runs on a cluster of its own. So many that each changes less often than the hub shows changes
/// of one job on the way.
const JOBS: usize = 16;
/// Status changes in a second.
const RATE: u64 = 50;
/// How long each part is measured.
const IDLE: Duration = Duration::from_secs(30);
const LOAD: Duration = Duration::from_secs(60);
const SOON: Duration = Duration::from_secs(300);

/// When each change was said, by job and number; and what became of it.
#[derive(Default)]
struct Sent {
    said: BTreeMap<(String, i32), Instant>,
    lags: Vec<f64>,
}

/// Connects so many agents and prints what is measured.
///
/// # Errors
/// When something does not run.
pub async fn run(count: usize) -> anyhow::Result<()> {
    let build = if cfg!(debug_assertions) { "debug build: its times say little" } else { "release build" };
    println!("measured: {} ({build})", crate::paths::binary("switchyard-hub")?.display());
    let fleet = Fleet::builder("sessions").start().await?;
    let names: Vec<String> = (0..count).map(|number| format!("c{number:04}")).collect();
    for chunk in names.chunks(50) {
        fleet.hub().apply(chunk.iter().map(|name| queues::agent_cluster(name))).await?;
    }
    let mut groups = Vec::new();
    for (number, clusters) in names.chunks(GROUP).enumerate() {
        groups.push(group(&fleet, number, clusters).await?);
    }
    println!("hub without agents: {}", memory(&fleet)?);

    let board = Board::default();
    let mut agents = Vec::with_capacity(count);
    let (mut progress, start) = (Progress::new("agents", count), Instant::now());
    for (number, name) in names.iter().enumerate() {
        progress.at(number);
        let token = fleet.join_token(name).await?;
        let namespace = groups.get(number / GROUP).context("a group")?;
        agents.push(Agent::start(&token, namespace, board.clone()).await?);
    }
    connected(&fleet, count).await?;
    println!("{count} agents enrolled and connected in {:.1} s", start.elapsed().as_secs_f64());

    jobs(&fleet, &groups, &board).await?;
    let (cpu, start) = (cpu(&fleet)?, Instant::now());
    tokio::time::sleep(IDLE).await;
    println!("idle: {} of a core, {}", share(&fleet, cpu, start)?, memory(&fleet)?);
    load(&fleet, &board).await?;
    connected(&fleet, count).await?;
    drop(agents);
    Ok(())
}

/// Changes one job's status after another, and watches when the hub shows it.
async fn load(fleet: &Fleet, board: &Board) -> anyhow::Result<()> {
    let sent = Arc::new(Mutex::new(Sent::default()));
    let mut watching = JoinSet::new();
    watching.spawn(watch(Api::all(fleet.hub().admin.clone()), sent.clone()));
    let jobs = board.jobs();
    let (before, start) = (cpu(fleet)?, Instant::now());
    let mut ticks = tokio::time::interval(Duration::from_millis(1000 / RATE));
    let mut said = 0;
    while start.elapsed() < LOAD {
        ticks.tick().await;
        let job = jobs.get(said % jobs.len()).context("no job runs")?;
        let number = i32::try_from(said / jobs.len() + 1)?;
        lock(&sent).said.insert((job.clone(), number), Instant::now());
        board.say(job, number).await?;
        said += 1;
    }
    let used = share(fleet, before, start)?;
    eventually(SOON, "all changes to be shown", async || {
        let left = lock(&sent).said.len();
        ensure!(left == 0, "{left} are not");
        Ok(())
    })
    .await?;
    let mut lags = std::mem::take(&mut lock(&sent).lags);
    lags.sort_by(f64::total_cmp);
    let at = |part: f64| lags[((lags.len() - 1) as f64 * part).round() as usize] * 1000.0;
    let rate = said as f64 / LOAD.as_secs_f64();
    println!("{rate:.0} status changes a second for {LOAD:?}: {used} of a core, {}", memory(fleet)?);
    println!(
        "  from an agent's word to the hub's Job: p50 {:.0} ms, p99 {:.0} ms, max {:.0} ms",
        at(0.5),
        at(0.99),
        at(1.0)
    );
    Ok(())
}

async fn watch(jobs: Api<Job>, sent: Arc<Mutex<Sent>>) -> anyhow::Result<()> {
    let mut changes = std::pin::pin!(watcher(jobs, watcher::Config::default()).applied_objects());
    while let Some(job) = changes.try_next().await? {
        let (Some(name), Some(number)) = (job.metadata.name, job.status.and_then(|status| status.failed)) else {
            continue;
        };
        let now = Instant::now();
        let mut sent = lock(&sent);
        // A later one shows the earlier ones as well.
        let shown: Vec<(String, i32)> =
            sent.said.range((name.clone(), 0)..=(name.clone(), number)).map(|(key, _)| key.clone()).collect();
        for key in shown {
            if let Some(at) = sent.said.remove(&key) {
                sent.lags.push(now.duration_since(at).as_secs_f64());
            }
        }
    }
    Ok(())
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The queues of some clusters, and their namespace.
async fn group(fleet: &Fleet, number: usize, clusters: &[String]) -> anyhow::Result<String> {
    let name = format!("group-{number:03}");
    let clusters: Vec<&str> = clusters.iter().map(String::as_str).collect();
    let mut objects = vec![json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})];
    objects.extend(queues::multikueue(&name, &clusters));
    objects.push(queues::ResourceFlavor::new(&name).build());
    let quota = [("cpu", "1000")];
    objects.push(queues::ClusterQueue::new(&name).group(&name, &quota).admission_check(&name).build());
    objects.push(queues::local_queue(&name, QUEUE, &name));
    fleet.hub().apply(objects).await?;
    Ok(name)
}

/// Creates the jobs, and waits until each runs on a cluster as far as the hub knows.
async fn jobs(fleet: &Fleet, groups: &[String], board: &Board) -> anyhow::Result<()> {
    for group in groups {
        let queues: Api<LocalQueue> = Api::namespaced(fleet.hub().admin.clone(), group);
        eventually(SOON, format!("the LocalQueue of {group}"), async || {
            let status = queues.get(QUEUE).await?.status.unwrap_or_default();
            ensure!(conditions::is_true(&status.conditions, conditions::ACTIVE), "{:?}", status.conditions);
            Ok(())
        })
        .await?;
        for number in 0..JOBS {
            JobBuilder::new(group, &format!("{group}-{number}"))
                .queue(QUEUE)
                .cpu("1")
                .create(&fleet.hub().admin)
                .await?;
        }
    }
    let all = groups.len() * JOBS;
    eventually(SOON, "the jobs to run", async || {
        let shown: Api<Job> = Api::all(fleet.hub().admin.clone());
        let shown = shown.list(&ListParams::default()).await?.items;
        let active = shown.iter().filter(|job| job.status.as_ref().is_some_and(|it| it.active == Some(1))).count();
        ensure!(active == all && board.jobs().len() == all, "{active} of {all} are shown as active");
        Ok(())
    })
    .await
}

async fn connected(fleet: &Fleet, count: usize) -> anyhow::Result<()> {
    let clusters: Api<MultiKueueCluster> = Api::all(fleet.hub().admin.clone());
    eventually(SOON, format!("{count} clusters to be connected"), async || {
        let all = clusters.list(&ListParams::default()).await?.items;
        let active = |it: &&MultiKueueCluster| {
            it.status.as_ref().is_some_and(|status| conditions::is_true(&status.conditions, conditions::ACTIVE))
        };
        let connected = all.iter().filter(active).count();
        ensure!(connected == count, "{connected} are");
        Ok(())
    })
    .await
}

fn cpu(fleet: &Fleet) -> anyhow::Result<Duration> {
    fleet.with(HUB, Process::cpu_time)?
}

fn share(fleet: &Fleet, before: Duration, since: Instant) -> anyhow::Result<String> {
    let used = cpu(fleet)?.saturating_sub(before).as_secs_f64();
    Ok(format!("{:.1} %", 100.0 * used / since.elapsed().as_secs_f64()))
}

fn memory(fleet: &Fleet) -> anyhow::Result<String> {
    let megabytes = |bytes: u64| bytes as f64 / 1e6;
    let (now, peak) = (fleet.with(HUB, Process::rss)??, fleet.with(HUB, Process::peak_rss)??);
    Ok(format!("{:.0} MB (at most {:.0} MB)", megabytes(now), megabytes(peak)))
}

/// A running job's status on a worker, as its controller would write it there.
fn status(failed: i32) -> Value {
    json!({
        "active": 1, "ready": 1, "failed": failed, "terminating": 0, "uncountedTerminatedPods": {},
        "startTime": "2026-01-01T00:00:00Z",
    })
}
