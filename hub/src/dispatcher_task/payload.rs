//! The objects that an agent creates for a workload. Pure. Equal inputs give equal bytes, so that
//! the hash shows whether the agent has them.

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::{Value, json};
use switchyard_api::names::{self, MULTIKUEUE_CONTROLLER};
use switchyard_api::v1beta2::Workload;
use switchyard_controller::workload::{is_group_workload, pod_group_owner};
use switchyard_jobs::{
    JobKind, RemoteMeta, elastic, kind_of_owner, meta, pod::Pod, propagated_changes, sent_objects,
};
use switchyard_proto::pod_sets_hash;
use switchyard_proto::v1::Payload;
use thiserror::Error;

/// Why a workload cannot be sent.
#[derive(Debug, Error)]
pub(super) enum PayloadError {
    /// The Workload has no owner of a supported kind.
    #[error("the workload's owner is no job of a kind that can be sent")]
    NoOwner,
    /// The owner does not exist, or was not read yet.
    #[error("the {kind} {name} is not there")]
    OwnerMissing { kind: String, name: String },
    /// The Workload does not exist any more.
    #[error("the workload is gone")]
    WorkloadMissing,
    /// The owner would also run on the hub. Only for kinds whose own webhook decides who runs them.
    #[error(
        "the {kind} is not managed by Kueue: set its spec.managedBy to {MULTIKUEUE_CONTROLLER:?}, not {manager:?}"
    )]
    NotManaged {
        kind: &'static str,
        /// The value of `spec.managedBy`.
        manager: String,
    },
    /// The payload exceeds the agent's limit.
    #[error(
        "workload and job take {bytes} bytes together, more than can be sent; make the pod template smaller"
    )]
    TooLarge { bytes: usize },
    /// All pods of the group are being deleted.
    #[error(
        "all pods of the group are being deleted: delete its Workload, or create other pods in their place"
    )]
    NothingToRun,
    /// A defect of the hub.
    #[error("not serializable: {0}")]
    Json(#[from] serde_json::Error),
}

/// Refuses an owner that would also run on the hub. For kinds that Switchyard manages, the job's
/// reconciler prevents it.
///
/// # Errors
/// [`PayloadError::NotManaged`].
pub(super) fn require_managed_by_kueue(
    kind: &dyn JobKind,
    job: &Value,
) -> Result<(), PayloadError> {
    let manager = kind.managed_by(job).unwrap_or_default();
    if kind.makes_workloads() || manager == MULTIKUEUE_CONTROLLER {
        return Ok(());
    }
    Err(PayloadError::NotManaged { kind: kind.id().kind, manager: manager.to_owned() })
}

/// The job behind a workload, by its owner references.
pub(super) struct JobOwner<'a> {
    pub(super) kind: &'static dyn JobKind,
    /// The job's name. A pod group has its Workload's name.
    pub(super) name: &'a str,
    /// The job, or the members of the pod group.
    pub(super) owners: Vec<&'a OwnerReference>,
    pub(super) is_group: bool,
}

impl<'a> JobOwner<'a> {
    fn one(kind: &'static dyn JobKind, owner: &'a OwnerReference) -> Self {
        Self { kind, name: &owner.name, owners: vec![owner], is_group: false }
    }
}

/// The owner that is sent: the Workload's controller. For a pod group, the object that made the
/// pods, or else the pods.
pub(super) fn sent_owner(workload: &Workload) -> Option<JobOwner<'_>> {
    match pod_group_owner(workload) {
        Some((kind, owner)) => kind.remote().is_some().then(|| JobOwner::one(kind, owner)),
        None => status_owner(workload),
    }
}

/// The owner that shows the remote status: the Workload's controller, or the pods of a pod group.
pub(super) fn status_owner(workload: &Workload) -> Option<JobOwner<'_>> {
    let owners = workload.metadata.owner_references.as_deref().unwrap_or_default();
    if is_group_workload(workload) {
        let owners: Vec<&OwnerReference> = owners.iter().filter(|owner| is_pod(owner)).collect();
        let name = workload.metadata.name.as_deref()?;
        return (!owners.is_empty()).then_some(JobOwner {
            kind: &Pod,
            name,
            owners,
            is_group: true,
        });
    }
    let owner =
        owners.iter().find(|owner| owner.controller == Some(true)).or_else(|| owners.first())?;
    Some(JobOwner::one(kind_of_owner(&owner.api_version, &owner.kind)?, owner))
}

fn is_pod(owner: &OwnerReference) -> bool {
    owner.kind == "Pod" && owner.api_version == "v1"
}

