//! `switchyard cluster cordon | uncordon | drain | mark-lost | trust-copies`: annotates
//! MultiKueueClusters, which the hub acts on.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::time::Duration;

use anyhow::bail;
use clap::Subcommand;
use jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde::Serialize;
use serde_json::{Value, json};
use switchyard_api::v1beta2::{MultiKueueCluster, Workload};
use switchyard_api::{conditions, names};

use crate::deadline::Deadline;
use crate::follow::{Change, follow};
use crate::outage::Outage;
use crate::output::{counted, is_or_are};
use crate::{Output, confirm, request};

#[derive(Subcommand, Debug)]
pub enum Command {
    /// Send nothing new to a cluster; what runs there stays
    #[command(after_help = "Examples:\n  switchyard cluster cordon east")]
    Cordon(ClusterArgs),
    /// Use a cluster again after `cordon` or `drain`
    #[command(after_help = "Examples:\n  switchyard cluster uncordon east")]
    Uncordon(ClusterArgs),
    /// Send nothing new to a cluster, and move what runs there: it is stopped, queued again and runs elsewhere
    #[command(
        after_help = "Examples:\n  switchyard cluster drain east --dry-run\n  switchyard cluster drain east --wait --timeout 30m"
    )]
    Drain(DrainArgs),
    /// Declare that a disconnected cluster will not come back: what ran there is queued again at once
    #[command(
        name = "mark-lost",
        alias = "declare-lost",
        after_help = "Examples:\n  switchyard cluster mark-lost east --dry-run\n  switchyard cluster mark-lost east --yes --wait"
    )]
    DeclareLost(DeclareLostArgs),
    /// Trust all objects on a cluster that have the hub's marks, though some have no proof
    ///
    /// They are signed within an hour. The condition CopiesUnproved names some of them.
    #[command(
        after_help = "Examples:\n  switchyard cluster trust-copies east --dry-run\n  switchyard cluster trust-copies east --yes"
    )]
    TrustCopies(TrustCopiesArgs),
}

#[derive(clap::Args, Debug)]
pub struct ClusterArgs {
    /// Name of the MultiKueueCluster.
    #[arg(value_parser = crate::find::cluster)]
    pub name: String,
    /// Print what would happen, and change nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Output,
}

/// Arguments of `drain`.
#[derive(clap::Args, Debug)]
pub struct DrainArgs {
    /// The cluster.
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// Wait until nothing of the hub is on the cluster, with progress on stderr.
    #[arg(long, conflicts_with = "dry_run")]
    pub wait: bool,
    /// Timeout of --wait, such as 30s, 10m or 2h.
    #[arg(long, default_value = "1h", value_parser = crate::wait::timeout, requires = "wait")]
    pub timeout: Duration,
}

/// Arguments of `mark-lost`.
#[derive(clap::Args, Debug)]
pub struct DeclareLostArgs {
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// Confirm that no job of the hub runs there any more, or may run twice. Without it, only show
    /// what would happen.
    #[arg(long)]
    pub yes: bool,
    /// Wait until the hub has taken all jobs off the cluster, with progress on stderr.
    #[arg(long, conflicts_with = "dry_run")]
    pub wait: bool,
    /// Timeout of --wait, such as 30s, 10m or 2h.
    #[arg(long, default_value = "10m", value_parser = crate::wait::timeout, requires = "wait")]
    pub timeout: Duration,
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
    /// Nothing was changed.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
    /// `--wait` has ended: nothing of the hub is left on the cluster.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_drained: bool,
    /// The copies that `trust-copies` trusts, in the hub's words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub copies: Option<String>,
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
        Command::Drain(drain) => (&drain.cluster, "drain"),
        Command::DeclareLost(lost) => (&lost.cluster, "declare-lost"),
        Command::TrustCopies(trust) => (&trust.cluster, "trust-copies"),
    };
    let deadline = match command {
        Command::Drain(drain) if drain.wait => Some(Deadline::after(drain.timeout)),
        Command::DeclareLost(lost) if lost.wait => Some(Deadline::after(lost.timeout)),
        _ => None,
    };
    let clusters: Api<MultiKueueCluster> = Api::all(client.clone());
    let cluster = get_cluster(&clusters, &named.name).await?;
    let workloads = count_workloads(client.clone(), &named.name).await?;
    let mut copies = None;
    let annotations = match command {
        Command::Cordon(_) => json!({names::SCHEDULING: names::CORDON}),
        Command::Uncordon(_) => json!({names::SCHEDULING: Value::Null}),
        Command::Drain(_) => json!({names::SCHEDULING: names::DRAIN}),
        Command::DeclareLost(_) => json!({names::DECLARED_LOST: lost_since(&cluster)?}),
        Command::TrustCopies(_) => {
            copies = Some(unproved_copies(&cluster)?);
            json!({names::TRUST_COPIES: Timestamp::now().to_string()})
        }
    };
    let mut done = ClusterChange {
        cluster: named.name.clone(),
        action,
        workloads,
        dry_run: named.dry_run,
        is_drained: false,
        copies,
    };
    if let Some(condition) = unconfirmed(command).filter(|_| !named.dry_run) {
        return Err(confirm::needed(&plan(&done), condition));
    }
    let is_active = cluster
        .status
        .as_ref()
        .is_some_and(|status| conditions::is_true(&status.conditions, conditions::ACTIVE));
    if matches!(command, Command::Drain(_)) && !is_active {
        eprintln!(
            "{0} is not connected: its jobs move when it is back. `switchyard cluster mark-lost {0}` \
             gives them up.",
            named.name
        );
    }
    if !named.dry_run {
        annotate_cluster(&clusters, &named.name, &annotations).await?;
    }
    if let Some(deadline) = deadline {
        await_empty(&client, &named.name, deadline).await?;
        done.is_drained = true;
    }
    named.output.render(&done, render_text)
}

