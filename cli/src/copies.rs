//! `switchyard recover export`: prints the jobs that a hub created on a worker cluster as manifests for the
//! hub. For the case that the hub's store and the manifests are lost. Runs against the worker.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::bail;
use kube::api::{Api, DynamicObject, ListParams};
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};
use switchyard_api::names;
use switchyard_api::v1beta2::{PriorityClassKind, Workload};
use switchyard_controller::workload::is_group_workload;
use switchyard_jobs::{JobKind, RemoteMeta, SuspendMode, kind_of_owner, meta, named_job};

/// Workloads per list request.
const PAGE: u32 = 500;

/// Labels and annotations that mark a job as a copy.
const OF_COPIES: [&str; 7] = [
    names::HUB_ID,
    names::MULTIKUEUE_ORIGIN,
    names::MULTIKUEUE_ORIGIN_UID,
    names::PREBUILT_WORKLOAD_NAME,
    names::WORKLOAD_UID,
    names::ATTEMPT,
    names::PROOF,
];

/// Arguments of `switchyard recover export`.
#[derive(clap::Args, Debug, Default)]
pub struct Args {
    /// Only this job.
    pub job: Option<String>,
    /// Namespace of the jobs. Default: the kubeconfig's.
    #[arg(short, long)]
    pub namespace: Option<String>,
    /// All namespaces.
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    pub all_namespaces: bool,
    /// The hub's ID, if several hubs use the cluster: the label `switchyard.dev/hub-id` of the
    /// copies.
    #[arg(long)]
    pub hub_id: Option<String>,
}

/// The manifests as a JSON list for `kubectl apply -f -` on the hub.
///
/// # Errors
/// As [`manifests`].
pub async fn run(client: Client, namespace: &str, args: &Args) -> anyhow::Result<String> {
    let items = manifests(client, namespace, args).await?;
    let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
    Ok(serde_json::to_string_pretty(&list)? + "\n")
}

/// The jobs as manifests.
///
/// # Errors
/// If the cluster is unreadable, if several hubs use it and none is named, or if the named job is
/// missing.
pub async fn manifests(client: Client, namespace: &str, args: &Args) -> anyhow::Result<Vec<Value>> {
    let namespace = args.namespace.as_deref().unwrap_or(namespace);
    let workloads: Api<Workload> = if args.all_namespaces {
        Api::all(client.clone())
    } else {
        Api::namespaced(client.clone(), namespace)
    };
    let copies = list(&workloads, args.hub_id.as_deref()).await?;
    one_hub(&copies)?;
    let mut manifests = Vec::new();
    for workload in &copies {
        // It belongs to the job of the Workload that it follows.
        if workload.annotations().contains_key(names::FOLLOWS) {
            continue;
        }
        let Some((kind, name)) = job_of(workload) else { continue };
        if args.job.as_deref().is_some_and(|wanted| wanted != name) {
            continue;
        }
        let namespace = workload.namespace().unwrap_or_default();
        let jobs: Api<DynamicObject> =
            Api::namespaced_with(client.clone(), &namespace, &kind.id().api_resource());
        // A copy without a job had not started. It is created again once the job is applied.
        for job in objects(&jobs, kind, name, workload).await? {
            manifests.push(manifest(kind, &serde_json::to_value(&job)?, workload));
        }
    }
    if let (Some(job), true) = (&args.job, manifests.is_empty()) {
        bail!(
            "no hub has had a job \"{job}\" made in namespace {namespace} of this cluster; is it another cluster (--context)?"
        );
    }
    Ok(manifests)
}

async fn list(api: &Api<Workload>, hub: Option<&str>) -> anyhow::Result<Vec<Workload>> {
    let label =
        hub.map_or_else(|| names::HUB_ID.to_owned(), |hub| format!("{}={hub}", names::HUB_ID));
    let mut page = ListParams::default().labels(&label).limit(PAGE);
    let mut all = Vec::new();
    loop {
        let list =
            api.list(&page).await.map_err(|error| crate::with_hint(&error, "reading Workloads"))?;
        all.extend(list.items);
        match list.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => page = page.continue_token(&token),
            None => return Ok(all),
        }
    }
}

