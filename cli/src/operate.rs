//! `switchyard clusters cordon | uncordon | drain | declare-lost | trust-copies`: annotations on MultiKueueClusters that the hub obeys.

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

/// What to do with a cluster.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Send nothing new to a cluster. What runs there stays.
    Cordon(Named),
    /// Use a cluster again: the end of `cordon` and `drain`.
    Uncordon(Named),
    /// Send nothing new to a cluster, and take away what runs there: it is stopped, queued again and runs elsewhere.
    Drain(Named),
    /// Say that a cluster which is not connected will not come back: what ran there is queued again at once.
    DeclareLost(Lost),
    /// Say that all objects on a cluster with the hub's marks are the hub's, though some have no proof: they are signed within an
    /// hour. The condition CopiesUnproved names some of them.
    TrustCopies(Trust),
}

/// One cluster.
#[derive(clap::Args, Debug)]
pub struct Named {
    /// Name of the MultiKueueCluster.
    pub name: String,
    /// How to print.
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Output,
}

/// Arguments of `declare-lost`.
#[derive(clap::Args, Debug)]
pub struct Lost {
    /// Which.
    #[command(flatten)]
    pub cluster: Named,
    /// Nothing of the hub's runs on it any more, or may run twice. Without this, only what would happen is said.
    #[arg(long)]
    pub yes: bool,
}

/// Arguments of `trust-copies`.
#[derive(clap::Args, Debug)]
pub struct Trust {
    /// Which.
    #[command(flatten)]
    pub cluster: Named,
    /// All of them are the hub's. Without this, only what would be trusted is said.
    #[arg(long)]
    pub yes: bool,
}

/// What was done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Done {
    /// The cluster.
    pub cluster: String,
    /// `cordon`, `uncordon`, `drain`, `declare-lost` or `trust-copies`.
    pub action: &'static str,
    /// How many workloads the hub has on it.
    pub workloads: usize,
}

/// Says something of a workload to the hub, by an annotation.
pub(crate) async fn tell(
    workloads: &Api<Workload>,
    name: &str,
    annotation: &str,
    value: &str,
) -> anyhow::Result<()> {
    let patch = json!({"metadata": {"annotations": {annotation: value}}});
    let patched = workloads.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await;
    patched
        .map(drop)
        .map_err(|error| crate::may_not(&error, "changing the workload", "patch workloads"))
}

/// Does it.
///
/// # Errors
/// When there is no such cluster, it cannot be done to it as it is, or the caller may not.
pub async fn run(client: kube::Client, command: &Command) -> anyhow::Result<String> {
    let (named, action) = match command {
        Command::Cordon(named) => (named, "cordon"),
        Command::Uncordon(named) => (named, "uncordon"),
        Command::Drain(named) => (named, "drain"),
        Command::DeclareLost(lost) => (&lost.cluster, "declare-lost"),
        Command::TrustCopies(trust) => (&trust.cluster, "trust-copies"),
    };
    let clusters: Api<MultiKueueCluster> = Api::all(client.clone());
    let cluster = get(&clusters, &named.name).await?;
    let workloads = on_cluster(client, &named.name).await?;
    let annotations = match command {
        Command::Cordon(_) => json!({names::SCHEDULING: names::CORDON}),
        Command::Uncordon(_) => json!({names::SCHEDULING: Value::Null}),
        Command::Drain(_) => json!({names::SCHEDULING: names::DRAIN}),
        Command::DeclareLost(lost) => {
            json!({names::DECLARED_LOST: declaration(&cluster, workloads, lost.yes)?})
        }
        Command::TrustCopies(trust) => {
            json!({names::TRUST_COPIES: trusting(&cluster, trust.yes, Timestamp::now())?})
        }
    };
    annotate(&clusters, &named.name, &annotations).await?;
    let done = Done { cluster: named.name.clone(), action, workloads };
    named.output.render(&done, text)
}

/// A cluster by its name.
pub(crate) async fn get(
    clusters: &Api<MultiKueueCluster>,
    name: &str,
) -> anyhow::Result<MultiKueueCluster> {
    let found = clusters
        .get_opt(name)
        .await
        .map_err(|error| crate::explain(&error, "reading the cluster"))?;
    found.ok_or_else(|| {
        anyhow::anyhow!("no MultiKueueCluster \"{name}\"; `switchyard clusters` lists them")
    })
}

/// Changes annotations of a cluster.
pub(crate) async fn annotate(
    clusters: &Api<MultiKueueCluster>,
    name: &str,
    annotations: &Value,
) -> anyhow::Result<MultiKueueCluster> {
    let patch = json!({"metadata": {"annotations": annotations}});
    let patched = clusters.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await;
    patched
        .map_err(|error| crate::may_not(&error, "changing the cluster", "patch multikueueclusters"))
}

async fn on_cluster(client: kube::Client, name: &str) -> anyhow::Result<usize> {
    let workloads: Api<Workload> = Api::all(client);
    let all = crate::status::list(&workloads).await;
    let all = all.map_err(|error| crate::explain(&error, "listing workloads"))?;
    let there = |workload: &&Workload| {
        let status = workload.status.as_ref();
        let cluster = status.and_then(|status| status.cluster_name.as_deref());
        let finished = status
            .is_some_and(|status| conditions::is_true(&status.conditions, conditions::FINISHED));
        cluster == Some(name) && !finished
    };
    Ok(all.iter().filter(there).count())
}

/// The loss that is meant: when the cluster's connection was lost.
///
/// # Errors
/// When it is connected, has never been looked at, or `yes` was not said.
fn declaration(cluster: &MultiKueueCluster, workloads: usize, yes: bool) -> anyhow::Result<String> {
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

/// Since when what is on the cluster is trusted.
///
/// # Errors
/// When there is nothing to trust, or `yes` was not said.
fn trusting(cluster: &MultiKueueCluster, yes: bool, now: Timestamp) -> anyhow::Result<String> {
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

fn text(done: &Done) -> String {
    let Done { cluster, workloads, .. } = done;
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
    fn unproved_copies_are_trusted_on_purpose() {
        let now = Timestamp::UNIX_EPOCH;
        let with = |status: &str| {
            let condition = json!([{"type": "CopiesUnproved", "status": status, "reason": "X", "message": "2 objects",
                "lastTransitionTime": "2026-11-21T10:00:00Z"}]);
            cluster(&condition)
        };
        assert_eq!(trusting(&with("True"), true, now).unwrap(), "1970-01-01T00:00:00Z");
        assert!(
            trusting(&with("True"), false, now).unwrap_err().to_string().starts_with("2 objects")
        );
        for nothing in [with("False"), cluster(&json!([]))] {
            assert!(
                trusting(&nothing, true, now)
                    .unwrap_err()
                    .to_string()
                    .starts_with("nothing on cluster")
            );
        }
    }

    #[test]
    fn only_a_loss_that_is_can_be_declared_and_only_on_purpose() {
        let say = |status: &str, yes| {
            declaration(&cluster(&active(status)), 3, yes).map_err(|error| error.to_string())
        };
        assert_eq!(say("False", true), Ok("2026-11-21T10:00:00Z".to_owned()));
        assert!(
            say("False", false)
                .unwrap_err()
                .starts_with("3 workloads of cluster \"east\" would be queued again")
        );
        assert!(say("True", true).unwrap_err().contains("is connected"));
        assert!(declaration(&cluster(&json!([])), 0, true).is_err());
    }
}
