//! `switchyard move JOB --to CLUSTER`: annotates the hub's Workload, which the hub acts on once.

use std::ops::ControlFlow;
use std::time::Duration;

use anyhow::bail;
use kube::{Api, ResourceExt as _};
use serde::Serialize;
use switchyard_api::v1beta2::{MultiKueueCluster, Workload};
use switchyard_api::{conditions, names};

use crate::deadline::Deadline;
use crate::find::{find, follows};
use crate::job_row::row;
use crate::{Output, operate, wait};

/// Arguments of `switchyard move`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The job, or its Workload; KIND/NAME if several have the name.
    pub job: String,
    /// The cluster to run on.
    #[arg(long, value_name = "CLUSTER", value_parser = crate::find::cluster)]
    pub to: String,
    /// Print what would happen, and change nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// Wait until the other cluster has admitted it, with progress on stderr.
    #[arg(long, conflicts_with = "dry_run")]
    pub wait: bool,
    /// Timeout of --wait, such as 30s, 10m or 2h.
    #[arg(long, default_value = "10m", value_parser = crate::wait::timeout, requires = "wait")]
    pub timeout: Duration,
    /// Namespace. Default: the kubeconfig's.
    #[arg(short, long)]
    pub namespace: Option<String>,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Output,
}

/// The move that was requested.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Move {
    pub workload: String,
    /// The present cluster, if any.
    pub from: Option<String>,
    pub to: String,
    /// The attempt to be moved.
    pub attempt: i64,
    /// Nothing was changed.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
    /// `--wait` has ended: the other cluster has the job.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub has_arrived: bool,
}

/// Requests the move. The job is stopped and starts again on the other cluster.
///
/// # Errors
/// If there is no such job or cluster, if the cluster cannot take the job now, or for want of
/// rights.
pub async fn run(client: kube::Client, namespace: &str, args: &Args) -> anyhow::Result<String> {
    let namespace = args.namespace.as_deref().unwrap_or(namespace);
    let deadline = Deadline::after(args.timeout);
    let target = operate::get_cluster(&Api::all(client.clone()), &args.to).await?;
    let workloads: Api<Workload> = Api::namespaced(client, namespace);
    let all = crate::status::list(&workloads).await;
    let all = all.map_err(|error| crate::with_hint(&error, "listing workloads"))?;
    let mut plan = plan(find(&all, namespace, &args.job)?, &target)?;
    plan.dry_run = args.dry_run;
    if !args.dry_run {
        let value = format!("{}/{}", plan.attempt, plan.to);
        operate::annotate_workload(&workloads, &plan.workload, names::MOVE, &value).await?;
    }
    if args.wait {
        let job = arrived(&workloads, &plan, deadline).await?;
        plan.has_arrived = true;
        return args.output.render(&plan, |plan| format!("{job} is on {}.\n", plan.to));
    }
    args.output.render(&plan, render_text)
}

/// Waits until the other cluster has it, with progress on stderr. Returns the job's name.
async fn arrived(
    workloads: &Api<Workload>,
    plan: &Move,
    deadline: Deadline,
) -> anyhow::Result<String> {
    let goal = format!("{} is on {}", plan.workload, plan.to);
    wait::poll(deadline, &goal, async || {
        let found = workloads.get_opt(&plan.workload).await;
        let found = found.map_err(|error| crate::with_hint(&error, "reading the workload"))?;
        let Some(workload) = found else { bail!("{} was deleted", plan.workload) };
        let row = row(&workload);
        let is_new = row.attempt > plan.attempt;
        match &row.cluster {
            Some(at) if is_new && *at == plan.to => return Ok(ControlFlow::Break(row.job)),
            Some(at) if is_new => bail!("{} could not take {}; it is on {at}", plan.to, row.job),
            _ => {}
        }
        if row.state.is_final() {
            bail!("{} has finished ({}) before it was moved", row.job, row.state);
        }
        let state = format!("{} is not on {} yet: {} {}", row.job, plan.to, row.state, row.reason);
        Ok(ControlFlow::Continue(state.trim_end().to_owned()))
    })
    .await
}

