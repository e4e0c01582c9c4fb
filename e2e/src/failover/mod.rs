//! `cargo xtask failover`: the same faults on real control planes, for ours and for stock MultiKueue, one after the other.
//!
//! Each system is a hub and two workers, `west` and `east`. For each fault, jobs that run until they are
//! deleted are put on west, west (or the hub's controller) is struck, and what becomes of the jobs is watched on both
//! workers; then the fault ends, and it is watched until all is as it should be.

mod fault;
mod observer;
mod play;
mod queues;
mod report;
mod row;
mod site;
mod track;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;

pub use fault::Fault;
use play::Limits;
use report::Report;
use row::Row;
use site::Site;
pub use site::System;

/// What to play.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Which systems, in this order.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [System::Agents, System::Kubeconfig, System::Stock])]
    pub systems: Vec<System>,
    /// Which faults, in this order.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Fault::ALL)]
    pub faults: Vec<Fault>,
    /// Jobs of each policy.
    #[arg(long, default_value_t = 4)]
    pub jobs: usize,
    /// Seconds that a fault lasts at most; it ends sooner once all jobs that may go elsewhere run there.
    #[arg(long, default_value_t = 100)]
    pub outage: u64,
    /// Seconds after the end of a fault after which a row is cut, and reported as cut.
    #[arg(long, default_value_t = 180)]
    pub limit: u64,
    /// Where to write the table as JSON.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// A Markdown file whose section between the marks of this command is to hold the table.
    #[arg(long, value_name = "FILE")]
    pub write: Option<PathBuf>,
}

/// Plays everything, and prints a table.
///
/// # Errors
/// When a system does not come up, or a file cannot be written. A fault that cannot be played is reported as such.
pub async fn run(args: &Args) -> anyhow::Result<()> {
    let limits = Limits { outage: Duration::from_secs(args.outage), heal: Duration::from_secs(args.limit) };
    let mut report = Report::begin()?;
    for system in &args.systems {
        report.rows.extend(all(*system, args, limits).await?);
    }
    let text = report.to_string();
    println!("\n{text}");
    if let Some(path) = &args.json {
        let json = serde_json::to_string_pretty(&report.json())?;
        std::fs::write(path, json).with_context(|| format!("cannot write {}", path.display()))?;
    }
    if let Some(path) = &args.write {
        report::write(path, &text)?;
    }
    Ok(())
}

/// Plays all faults on one system. One that did not heal is followed by a fresh system.
async fn all(system: System, args: &Args, limits: Limits) -> anyhow::Result<Vec<Row>> {
    let (mut rows, mut standing) = (Vec::new(), None);
    for (turn, fault) in args.faults.iter().enumerate() {
        if !system.knows(*fault) {
            continue;
        }
        let mut site = match standing.take() {
            Some(site) => site,
            None => {
                eprintln!("==> {}: control planes", system.name());
                Site::start(system, args.jobs).await.with_context(|| system.name())?
            }
        };
        eprintln!("==> {}: {}", system.name(), fault.name());
        match play::play(&mut site, *fault, turn, limits).await {
            Ok(played) => {
                if played.iter().all(|row| !row.cut) {
                    standing = Some(site);
                }
                rows.extend(played);
            }
            Err(error) => {
                eprintln!("    not played to its end: {error:#}");
                rows.extend(site.groups().iter().map(|group| Row::failed(system, group.policy, *fault, args.jobs)));
            }
        }
    }
    Ok(rows)
}