fn one_hub(copies: &[Workload]) -> anyhow::Result<()> {
    let hubs: BTreeSet<&str> = copies
        .iter()
        .filter_map(|copy| copy.labels().get(names::HUB_ID))
        .map(String::as_str)
        .collect();
    if hubs.len() > 1 {
        let hubs: Vec<&str> = hubs.into_iter().collect();
        bail!(
            "several hubs have had jobs made here: {}; say whose are meant with --hub-id",
            hubs.join(", ")
        );
    }
    Ok(())
}

/// The job of a copy, or the pods of its group.
async fn objects(
    jobs: &Api<DynamicObject>,
    kind: &dyn JobKind,
    name: &str,
    workload: &Workload,
) -> anyhow::Result<Vec<DynamicObject>> {
    let doing = format!("reading {} {name}", kind.id().kind);
    let explained = |error: kube::Error| crate::with_hint(&error, &doing);
    let is_group = kind.suspend_mode() == SuspendMode::Gate && is_group_workload(workload);
    if !is_group {
        return Ok(jobs.get_opt(name).await.map_err(explained)?.into_iter().collect());
    }
    let marked = ListParams::default().labels(names::HUB_ID);
    let all = jobs.list(&marked).await.map_err(explained)?.items;
    let of = |annotations: Option<&BTreeMap<String, String>>| {
        annotations?.get(names::WORKLOAD_UID).cloned()
    };
    let whose = of(workload.metadata.annotations.as_ref());
    Ok(all
        .into_iter()
        .filter(|pod| whose.is_some() && of(pod.metadata.annotations.as_ref()) == whose)
        .collect())
}

/// Kind and name of the job that a copy stands for.
fn job_of(workload: &Workload) -> Option<(&'static dyn JobKind, &str)> {
    let (gvk, name) = named_job(workload)?;
    let (version, kind) = gvk.split_once(", Kind=")?;
    Some((kind_of_owner(version, kind)?, name))
}

/// The user's manifest, as far as the copy tells. Pod templates come from the Workload, without
/// changes by its flavors, and so does the priority.
fn manifest(kind: &dyn JobKind, copy: &Value, workload: &Workload) -> Value {
    let mut job = copy.clone();
    kind.restore(&mut job, &workload.spec.pod_sets);
    let marks = RemoteMeta { workload: "", origin: "" };
    let mut manifest = match kind.remote() {
        Some(remote) => remote.remote_copy(&job, marks),
        None => job.clone(),
    };
    unmark(&mut manifest);
    let class = workload.spec.priority_class_ref.as_ref();
    if let Some(class) =
        class.filter(|class| class.kind == PriorityClassKind::WorkloadPriorityClass)
    {
        meta::set_label(&mut manifest, names::PRIORITY_CLASS, &class.name);
    }
    manifest
}

/// Removes the marks of a copy, also from pod templates.
fn unmark(value: &mut Value) {
    let Some(fields) = value.as_object_mut() else { return };
    if let Some(metadata) = fields.get_mut("metadata").and_then(Value::as_object_mut) {
        for field in ["labels", "annotations"] {
            let Some(entries) = metadata.get_mut(field).and_then(Value::as_object_mut) else {
                continue;
            };
            OF_COPIES.iter().for_each(|key| drop(entries.remove(*key)));
            if entries.is_empty() {
                metadata.remove(field);
            }
        }
    }
    fields.values_mut().for_each(unmark);
}

#[cfg(test)]
mod tests {
    use serde_json::Map;

    use super::*;

