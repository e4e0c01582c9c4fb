//! Kueue's own scheduler performance test, unchanged: its generator makes ClusterQueues and Workloads, its runner plays the
//! jobs, and what is measured admits them.

mod contestant;
mod report;
mod summary;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use kube::Api;
use kube::api::ListParams;
use serde_json::json;
use switchyard_api::v1beta2::ClusterQueue;
use switchyard_e2e::{Part, Parts, Process, Program};
use switchyard_flags::bench::runner::{Args, Kind};

use self::contestant::Contestant;
use self::report::Report;
use self::summary::Summary;
use super::document::Document;
use super::failures::Failures;
use super::measure::{Gauge, Measured, Usage};

/// How often the state of the runner is read.
const LOOK: Duration = Duration::from_millis(50);
/// How often progress is printed.
const TELL: Duration = Duration::from_secs(10);
/// How long the runner may take to write what it has, and to clean up.
const END: Duration = Duration::from_secs(120);

/// How one system did.
struct Outcome {
    kind: Kind,
    /// From the runner's start until it knew that all was done, or was cut.
    took: Duration,
    cut: bool,
    usage: Usage,
    summary: Summary,
}

/// Runs everything and prints a table for each generator.
///
/// # Errors
/// When a system did not come up or the runner failed; the others were measured and written all the same.
pub async fn run(args: &Args) -> anyhow::Result<()> {
    let mut document = Document::new("runner", &json!({"limitSeconds": args.limit}))?;
    let mut failures = Failures::default();
    let (runner, source) = tokio::task::spawn_blocking(|| -> anyhow::Result<_> {
        let parts = Parts::new()?;
        Ok((parts.binary(Part::KueueRunner)?, parts.own_source_dir(Part::KueueRunner)?))
    })
    .await??;
    let limit = Duration::from_secs(args.limit);
    let own = args.generator_config.as_ref().map(|path| ("of one's own", path.clone()));
    let shipped = args.generator.iter().map(|generator| {
        let name = generator.name();
        (name, source.join("test/performance/scheduler/configs").join(name).join("generator.yaml"))
    });
    let all: Vec<_> = if let Some(own) = own { vec![own] } else { shipped.collect() };
    for (name, config) in all {
        let mut outcomes = Vec::new();
        for kind in &args.systems {
            let title = format!("runner, {name}, {}", kind.name());
            outcomes.extend(
                failures
                    .measure(&title, limit, one(&title, *kind, (&runner, &config), limit))
                    .await,
            );
        }
        let report = Report::new(name, &outcomes);
        println!("\n{report}");
        document.add(report.json(), args.json.as_deref())?;
    }
    failures.end()
}

async fn one(
    title: &str,
    kind: Kind,
    (runner, config): (&Path, &Path),
    limit: Duration,
) -> anyhow::Result<Outcome> {
    eprintln!("==> {title}: control plane");
    let contestant = Contestant::start(kind).await?;
    let cluster = contestant.cluster();
    let dir = cluster.state_dir().join("runner");
    std::fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
    let gauge = Gauge::start(&contestant).await?;
    eprintln!("==> {title}: generator and runner");
    let start = Instant::now();
    let process = Program::new("kueue-runner", runner, cluster.dir().join("kueue-runner.log"))
        .env("KUBECONFIG", cluster.kubeconfig())
        // A library of Kueue's tests wants to know the folder above this one, and uses it for nothing here.
        .env("PROJECT_DIR", &dir)
        .arg("-o")
        .arg(&dir)
        .arg("-generatorConfig")
        .arg(config)
        // Its own limit ends it without output; this one makes it print its results.
        .args(["-qps", "1000", "-burst", "2000", "-timeout", "24h"])
        .start()?;
    let file = dir.join("summary.yaml");
    let queues: Api<ClusterQueue> = Api::all(cluster.admin.clone());
    let mut told = Duration::ZERO;
    let (took, cut) = loop {
        let took = start.elapsed();
        if file.exists() {
            break (took, false);
        }
        process.check()?;
        contestant.controllers(Process::check)?;
        if took >= limit {
            break (took, true);
        }
        if took >= told + TELL {
            told = took;
            eprintln!("    {:>4} s: {}", took.as_secs(), progress(&queues).await?);
        }
        tokio::time::sleep(LOOK).await;
    };
    let usage = gauge.stop(&contestant).await?;
    eprintln!("    {} after {:.1} s", if cut { "cut" } else { "done" }, took.as_secs_f64());
    end(&process, cut).await?;
    let read = |file: PathBuf| {
        std::fs::read_to_string(&file)
            .with_context(|| format!("the runner wrote no {}", file.display()))
    };
    let summary = Summary::parse(&read(file)?, &read(dir.join("wlStates.csv"))?)?;
    Ok(Outcome { kind, took, cut, usage, summary })
}

async fn progress(queues: &Api<ClusterQueue>) -> anyhow::Result<String> {
    let queues = queues.list(&ListParams::default()).await?.items;
    let statuses = || queues.iter().filter_map(|queue| queue.status.as_ref());
    let pending: i64 = statuses().map(|status| i64::from(status.pending_workloads)).sum();
    let admitted: i64 = statuses().map(|status| i64::from(status.admitted_workloads)).sum();
    Ok(format!("{} ClusterQueues, {pending} pending, {admitted} admitted", queues.len()))
}

/// Lets the runner write the rest, asking it to when it is cut.
async fn end(process: &Process, cut: bool) -> anyhow::Result<()> {
    if cut {
        process.terminate(END).await;
        return Ok(());
    }
    let start = Instant::now();
    while process.is_running() && start.elapsed() < END {
        tokio::time::sleep(LOOK).await;
    }
    let code = process.exit_code();
    ensure!(
        code.is_none_or(|code| code == 0),
        "the runner ended with exit code {code:?}:\n{}",
        process.log_tail(20)
    );
    Ok(())
}
