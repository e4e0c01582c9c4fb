//! `switchyard clusters cordon | uncordon | drain | declare-lost | trust-copies`: annotates
//! MultiKueueClusters, which the hub acts on.

use anyhow::bail;
use clap::Subcommand;
use jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde::Serialize;
use serde_json::{Value, json};
use switchyard_api::v1beta2::{MultiKueueCluster, Workload};
use switchyard_api::{conditions, names};

use crate::Output;

#[derive(Subcommand, Debug)]
pub enum Command {
    /// Dispatch nothing new to a cluster. Running jobs stay.
    Cordon(ClusterArgs),
    /// Use a cluster again: ends `cordon` and `drain`.
    Uncordon(ClusterArgs),
    /// Dispatch nothing new to a cluster, and stop its jobs: they are queued again and run
    /// elsewhere.
    Drain(ClusterArgs),
    /// Declare that a disconnected cluster will not come back: its jobs are queued again at once.
    DeclareLost(DeclareLostArgs),
    /// Declare that all objects with the hub's marks on a cluster are the hub's, although some lack
    /// a proof. The hub signs them within an hour. The condition CopiesUnproved names some of them.
    TrustCopies(TrustCopiesArgs),
}

#[derive(clap::Args, Debug)]
pub struct ClusterArgs {
    /// Name of the MultiKueueCluster.
    pub name: String,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Output,
}

#[derive(clap::Args, Debug)]
pub struct DeclareLostArgs {
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// Confirm that no job of the hub runs there any more, or may run twice. Without it, only show
    /// what would happen.
    #[arg(long)]
    pub yes: bool,
}

#[derive(clap::Args, Debug)]
pub struct TrustCopiesArgs {
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// Confirm that all of them are the hub's. Without it, only show what would be trusted.
    #[arg(long)]
    pub yes: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterChange {
    pub cluster: String,
    /// `cordon`, `uncordon`, `drain`, `declare-lost` or `trust-copies`.
    pub action: &'static str,
    /// Number of the hub's unfinished workloads on the cluster.
    pub workloads: usize,
}

/// Sets an annotation on a Workload, which the hub acts on.
pub(crate) async fn annotate_workload(
    workloads: &Api<Workload>,
    name: &str,
    annotation: &str,
    value: &str,
) -> anyhow::Result<()> {
    let patch = json!({"metadata": {"annotations": {annotation: value}}});
    let patched = workloads.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await;
    patched.map(drop).map_err(|error| {
        crate::with_required_right(&error, "changing the workload", "patch workloads")
    })
}

/// Runs a subcommand.
///
/// # Errors
/// If there is no such cluster, if its state does not allow it, or for want of rights.
pub async fn run(client: kube::Client, command: &Command) -> anyhow::Result<String> {
    let (named, action) = match command {
        Command::Cordon(named) => (named, "cordon"),
        Command::Uncordon(named) => (named, "uncordon"),
        Command::Drain(named) => (named, "drain"),
        Command::DeclareLost(lost) => (&lost.cluster, "declare-lost"),
        Command::TrustCopies(trust) => (&trust.cluster, "trust-copies"),
    };
    let clusters: Api<MultiKueueCluster> = Api::all(client.clone());
    let cluster = get_cluster(&clusters, &named.name).await?;
    let workloads = count_workloads(client, &named.name).await?;
    let annotations = match command {
        Command::Cordon(_) => json!({names::SCHEDULING: names::CORDON}),
        Command::Uncordon(_) => json!({names::SCHEDULING: Value::Null}),
        Command::Drain(_) => json!({names::SCHEDULING: names::DRAIN}),
        Command::DeclareLost(lost) => {
            json!({names::DECLARED_LOST: loss_to_declare(&cluster, workloads, lost.yes)?})
        }
        Command::TrustCopies(trust) => {
            json!({names::TRUST_COPIES: trusted_since(&cluster, trust.yes, Timestamp::now())?})
        }
    };
    annotate_cluster(&clusters, &named.name, &annotations).await?;
    let done = ClusterChange { cluster: named.name.clone(), action, workloads };
    named.output.render(&done, render_text)
}

pub(crate) async fn get_cluster(
    clusters: &Api<MultiKueueCluster>,
    name: &str,
) -> anyhow::Result<MultiKueueCluster> {
    let found = clusters
        .get_opt(name)
        .await
        .map_err(|error| crate::with_hint(&error, "reading the cluster"))?;
    found.ok_or_else(|| {
        anyhow::anyhow!("no MultiKueueCluster \"{name}\"; `switchyard clusters` lists them")
    })
}

pub(crate) async fn annotate_cluster(
    clusters: &Api<MultiKueueCluster>,
    name: &str,
    annotations: &Value,
) -> anyhow::Result<MultiKueueCluster> {
    let patch = json!({"metadata": {"annotations": annotations}});
    let patched = clusters.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await;
    patched.map_err(|error| {
        crate::with_required_right(&error, "changing the cluster", "patch multikueueclusters")
    })
}

async fn count_workloads(client: kube::Client, name: &str) -> anyhow::Result<usize> {
    let workloads: Api<Workload> = Api::all(client);
    let all = crate::status::list(&workloads).await;
    let all = all.map_err(|error| crate::with_hint(&error, "listing workloads"))?;
    let there = |workload: &&Workload| {
        let status = workload.status.as_ref();
        let cluster = status.and_then(|status| status.cluster_name.as_deref());
        let finished = status
            .is_some_and(|status| conditions::is_true(&status.conditions, conditions::FINISHED));
        cluster == Some(name) && !finished
    };
    Ok(all.iter().filter(there).count())
}

/// The value of the annotation: when the connection was lost.
///
/// # Errors
/// If the cluster is connected or has no status, or without `yes`.
fn loss_to_declare(
    cluster: &MultiKueueCluster,
    workloads: usize,
    yes: bool,
) -> anyhow::Result<String> {
    let name = cluster.name_any();
    let status = cluster.status.as_ref();
    let active = status.and_then(|status| conditions::find(&status.conditions, conditions::ACTIVE));
    let Some(active) = active else {
        bail!("the hub has not looked at cluster \"{name}\" yet: does it run?")
    };
    if active.status == conditions::TRUE {
        bail!(
            "cluster \"{name}\" is connected; `switchyard clusters drain {name}` takes away what runs there"
        );
    }
    if !yes {
        bail!(
            "{workloads} workloads of cluster \"{name}\" would be queued again and run elsewhere, whatever still runs there. \
             If nothing does, or it may run twice: say so with --yes"
        );
    }
    Ok(active.last_transition_time.0.to_string())
}

/// The value of the annotation: the time of the confirmation.
///
/// # Errors
/// If every copy has a proof, or without `yes`.
fn trusted_since(cluster: &MultiKueueCluster, yes: bool, now: Timestamp) -> anyhow::Result<String> {
    let name = cluster.name_any();
    let status = cluster.status.as_ref();
    let unproved =
        status.and_then(|status| conditions::find(&status.conditions, conditions::COPIES_UNPROVED));
    let Some(unproved) = unproved.filter(|unproved| unproved.status == conditions::TRUE) else {
        bail!("nothing on cluster \"{name}\" that counts as the hub's copy lacks a proof");
    };
    if !yes {
        bail!("{}\n\nIf all of it is the hub's: say so with --yes", unproved.message);
    }
    Ok(now.to_string())
}

fn render_text(done: &ClusterChange) -> String {
    let ClusterChange { cluster, workloads, .. } = done;
    match done.action {
        "cordon" => {
            format!("Nothing new is sent to {cluster}. {workloads} workloads stay there.\n")
        }
        "uncordon" => format!("{cluster} is used again.\n"),
        "drain" => {
            format!(
                "{cluster} is drained: {workloads} workloads go elsewhere. `switchyard status -A` shows where.\n"
            )
        }
        "trust-copies" => {
            format!(
                "What has the hub's marks on {cluster} is signed within an hour. Nothing is stopped.\n"
            )
        }
        _ => format!("{cluster} is declared lost: {workloads} workloads are queued again.\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster(conditions: &Value) -> MultiKueueCluster {
        serde_json::from_value(json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "MultiKueueCluster", "metadata": {"name": "east"},
            "spec": {"clusterSource": {"agent": {}}}, "status": {"conditions": conditions},
        }))
        .unwrap()
    }

