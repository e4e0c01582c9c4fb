//! Validation of jobs.

use serde_json::Value;
use switchyard_api::{
    field::{FieldError, Path},
    names,
};
use switchyard_jobs::{
    JobKind, SuspendMode, UpdateContext, meta, validate_create, validate_update,
};

use super::JobFacts;

/// The validation errors of a job. Jobs that Switchyard does not manage pass.
pub(in crate::webhook) fn validate(
    kind: &dyn JobKind,
    old: Option<&Value>,
    job: &Value,
    facts: &JobFacts,
) -> Vec<String> {
    if !is_validated(kind, old, job, facts) {
        return Vec::new();
    }
    let mut errors = match old {
        None => validate_create(kind, job),
        Some(old) => {
            let around = UpdateContext {
                default_queue: facts.has_default_queue,
                elastic: facts.elastic,
                holds_quota: facts.has_quota,
            };
            validate_update(kind, old, job, around)
        }
    };
    if facts.can_resize_groups {
        let path = Path::new("spec").child("leaderWorkerTemplate").child("size").to_string();
        errors.retain(|error| error.path != path);
    }
    if facts.ignores_admission_gates {
        let path = meta::annotation_path(names::ADMISSION_GATED_BY).to_string();
        errors.retain(|error| error.path != path);
    }
    if facts.elastic {
        errors.extend(switchyard_jobs::validate_elastic(kind, old, job));
    }
    errors.extend(switchyard_jobs::validate_autoscaling(kind, job, facts.elastic));
    if let Some(old) = old.filter(|_| facts.is_releasing_quota) {
        errors.extend(scaled_up_early(old, job));
    }
    errors.iter().map(ToString::to_string).collect()
}

/// The errors in the topology that a job requests. `old` and `job` carry the objects that their
/// pods depend on. Errors that `old` has too pass, because starting and stopping are updates.
pub(in crate::webhook) fn validate_topology(
    kind: &dyn JobKind,
    old: Option<&Value>,
    job: &Value,
    facts: &JobFacts,
) -> Vec<String> {
    if !is_validated(kind, old, job, facts) {
        return Vec::new();
    }
    let wrong =
        |job: &Value| switchyard_jobs::validate_topology(kind, job, facts.topology, facts.elastic);
    let before = old.map(wrong).unwrap_or_default();
    wrong(job).iter().filter(|error| !before.contains(error)).map(ToString::to_string).collect()
}

/// Whether the job is queued or was, and is not being deleted.
fn is_validated(kind: &dyn JobKind, old: Option<&Value>, job: &Value, facts: &JobFacts) -> bool {
    let queued =
        |job: &Value| facts.manages_unqueued || meta::label(job, names::QUEUE_NAME).is_some();
    let was_queued =
        old.is_some_and(queued) && !(facts.skips_ray_and_spark_updates && is_ray_or_spark(kind));
    let prebuilt = !meta::prebuilt_workload_name(job).is_empty();
    // The controller of another kind owns these pods' object and may change it freely.
    let of_another =
        kind.suspend_mode() == SuspendMode::Pods && (facts.has_queued_owner || kind.skips(job));
    facts.is_namespace_managed
        && !facts.is_implied_kind
        && !meta::is_deleting(job)
        && !of_another
        && (queued(job) || was_queued || prebuilt)
}

fn is_ray_or_spark(kind: &dyn JobKind) -> bool {
    ["ray.io", "sparkoperator.k8s.io"].contains(&kind.id().group)
}

/// Forbids scaling up from zero while the quota of the previous pods is still held.
fn scaled_up_early(old: &Value, new: &Value) -> Option<FieldError> {
    let replicas =
        |object: &Value| object.pointer("/spec/replicas").and_then(Value::as_i64).unwrap_or(1);
    let path = Path::new("spec").child("replicas");
    let detail = "workload from previous scale-down is still being deleted";
    (replicas(old) == 0 && replicas(new) > 0).then(|| FieldError::forbidden(&path, detail))
}