/// Encodes the objects that the agent creates. The agent adds its own marks. `sized` is the
/// workload with the pod counts of its admission, if these may be lower.
///
/// # Errors
/// [`PayloadError::NothingToRun`] and [`PayloadError::Json`].
pub(super) fn encode_payload(
    workload: &Workload,
    sized: Option<&Workload>,
    kind: &dyn JobKind,
    job: &Value,
    origin: &str,
) -> Result<Payload, PayloadError> {
    let name = workload.metadata.name.as_deref().unwrap_or_default();
    let remote = kind.remote().ok_or(PayloadError::NothingToRun)?;
    let mut job = remote.remote_copy(job, RemoteMeta { workload: name, origin });
    if job.get("items").and_then(Value::as_array).is_some_and(Vec::is_empty) {
        return Err(PayloadError::NothingToRun);
    }
    if elastic::is_marked(&job) {
        resize_elastic_job(kind, workload, &mut job);
    }
    let mut annotations = workload.metadata.annotations.clone().unwrap_or_default();
    // A user may have set it.
    annotations.remove(names::POD_SETS_HASH);
    if let Some(sized) = sized {
        kind.shrink(&mut job, &sized.spec.pod_sets);
        // A hub that lost its store recognizes the job by the pod sets that its user asked for.
        let asked = pod_sets_hash(&serde_json::to_value(&workload.spec.pod_sets)?);
        annotations.insert(names::POD_SETS_HASH.to_owned(), BASE64_STANDARD.encode(&asked));
    }
    let mut labels = workload.metadata.labels.clone().unwrap_or_default();
    // The uid of the job on the hub.
    labels.remove(names::JOB_UID);
    let mut copy = json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {
            "name": name,
            "namespace": workload.metadata.namespace,
            "labels": labels,
            "annotations": annotations,
        },
        "spec": sized.unwrap_or(workload).spec,
    });
    // Preemption gates are opened on the hub, and say nothing about preemption on the worker.
    if let Some(spec) = copy["spec"].as_object_mut() {
        spec.remove("preemptionGates");
    }
    Ok(Payload::new(serde_json::to_vec(&copy)?, serde_json::to_vec(&job)?))
}

/// Whether the workload may run with fewer pods than it asks for, and another number in each
/// attempt.
pub(super) fn may_shrink(workload: &Workload) -> bool {
    workload.spec.pod_sets.iter().any(|pod_set| pod_set.min_count.is_some())
}

/// Gives an elastic job the size of its reserved quota. A job without slices is not elastic on the
/// worker.
fn resize_elastic_job(kind: &dyn JobKind, workload: &Workload, job: &mut Value) {
    match kind.elastic().filter(|elastic| elastic::is_slice(workload) && elastic.resizes()) {
        Some(elastic) => elastic.resize(job, &workload.spec.pod_sets),
        None => {
            meta::remove_annotation(job, names::ELASTIC_JOB);
        }
    }
}

/// Whether the job's kind has fields that follow the hub's object while it runs.
pub(super) fn has_followed_fields(workload: &Workload) -> bool {
    sent_owner(workload).is_some_and(|owned| !owned.kind.propagated_fields().is_empty())
}

/// Whether the agent must update a running job: pods joined a group, the number of replicas or
/// elastic pods changed, or another field that the kind propagates.
pub(super) fn needs_update(before: &[u8], now: &[u8]) -> bool {
    if before == now {
        return false;
    }
    let objects = |job: &[u8]| serde_json::from_slice(job).map(sent_objects).unwrap_or_default();
    let names = |objects: &[Value]| -> BTreeSet<String> {
        objects.iter().map(|it| meta::name(it).to_owned()).collect()
    };
    let (before, now) = (objects(before), objects(now));
    let follows = |(before, now): (&Value, &Value)| {
        kind_of(now).is_some_and(|it| propagated_changes(it, now, before).is_some())
    };
    !names(&now).is_subset(&names(&before)) || before.first().zip(now.first()).is_some_and(follows)
}

/// Whether the job to send has the size of its Workload. Worker groups with another number of hosts
/// than their quota may match no size.
pub(super) fn has_workload_size(workload: &Workload, job: &[u8]) -> bool {
    let size = |job: &Value| {
        Some(elastic::compare(&kind_of(job)?.pod_sets(job).ok()?, &workload.spec.pod_sets))
    };
    let sent = || serde_json::from_slice(job).ok().as_ref().and_then(size);
    !elastic::is_slice(workload) || sent() == Some(elastic::Size::Same)
}

fn kind_of(object: &Value) -> Option<&'static dyn JobKind> {
    let text = |key: &str| object.get(key).and_then(Value::as_str);
    kind_of_owner(text("apiVersion")?, text("kind")?)
}

#[cfg(test)]
mod tests;