    fn active(status: &str) -> Value {
        json!([{"type": "Active", "status": status, "reason": "X", "message": "",
            "lastTransitionTime": "2026-11-21T10:00:00Z"}])
    }

    #[test]
    fn unproved_copies_are_trusted_only_with_yes() {
        let now = Timestamp::UNIX_EPOCH;
        let with = |status: &str| {
            let condition = json!([{"type": "CopiesUnproved", "status": status, "reason": "X", "message": "2 objects",
                "lastTransitionTime": "2026-11-21T10:00:00Z"}]);
            cluster(&condition)
        };
        assert_eq!(trusted_since(&with("True"), true, now).unwrap(), "1970-01-01T00:00:00Z");
        assert!(
            trusted_since(&with("True"), false, now)
                .unwrap_err()
                .to_string()
                .starts_with("2 objects")
        );
        for nothing in [with("False"), cluster(&json!([]))] {
            assert!(
                trusted_since(&nothing, true, now)
                    .unwrap_err()
                    .to_string()
                    .starts_with("nothing on cluster")
            );
        }
    }

    #[test]
    fn only_a_lost_cluster_is_declared_and_only_with_yes() {
        let say = |status: &str, yes| {
            loss_to_declare(&cluster(&active(status)), 3, yes).map_err(|error| error.to_string())
        };
        assert_eq!(say("False", true), Ok("2026-11-21T10:00:00Z".to_owned()));
        assert!(
            say("False", false)
                .unwrap_err()
                .starts_with("3 workloads of cluster \"east\" would be queued again")
        );
        assert!(say("True", true).unwrap_err().contains("is connected"));
        assert!(loss_to_declare(&cluster(&json!([])), 0, true).is_err());
    }
}
