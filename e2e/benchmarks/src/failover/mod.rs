//! `cargo xtask failover`: the same faults on real control planes, for Switchyard and for stock MultiKueue, one after the other.
//!
//! Each system is a hub and two workers, `west` and `east`. For each fault, jobs that run until they are
//! deleted are put on west. Then west (or the hub's controller) is struck, and the jobs are watched on both workers. The fault
//! ends, and the watch goes on until all is right.

mod observer;
mod play;
mod queues;
mod report;
mod row;
mod site;
mod track;

use std::time::Duration;

use anyhow::Context;
use switchyard_flags::failover::Args;

use play::Limits;
use report::Report;
use row::Row;
use site::Site;
pub use switchyard_flags::failover::{Fault, System};

/// Plays everything, and prints a table.
///
/// # Errors
/// When a system does not come up, or a file cannot be written. A fault that cannot be played is reported as such.
pub async fn run(args: &Args) -> anyhow::Result<()> {
    let limits =
        Limits { outage: Duration::from_secs(args.outage), heal: Duration::from_secs(args.limit) };
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

/// Plays all faults on one system. After a fault that did not heal comes a fresh system.
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
                rows.extend(
                    site.groups()
                        .iter()
                        .map(|group| Row::failed(system, group.policy, *fault, args.jobs)),
                );
            }
        }
    }
    Ok(rows)
}
