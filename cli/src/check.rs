//! `switchyard check`: whether an installation is whole, from plain objects and the API server's own answers. Nothing of
//! Switchyard has to run for it.

mod cluster;
pub(crate) mod door;
mod facts;
mod fleet;
mod mode;
mod report;
mod rights;
#[cfg(test)]
mod tests;
mod trial;
mod webhooks;

use std::path::PathBuf;

use futures::future::try_join_all;
use kube::Client;

use crate::{Output, connect};
use facts::Facts;
use mode::Mode;
use report::Section;

pub use report::{Line, Outcome, Report};

/// Arguments of `switchyard check`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Before an installation: whether the cluster and the caller's rights are fit for it.
    #[arg(long, conflicts_with_all = ["clusters", "workers"])]
    pub pre: bool,
    /// On a hub: look at this MultiKueueCluster alone. Can be repeated.
    #[arg(long = "cluster", value_name = "NAME")]
    pub clusters: Vec<String>,
    /// On a hub: also look at a worker itself, and whether it agrees with the hub. The name of its MultiKueueCluster and a
    /// kubeconfig. Can be repeated.
    #[arg(long = "worker", value_name = "NAME=KUBECONFIG", value_parser = crate::audit::worker)]
    pub workers: Vec<(String, PathBuf)>,
    /// The namespace of the installation.
    #[arg(short, long, default_value = crate::DEFAULT_HUB_NAMESPACE)]
    pub namespace: String,
    /// How to print.
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Output,
}

/// Checks the cluster of a client, and the workers.
///
/// # Errors
/// When the kubeconfig of a worker cannot be read. What a cluster does not tell is a line of the report.
pub async fn run(client: Client, args: &Args) -> anyhow::Result<Report> {
    if args.pre {
        return Ok(Report::new(vec![before(&client, &args.namespace).await]));
    }
    let workers = try_join_all(args.workers.iter().map(async |(name, path)| {
        let (client, _) = connect(Some(path), None).await?;
        anyhow::Ok((name, client))
    }));
    let workers = workers.await?;
    let facts = Facts::read_boxed(&client, &args.namespace).await;
    let mut sections = vec![whole(&facts).await];
    if facts.mode() == Some(Mode::Hub) {
        let mut lines: Vec<Line> = fleet::freshness(&facts).into_iter().collect();
        lines.extend(fleet::links(&facts, &args.clusters));
        lines.extend(fleet::queues(&facts, &args.clusters));
        sections.push(Section { name: "Workers, as the hub knows them".to_owned(), lines });
    }
    for (name, client) in workers {
        let worker = Facts::read_boxed(&client, &args.namespace).await;
        let mut section = whole(&worker).await;
        section.name = format!("{name}: {}", section.name);
        if worker.mode().is_none() && worker.deployments.is_ok() {
            section.lines.retain(|line| line.check != "deployment");
            section
                .lines
                .push(Line::ok("deployment", "no Switchyard there, as on a worker with Kueue"));
        }
        section.lines.extend(fleet::agree(&facts, &worker, name));
        sections.push(section);
    }
    Ok(Report::new(sections))
}

/// Everything that concerns one cluster alone.
async fn whole(facts: &Facts) -> Section {
    let mut lines = cluster::server(facts);
    let name = |what: &str| format!("Cluster: {what}");
    if facts.server.is_err() {
        return Section { name: name("no answer"), lines };
    }
    let Some(mode) = facts.mode() else {
        lines.push(match &facts.deployments {
            Err(error) => Line::unread("deployment", error),
            Ok(_) => Line::failure(
                "deployment",
                format!("Switchyard is not installed in namespace {}", facts.namespace),
                "name another one with --namespace, or install it: docs/install.md. `switchyard check --pre` looks whether it can be",
            ),
        });
        return Section { name: name("nothing installed"), lines };
    };
    lines.extend(cluster::crds(facts, mode));
    lines.extend(cluster::program(facts, mode));
    lines.extend(webhooks::webhooks(facts, mode));
    match mode {
        Mode::Hub => lines.extend(door::door(facts).await),
        Mode::Agent => lines.extend(door::hub_of_agent(facts).await),
        Mode::Single => {}
    }
    Section { name: name(mode.title()), lines }
}

/// Whether something can be installed.
async fn before(client: &Client, namespace: &str) -> Section {
    let facts = Facts::read_boxed(client, namespace).await;
    let mut lines = cluster::server(&facts);
    if facts.server.is_ok() {
        lines.push(match rights::missing_to_install(client, namespace).await {
            Err(error) => Line::unread("install-rights", &error),
            Ok(missing) if missing.is_empty() => Line::ok("install-rights", "you have the rights to install"),
            Ok(missing) => Line::failure(
                "install-rights",
                format!("you may not: {}", cluster::some(&missing)),
                "have an administrator install it, or grant you cluster-admin for the time of the installation",
            ),
        });
        lines.extend(kueue_beside(&facts));
    }
    Section { name: "Before an installation".to_owned(), lines }
}

/// Kueue's CRDs without Switchyard are Kueue's: two programs would admit the same jobs.
fn kueue_beside(facts: &Facts) -> Option<Line> {
    use kube::ResourceExt as _;
    let crds = facts.crds.as_ref().ok()?;
    let kueue = crds.iter().any(|it| it.name_any() == "workloads.kueue.x-k8s.io");
    Some(match (kueue, facts.mode()) {
        (false, _) => Line::ok("kueue", "the cluster has no CRDs of kueue.x-k8s.io"),
        (true, Some(_)) => {
            Line::ok("kueue", "Switchyard is installed already: this would be an upgrade")
        }
        (true, None) => Line::warning(
            "kueue",
            "the cluster has CRDs of kueue.x-k8s.io: Kueue may run here",
            "follow docs/migrate.md where it does. CRDs that an earlier installation left are upgraded",
        ),
    })
}