/// When `--yes` would be right, for a command that needs it and lacks it.
fn unconfirmed(command: &Command) -> Option<&'static str> {
    match command {
        Command::DeclareLost(lost) if !lost.yes => {
            Some("If nothing of the hub runs there any more, or jobs may run twice")
        }
        Command::TrustCopies(trust) if !trust.yes => Some("If all of it is the hub's"),
        _ => None,
    }
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
        anyhow::anyhow!("no MultiKueueCluster \"{name}\"; `switchyard get clusters` lists them")
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

/// The hub's workloads on a cluster, as a watch shows them.
#[derive(Default)]
struct Remaining {
    /// By namespace and name.
    workloads: HashSet<(String, String)>,
    /// Whether all that exist were seen.
    is_complete: bool,
}

impl Remaining {
    fn record(&mut self, change: &Change<Workload>, cluster: &str) {
        let key = |it: &Workload| (it.namespace().unwrap_or_default(), it.name_any());
        match change {
            Change::Applied(workload) if is_on(workload, cluster) => {
                self.workloads.insert(key(workload));
            }
            Change::Applied(workload) | Change::Deleted(workload) => {
                self.workloads.remove(&key(workload));
            }
            Change::Began => *self = Self::default(),
            Change::Complete => self.is_complete = true,
        }
    }
}

/// Waits until nothing is on the cluster, with progress on stderr. Watches Workloads, so that a
/// large hub lists them once.
pub(crate) async fn await_empty(
    client: &kube::Client,
    cluster: &str,
    deadline: Deadline,
) -> anyhow::Result<()> {
    let (mut remaining, mut outage) = (Remaining::default(), Outage::default());
    let empty = until_empty(client, cluster, &mut remaining, &mut outage);
    if let Ok(result) = tokio::time::timeout_at(deadline.end_of_wait(), empty).await {
        return result;
    }
    let state = remaining.is_complete.then(|| {
        format!(
            "{cluster} still has {}; `switchyard get jobs -A --cluster {cluster}` lists them",
            counted(remaining.workloads.len(), "workload")
        )
    });
    let error = match (&state, outage.into_error()) {
        (None, None) => Some(request::no_answer()),
        (_, error) => error,
    };
    Err(deadline.missed(&format!("no workload is on {cluster}"), state.as_deref(), error))
}

async fn until_empty(
    client: &kube::Client,
    cluster: &str,
    remaining: &mut Remaining,
    outage: &mut Outage,
) -> anyhow::Result<()> {
    let workloads: Api<Workload> = Api::all(client.clone());
    let mut before = None;
    follow(&workloads, None, outage, async |change: Change<Workload>| {
        remaining.record(&change, cluster);
        let left = remaining.workloads.len();
        if !remaining.is_complete {
            return Ok(ControlFlow::Continue(()));
        }
        if left == 0 {
            return Ok(ControlFlow::Break(()));
        }
        if before.replace(left) != Some(left) {
            eprintln!("{} {} left on {cluster}", counted(left, "workload"), is_or_are(left));
        }
        Ok(ControlFlow::Continue(()))
    })
    .await
}

