//! A hub with few, more and many clusters, and as many jobs each time: what grows with the clusters.
//!
//! The hub is the program, on a real control plane. Its clusters are agents with a scripted local side, all of them in this
//! process, whose CPU is not the hub's.

mod report;

use std::time::{Duration, Instant};

use serde_json::json;
use switchyard_flags::bench::scale::Args;

use self::report::Report;
use super::document::Document;
use super::failures::Failures;
use crate::quantiles::Quantiles;
use crate::sessions::{Many, Shown, run_all};

/// CPU time and wall time of a stretch, in seconds.
#[derive(Debug, Clone, Copy, Default)]
struct Stretch {
    cpu: f64,
    wall: f64,
}

/// How the hub did with so many clusters. Memory in bytes.
#[derive(Debug, Clone, Default)]
struct Outcome {
    clusters: usize,
    jobs: usize,
    running: usize,
    /// Until the last agent was enrolled and connected.
    connect: f64,
    /// Nothing runs and nothing waits.
    idle: Stretch,
    idle_memory: u64,
    /// All jobs are created; the queues are held.
    create: Stretch,
    /// From the queues' release until those that fit run and the hub shows it.
    dispatch: Stretch,
    /// Jobs run and wait, and nothing changes.
    quiet: Stretch,
    quiet_memory: u64,
    /// Jobs' statuses change.
    change: Stretch,
    lag: Quantiles,
    peak_memory: u64,
    /// More than none: the machine was too busy for the figures to say much.
    leadership_lost: usize,
}

/// Runs everything and prints a table.
///
/// # Errors
/// When something did not run; what did was measured and written all the same.
pub async fn run(args: &Args) -> anyhow::Result<()> {
    let settings = json!({
        "running": args.running, "queued": args.queued, "changesPerSecond": args.rate, "seconds": args.seconds,
    });
    let mut document = Document::new("scale", &settings)?;
    let mut failures = Failures::default();
    let mut outcomes = Vec::new();
    for clusters in &args.clusters {
        let title = format!("scale, {clusters} clusters");
        let limit = Duration::from_secs(args.limit);
        if let Some(outcome) = failures.measure(&title, limit, one(&title, *clusters, args)).await {
            document.add(report::json(&outcome), args.json.as_deref())?;
            outcomes.push(outcome);
        }
    }
    println!("\n{}", Report { args, outcomes: &outcomes });
    failures.end()
}

async fn one(title: &str, clusters: usize, args: &Args) -> anyhow::Result<Outcome> {
    eprintln!("==> {title}: hub");
    let mut many = Many::start("bench-scale", &rooms(args.running, clusters), true).await?;
    let mut outcome = Outcome { clusters, running: args.running, ..Outcome::default() };
    outcome.connect = many.connect().await?.as_secs_f64();
    eprintln!(
        "==> {title}: connected after {:.1} s; {} s of nothing",
        outcome.connect, args.seconds
    );
    outcome.idle = sleep(&many, args.seconds).await?;
    outcome.idle_memory = many.memory()?.0;

    eprintln!("==> {title}: {} jobs", args.running + args.queued);
    let mut shown = Shown::start(many.fleet.hub());
    let meter = Meter::start(&many)?;
    // Each group has its share of those that run and of those that wait.
    let all = args.running + args.queued;
    outcome.jobs = many.submit(|room| share(room, all, args.running)).await?;
    outcome.create = meter.stop(&many)?;

    eprintln!("==> {title}: queues are released");
    let meter = Meter::start(&many)?;
    many.release().await?;
    run_all(&many, &mut shown, args.running, Duration::from_secs(args.limit)).await?;
    outcome.dispatch = meter.stop(&many)?;

    eprintln!("==> {title}: {} jobs run, {} s of nothing", args.running, args.seconds);
    outcome.quiet = sleep(&many, args.seconds).await?;
    outcome.quiet_memory = many.memory()?.0;

    eprintln!("==> {title}: {} changes a second for {} s", args.rate, args.seconds);
    let meter = Meter::start(&many)?;
    outcome.lag = Quantiles::of(
        shown.change(&many.board, args.rate, Duration::from_secs(args.seconds)).await?,
    );
    outcome.change = meter.stop(&many)?;
    outcome.peak_memory = many.memory()?.1;
    outcome.leadership_lost = many.leadership_lost()?;
    many.connected().await?;
    Ok(outcome)
}

/// How many of all jobs run on each cluster.
fn rooms(running: usize, clusters: usize) -> Vec<i64> {
    let until = |cluster: usize| running * cluster / clusters;
    (0..clusters)
        .map(|cluster| i64::try_from(until(cluster + 1) - until(cluster)).unwrap_or(i64::MAX))
        .collect()
}

/// How many jobs a group gets, of whose so many fit; never fewer than fit.
fn share(room: i64, all: usize, running: usize) -> i64 {
    let share = |value: usize| i128::try_from(value).unwrap_or(i128::MAX);
    let jobs = i128::from(room) * share(all) / share(running.max(1));
    i64::try_from(jobs).unwrap_or(i64::MAX)
}

/// Measures the hub over a stretch.
struct Meter {
    cpu: Duration,
    start: Instant,
}

impl Meter {
    fn start(many: &Many) -> anyhow::Result<Self> {
        Ok(Self { cpu: many.cpu()?, start: Instant::now() })
    }

    fn stop(&self, many: &Many) -> anyhow::Result<Stretch> {
        let wall = self.start.elapsed().as_secs_f64();
        Ok(Stretch { cpu: many.cpu()?.saturating_sub(self.cpu).as_secs_f64(), wall })
    }
}

async fn sleep(many: &Many, seconds: u64) -> anyhow::Result<Stretch> {
    let meter = Meter::start(many)?;
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    meter.stop(many)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_jobs_run_and_wait_however_many_clusters_there_are() {
        for clusters in [1, 3, 30, 300] {
            let rooms = rooms(5000, clusters);
            assert_eq!(rooms.iter().sum::<i64>(), 5000);
            let jobs: i64 =
                rooms.chunks(20).map(|group| share(group.iter().sum(), 15_000, 5000)).sum();
            assert_eq!(jobs, 15_000);
        }
    }
}
