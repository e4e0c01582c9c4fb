//! `switchyard audit`: compares what pods request with what their queues are charged, on one
//! cluster or on a hub with its workers.

mod list;
mod owners;
mod report;
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

pub use list::list_cluster;
pub use report::{Listed, Report};

/// Arguments of `switchyard audit`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// A worker cluster: the name of its MultiKueueCluster and a kubeconfig. Can be repeated. With
    /// workers, --kubeconfig is their hub; without, its cluster is audited alone.
    #[arg(long = "worker", value_name = "NAME=KUBECONFIG", value_parser = worker)]
    pub workers: Vec<(String, PathBuf)>,
    /// Audit one namespace only. UsageDiffers and ChargedAboveQuota need all namespaces and are
    /// left out then.
    #[arg(short, long)]
    pub namespace: Option<String>,
    /// List everything, wait this long, list again, and report only findings of both lists, so that
    /// a pod that is being evicted is none. 0 lists once.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = crate::wait::up_to_an_hour)]
    pub grace: u64,
    /// Output format.
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

/// Audits the cluster of `client` and the workers.
///
/// # Errors
/// If a cluster cannot be reached or a list is denied. The message names the missing right.
pub async fn run(client: Client, args: &Args) -> anyhow::Result<Report> {
    let fleet = Fleet::connect(client, args).await?;
    let report = fleet.audit().await?;
    if args.grace == 0 || report.findings.is_empty() {
        return Ok(report);
    }
    tokio::time::sleep(Duration::from_secs(args.grace)).await;
    let second = fleet.audit().await?;
    Ok(Report { findings: lasting(&report.findings, second.findings), ..second })
}

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

    /// Lists all clusters at the same time, so that little changes between the lists, and compares
    /// them.
    async fn audit(&self) -> anyhow::Result<Report> {
        let list = |name, client| async move {
            let listed = list_cluster(client, name, self.namespace).await;
            if self.workers.is_empty() {
                listed
            } else {
                listed.with_context(|| format!("cluster {name}"))
            }
        };
        let workers = try_join_all(self.workers.iter().map(|(name, client)| list(name, client)));
        let (hub, workers): (Cluster, Vec<Cluster>) =
            try_join(list(self.hub.0, &self.hub.1), workers).await?;
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