/// How many unfinished workloads the hub has on a cluster.
pub(crate) async fn count_workloads(client: kube::Client, name: &str) -> anyhow::Result<usize> {
    let workloads: Api<Workload> = Api::all(client);
    let all = crate::status::list(&workloads).await;
    let all = all.map_err(|error| crate::with_hint(&error, "listing workloads"))?;
    Ok(all.iter().filter(|workload| is_on(workload, name)).count())
}

/// Whether a cluster has the workload, or may have it. An eviction removes `clusterName` at once, but
/// the quota only when no pod is left. The cluster of an offer may have it too.
fn is_on(workload: &Workload, cluster: &str) -> bool {
    let Some(status) = &workload.status else { return false };
    let holds = |type_| conditions::is_true(&status.conditions, type_);
    let last = status.dispatch.as_ref().and_then(|dispatch| dispatch.cluster_name.as_deref());
    let is_leaving =
        holds(conditions::EVICTED) && holds(conditions::QUOTA_RESERVED) && last == Some(cluster);
    let is_offered = status.nominated_cluster_names.iter().any(|name| name == cluster);
    let is_there = status.cluster_name.as_deref() == Some(cluster);
    !holds(conditions::FINISHED) && (is_there || is_leaving || is_offered)
}

/// The value of the annotation: when the connection was lost.
///
/// # Errors
/// If the cluster is connected or has no status.
fn lost_since(cluster: &MultiKueueCluster) -> anyhow::Result<String> {
    let name = cluster.name_any();
    let status = cluster.status.as_ref();
    let active = status.and_then(|status| conditions::find(&status.conditions, conditions::ACTIVE));
    let Some(active) = active else {
        bail!("the hub has not looked at cluster \"{name}\" yet: does it run?")
    };
    if active.status == conditions::TRUE {
        bail!(
            "cluster \"{name}\" is connected; `switchyard cluster drain {name}` takes away what runs there"
        );
    }
    Ok(active.last_transition_time.0.to_string())
}

/// The copies without a proof, in the hub's words.
///
/// # Errors
/// If every copy has a proof.
fn unproved_copies(cluster: &MultiKueueCluster) -> anyhow::Result<String> {
    let name = cluster.name_any();
    let status = cluster.status.as_ref();
    let unproved =
        status.and_then(|status| conditions::find(&status.conditions, conditions::COPIES_UNPROVED));
    let Some(unproved) = unproved.filter(|unproved| unproved.status == conditions::TRUE) else {
        bail!("nothing on cluster \"{name}\" that counts as the hub's copy lacks a proof");
    };
    Ok(unproved.message.clone())
}

/// The text of a dry run.
fn plan(done: &ClusterChange) -> String {
    let ClusterChange { cluster, workloads: count, copies, .. } = done;
    let workloads = counted(*count, "workload");
    let plan = match done.action {
        "cordon" => {
            format!("Nothing new would be sent to {cluster}, which would keep {workloads}.")
        }
        "uncordon" => {
            format!("{cluster} would be used again. {workloads} {} on it.", is_or_are(*count))
        }
        "drain" => format!(
            "Nothing new would be sent to {cluster}, and {workloads} would be stopped there, queued again and run elsewhere."
        ),
        "trust-copies" => {
            let copies = copies.as_deref().unwrap_or_default();
            format!(
                "{copies}\n\nAll of it would be signed as the hub's within an hour. Nothing would be stopped."
            )
        }
        _ => format!(
            "{cluster} would be marked lost: {workloads} would be queued again and run elsewhere, whatever still runs there."
        ),
    };
    format!("{plan} Nothing is changed.\n")
}

