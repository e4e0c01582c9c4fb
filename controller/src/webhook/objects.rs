//! Defaults and validation for Kueue's own kinds, beyond their schemas.

use serde::de::DeserializeOwned;
use serde_json::Value;
use switchyard_api::{
    field::FieldError,
    v1beta2::{ClusterQueue, Cohort, ResourceFlavor, Workload},
    validate::{self, Gates},
};

use super::review::{Answer, Question};

pub(super) struct Kind {
    /// Name in paths and webhook names.
    pub(super) singular: &'static str,
    /// Resources and subresources.
    pub(super) resources: &'static [&'static str],
    rule: fn(&Question<'_>, Gates) -> Result<Vec<FieldError>, serde_json::Error>,
    warnings: fn(&Question<'_>) -> Vec<String>,
}

/// Kinds that need validation beyond their schemas.
pub(super) const KINDS: &[Kind] = &[
    Kind {
        singular: "workload",
        resources: &["workloads", "workloads/status"],
        rule: workload,
        warnings: workload_warnings,
    },
    Kind {
        singular: "clusterqueue",
        resources: &["clusterqueues"],
        rule: cluster_queue,
        warnings: no_warnings,
    },
    Kind { singular: "cohort", resources: &["cohorts"], rule: cohort, warnings: no_warnings },
    Kind {
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

impl Kind {
    pub(super) fn answer(&self, question: &Question<'_>, gates: Gates) -> Answer {
        // Finalizers must be removable even from an invalid object.
        if question.old.is_some() && switchyard_jobs::meta::is_deleting(question.object) {
            return Answer::Allow;
        }
        match (self.rule)(question, gates) {
            Ok(errors) if errors.is_empty() => match (self.warnings)(question) {
                warnings if warnings.is_empty() => Answer::Allow,
                warnings => Answer::Warn(warnings),
            },
            Ok(errors) => Answer::Refuse(errors.iter().map(ToString::to_string).collect()),
            Err(error) => {
                Answer::Refuse(vec![format!("the object has not the shape of its kind: {error}")])
            }
        }
    }
}

/// Lowercases pod set names, and drops `minCount` unless `partial_admission` is enabled.
pub(super) fn default_workload(question: &Question<'_>, partial_admission: bool) -> Answer {
    let mut wanted = question.object.clone();
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
    Answer::Change(Box::new(wanted))
}

fn typed<K: DeserializeOwned>(value: &Value) -> Result<K, serde_json::Error> {
    K::deserialize(value)
}

fn workload(question: &Question<'_>, gates: Gates) -> Result<Vec<FieldError>, serde_json::Error> {
    let new: Workload = typed(question.object)?;
    match question.old {
        None => Ok(validate::workload(&new, None, gates)),
        Some(old) => Ok(validate::workload_update(&new, &typed(old)?, gates)),
    }
}

fn workload_warnings(question: &Question<'_>) -> Vec<String> {
    typed(question.object)
        .map(|workload: Workload| validate::workload_warnings(&workload))
        .unwrap_or_default()
}

fn no_warnings(_: &Question<'_>) -> Vec<String> {
    Vec::new()
}

fn cluster_queue(
    question: &Question<'_>,
    gates: Gates,
) -> Result<Vec<FieldError>, serde_json::Error> {
    let new: ClusterQueue = typed(question.object)?;
    match question.old {
        None => Ok(validate::cluster_queue(&new, gates)),
        Some(old) => Ok(validate::cluster_queue_update(&new, &typed(old)?, gates)),
    }
}

fn cohort(question: &Question<'_>, _: Gates) -> Result<Vec<FieldError>, serde_json::Error> {
    Ok(validate::cohort(&typed::<Cohort>(question.object)?))
}

fn resource_flavor(
    question: &Question<'_>,
    _: Gates,
) -> Result<Vec<FieldError>, serde_json::Error> {
    Ok(validate::resource_flavor(&typed::<ResourceFlavor>(question.object)?))
}
