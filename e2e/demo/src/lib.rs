//! The demo: a hub, two worker clusters, sample jobs, and where each goes and why it waits.

pub mod sample;
pub mod screen;

use std::collections::BTreeMap;
use std::io::Write;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use kube::Api;
use kube::api::ListParams;
use serde_json::json;
use switchyard::status::{JobRow, JobState, row};
use switchyard_api::v1beta2::Workload;
use switchyard_e2e::Cluster;
use switchyard_e2e::auditor::{self, AuditSummary};
use switchyard_e2e::fleet::Fleet;
use switchyard_flags::demo::Args;

use sample::{Expect, Sample, WORKERS};
use screen::Screen;

/// How long the jobs may take. They take about ten seconds.
const TIME: Duration = Duration::from_secs(120);
/// How often the table is updated.
const PERIOD: Duration = Duration::from_millis(200);

/// Runs the demo, and with `--stay` keeps everything up until Ctrl-C.
///
/// # Errors
/// A missing component, or jobs with the wrong end.
pub async fn run(args: Args) -> anyhow::Result<()> {
    let start = Instant::now();
    let nodes = if args.real_nodes { ", each with a real node" } else { "" };
    println!("Starting a hub and {} worker clusters on real control planes{nodes}.", WORKERS.len());
    let mut builder = Fleet::builder("demo");
    for worker in WORKERS {
        builder =
            builder.agent(if args.real_nodes { worker.real_cluster() } else { worker.cluster() });
    }
    let fleet = builder.start().await?;
    println!(
        "Control planes and hub are up after {:.1} s. Enrolling the agents.",
        start.elapsed().as_secs_f64()
    );
    if args.real_nodes {
        for worker in WORKERS {
            worker.equip(fleet.worker(worker.name)).await?;
        }
    }
    prepare(&fleet).await?;
    println!(
        "The fleet is up after {:.1} s. Submitting the sample jobs to the hub.\n",
        start.elapsed().as_secs_f64()
    );

    let mut samples = sample::jobs();
    if args.real_nodes {
        samples = samples.into_iter().map(Sample::in_containers).collect();
    }
    let begun = Instant::now();
    for sample in &samples {
        sample
            .job
            .clone()
            .create(&fleet.hub().admin)
            .await
            .with_context(|| format!("job {}", sample.name))?;
    }
    let clusters: Vec<&Cluster> = std::iter::once(fleet.hub())
        .chain(WORKERS.iter().map(|worker| fleet.worker(worker.name)))
        .collect();
    let (rows, looks) = auditor::beside(&clusters, follow(&fleet, &samples, begun)).await;
    summary(&samples, &rows?, begun.elapsed(), start.elapsed())?;
    audited(&looks)?;
    if args.stay {
        println!("\n{}", fleet.directions());
        println!("Ctrl-C ends it.");
        tokio::signal::ctrl_c().await?;
    }
    Ok(())
}

/// Queues on the hub and on the workers.
async fn prepare(fleet: &Fleet) -> anyhow::Result<()> {
    let namespace =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": sample::NAMESPACE}});
    for worker in WORKERS {
        let cluster = fleet.worker(worker.name);
        cluster.apply(vec![namespace.clone()]).await?;
        cluster.apply(worker.objects()).await?;
    }
    fleet.hub().apply(vec![namespace]).await?;
    fleet.hub().apply(sample::hub_objects()).await?;
    fleet.connect().await
}

/// Shows the jobs until each has ended or says that it cannot run.
async fn follow(fleet: &Fleet, samples: &[Sample], begun: Instant) -> anyhow::Result<Vec<JobRow>> {
    let workloads: Api<Workload> = Api::namespaced(fleet.hub().admin.clone(), sample::NAMESPACE);
    let mut screen = Screen::default();
    loop {
        let found = workloads.list(&ListParams::default()).await?;
        let mut rows: Vec<JobRow> = found.items.iter().map(row).collect();
        rows.sort_by(|a, b| (a.created, &a.job).cmp(&(b.created, &b.job)));
        screen.show(&mut std::io::stdout().lock(), &rows, begun.elapsed())?;
        let open: Vec<&str> = samples
            .iter()
            .filter(|sample| !settled(sample, &rows))
            .map(|sample| sample.name.as_str())
            .collect();
        if open.is_empty() {
            return Ok(rows);
        }
        ensure!(
            begun.elapsed() < TIME,
            "after {TIME:?} these jobs have not ended: {}",
            open.join(", ")
        );
        tokio::time::sleep(PERIOD).await;
    }
}

fn settled(sample: &Sample, rows: &[JobRow]) -> bool {
    let Some(row) = rows.iter().find(|row| row.job == sample.name) else { return false };
    match sample.expect {
        Expect::Succeeds | Expect::Fails => row.state.is_final(),
        Expect::FitsNowhere => {
            row.state == JobState::Pending && row.reason.contains("maximum capacity")
        }
    }
}

/// Whether queues were charged for what ran.
fn audited(looks: &AuditSummary) -> anyhow::Result<()> {
    ensure!(
        looks.found.is_empty(),
        "the auditor found:\n  {}",
        looks.found.iter().cloned().collect::<Vec<_>>().join("\n  ")
    );
    println!("  audited {} times meanwhile: queues were charged for what ran", looks.count);
    Ok(())
}

/// The cluster of each job, and whether its end was right.
fn summary(
    samples: &[Sample],
    rows: &[JobRow],
    jobs: Duration,
    all: Duration,
) -> anyhow::Result<()> {
    let mut clusters: BTreeMap<&str, u32> = BTreeMap::new();
    let mut wrong = Vec::new();
    for sample in samples {
        let Some(row) = rows.iter().find(|row| row.job == sample.name) else { continue };
        if let Some(cluster) = &row.cluster {
            *clusters.entry(cluster).or_default() += 1;
        }
        let right = match sample.expect {
            Expect::Succeeds => row.state == JobState::Succeeded,
            Expect::Fails => row.state == JobState::Failed,
            Expect::FitsNowhere => row.state == JobState::Pending,
        };
        if !right {
            wrong.push(format!("{} is {}: {}", row.job, row.state, row.reason));
        }
    }
    let count = |expect| samples.iter().filter(|sample| sample.expect == expect).count();
    let mut out = std::io::stdout().lock();
    writeln!(
        out,
        "\n{} jobs in {:.1} s, the demo in {:.1} s.",
        samples.len(),
        jobs.as_secs_f64(),
        all.as_secs_f64()
    )?;
    for (cluster, jobs) in &clusters {
        writeln!(out, "  {cluster}: {jobs} job{}", if *jobs == 1 { "" } else { "s" })?;
    }
    writeln!(
        out,
        "  {} completed, {} failed as it should, {} waits since it fits nowhere",
        count(Expect::Succeeds),
        count(Expect::Fails),
        count(Expect::FitsNowhere)
    )?;
    if let Some(row) = rows.iter().find(|row| row.state == JobState::Pending) {
        writeln!(out, "    {}: {}", row.job, row.reason)?;
    }
    if wrong.is_empty() { Ok(()) } else { bail!("not as it should be: {}", wrong.join("; ")) }
}
