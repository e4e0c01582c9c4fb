//! `switchyard check`: tests an installation by its objects and the API server's answers.
//! Switchyard need not run.

pub(crate) mod agent_endpoint;
mod agent_proxy;
mod cluster;
mod dry_run;
mod explain;
mod facts;
mod flavors;
mod fleet;
mod mode;
mod report;
mod rights;
mod skew;
#[cfg(test)]
mod tests;
mod webhooks;

use std::path::PathBuf;

use futures::future::try_join_all;
use kube::Client;

use crate::{Output, connect};
use facts::ClusterFacts;
use mode::Mode;
use report::Section;

pub(crate) use cluster::{MIN_MINOR, kubernetes_minor, shorten};
pub use explain::CheckName;
pub(crate) use explain::explain;
pub(crate) use facts::{server, silence_of_hub, within};
pub use report::{Line, Outcome, Report};
pub(crate) use rights::missing_on_worker;

/// Arguments of `switchyard check`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Before an installation: check the cluster's version and the caller's rights.
    #[arg(long, conflicts_with_all = ["clusters", "workers"])]
    pub pre: bool,
    /// On a hub: check only this MultiKueueCluster. Can be repeated.
    #[arg(long = "cluster", value_name = "NAME", value_parser = crate::find::cluster)]
    pub clusters: Vec<String>,
    /// On a hub: also check a worker by its own objects, and whether it agrees with the hub. The
    /// name of its MultiKueueCluster and a kubeconfig. Can be repeated.
    #[arg(long = "worker", value_name = "NAME=KUBECONFIG", value_parser = crate::audit::worker)]
    pub workers: Vec<(String, PathBuf)>,
    /// Namespace of the installation.
    #[arg(short, long, default_value = crate::DEFAULT_HUB_NAMESPACE)]
    pub namespace: String,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Output,
    /// Print what a check looks at and how to fix its findings. It needs no cluster. The name stands
    /// before the first colon of a line.
    #[arg(
        long,
        value_name = "NAME",
        value_enum,
        hide_possible_values = true,
        conflicts_with_all = ["pre", "clusters", "workers", "output"]
    )]
    pub explain: Option<CheckName>,
}

impl Args {
    /// For an installation in this namespace, with the other defaults.
    pub(crate) fn of_namespace(namespace: &str) -> Self {
        Self {
            pre: false,
            clusters: Vec::new(),
            workers: Vec::new(),
            namespace: namespace.to_owned(),
            output: Output::default(),
            explain: None,
        }
    }
}

/// Checks the cluster of a client, and the workers.
///
/// # Errors
/// If a worker's kubeconfig cannot be read. An unreadable object is a line of the report.
pub async fn run(client: Client, args: &Args) -> anyhow::Result<Report> {
    if args.pre {
        return Ok(Report::new(vec![check_before_installation(&client, &args.namespace).await]));
    }
    let workers = try_join_all(args.workers.iter().map(async |(name, path)| {
        let (client, _) = connect(Some(path), None).await?;
        anyhow::Ok((name, client))
    }));
    let workers = workers.await?;
    let facts = ClusterFacts::read_boxed(&client, &args.namespace).await;
    let mut sections = vec![check_cluster(&facts).await];
    if facts.mode() == Some(Mode::Hub) {
        let mut lines: Vec<Line> = fleet::check_freshness(&facts).into_iter().collect();
        lines.extend(fleet::check_links(&facts, &args.clusters));
        lines.extend(fleet::check_queues(&facts, &args.clusters));
        lines.extend(flavors::check_flavors(&facts, &args.clusters));
        lines.extend(fleet::check_kinds(&facts, args));
        sections.push(Section { name: "Workers, as the hub knows them".to_owned(), lines });
    }
    for (name, client) in workers {
        let worker = ClusterFacts::read_boxed(&client, &args.namespace).await;
        let mut section = check_cluster(&worker).await;
        section.name = format!("{name}: {}", section.name);
        if worker.mode().is_none() && worker.deployments.is_ok() {
            section.lines.retain(|line| line.check != CheckName::Deployment);
            section.lines.push(Line::ok(
                CheckName::Deployment,
                "no Switchyard there, as on a worker with Kueue",
            ));
        }
        section.lines.extend(agent_proxy::check_lost(&facts, &worker, name));
        section.lines.extend(fleet::compare_worker(&facts, &worker, name));
        sections.push(section);
    }
    Ok(Report::new(sections))
}

