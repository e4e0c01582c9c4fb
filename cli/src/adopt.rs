//! `switchyard adopt JOB --from CLUSTER --uid UID`: an annotation on the hub's Workload by which it becomes that of a copy
//! from before the hub's memory, whatever the two differ in.

use anyhow::bail;
use kube::{Api, ResourceExt as _};
use serde::Serialize;
use switchyard_api::v1beta2::{MultiKueueCluster, Workload};
use switchyard_api::{conditions, names};

use crate::find::find;
use crate::{Output, operate};

/// Arguments of `switchyard adopt`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The job that was applied again, or its Workload; KIND/NAME where several have the name.
    pub job: String,
    /// The cluster that has the copy.
    #[arg(long, value_name = "CLUSTER")]
    pub from: String,
    /// The copy's uid, as `switchyard orphans` shows it.
    #[arg(long, value_name = "UID")]
    pub uid: String,
    /// The two are the same job although they differ. Without this, only what would happen is said.
    #[arg(long)]
    pub yes: bool,
    /// The namespace. Default: the kubeconfig's.
    #[arg(short, long)]
    pub namespace: Option<String>,
    /// How to print.
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Output,
}

/// What was asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Adoption {
    /// The Workload.
    pub workload: String,
    /// The cluster that has the copy.
    pub cluster: String,
    /// The copy's uid.
    pub uid: String,
    /// `namespace/name` of the copy's Workload.
    pub copy: String,
    /// What the cluster says of it.
    pub state: String,
    /// It was only looked at.
    pub dry: bool,
}

/// Asks the hub to adopt it.
///
/// # Errors
/// When there is no such job, cluster or copy, the job is on a cluster already, or the caller may not.
pub async fn run(client: kube::Client, namespace: &str, args: &Args) -> anyhow::Result<String> {
    let namespace = args.namespace.as_deref().unwrap_or(namespace);
    let cluster = operate::get(&Api::all(client.clone()), &args.from).await?;
    let workloads: Api<Workload> = Api::namespaced(client, namespace);
    let all = crate::status::list(&workloads).await;
    let all = all.map_err(|error| crate::explain(&error, "listing workloads"))?;
    let plan = plan(find(&all, namespace, &args.job)?, &cluster, args)?;
    if args.yes {
        let value = format!("{}/{}", plan.cluster, plan.uid);
        operate::tell(&workloads, &plan.workload, names::ADOPT, &value).await?;
    }
    args.output.render(&plan, text)
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
            "cluster \"{}\" shows no copy with uid {}; see `switchyard orphans`",
            args.from,
            args.uid
        );
    };
    let namespace = workload.namespace().unwrap_or_default();
    if copy.namespace != namespace {
        bail!("the copy is in namespace {}, the job in {namespace}", copy.namespace);
    }
    if copy.note.is_none() {
        bail!(
            "the copy is not from before this hub's memory: its job was deleted, and it will be removed"
        );
    }
    let copy_name = format!("{}/{}", copy.namespace, copy.name);
    let (cluster, uid, state, dry) =
        (args.from.clone(), args.uid.clone(), copy.state.clone(), !args.yes);
    Ok(Adoption { workload: name, cluster, uid, copy: copy_name, state, dry })
}

fn text(plan: &Adoption) -> String {
    let Adoption { workload, cluster, copy, state, .. } = plan;
    if plan.dry {
        return format!(
            "{workload} would become the Workload of {copy} on {cluster} ({state}), which goes on as it is.\nAdd --yes if \
             the two are the same job.\n"
        );
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
        ];
        serde_json::from_value(json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "MultiKueueCluster", "metadata": {"name": "east"},
            "spec": {"clusterSource": {"agent": {}}}, "status": {"orphans": orphans},
        }))
        .unwrap()
    }

    #[test]
    fn what_would_happen_is_said_first_and_what_cannot_be_adopted() {
        let seen = plan(&workload(&json!({})), &cluster(), &args("u1")).unwrap();
        insta::assert_snapshot!(text(&seen), @r"
        job-a would become the Workload of ns/job-old on east (Running), which goes on as it is.
        Add --yes if the two are the same job.
        ");
        insta::assert_snapshot!(text(&Adoption { dry: false, ..seen }), @"job-a becomes the Workload of ns/job-old on east (Running) as soon as it has quota.");
        let no = |status: &Value, uid: &str| {
            plan(&workload(status), &cluster(), &args(uid)).unwrap_err().to_string()
        };
        assert!(
            no(&json!({"clusterName": "west"}), "u1")
                .contains("job-a is on cluster \"west\" already")
        );
        assert!(no(&json!({}), "u9").contains("shows no copy with uid u9"));
        assert!(no(&json!({}), "u2").contains("the copy is in namespace other"));
        assert!(no(&json!({}), "u3").contains("will be removed"));
    }
}
