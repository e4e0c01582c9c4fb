//! `switchyard audit`: compares what pods ask for with what their queues are charged, on one cluster or on a hub and its workers.

mod owners;
mod report;
mod see;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use futures::future::{try_join, try_join_all};
use kube::Client;
use switchyard_audit::{Cluster, compare, lasting};

use crate::{Output, connect};

pub use report::{Listed, Report};
pub use see::see;

/// Arguments of `switchyard audit`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// A worker cluster: the name of its MultiKueueCluster and a kubeconfig. Repeat it for each worker. With workers, the cluster
    /// of --kubeconfig is their hub; without any, it is judged alone.
    #[arg(long = "worker", value_name = "NAME=KUBECONFIG", value_parser = worker)]
    pub workers: Vec<(String, PathBuf)>,
    /// Look at one namespace. Sums over queues and cohorts need all namespaces, so UsageDiffers and ChargedAboveQuota are left
    /// out then.
    #[arg(short, long)]
    pub namespace: Option<String>,
    /// List everything, wait this long, list again, and report only what both lists show. A pod that is being evicted is no fault.
    /// 0 lists once.
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(..=3600))]
    pub grace: u64,
    /// How to print.
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Output,
}

pub(crate) fn worker(text: &str) -> Result<(String, PathBuf), String> {
    match text.split_once('=') {
        Some((name, path)) if !name.is_empty() && !path.is_empty() => {
            Ok((name.to_owned(), PathBuf::from(path)))
        }
        _ => Err("it takes NAME=KUBECONFIG, such as west=west.kubeconfig".to_owned()),
    }
}

/// Audits the cluster of a client, and the workers.
///
/// # Errors
/// When a cluster cannot be reached or a list is refused. The message names the right that it takes.
pub async fn run(client: Client, args: &Args) -> anyhow::Result<Report> {
    let fleet = Fleet::connect(client, args).await?;
    let report = fleet.look().await?;
    if args.grace == 0 || report.findings.is_empty() {
        return Ok(report);
    }
    tokio::time::sleep(Duration::from_secs(args.grace)).await;
    let again = fleet.look().await?;
    Ok(Report { findings: lasting(&report.findings, again.findings), ..again })
}

/// The clusters to audit.
struct Fleet<'a> {
    hub: (&'static str, Client),
    workers: Vec<(&'a str, Client)>,
    namespace: Option<&'a str>,
}

impl<'a> Fleet<'a> {
    async fn connect(client: Client, args: &'a Args) -> anyhow::Result<Self> {
        let paths: BTreeMap<&str, &PathBuf> =
            args.workers.iter().map(|(name, path)| (name.as_str(), path)).collect();
        ensure!(paths.len() == args.workers.len(), "--worker gives two clusters the same name");
        let connect = |(name, path)| async move {
            let (client, _) =
                connect(Some(path), None).await.with_context(|| format!("worker {name}"))?;
            anyhow::Ok((name, client))
        };
        let workers: Vec<(&str, Client)> =
            try_join_all(paths.into_iter().map(|(name, path)| connect((name, path.as_path()))))
                .await?;
        let name = if workers.is_empty() { "cluster" } else { "hub" };
        Ok(Self { hub: (name, client), workers, namespace: args.namespace.as_deref() })
    }

    /// Lists all clusters at the same time, so that little changes between the lists, and judges them.
    async fn look(&self) -> anyhow::Result<Report> {
        let see = |name, client| async move {
            let seen = see(client, name, self.namespace).await;
            seen.with_context(|| format!("cluster {name}"))
        };
        let workers = try_join_all(self.workers.iter().map(|(name, client)| see(name, client)));
        let (hub, workers): (Cluster, Vec<Cluster>) =
            try_join(see(self.hub.0, &self.hub.1), workers).await?;
        let mut findings = switchyard_audit::audit(&hub);
        findings.extend(workers.iter().flat_map(switchyard_audit::audit));
        findings.extend(compare(&hub, &workers));
        Ok(Report {
            findings,
            listed: std::iter::once(&hub).chain(&workers).map(Listed::of).collect(),
            namespace: self.namespace.map(str::to_owned),
        })
    }
}