fn render_text(done: &ClusterChange) -> String {
    if done.dry_run {
        return plan(done);
    }
    let ClusterChange { cluster, workloads: count, is_drained, .. } = done;
    let (workloads, are) = (counted(*count, "workload"), is_or_are(*count));
    match (done.action, is_drained) {
        ("cordon", _) => {
            format!("Nothing new is sent to {cluster}, which keeps {workloads}.\n")
        }
        ("uncordon", _) => format!("{cluster} is used again.\n"),
        ("drain", false) => {
            format!(
                "{cluster} is being drained of {workloads}. `switchyard get jobs -A` shows where they go.\n"
            )
        }
        ("drain", true) => format!("{cluster} is drained. No workload is on it.\n"),
        ("trust-copies", _) => {
            format!(
                "What has the hub's marks on {cluster} is signed within an hour. Nothing is stopped.\n"
            )
        }
        (_, false) => format!("{cluster} is marked lost: {workloads} {are} queued again.\n"),
        (_, true) => format!("{cluster} is marked lost. No workload is on it.\n"),
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
    fn drain_ends_once_all_workloads_were_seen_elsewhere() {
        let workload = |name: &str, at: Option<&str>| -> Workload {
            serde_json::from_value(json!({
                "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
                "metadata": {"name": name, "namespace": "ns"},
                "spec": {"podSets": []}, "status": {"clusterName": at},
            }))
            .unwrap()
        };
        let mut remaining = Remaining::default();
        let mut see = |changes: Vec<Change<Workload>>| {
            for change in changes {
                remaining.record(&change, "east");
            }
            (remaining.workloads.len(), remaining.is_complete)
        };
        let there = || Change::Applied(workload("a", Some("east")));
        assert_eq!(see(vec![Change::Began]), (0, false));
        assert_eq!(see(vec![there(), Change::Applied(workload("b", Some("west")))]), (1, false));
        assert_eq!(see(vec![Change::Complete]), (1, true));
        assert_eq!(see(vec![Change::Applied(workload("a", None))]), (0, true));
        assert_eq!(see(vec![there(), Change::Deleted(workload("a", Some("east")))]), (0, true));
        assert_eq!(
            see(vec![there(), Change::Began]),
            (0, false),
            "a deletion may have been missed"
        );
    }

    #[test]
    fn only_unproved_copies_are_trusted() {
        let with = |status: &str| {
            let condition = json!([{"type": "CopiesUnproved", "status": status, "reason": "X", "message": "2 objects",
                "lastTransitionTime": "2026-11-21T10:00:00Z"}]);
            cluster(&condition)
        };
        assert_eq!(unproved_copies(&with("True")).unwrap(), "2 objects");
        for nothing in [with("False"), cluster(&json!([]))] {
            let error = unproved_copies(&nothing).unwrap_err().to_string();
            assert!(error.starts_with("nothing on cluster"), "{error}");
        }
    }

    #[test]
    fn only_a_lost_cluster_is_declared() {
        let say =
            |status: &str| lost_since(&cluster(&active(status))).map_err(|error| error.to_string());
        assert_eq!(say("False"), Ok("2026-11-21T10:00:00Z".to_owned()));
        assert!(say("True").unwrap_err().contains("is connected"));
        assert!(lost_since(&cluster(&json!([]))).is_err());
    }

    #[test]
    fn commands_that_may_run_jobs_twice_need_yes() {
        let parse = |line: &str| {
            use clap::Parser as _;
            let words = ["switchyard", "cluster"].into_iter().chain(line.split(' '));
            match crate::Args::try_parse_from(words).unwrap().command {
                crate::Command::Cluster(crate::command::ClusterCommand::Operate(command)) => {
                    command
                }
                other => panic!("{other:?}"),
            }
        };
        for line in ["mark-lost east", "trust-copies east"] {
            assert!(unconfirmed(&parse(line)).is_some(), "{line}");
            assert!(unconfirmed(&parse(&format!("{line} --yes"))).is_none(), "{line}");
        }
        for line in ["drain east", "cordon east", "uncordon east"] {
            assert!(unconfirmed(&parse(line)).is_none(), "{line}");
        }
    }

    #[test]
    fn dry_runs_say_what_would_happen() {
        let texts: String = ["cordon", "uncordon", "drain", "declare-lost", "trust-copies"]
            .map(|action| {
                render_text(&ClusterChange {
                    cluster: "east".into(),
                    action,
                    workloads: 3,
                    dry_run: true,
                    is_drained: false,
                    copies: (action == "trust-copies")
                        .then(|| "2 objects: Job ns/a, Job ns/b".into()),
                })
            })
            .concat();
        insta::assert_snapshot!(texts, @r"
        Nothing new would be sent to east, which would keep 3 workloads. Nothing is changed.
        east would be used again. 3 workloads are on it. Nothing is changed.
        Nothing new would be sent to east, and 3 workloads would be stopped there, queued again and run elsewhere. Nothing is changed.
        east would be marked lost: 3 workloads would be queued again and run elsewhere, whatever still runs there. Nothing is changed.
        2 objects: Job ns/a, Job ns/b

        All of it would be signed as the hub's within an hour. Nothing would be stopped. Nothing is changed.
        ");
    }
}
