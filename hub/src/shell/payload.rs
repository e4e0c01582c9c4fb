//! What a cluster is given to create for a workload. Pure, and the same for the same objects, so that its hash says
//! whether a cluster has it already.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::{Value, json};
use switchyard_api::jobs::{JobKind, RemoteMeta, kind_for};
use switchyard_api::names::{self, MULTIKUEUE_CONTROLLER};
use switchyard_api::v1beta2::Workload;
use switchyard_controller::workload::is_group_workload;
use thiserror::Error;

use crate::cluster::Content;

/// Why nothing can be sent.
#[derive(Debug, Error)]
pub(super) enum PayloadError {
    /// The workload has no owner of a kind that we know.
    #[error("the workload's owner is no job of a kind that can be sent")]
    NoOwner,
    /// The owner is not there (any more).
    #[error("the {kind} {name} is not there")]
    OwnerMissing {
        /// Its kind.
        kind: String,
        /// Its name.
        name: String,
    },
    /// The owner runs here, as far as it says; it would then run twice. Only of kinds whose own webhook says who runs them.
    #[error("the {kind} is not managed by Kueue: set its spec.managedBy to {MULTIKUEUE_CONTROLLER:?}, not {manager:?}")]
    NotManaged {
        /// Its kind.
        kind: &'static str,
        /// What it names.
        manager: String,
    },
    /// More than an agent takes.
    #[error("workload and job take {bytes} bytes together, more than can be sent; make the pod template smaller")]
    TooLarge {
        /// Their size.
        bytes: usize,
    },
    /// A fault of ours.
    #[error("not serializable: {0}")]
    Json(#[from] serde_json::Error),
}

/// Refuses an owner that would run here, too. For the kinds that we manage, the job's reconciler says so.
///
/// # Errors
/// [`PayloadError::NotManaged`].
pub(super) fn runs_elsewhere(kind: &dyn JobKind, job: &Value) -> Result<(), PayloadError> {
    let manager = kind.managed_by(job).unwrap_or_default();
    if kind.makes_workloads() || manager == MULTIKUEUE_CONTROLLER {
        return Ok(());
    }
    Err(PayloadError::NotManaged { kind: kind.id().kind, manager: manager.to_owned() })
}

/// The owner of a workload that is sent: its controller, of a kind that we know. That of a group of pods has several, none
/// of which would do alone.
pub(super) fn owner(workload: &Workload) -> Option<(&'static dyn JobKind, &OwnerReference)> {
    if is_group_workload(workload) {
        return None;
    }
    let owners = workload.metadata.owner_references.as_deref().unwrap_or_default();
    let owner = owners.iter().find(|owner| owner.controller == Some(true)).or_else(|| owners.first())?;
    let group = owner.api_version.split_once('/').map_or("", |(group, _)| group);
    Some((kind_for(group, &owner.kind)?, owner))
}

/// What a cluster creates for a workload and its job. The agent adds its own marks.
///
/// # Errors
/// [`PayloadError::Json`].
pub(super) fn content(
    workload: &Workload,
    kind: &dyn JobKind,
    job: &Value,
    origin: &str,
) -> Result<Content, PayloadError> {
    let name = workload.metadata.name.as_deref().unwrap_or_default();
    let job = kind.remote_copy(job, RemoteMeta { workload: name, origin });
    let mut labels = workload.metadata.labels.clone().unwrap_or_default();
    // The uid of a job in this cluster.
    labels.remove(names::JOB_UID);
    let copy = json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {
            "name": name,
            "namespace": workload.metadata.namespace,
            "labels": labels,
            "annotations": workload.metadata.annotations.clone().unwrap_or_default(),
        },
        "spec": workload.spec,
    });
    Ok(Content::new(serde_json::to_vec(&copy)?, serde_json::to_vec(&job)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_copy_has_what_was_asked_for_and_nothing_of_this_cluster() {
        let workload: Workload = serde_json::from_value(json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
            "metadata": {
                "name": "job-a-12345", "namespace": "ns", "uid": "u", "resourceVersion": "1", "finalizers": ["x/y"],
                "labels": {"kueue.x-k8s.io/job-uid": "j", "team": "t"},
                "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "a", "uid": "j", "controller": true}],
            },
            "spec": {"queueName": "lq", "podSets": []},
            "status": {"clusterName": "east"},
        }))
        .unwrap();
        let job = json!({
            "apiVersion": "batch/v1", "kind": "Job",
            "metadata": {"name": "a", "namespace": "ns", "uid": "j", "labels": {"kueue.x-k8s.io/queue-name": "lq"}},
            "spec": {"suspend": true, "managedBy": "kueue.x-k8s.io/multikueue", "template": {}},
            "status": {"active": 1},
        });
        let (kind, owner) = owner(&workload).unwrap();
        assert_eq!(owner.name, "a");
        let content = content(&workload, kind, &job, "multikueue").unwrap();
        let copy: Value = serde_json::from_slice(&content.workload).unwrap();
        assert_eq!(
            copy["metadata"],
            json!({"name": "job-a-12345", "namespace": "ns", "labels": {"team": "t"}, "annotations": {}})
        );
        assert_eq!(copy["spec"]["queueName"], "lq");
        assert!(copy.get("status").is_none());
        let job: Value = serde_json::from_slice(&content.job).unwrap();
        assert_eq!(job.pointer("/spec/managedBy"), None);
        assert_eq!(job.pointer("/metadata/labels/kueue.x-k8s.io~1prebuilt-workload-name"), Some(&json!("job-a-12345")));
    }

    #[test]
    fn the_workload_of_a_group_of_pods_is_not_sent_with_one_of_them() {
        let workload = |annotations: Value| -> Workload {
            let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": "u"});
            let metadata = json!({"name": "g", "annotations": annotations, "ownerReferences": [owner]});
            serde_json::from_value(json!({"metadata": metadata, "spec": {"podSets": []}})).unwrap()
        };
        assert!(owner(&workload(json!({}))).is_some());
        assert!(owner(&workload(json!({"kueue.x-k8s.io/is-group-workload": "true"}))).is_none());
    }

    #[test]
    fn a_job_of_an_external_framework_that_runs_here_is_not_sent() {
        let kind = switchyard_api::jobs::external_kind("Flock.v1.example.com").unwrap();
        let managed =
            |by: Value| runs_elsewhere(kind, &json!({"spec": {"managedBy": by}})).map_err(|it| it.to_string());
        assert_eq!(managed(json!("kueue.x-k8s.io/multikueue")), Ok(()));
        let said = managed(json!("example.com/flock")).unwrap_err();
        assert!(said.contains("\"kueue.x-k8s.io/multikueue\", not \"example.com/flock\""), "{said}");
        assert!(managed(Value::Null).is_err());
        let job = switchyard_api::jobs::kind_for("batch", "Job").unwrap();
        assert!(runs_elsewhere(job, &json!({})).is_ok());
    }
}
