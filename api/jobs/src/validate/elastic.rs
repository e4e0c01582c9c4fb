//! Rules of elastic jobs (Kueue's `pkg/workloadslicing/workloadslicing.go`).

use serde_json::Value;

use crate::{JobKind, KindProfile, batch_job::BatchJob, elastic, meta, ray};
use switchyard_api::slices::FEATURE_GATE;
use switchyard_syntax::{
    field::{FieldError, Path},
    names,
};

const WITH_PARTIAL: &str = "partial admission and elastic job cannot be used together";

/// Errors of a job's elastic annotation, with the feature gate on. `old` is the job before an
/// update.
#[must_use]
pub fn validate_elastic(kind: &dyn JobKind, old: Option<&Value>, job: &Value) -> Vec<FieldError> {
    let path = &meta::annotation_path(names::ELASTIC_JOB);
    if let Some(old) = old {
        let (before, now) = (elastic::is_marked(old), elastic::is_marked(job));
        let changed = (before != now)
            .then(|| FieldError::invalid(path, Value::from(now), "field is immutable"));
        return changed.into_iter().chain(gates_lost(kind, old, job)).collect();
    }
    let id = kind.id();
    if !elastic::is_marked(job) || kind.skips(job) {
        return Vec::new();
    }
    if kind.elastic_templates(job).is_empty() {
        let gvk = format!("{}, Kind={}", id.api_version(), id.kind);
        return vec![FieldError::forbidden(
            path,
            &format!("elastic job is not supported for {gvk:?}"),
        )];
    }
    if id == BatchJob.id() { with_partial_admission(job).into_iter().collect() } else { Vec::new() }
}

/// The error of a Job that is both elastic and partially admitted.
fn with_partial_admission(job: &Value) -> Option<FieldError> {
    let text = meta::annotation(job, names::JOB_MIN_PARALLELISM)?;
    Some(FieldError::invalid(
        &meta::annotation_path(names::JOB_MIN_PARALLELISM),
        text,
        WITH_PARTIAL,
    ))
}

/// Errors of lost scheduling gates. The templates of a RayCluster may change while it runs, and
/// without the gate its new pods would run whatever the quota.
fn gates_lost(kind: &dyn JobKind, old: &Value, job: &Value) -> Vec<FieldError> {
    if kind.id() != ray::RAY_CLUSTER.id()
        || !elastic::is_elastic(kind, old)
        || !elastic::may_be_elastic(kind, job)
    {
        return Vec::new();
    }
    let gate = names::ELASTIC_JOB_SCHEDULING_GATE;
    let detail = format!("an elastic job must have the ElasticJobSchedulingGate: {gate:?}");
    let lost = |template: &String| {
        let gates =
            job.pointer(template).and_then(|it| it.pointer("/spec/schedulingGates")).cloned();
        let path = path_of(template).child("spec").child("schedulingGates");
        FieldError::invalid(&path, gates.unwrap_or_default(), &detail)
    };
    kind.elastic_templates(job)
        .iter()
        .filter(|template| !elastic::has_gate(job, template))
        .map(lost)
        .collect()
}

/// The error of a job that has an autoscaler and is not elastic. Only the pods of elastic jobs can
/// wait for quota when the autoscaler adds them. `enabled` is the feature gate of elastic jobs.
#[must_use]
pub fn validate_autoscaling(kind: &dyn JobKind, job: &Value, enabled: bool) -> Option<FieldError> {
    let path =
        kind.autoscaler_field(job).filter(|_| !(enabled && elastic::may_be_elastic(kind, job)))?;
    if elastic::is_marked(job) && enabled {
        let detail = format!(
            "in-tree autoscaling is not supported for a MultiKueue-managed elastic {}",
            kind.id().kind
        );
        return Some(FieldError::forbidden(&path, &detail));
    }
    // Kueue has one message for RayClusters and one for kinds that contain the spec of one.
    let how = format!(
        "enable the {FEATURE_GATE} feature gate and set the {:?}: \"true\" annotation",
        names::ELASTIC_JOB
    );
    let detail = match kind.id() == ray::RAY_CLUSTER.id() {
        true => {
            format!("a kueue-managed RayCluster can use autoscaling only as an elastic job: {how}")
        }
        false => format!(
            "a kueue managed job should only use autoscaling when workload slicing is enabled: {how}"
        ),
    };
    Some(FieldError::invalid(&path, Value::from(true), detail))
}

/// Converts a JSON pointer to a field path.
fn path_of(pointer: &str) -> Path {
    pointer.split('/').skip(1).fold(Path::root(), |path, part| match part.parse() {
        Ok(index) => path.index(index),
        Err(_) => path.child(part),
    })
}
