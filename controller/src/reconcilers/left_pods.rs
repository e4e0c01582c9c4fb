//! Pods of a job that outlive it: deleted in the background, or held by finalizers. Only a list of
//! pods shows whether some are left, and only their deletion stops them.

use std::time::Duration;

use k8s_openapi::{
    NamespaceResourceScope,
    api::{batch::v1::Job, core::v1::Pod},
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{DeleteParams, ListParams, Preconditions},
    core::PartialObjectMeta,
};
use serde::de::DeserializeOwned;
use serde_json::Value;
use switchyard_api::{names, v1beta2::Workload};
use switchyard_jobs::{
    PodSelector,
    elastic::{is_slice, slice_name},
    meta, pod_selector,
};

use crate::{
    context::Context,
    role::Role,
    workload::{has_reservation, is_evicted, is_finished, is_group_workload, was_dispatched},
};
use switchyard_platform::write::WriteError;
use switchyard_platform::{api_call::with_deadline, store::Key, work_queue::Outcome};

/// Interval of the checks.
const CHECK_INTERVAL: Duration = Duration::from_secs(3);

/// Pods per list request.
const PAGE: u32 = 500;
/// Bound of list requests. For a job without a selecting label, all jobs' pods of the namespace are
/// listed.
const PAGES: usize = 20;

/// Selects pods that have not ended.
const LIVE: &str = "status.phase!=Succeeded,status.phase!=Failed";
/// Selects those that are on a node.
const RUNNING: &str = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed";

type PodMeta = PartialObjectMeta<Pod>;

/// When to reconcile again because pods of the Workload's deleted job run on, or because the API
/// server does not answer; `None` when no pod runs.
pub(crate) async fn wait(ctx: &Context, workload: &Workload) -> Option<Outcome> {
    match find(ctx, workload, RUNNING, 1).await {
        Ok(pods) if pods.is_empty() => None,
        Ok(_) => Some(Outcome::Requeue(CHECK_INTERVAL)),
        Err(error) => {
            let workload = Key::of(workload);
            tracing::warn!(%workload, %error, "could not ask whether pods of a job that is gone run on");
            Some(Outcome::Failed)
        }
    }
}

/// Whether pods of a job that is being deleted must be deleted to stop it. Its controller no longer
/// stops it when it is suspended. A deletion with orphan propagation leaves the pods to their user.
pub(crate) fn must_end(job: &Value, workload: &Workload) -> bool {
    let finalizers = job.pointer("/metadata/finalizers").and_then(Value::as_array);
    let orphans = finalizers.is_some_and(|finalizers| finalizers.iter().any(|it| it == "orphan"));
    let is_stopped = is_evicted(workload) || workload.metadata.deletion_timestamp.is_some();
    meta::is_deleting(job) && !orphans && is_stopped
}

/// Deletes the live pods of the Workload's job, or the Jobs that would replace them. `None` when
/// there are none, otherwise when to reconcile again.
pub(crate) async fn end(ctx: &Context, workload: &Workload) -> Option<Outcome> {
    match try_end(ctx, workload).await {
        Ok(is_done) => (!is_done).then_some(Outcome::Requeue(CHECK_INTERVAL)),
        Err(error) => {
            let workload = Key::of(workload);
            tracing::warn!(%workload, %error, "could not delete the pods of a job that is being deleted");
            Some(Outcome::Failed)
        }
    }
}

