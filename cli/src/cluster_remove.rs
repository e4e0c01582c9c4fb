//! `switchyard cluster remove NAME`.

use std::ops::ControlFlow;
use std::time::Duration;

use kube::api::{DeleteParams, ListParams};
use kube::{Api, Client, ResourceExt};
use serde::Serialize;
use switchyard_api::v1beta2::{LocationType, MultiKueueCluster, MultiKueueConfig};

use crate::deadline::Deadline;
use crate::output::{counted, is_or_are};
use crate::{Output, confirm, operate, wait};

/// Arguments of `switchyard cluster remove`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Name of the MultiKueueCluster.
    #[arg(value_parser = crate::find::cluster)]
    pub name: String,
    /// Remove it even if it has jobs. The policies of the jobs and their queues decide what happens to these.
    #[arg(long)]
    pub yes: bool,
    /// Print what would happen, and change nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// Wait until the MultiKueueCluster is gone and the hub has no job there, with progress on
    /// stderr. A policy such as Hold may keep jobs there for long.
    #[arg(long, conflicts_with = "dry_run")]
    pub wait: bool,
    /// Timeout of --wait, such as 30s, 10m or 2h.
    #[arg(long, default_value = "10m", value_parser = crate::wait::timeout, requires = "wait")]
    pub timeout: Duration,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Output,
}

/// The result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Removed {
    /// The cluster.
    pub cluster: String,
    /// Number of the hub's workloads on it.
    pub workloads: usize,
    /// The MultiKueueConfigs that still list it.
    pub configs: Vec<String>,
    /// The Secret of its kubeconfig, which stays.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
    /// Nothing was changed.
    pub dry_run: bool,
    /// `--wait` has ended: it is gone, and the hub has no job there.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_empty: bool,
}

/// Deletes the MultiKueueCluster.
///
/// # Errors
/// When the cluster does not exist, or still has jobs and `--yes` is missing, or the caller lacks
/// the right.
pub async fn run(client: Client, args: &Args) -> anyhow::Result<String> {
    let deadline = Deadline::after(args.timeout);
    let clusters: Api<MultiKueueCluster> = Api::all(client.clone());
    let cluster = operate::get_cluster(&clusters, &args.name).await?;
    let workloads = operate::count_workloads(client.clone(), &args.name).await?;
    let configs: Api<MultiKueueConfig> = Api::all(client.clone());
    let listed = configs.list(&ListParams::default()).await;
    let listed = listed.map_err(|error| crate::with_hint(&error, "listing MultiKueueConfigs"))?;
    let names_it = |config: &&MultiKueueConfig| config.spec.clusters.contains(&args.name);
    let mut removed = Removed {
        cluster: args.name.clone(),
        workloads,
        configs: listed.items.iter().filter(names_it).map(ResourceExt::name_any).collect(),
        secret: cluster
            .spec
            .cluster_source
            .kube_config
            .clone()
            .filter(|source| source.location_type == LocationType::Secret)
            .map(|source| source.location),
        dry_run: args.dry_run,
        is_empty: false,
    };
    if workloads > 0 && !args.yes && !args.dry_run {
        let plan = text(&Removed { dry_run: true, ..removed });
        let condition = format!(
            "`switchyard cluster drain {} --wait` moves its jobs first. If they may stay there unseen, or run twice",
            args.name
        );
        return Err(confirm::needed(&plan, &condition));
    }
    if !args.dry_run {
        let deleted = clusters.delete(&args.name, &DeleteParams::default()).await;
        deleted.map_err(|error| {
            crate::with_required_right(&error, "deleting the cluster", "delete multikueueclusters")
        })?;
    }
    if args.wait {
        let goal = format!("{} is gone", args.name);
        wait::poll(deadline, &goal, async || {
            let found = clusters.get_opt(&args.name).await;
            let found = found.map_err(|error| crate::with_hint(&error, "reading the cluster"))?;
            // A MultiKueueCluster that was made again has another uid.
            Ok(match found.is_some_and(|it| it.uid() == cluster.uid()) {
                false => ControlFlow::Break(()),
                true => ControlFlow::Continue(format!("{} is not gone yet", args.name)),
            })
        })
        .await?;
        operate::await_empty(&client, &args.name, deadline).await?;
        removed.is_empty = true;
    }
    args.output.render(&removed, text)
}

fn text(removed: &Removed) -> String {
    let Removed { cluster, workloads, configs, secret, dry_run, is_empty } = removed;
    let mut out = match (*dry_run, *workloads) {
        (true, 0) => {
            format!(
                "{cluster} would be removed. Nothing of the hub is on it. Nothing is changed.\n"
            )
        }
        (true, there) => {
            let (workloads, are) = (counted(there, "workload"), is_or_are(there));
            format!(
                "{cluster} would be removed. {workloads} {are} on it and would not be stopped. Nothing is changed.\n"
            )
        }
        (false, _) if *is_empty => {
            format!("{cluster} is removed. The hub has no job there any more.\n")
        }
        (false, 0) => format!("{cluster} is removed.\n"),
        (false, there) => {
            let workloads = counted(there, "workload");
            format!("{cluster} is removed. It had {workloads}, which the removal does not stop.\n")
        }
    };
    for config in configs {
        out.push_str(&format!(
            "MultiKueueConfig \"{config}\" still lists it; take it out with `kubectl edit`.\n"
        ));
    }
    if let Some(secret) = secret {
        out.push_str(&format!(
            "Its kubeconfig stays in the Secret \"{secret}\" of the hub's namespace, and is valid until its account is removed on the worker.\n"
        ));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removal_says_what_is_left() {
        let removed = Removed {
            cluster: "west".into(),
            workloads: 2,
            configs: vec!["fleet".into()],
            secret: Some("west-kubeconfig".into()),
            dry_run: false,
            is_empty: false,
        };
        insta::assert_snapshot!(text(&removed), @r#"
        west is removed. It had 2 workloads, which the removal does not stop.
        MultiKueueConfig "fleet" still lists it; take it out with `kubectl edit`.
        Its kubeconfig stays in the Secret "west-kubeconfig" of the hub's namespace, and is valid until its account is removed on the worker.
        "#);
        let dry =
            Removed { workloads: 0, configs: Vec::new(), secret: None, dry_run: true, ..removed };
        insta::assert_snapshot!(text(&dry), @r"
        west would be removed. Nothing of the hub is on it. Nothing is changed.
        ");
    }
}
