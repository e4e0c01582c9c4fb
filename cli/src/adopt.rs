//! `switchyard recover adopt JOB --from CLUSTER --uid UID`: annotates a Workload on the hub so that it
//! takes over a copy from before the hub lost its store, even if the two differ.

use std::ops::ControlFlow;
use std::time::Duration;

use anyhow::bail;
use kube::{Api, ResourceExt as _};
use serde::Serialize;
use switchyard_api::v1beta2::{MultiKueueCluster, Workload};
use switchyard_api::{conditions, names};

use crate::deadline::Deadline;
use crate::find::find;
use crate::job_row::row;
use crate::{Output, confirm, operate, wait};

/// Arguments of `switchyard recover adopt`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The job that was applied again, or its Workload; KIND/NAME if several have the name.
    pub job: String,
    /// The cluster with the copy.
    #[arg(long, value_name = "CLUSTER", value_parser = crate::find::cluster)]
    pub from: String,
    /// UID of the copy, as `switchyard recover orphans` shows it.
    #[arg(long, value_name = "UID")]
    pub uid: String,
    /// Confirm that both are the same job although they differ. Without it, only say what would
    /// happen.
    #[arg(long)]
    pub yes: bool,
    /// Print what would happen, and change nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// Wait until the hub has adopted the copy, with progress on stderr. The job needs quota first.
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

/// The adoption that was requested.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Adoption {
    /// Name of the Workload on the hub.
    pub workload: String,
    pub cluster: String,
    pub uid: String,
    /// `namespace/name` of the copy's Workload.
    pub copy: String,
    /// The copy's state, as its cluster reports it.
    pub state: String,
    /// As `dryRun`, the name of earlier versions.
    pub dry: bool,
    /// Nothing was changed.
    pub dry_run: bool,
    /// `--wait` has ended: the hub has adopted the copy.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_adopted: bool,
}

/// Requests the adoption.
///
/// # Errors
/// If there is no such job, cluster or copy, if the job is on a cluster already, without `--yes`,
/// or for want of rights.
pub async fn run(client: kube::Client, namespace: &str, args: &Args) -> anyhow::Result<String> {
    let namespace = args.namespace.as_deref().unwrap_or(namespace);
    let deadline = Deadline::after(args.timeout);
    let cluster = operate::get_cluster(&Api::all(client.clone()), &args.from).await?;
    let workloads: Api<Workload> = Api::namespaced(client, namespace);
    let all = crate::status::list(&workloads).await;
    let all = all.map_err(|error| crate::with_hint(&error, "listing workloads"))?;
    let mut plan = plan(find(&all, namespace, &args.job)?, &cluster, args)?;
    if plan.dry_run && !args.dry_run {
        return Err(confirm::needed(&render_text(&plan), "If the two are the same job"));
    }
    if !plan.dry_run {
        let value = format!("{}/{}", plan.cluster, plan.uid);
        operate::annotate_workload(&workloads, &plan.workload, names::ADOPT, &value).await?;
    }
    if args.wait {
        adopted(&workloads, &plan, deadline).await?;
        plan.is_adopted = true;
    }
    args.output.render(&plan, render_text)
}

/// Waits until the hub has the job on the copy's cluster.
async fn adopted(
    workloads: &Api<Workload>,
    plan: &Adoption,
    deadline: Deadline,
) -> anyhow::Result<()> {
    let goal = format!("{} has the copy on {}", plan.workload, plan.cluster);
    wait::poll(deadline, &goal, async || {
        let found = workloads.get_opt(&plan.workload).await;
        let found = found.map_err(|error| crate::with_hint(&error, "reading the workload"))?;
        let Some(workload) = found else { bail!("{} was deleted", plan.workload) };
        let row = row(&workload);
        let dispatch = workload.status.as_ref().and_then(|status| status.dispatch.as_ref());
        let copy = dispatch.and_then(|dispatch| dispatch.workload_uid.as_deref());
        match &row.cluster {
            Some(at) if *at == plan.cluster && copy == Some(&*plan.uid) => {
                return Ok(ControlFlow::Break(()));
            }
            Some(at) if *at != plan.cluster => bail!("{} was sent to {at} instead", plan.workload),
            _ if row.state.is_final() => {
                bail!("{} has finished ({}) before it was adopted", row.job, row.state)
            }
            _ => {}
        }
        let state = format!("{} is not adopted yet: {} {}", row.job, row.state, row.reason);
        Ok(ControlFlow::Continue(state.trim_end().to_owned()))
    })
    .await
}