/// Whether no pod is left.
async fn try_end(ctx: &Context, workload: &Workload) -> Result<bool, WriteError> {
    let namespace = workload.namespace().unwrap_or_default();
    let pods = find(ctx, workload, LIVE, usize::MAX).await?;
    let is_done = pods.is_empty();
    let live = pods.into_iter().filter(|pod| pod.metadata.deletion_timestamp.is_none());
    for target in targets(live, workload) {
        if !ctx.leading() {
            return Err(WriteError::NotLeading);
        }
        let deleted = match &target {
            Target::Pod { name, uid } => delete::<Pod>(&ctx.client, &namespace, name, uid).await,
            Target::Job { name, uid } => delete::<Job>(&ctx.client, &namespace, name, uid).await,
        };
        ctx.metrics.wrote("job", deleted.is_ok());
        match deleted.map_err(WriteError::from) {
            // Another object of the same name is not this one.
            Ok(()) | Err(WriteError::Gone | WriteError::Conflict) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(is_done)
}

/// An object to delete, in order to stop pods.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Target {
    Pod { name: String, uid: String },
    Job { name: String, uid: String },
}

/// The pods to delete. A Job below the Workload's job would replace its pods, so it is deleted
/// itself.
fn targets(pods: impl Iterator<Item = PodMeta>, workload: &Workload) -> Vec<Target> {
    let owner = controller(workload.owner_references()).map(|owner| owner.uid.clone());
    let target = |pod: PodMeta| match controller(pod.owner_references()) {
        Some(job) if job.kind == "Job" && Some(&job.uid) != owner.as_ref() => {
            Target::Job { name: job.name.clone(), uid: job.uid.clone() }
        }
        _ => Target::Pod { name: pod.name_any(), uid: pod.uid().unwrap_or_default() },
    };
    let mut targets: Vec<Target> = pods.map(target).collect();
    targets.sort();
    targets.dedup();
    targets
}

async fn delete<K>(
    client: &Client,
    namespace: &str,
    name: &str,
    uid: &str,
) -> Result<(), kube::Error>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + Clone
        + DeserializeOwned
        + std::fmt::Debug,
{
    let api: Api<K> = Api::namespaced(client.clone(), namespace);
    let preconditions = Preconditions { uid: Some(uid.to_owned()), resource_version: None };
    let params = DeleteParams::background().preconditions(preconditions);
    with_deadline(api.delete(name, &params)).await.map(drop)
}

/// The local pods of the Workload's job that match the field selector, up to `enough`. Lists only
/// for a Workload with quota.
async fn find(
    ctx: &Context,
    workload: &Workload,
    fields: &str,
    enough: usize,
) -> Result<Vec<PodMeta>, kube::Error> {
    let mut found = Vec::new();
    let Some(selector) = selector(workload).filter(|_| is_charged_here(ctx.role, workload)) else {
        return Ok(found);
    };
    let api: Api<Pod> =
        Api::namespaced(ctx.client.clone(), &workload.namespace().unwrap_or_default());
    let mut params = ListParams::default().labels(&selector.labels).fields(fields).limit(PAGE);
    for _ in 0..PAGES {
        let page = with_deadline(api.list_metadata(&params)).await?;
        found.extend(page.items.into_iter().filter(|pod| is_of(pod, workload, selector.is_exact)));
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) if found.len() < enough => params = params.continue_token(&token),
            _ => return Ok(found),
        }
    }
    if found.is_empty() {
        // There may be some among the pods that were not read.
        let message = format!(
            "none of the first {} pods is of the job, and there are more",
            PAGE as usize * PAGES
        );
        return Err(kube::Error::Service(message.into()));
    }
    Ok(found)
}

/// Whether a pod belongs to the Workload's job. Deletion with orphan propagation removes the pods'
/// controller, and nothing ends them.
fn is_of(pod: &PodMeta, workload: &Workload, is_exact: bool) -> bool {
    let is = |key: &str, value: &str| pod.annotations().get(key).is_some_and(|it| it == value);
    let is_named = || {
        let is_of_slice =
            is_slice(workload) && is(names::WORKLOAD_SLICE_NAME, slice_name(workload));
        is(names::WORKLOAD, &workload.name_any()) || is_of_slice
    };
    controller(pod.owner_references()).is_some() && (is_exact || is_named())
}

fn controller(owners: &[OwnerReference]) -> Option<&OwnerReference> {
    owners.iter().find(|owner| owner.controller == Some(true))
}

fn is_charged_here(role: Role, workload: &Workload) -> bool {
    let elsewhere = role == Role::Hub && was_dispatched(workload);
    has_reservation(workload)
        && !is_finished(workload)
        && !is_group_workload(workload)
        && !elsewhere
}

