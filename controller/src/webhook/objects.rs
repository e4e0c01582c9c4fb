//! Defaults and validation for Kueue's own kinds, beyond their schemas.

use serde::de::DeserializeOwned;
use serde_json::Value;
use switchyard_api::{
    field::FieldError,
    v1beta2::{ClusterQueue, Cohort, ResourceFlavor, Workload},
    validate::{self, ValidationGates},
};

use super::review::{ReviewOutcome, ReviewRequest};

pub(super) struct ValidatedKind {
    /// Name in paths and webhook names.
    pub(super) singular: &'static str,
    /// Resources and subresources.
    pub(super) resources: &'static [&'static str],
    rule: fn(&ReviewRequest<'_>, ValidationGates) -> Result<Vec<FieldError>, serde_json::Error>,
    warnings: fn(&ReviewRequest<'_>) -> Vec<String>,
}

/// Kinds that need validation beyond their schemas.
pub(super) const KINDS: &[ValidatedKind] = &[
    ValidatedKind {
        singular: "workload",
        resources: &["workloads", "workloads/status"],
        rule: workload,
        warnings: workload_warnings,
    },
    ValidatedKind {
        singular: "clusterqueue",
        resources: &["clusterqueues"],
        rule: cluster_queue,
        warnings: no_warnings,
    },
    ValidatedKind {
        singular: "cohort",
        resources: &["cohorts"],
        rule: cohort,
        warnings: no_warnings,
    },
    ValidatedKind {
        singular: "resourceflavor",
        resources: &["resourceflavors"],
        rule: resource_flavor,
        warnings: no_warnings,
    },
];

/// Path of a kind's reviews, as in Kueue.
pub(super) fn path(verb: &str, singular: &str) -> String {
    format!("/{verb}-kueue-x-k8s-io-v1beta2-{singular}")
}

impl ValidatedKind {
    pub(super) fn validate(
        &self,
        request: &ReviewRequest<'_>,
        gates: ValidationGates,
    ) -> ReviewOutcome {
        // Finalizers must be removable even from an invalid object.
        if request.old.is_some() && switchyard_jobs::meta::is_deleting(request.object) {
            return ReviewOutcome::Allow;
        }
        match (self.rule)(request, gates) {
            Ok(errors) if errors.is_empty() => match (self.warnings)(request) {
                warnings if warnings.is_empty() => ReviewOutcome::Allow,
                warnings => ReviewOutcome::Warn(warnings),
            },
            Ok(errors) => ReviewOutcome::Deny(errors.iter().map(ToString::to_string).collect()),
            Err(error) => ReviewOutcome::Deny(vec![format!(
                "the object has not the shape of its kind: {error}"
            )]),
        }
    }
}

/// Lowercases pod set names, and drops `minCount` unless `partial_admission` is enabled.
pub(super) fn default_workload(
    request: &ReviewRequest<'_>,
    partial_admission: bool,
) -> ReviewOutcome {
    let mut wanted = request.object.clone();
    let pod_sets = wanted.pointer_mut("/spec/podSets").and_then(Value::as_array_mut);
    for pod_set in pod_sets.into_iter().flatten() {
        if let Some(name) = pod_set.get_mut("name")
            && let Some(lower) = name.as_str().map(str::to_lowercase)
        {
            *name = Value::from(lower);
        }
        if !partial_admission && let Some(pod_set) = pod_set.as_object_mut() {
            pod_set.remove("minCount");
        }
    }
    ReviewOutcome::Mutate(Box::new(wanted))
}

fn typed<K: DeserializeOwned>(value: &Value) -> Result<K, serde_json::Error> {
    K::deserialize(value)
}

fn workload(
    request: &ReviewRequest<'_>,
    gates: ValidationGates,
) -> Result<Vec<FieldError>, serde_json::Error> {
    let new: Workload = typed(request.object)?;
    match request.old {
        None => Ok(validate::workload(&new, None, gates)),
        Some(old) => Ok(validate::workload_update(&new, &typed(old)?, gates)),
    }
}

fn workload_warnings(request: &ReviewRequest<'_>) -> Vec<String> {
    typed(request.object)
        .map(|workload: Workload| validate::workload_warnings(&workload))
        .unwrap_or_default()
}

fn no_warnings(_: &ReviewRequest<'_>) -> Vec<String> {
    Vec::new()
}

fn cluster_queue(
    request: &ReviewRequest<'_>,
    gates: ValidationGates,
) -> Result<Vec<FieldError>, serde_json::Error> {
    let new: ClusterQueue = typed(request.object)?;
    match request.old {
        None => Ok(validate::cluster_queue(&new, gates)),
        Some(old) => Ok(validate::cluster_queue_update(&new, &typed(old)?, gates)),
    }
}

fn cohort(
    request: &ReviewRequest<'_>,
    _: ValidationGates,
) -> Result<Vec<FieldError>, serde_json::Error> {
    Ok(validate::cohort(&typed::<Cohort>(request.object)?))
}

fn resource_flavor(
    request: &ReviewRequest<'_>,
    _: ValidationGates,
) -> Result<Vec<FieldError>, serde_json::Error> {
    Ok(validate::resource_flavor(&typed::<ResourceFlavor>(request.object)?))
}
