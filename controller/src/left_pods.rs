//! Whether pods of a job run on that is gone: deleted in the background, its pods end after it, and nothing here counts them any
//! more.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::{Api, ResourceExt, api::ListParams};
use switchyard_api::v1beta2::Workload;

use crate::{
    context::{Context, Role},
    store::Key,
    work::Outcome,
    workload::{has_reservation, is_finished, is_group_workload, was_dispatched},
    write::answered,
};

/// How often it is looked whether such pods are left.
const LOOK_AGAIN: Duration = Duration::from_secs(3);

/// The kinds whose controllers write the uid of their job on its pods, and the label.
const BY_UID: [(&str, &str); 2] =
    [("Job", "batch.kubernetes.io/controller-uid"), ("JobSet", "jobset.sigs.k8s.io/jobset-uid")];

/// Of the pods of a job so many are looked at.
const AT_ONCE: u32 = 100;

/// What selects pods that are on a node and have not ended.
const RUNNING: &str = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed";

/// When to reconcile again because pods of the Workload's deleted job run on, or because the API server does not answer; `None`
/// when no pod runs.
pub(crate) async fn wait(ctx: &Context, workload: &Workload) -> Option<Outcome> {
    match run_on(ctx, workload).await {
        Ok(false) => None,
        Ok(true) => Some(Outcome::Again(LOOK_AGAIN)),
        Err(error) => {
            let workload = Key::of(workload);
            tracing::warn!(%workload, %error, "could not ask whether pods of a job that is gone run on");
            Some(Outcome::Failed)
        }
    }
}

/// Whether pods of the Workload's job run on in this cluster. The API server is asked only for a Workload with quota.
async fn run_on(ctx: &Context, workload: &Workload) -> Result<bool, kube::Error> {
    if !is_charged_here(ctx.role, workload) {
        return Ok(false);
    }
    let pods: Api<Pod> = Api::namespaced(ctx.client.clone(), &workload.namespace().unwrap_or_default());
    if let Some(selector) = selector(workload) {
        let params = ListParams::default().labels(&selector).fields(RUNNING).limit(AT_ONCE);
        let found = answered(pods.list_metadata(&params)).await?.items;
        // A deletion that orphans them takes their controller away.
        return Ok(found.iter().any(|pod| pod.owner_references().iter().any(|owner| owner.controller == Some(true))));
    }
    Ok(false)
}

fn is_charged_here(role: Role, workload: &Workload) -> bool {
    let elsewhere = role == Role::Hub && was_dispatched(workload);
    has_reservation(workload) && !is_finished(workload) && !is_group_workload(workload) && !elsewhere
}

/// What selects the pods of the job. Pods that its user has orphaned are not waited for: nothing ends them.
fn selector(workload: &Workload) -> Option<String> {
    let owner = workload.owner_references().iter().find(|owner| owner.controller == Some(true))?;
    let (_, label) = BY_UID.iter().find(|(kind, _)| owner.kind == *kind)?;
    Some(format!("{label}={}", owner.uid))
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
    fn pods_are_looked_for_of_a_workload(#[case] role: Role, #[case] workload: Workload, #[case] want: bool) {
        assert_eq!(is_charged_here(role, &workload), want);
    }

    fn owned(kind: &str) -> serde_json::Value {
        json!({"ownerReferences": [{"apiVersion": "x/v1", "kind": kind, "name": "a", "uid": "u", "controller": true}]})
    }

    #[rstest::rstest]
    #[case::of_a_job(owned("Job"), "batch.kubernetes.io/controller-uid=u")]
    #[case::of_a_job_set(owned("JobSet"), "jobset.sigs.k8s.io/jobset-uid=u")]
    #[case::of_a_pod(owned("Pod"), "")]
    #[case::that_is_orphaned(
        json!({"labels": {"kueue.x-k8s.io/job-uid": "v"}}), ""
    )]
    #[case::that_never_had_a_job(json!({}), "")]
    fn selectors_of_the_pods_of_a_workload(#[case] metadata: serde_json::Value, #[case] want: &str) {
        let workload =
            fixtures::workload("a").edit(|workload| workload.metadata = serde_json::from_value(metadata).unwrap());
        assert_eq!(selector(&workload).unwrap_or_default(), want);
    }
}