fn plan(workload: &Workload, target: &MultiKueueCluster) -> anyhow::Result<Move> {
    let (name, to) = (workload.name_any(), target.name_any());
    if follows(workload) {
        bail!("{name} is a later replica, and goes where the first is; move its object");
    }
    let status = workload.status.clone().unwrap_or_default();
    if conditions::is_true(&status.conditions, conditions::FINISHED) {
        bail!("{name} has finished");
    }
    if status.cluster_name.as_deref() == Some(&*to) {
        bail!("{name} is on cluster \"{to}\" already");
    }
    if let Some(how) = target.annotations().get(names::SCHEDULING) {
        bail!(
            "cluster \"{to}\" takes nothing new ({how}); `switchyard cluster uncordon {to}` ends that"
        );
    }
    let known =
        target.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    if !conditions::is_true(known, conditions::ACTIVE) {
        bail!("cluster \"{to}\" is not connected; `switchyard get clusters` says why");
    }
    let attempt = status.dispatch.map_or(0, |dispatch| dispatch.attempt);
    Ok(Move {
        workload: name,
        from: status.cluster_name,
        to,
        attempt,
        dry_run: false,
        has_arrived: false,
    })
}

fn render_text(plan: &Move) -> String {
    let Move { workload, to, .. } = plan;
    match &plan.from {
        Some(from) if plan.dry_run => {
            format!(
                "{workload} would be stopped on {from} and started on {to}. Nothing is changed.\n"
            )
        }
        None if plan.dry_run => {
            format!("{workload} waits; it would be offered to {to} first. Nothing is changed.\n")
        }
        Some(from) => format!("{workload} is moved from {from} to {to}, if {to} can take it.\n"),
        None => format!("{workload} waits; it is offered to {to} first.\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn workload(status: &Value) -> Workload {
        serde_json::from_value(json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "metadata": {"name": "job-a", "namespace": "ns"},
            "spec": {"podSets": []}, "status": status,
        }))
        .unwrap()
    }

    fn cluster(annotations: &Value, active: &str) -> MultiKueueCluster {
        serde_json::from_value(json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "MultiKueueCluster",
            "metadata": {"name": "east", "annotations": annotations}, "spec": {"clusterSource": {"agent": {}}},
            "status": {"conditions": [{"type": "Active", "status": active, "reason": "X", "message": "",
                "lastTransitionTime": "2026-11-21T10:00:00Z"}]},
        }))
        .unwrap()
    }

    #[test]
    fn impossible_move_is_rejected() {
        let east = cluster(&json!({}), "True");
        let running = json!({"clusterName": "west", "dispatch": {"attempt": 3}});
        let moved = plan(&workload(&running), &east).unwrap();
        assert_eq!((moved.attempt, moved.from.as_deref(), &*moved.to), (3, Some("west"), "east"));
        assert_eq!(plan(&workload(&json!({})), &east).unwrap().attempt, 0);
        let no = |status: &Value, cluster: &MultiKueueCluster| {
            plan(&workload(status), cluster).unwrap_err().to_string()
        };
        assert_eq!(
            no(&json!({"clusterName": "east"}), &east),
            "job-a is on cluster \"east\" already"
        );
        assert!(no(&running, &cluster(&json!({}), "False")).contains("is not connected"));
        let cordoned = cluster(&json!({"switchyard.dev/scheduling": "cordon"}), "True");
        assert!(no(&running, &cordoned).contains("takes nothing new (cordon)"));
        let mut later = workload(&running);
        let index = ("kueue.x-k8s.io/component-workload-index".to_owned(), "1".to_owned());
        later.metadata.annotations = Some([index].into());
        assert!(plan(&later, &east).unwrap_err().to_string().contains("goes where the first is"));
    }
}