fn plan(workload: &Workload, cluster: &MultiKueueCluster, args: &Args) -> anyhow::Result<Adoption> {
    let name = workload.name_any();
    let status = workload.status.clone().unwrap_or_default();
    if conditions::is_true(&status.conditions, conditions::FINISHED) {
        bail!("{name} has finished");
    }
    if let Some(cluster) = status.cluster_name {
        bail!(
            "{name} is on cluster \"{cluster}\" already; delete the copy on its cluster, or the job here"
        );
    }
    let orphans =
        cluster.status.as_ref().map(|status| status.orphans.as_slice()).unwrap_or_default();
    let Some(copy) = orphans.iter().find(|orphan| orphan.workload_uid == args.uid) else {
        bail!(
            "cluster \"{}\" shows no copy with uid {}; see `switchyard recover orphans`",
            args.from,
            args.uid
        );
    };
    let namespace = workload.namespace().unwrap_or_default();
    if copy.namespace != namespace {
        bail!("the copy is in namespace {}, the job in {namespace}", copy.namespace);
    }
    if copy.note.as_deref().is_none_or(|note| note.starts_with(names::ORPHAN_STAYS)) {
        bail!(
            "the copy is not from before this hub's memory, so no job can adopt it; see `switchyard recover orphans`"
        );
    }
    let copy_name = format!("{}/{}", copy.namespace, copy.name);
    let (cluster, uid, state) = (args.from.clone(), args.uid.clone(), copy.state.clone());
    let dry = args.dry_run || !args.yes;
    Ok(Adoption {
        workload: name,
        cluster,
        uid,
        copy: copy_name,
        state,
        dry,
        dry_run: dry,
        is_adopted: false,
    })
}

fn render_text(plan: &Adoption) -> String {
    let Adoption { workload, cluster, copy, state, .. } = plan;
    if plan.dry_run {
        return format!(
            "{workload} would become the Workload of {copy} on {cluster} ({state}), which goes on as it is. Nothing is changed.\n"
        );
    }
    if plan.is_adopted {
        return format!("{workload} is the Workload of {copy} on {cluster}.\n");
    }
    format!(
        "{workload} becomes the Workload of {copy} on {cluster} ({state}) as soon as it has quota.\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn args(uid: &str) -> Args {
        Args {
            job: "a".into(),
            from: "east".into(),
            uid: uid.into(),
            yes: false,
            dry_run: false,
            wait: false,
            timeout: Duration::from_secs(1),
            namespace: None,
            output: Output::default(),
        }
    }

    fn workload(status: &Value) -> Workload {
        serde_json::from_value(json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "metadata": {"name": "job-a", "namespace": "ns"},
            "spec": {"podSets": []}, "status": status,
        }))
        .unwrap()
    }

    fn cluster() -> MultiKueueCluster {
        let orphan = |uid: &str, namespace: &str, note: Option<&str>| {
            json!({"workloadUid": uid, "namespace": namespace, "name": "job-old", "attempt": 2, "state": "Running",
                "since": "2026-11-21T10:00:00Z", "note": note})
        };
        let orphans = [
            orphan("u1", "ns", Some("differs")),
            orphan("u2", "other", Some("x")),
            orphan("u3", "ns", None),
            orphan("u4", "ns", Some("stays: multiKueue.gcInterval is 0")),
        ];
        serde_json::from_value(json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "MultiKueueCluster", "metadata": {"name": "east"},
            "spec": {"clusterSource": {"agent": {}}}, "status": {"orphans": orphans},
        }))
        .unwrap()
    }

    #[test]
    fn adoption_is_previewed_and_invalid_ones_rejected() {
        let seen = plan(&workload(&json!({})), &cluster(), &args("u1")).unwrap();
        insta::assert_snapshot!(render_text(&seen), @r"
        job-a would become the Workload of ns/job-old on east (Running), which goes on as it is. Nothing is changed.
        ");
        insta::assert_snapshot!(render_text(&Adoption { dry_run: false, ..seen }), @"job-a becomes the Workload of ns/job-old on east (Running) as soon as it has quota.");
        let no = |status: &Value, uid: &str| {
            plan(&workload(status), &cluster(), &args(uid)).unwrap_err().to_string()
        };
        assert!(
            no(&json!({"clusterName": "west"}), "u1")
                .contains("job-a is on cluster \"west\" already")
        );
        assert!(no(&json!({}), "u9").contains("shows no copy with uid u9"));
        assert!(no(&json!({}), "u2").contains("the copy is in namespace other"));
        for uid in ["u3", "u4"] {
            assert!(no(&json!({}), uid).contains("no job can adopt it"), "{uid}");
        }
    }
}