/// Checks of one cluster by itself.
async fn check_cluster(facts: &ClusterFacts) -> Section {
    let mut lines = cluster::check_server(facts);
    let name = |what: &str| format!("Cluster: {what}");
    if facts.server.is_err() {
        return Section { name: name("no answer"), lines };
    }
    let Some(mode) = facts.mode() else {
        lines.push(match &facts.deployments {
            Err(error) => Line::unread(CheckName::Deployment, error),
            Ok(_) => Line::failure(
                CheckName::Deployment,
                format!("Switchyard is not installed in namespace {}", facts.namespace),
                "name another one with --namespace, or install it: docs/install.md. `switchyard check --pre` looks whether it can be",
            ),
        });
        return Section { name: name("nothing installed"), lines };
    };
    lines.extend(cluster::check_crds(facts, mode));
    lines.extend(cluster::check_program(facts, mode));
    lines.extend(webhooks::check_webhooks(facts, mode));
    match mode {
        Mode::Hub => lines.extend(agent_endpoint::check_hub(facts).await),
        Mode::Agent => lines.extend(agent_endpoint::check_agent(facts).await),
        Mode::Single => {}
    }
    Section { name: name(mode.title()), lines }
}

/// Checks before an installation.
async fn check_before_installation(client: &Client, namespace: &str) -> Section {
    let facts = ClusterFacts::read_boxed(client, namespace).await;
    let mut lines = cluster::check_server(&facts);
    if facts.server.is_ok() {
        let has_namespace = facts
            .namespaces
            .as_ref()
            .is_ok_and(|all| all.iter().any(|it| it.metadata.name.as_deref() == Some(namespace)));
        match rights::missing_to_install(client, namespace, has_namespace).await {
            Err(error) => lines.push(Line::unread(CheckName::InstallRights, &error)),
            Ok(missing) => lines.extend(install_lines(&missing)),
        }
        lines.extend(check_for_kueue(&facts));
    }
    Section { name: "Before an installation".to_owned(), lines }
}

/// The lines about rights to install that the caller lacks.
fn install_lines(missing: &rights::MissingToInstall) -> Vec<Line> {
    const CHECK: CheckName = CheckName::InstallRights;
    let mend = "have an administrator install it, or grant you cluster-admin for the time of the installation. `escalate` and `bind` \
                let you create roles with rights that you do not hold";
    let lacking = missing.modes.iter().filter(|(_, rights)| !rights.is_empty());
    let lacking: Vec<_> = lacking.collect();
    if !missing.common.is_empty() || lacking.len() == missing.modes.len() {
        let of_modes = lacking.iter().flat_map(|(_, rights)| rights);
        let all: Vec<_> = missing.common.iter().chain(of_modes).cloned().collect();
        let message = format!("you may not: {}", rights::grouped(&all));
        return vec![Line::failure(CHECK, message, mend)];
    }
    let mut lines: Vec<Line> = lacking
        .iter()
        .map(|(mode, rights)| {
            let message = format!(
                "you may not, for the installation of {}: {}",
                mode.name(),
                rights::grouped(rights)
            );
            Line::warning(CHECK, message, mend)
        })
        .collect();
    if lines.is_empty() {
        lines.push(Line::ok(CHECK, "you have the rights to install"));
    }
    if !missing.visibility.is_empty() {
        let message = format!(
            "you may not, for visibility.enabled: {}",
            rights::grouped(&missing.visibility)
        );
        lines.push(Line::warning(
            CHECK,
            message,
            "leave visibility.enabled=false, its default, or have an administrator install it",
        ));
    }
    lines
}

/// CRDs of Kueue without Switchyard belong to Kueue. Two programs would admit the same jobs.
fn check_for_kueue(facts: &ClusterFacts) -> Option<Line> {
    use kube::ResourceExt as _;
    let crds = facts.crds.as_ref().ok()?;
    let kueue = crds.iter().any(|it| it.name_any() == "workloads.kueue.x-k8s.io");
    Some(match (kueue, facts.mode()) {
        (false, _) => Line::ok(CheckName::Kueue, "the cluster has no CRDs of kueue.x-k8s.io"),
        (true, Some(_)) => {
            Line::ok(CheckName::Kueue, "Switchyard is installed already: this would be an upgrade")
        }
        (true, None) => Line::warning(
            CheckName::Kueue,
            "the cluster has CRDs of kueue.x-k8s.io: Kueue may run here",
            "follow docs/migrate.md where it does. CRDs that an earlier installation left are upgraded",
        ),
    })
}