/// Selects the pods of a Workload's job. `None` for a single pod.
fn selector(workload: &Workload) -> Option<PodSelector> {
    let owner = controller(workload.owner_references()).filter(|owner| owner.kind != "Pod")?;
    Some(pod_selector(&owner.kind, &owner.name, &owner.uid))
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use switchyard_api::v1beta2::DispatchStatus;

    use super::*;
    use crate::fixtures::{self, WorkloadExt};

    fn holding() -> Workload {
        fixtures::workload("a").reserved("cq").admitted()
    }

    fn sent() -> Workload {
        holding().edit(|workload| {
            let dispatch = DispatchStatus { attempt: 1, ..DispatchStatus::default() };
            workload.status.get_or_insert_default().dispatch = Some(dispatch);
        })
    }

    #[rstest::rstest]
    #[case::with_quota(Role::Single, holding(), true)]
    #[case::pending(Role::Single, fixtures::workload("a"), false)]
    #[case::finished(Role::Single, holding().condition("Finished", true, "", ""), false)]
    #[case::copy_of_a_hub(Role::Hub, sent(), false)]
    #[case::dispatched(Role::Hub, holding(), true)]
    fn pods_are_listed_only_with_quota(
        #[case] role: Role,
        #[case] workload: Workload,
        #[case] want: bool,
    ) {
        assert_eq!(is_charged_here(role, &workload), want);
    }

    fn owned(kind: &str, name: &str) -> serde_json::Value {
        json!({"ownerReferences": [{"apiVersion": "x/v1", "kind": kind, "name": name, "uid": "u", "controller": true}]})
    }

    fn with(metadata: serde_json::Value) -> Workload {
        fixtures::workload("w")
            .edit(|workload| workload.metadata = serde_json::from_value(metadata).unwrap())
    }

    const LONG: &str = "a-name-that-is-longer-than-the-value-of-a-label-may-be-by-one-63";

    #[rstest::rstest]
    #[case::job(owned("Job", "a"), "batch.kubernetes.io/controller-uid=u", true)]
    #[case::job_set(owned("JobSet", "a"), "jobset.sigs.k8s.io/jobset-uid=u", true)]
    #[case::ray_cluster(owned("RayCluster", "a"), "ray.io/cluster=a", false)]
    #[case::pytorch_job(owned("PyTorchJob", "a"), "training.kubeflow.org/job-name=a", false)]
    #[case::mpi_job(owned("MPIJob", "a"), "training.kubeflow.org/job-name=a", false)]
    #[case::train_job(owned("TrainJob", "a"), "jobset.sigs.k8s.io/jobset-name=a", false)]
    #[case::ray_job(owned("RayJob", "a"), "kueue.x-k8s.io/podset", false)]
    #[case::app_wrapper(owned("AppWrapper", "a"), "kueue.x-k8s.io/podset", false)]
    #[case::job_with_a_long_name(owned("TFJob", LONG), "kueue.x-k8s.io/podset", false)]
    #[case::pod(owned("Pod", "a"), "", false)]
    #[case::orphaned(json!({"labels": {"kueue.x-k8s.io/job-uid": "v"}}), "", false)]
    #[case::never_had_a_job(json!({}), "", false)]
    fn selector_of_the_pods(
        #[case] metadata: serde_json::Value,
        #[case] labels: &str,
        #[case] is_exact: bool,
    ) {
        let want = PodSelector { labels: labels.to_owned(), is_exact };
        assert_eq!(selector(&with(metadata)), (!labels.is_empty()).then_some(want));
    }

    fn pod(name: &str, annotations: &serde_json::Value, owner: &serde_json::Value) -> PodMeta {
        let metadata = json!({"name": name, "uid": name, "annotations": annotations, "ownerReferences": owner});
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata});
        serde_json::from_value(pod).unwrap()
    }

    fn by(kind: &str, uid: &str) -> serde_json::Value {
        json!([{"apiVersion": "x/v1", "kind": kind, "name": "n", "uid": uid, "controller": true}])
    }

    #[rstest::rstest]
    #[case::started_by_it(json!({"kueue.x-k8s.io/workload": "w"}), by("RayCluster", "u"), false, true)]
    #[case::recreated_job(json!({"kueue.x-k8s.io/workload": "v"}), by("RayCluster", "v"), false, false)]
    #[case::no_labels(json!({}), by("RayCluster", "u"), false, false)]
    #[case::with_its_uid(json!({}), by("Job", "u"), true, true)]
    #[case::first_slice(json!({"kueue.x-k8s.io/workload-slice-name": "s"}), by("RayCluster", "u"), false, true)]
    #[case::orphaned(json!({"kueue.x-k8s.io/workload": "w"}), json!([]), false, false)]
    fn pod_belongs_to_the_workloads_job(
        #[case] annotations: serde_json::Value,
        #[case] owner: serde_json::Value,
        #[case] is_exact: bool,
        #[case] want: bool,
    ) {
        let annotations_of_slice = json!({"kueue.x-k8s.io/workload-slice-name": "s", "kueue.x-k8s.io/elastic-job": "true"});
        let marks = json!({"name": "w", "annotations": annotations_of_slice});
        assert_eq!(is_of(&pod("p", &annotations, &owner), &with(marks), is_exact), want);
    }

    #[rstest::rstest]
    #[case::evicted(json!({"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["x/y"]}), true, true)]
    #[case::may_run(json!({"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["x/y"]}), false, false)]
    #[case::kept(json!({"finalizers": ["x/y"]}), true, false)]
    #[case::pods_orphaned(
        json!({"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["orphan"]}), true, false
    )]
    fn pods_of_a_deleted_job_are_deleted(
        #[case] metadata: serde_json::Value,
        #[case] is_evicted: bool,
        #[case] want: bool,
    ) {
        let workload = holding().condition("Evicted", is_evicted, "Deactivated", "");
        assert_eq!(must_end(&json!({"metadata": metadata}), &workload), want);
    }

    #[test]
    fn jobs_that_would_replace_pods_are_deleted() {
        let pods = [pod("a", &json!({}), &by("Job", "j")), pod("b", &json!({}), &by("Job", "j"))];
        let of_set = targets(pods.into_iter(), &with(owned("JobSet", "s")));
        assert_eq!(of_set, [Target::Job { name: "n".into(), uid: "j".into() }]);
        let of_job =
            targets([pod("a", &json!({}), &by("Job", "u"))].into_iter(), &with(owned("Job", "n")));
        assert_eq!(of_job, [Target::Pod { name: "a".into(), uid: "a".into() }]);
    }
}