    fn workload(marks: &Value) -> Workload {
        let mut workload = json!({
            "metadata": {"name": "job-a-1", "namespace": "team", "labels": {"switchyard.dev/hub-id": "hub"}},
            "spec": {
                "podSets": [{"name": "main", "count": 2, "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}}],
                "priorityClassRef": {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "high"},
            },
        });
        workload["metadata"]["annotations"] = marks.clone();
        serde_json::from_value(workload).unwrap()
    }

    fn named() -> Value {
        json!({"kueue.x-k8s.io/job-owner-gvk": "batch/v1, Kind=Job", "kueue.x-k8s.io/job-owner-name": "a"})
    }

    #[test]
    fn copy_becomes_the_manifest_that_was_applied() {
        let workload = workload(&named());
        let (kind, name) = job_of(&workload).unwrap();
        assert_eq!(name, "a");
        let copy = json!({
            "apiVersion": "batch/v1", "kind": "Job",
            "metadata": {
                "name": "a", "namespace": "team", "uid": "j", "resourceVersion": "7", "generation": 2,
                "finalizers": ["switchyard.dev/terminal-state"],
                "labels": {
                    "kueue.x-k8s.io/queue-name": "main", "kueue.x-k8s.io/priority-class": "low", "switchyard.dev/hub-id": "hub",
                    "kueue.x-k8s.io/prebuilt-workload-name": "job-a-1", "kueue.x-k8s.io/multikueue-origin": "multikueue",
                },
                "annotations": {"switchyard.dev/workload-uid": "w", "switchyard.dev/attempt": "1"},
            },
            "spec": {
                "suspend": false, "parallelism": 2, "completions": 5, "selector": {"matchLabels": {"controller-uid": "j"}},
                "template": {"spec": {"containers": [{"name": "c", "image": "i"}], "nodeSelector": {"pool": "spot"}}},
            },
            "status": {"active": 2},
        });
        let expected = json!({
            "apiVersion": "batch/v1", "kind": "Job",
            "metadata": {
                "name": "a", "namespace": "team",
                "labels": {"kueue.x-k8s.io/queue-name": "main", "kueue.x-k8s.io/priority-class": "high"},
            },
            "spec": {
                "suspend": true, "parallelism": 2, "completions": 5,
                "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}},
            },
        });
        let restored = manifest(kind, &copy, &workload);
        assert_eq!(without_empty(restored), expected);
    }

    #[test]
    fn pod_templates_lose_the_marks_of_a_copy() {
        let marked = json!({
            "labels": {"app": "web", "switchyard.dev/hub-id": "hub"}, "annotations": {"switchyard.dev/attempt": "1"},
        });
        let mut copy = json!({"metadata": marked, "spec": {"template": {"metadata": marked}}});
        unmark(&mut copy);
        let plain = json!({"labels": {"app": "web"}});
        assert_eq!(copy, json!({"metadata": plain, "spec": {"template": {"metadata": plain}}}));
    }

    /// Drops empty maps, which mean the same as missing ones.
    fn without_empty(value: Value) -> Value {
        let Value::Object(fields) = value else { return value };
        let kept = fields.into_iter().map(|(key, value)| (key, without_empty(value)));
        Value::Object(
            kept.filter(|(_, value)| value.as_object().is_none_or(|it| !it.is_empty()))
                .collect::<Map<_, _>>(),
        )
    }

    #[test]
    fn workload_without_job_is_skipped_and_two_hubs_rejected() {
        assert!(job_of(&workload(&json!({}))).is_none());
        let (ours, mut theirs) = (workload(&named()), workload(&named()));
        theirs.labels_mut().insert(names::HUB_ID.to_owned(), "other".to_owned());
        assert!(one_hub(&[ours.clone(), ours.clone()]).is_ok());
        let message = one_hub(&[ours, theirs]).unwrap_err().to_string();
        assert_eq!(
            message,
            "several hubs have had jobs made here: hub, other; say whose are meant with --hub-id"
        );
    }
}
