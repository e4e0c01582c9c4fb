//! Pods of a job that run on after it: deleted in the background, or held while it is being deleted. Nothing but a list of pods
//! says whether some are left, and nothing but their deletion stops them.

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

/// How often it is looked whether such pods are left.
const LOOK_AGAIN: Duration = Duration::from_secs(3);

/// Pods in one answer.
const PAGE: u32 = 500;
/// Answers that are read. Where a job cannot be told by a label, the pods of all jobs of the namespace are listed.
const PAGES: usize = 20;

/// Selects pods that have not ended.
const LIVE: &str = "status.phase!=Succeeded,status.phase!=Failed";
/// Selects those that are on a node.
const RUNNING: &str = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed";

type PodMeta = PartialObjectMeta<Pod>;

/// When to reconcile again because pods of the Workload's deleted job run on, or because the API server does not answer; `None`
/// when no pod runs.
pub(crate) async fn wait(ctx: &Context, workload: &Workload) -> Option<Outcome> {
    match find(ctx, workload, RUNNING, 1).await {
        Ok(pods) if pods.is_empty() => None,
        Ok(_) => Some(Outcome::Requeue(LOOK_AGAIN)),
        Err(error) => {
            let workload = Key::of(workload);
            tracing::warn!(%workload, %error, "could not ask whether pods of a job that is gone run on");
            Some(Outcome::Failed)
        }
    }
}

/// Whether pods of a job that is being deleted have to be deleted for it to stop. Its controller does not stop it any more when it
/// is suspended. A deletion that orphans its pods leaves them to their user.
pub(crate) fn must_end(job: &Value, workload: &Workload) -> bool {
    let finalizers = job.pointer("/metadata/finalizers").and_then(Value::as_array);
    let orphans = finalizers.is_some_and(|finalizers| finalizers.iter().any(|it| it == "orphan"));
    let is_stopped = is_evicted(workload) || workload.metadata.deletion_timestamp.is_some();
    meta::is_deleting(job) && !orphans && is_stopped
}

/// Deletes the pods of the Workload's job that have not ended, or the Jobs that would replace them. `None` when there are none,
/// otherwise when to reconcile again.
pub(crate) async fn end(ctx: &Context, workload: &Workload) -> Option<Outcome> {
    match try_end(ctx, workload).await {
        Ok(is_done) => (!is_done).then_some(Outcome::Requeue(LOOK_AGAIN)),
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

/// An object that is deleted to stop pods.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Target {
    Pod { name: String, uid: String },
    Job { name: String, uid: String },
}

/// The pods, but for those of a Job below the Workload's job: it would replace them, and is deleted itself.
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

/// The pods of the Workload's job here that the field selector selects, until `enough` are found. The API server is asked only for a Workload with quota.
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

/// Whether a pod is of the Workload's job. A deletion that orphans pods takes their controller away, and nothing ends them.
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

/// Selects the pods of a Workload's job; `None` for a pod, which is a job of its own.
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
    #[case::that_holds_quota(Role::Single, holding(), true)]
    #[case::that_waits(Role::Single, fixtures::workload("a"), false)]
    #[case::that_is_over(Role::Single, holding().condition("Finished", true, "", ""), false)]
    #[case::that_a_hub_sent(Role::Hub, sent(), false)]
    #[case::that_a_hub_keeps(Role::Hub, holding(), true)]
    fn pods_are_looked_for_of_a_workload(
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
    #[case::of_a_job(owned("Job", "a"), "batch.kubernetes.io/controller-uid=u", true)]
    #[case::of_a_job_set(owned("JobSet", "a"), "jobset.sigs.k8s.io/jobset-uid=u", true)]
    #[case::of_a_ray_cluster(owned("RayCluster", "a"), "ray.io/cluster=a", false)]
    #[case::of_a_pytorch_job(owned("PyTorchJob", "a"), "training.kubeflow.org/job-name=a", false)]
    #[case::of_an_mpi_job(owned("MPIJob", "a"), "training.kubeflow.org/job-name=a", false)]
    #[case::of_a_train_job(owned("TrainJob", "a"), "jobset.sigs.k8s.io/jobset-name=a", false)]
    #[case::of_a_ray_job(owned("RayJob", "a"), "kueue.x-k8s.io/podset", false)]
    #[case::of_an_app_wrapper(owned("AppWrapper", "a"), "kueue.x-k8s.io/podset", false)]
    #[case::of_a_job_with_a_long_name(owned("TFJob", LONG), "kueue.x-k8s.io/podset", false)]
    #[case::of_a_pod(owned("Pod", "a"), "", false)]
    #[case::that_is_orphaned(json!({"labels": {"kueue.x-k8s.io/job-uid": "v"}}), "", false)]
    #[case::that_never_had_a_job(json!({}), "", false)]
    fn selectors_of_the_pods_of_a_workload(
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
    #[case::of_another_of_its_name(json!({"kueue.x-k8s.io/workload": "v"}), by("RayCluster", "v"), false, false)]
    #[case::that_says_nothing(json!({}), by("RayCluster", "u"), false, false)]
    #[case::with_its_uid(json!({}), by("Job", "u"), true, true)]
    #[case::of_its_first_slice(json!({"kueue.x-k8s.io/workload-slice-name": "s"}), by("RayCluster", "u"), false, true)]
    #[case::that_is_orphaned(json!({"kueue.x-k8s.io/workload": "w"}), json!([]), false, false)]
    fn pod_is_of_the_job_of_a_workload(
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
    #[case::that_may_run(json!({"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["x/y"]}), false, false)]
    #[case::that_stays(json!({"finalizers": ["x/y"]}), true, false)]
    #[case::whose_pods_are_orphaned(
        json!({"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["orphan"]}), true, false
    )]
    fn pods_are_deleted_of_a_job(
        #[case] metadata: serde_json::Value,
        #[case] is_evicted: bool,
        #[case] want: bool,
    ) {
        let workload = holding().condition("Evicted", is_evicted, "Deactivated", "");
        assert_eq!(must_end(&json!({"metadata": metadata}), &workload), want);
    }

    #[test]
    fn jobs_that_would_replace_their_pods_are_deleted() {
        let pods = [pod("a", &json!({}), &by("Job", "j")), pod("b", &json!({}), &by("Job", "j"))];
        let of_set = targets(pods.into_iter(), &with(owned("JobSet", "s")));
        assert_eq!(of_set, [Target::Job { name: "n".into(), uid: "j".into() }]);
        let of_job =
            targets([pod("a", &json!({}), &by("Job", "u"))].into_iter(), &with(owned("Job", "n")));
        assert_eq!(of_job, [Target::Pod { name: "a".into(), uid: "a".into() }]);
    }
}
