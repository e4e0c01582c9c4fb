//! Warnings about jobs that pass validation, and the queue annotation of Kueue 0.1.

use serde_json::Value;
use switchyard_api::names;
use switchyard_jobs::{JobKind, SuspendMode, is_dns_label, meta};

use super::{JobFacts, is_held_by_owner};

/// The queue that a job names by annotation, as in Kueue 0.1. A job with a controller follows its
/// owner instead.
fn queue_of_annotation(job: &Value) -> Option<&str> {
    let queue = meta::annotation(job, names::QUEUE_NAME).filter(|queue| is_dns_label(queue))?;
    meta::controller_of(job).is_none().then_some(queue)
}

/// The job with the label that its annotation stands for. `None` if it has a label or names no
/// queue.
pub(in crate::webhook) fn with_annotated_queue(job: &Value) -> Option<Value> {
    let queue =
        queue_of_annotation(job).filter(|_| meta::label(job, names::QUEUE_NAME).is_none())?;
    let mut labelled = job.clone();
    meta::set_label(&mut labelled, names::QUEUE_NAME, queue);
    Some(labelled)
}

/// The warning about a new job that names its queue by annotation.
pub(in crate::webhook) fn annotation_warning(old: Option<&Value>, job: &Value) -> Option<String> {
    let queue = queue_of_annotation(job)
        .filter(|queue| old.is_none() && meta::queue_name(job) == *queue)?;
    Some(format!(
        "annotation {name} is of Kueue 0.1: the job has the label {name}={queue} for it; name the queue by that label",
        name = names::QUEUE_NAME
    ))
}

/// The warning about a job that passes validation.
pub(in crate::webhook) fn warning(
    kind: &dyn JobKind,
    old: Option<&Value>,
    job: &Value,
    facts: &JobFacts,
) -> Option<String> {
    let without_effect = || {
        unsupported_annotations(old, job)
            .filter(|_| facts.is_namespace_managed && !facts.is_implied_kind)
    };
    managed_pod_warning(kind, old, job, facts).or_else(without_effect)
}

/// Annotations of a queued job or its pods that later Kueue releases support and Switchyard does
/// not. Reported when they are added.
fn unsupported_annotations(old: Option<&Value>, job: &Value) -> Option<String> {
    const LATER: [&str; 3] = [
        names::WAIT_FOR_PODS_READY,
        names::POD_GROUP_MAX_NOT_READY_COUNT,
        names::PODSET_TOPOLOGY_SPREADING,
    ];
    let has = |job: &Value, key: &str| {
        let template = job.pointer("/spec/template").unwrap_or(&Value::Null);
        meta::annotation(job, key).is_some() || meta::annotation(template, key).is_some()
    };
    let comes = |key: &&&str| has(job, key) && !old.is_some_and(|old| has(old, key));
    let keys: Vec<&str> = LATER.iter().filter(comes).copied().collect();
    let queued = !meta::queue_name(job).is_empty() && !keys.is_empty();
    queued.then(|| format!("Switchyard does not heed {}: it is of a later Kueue", keys.join(", ")))
}

/// Warns about a pod that is marked as managed although its owner may be queued. On updates of a
/// pod that its owner holds back, this is settled.
fn managed_pod_warning(
    kind: &dyn JobKind,
    old: Option<&Value>,
    job: &Value,
    facts: &JobFacts,
) -> Option<String> {
    let marked = kind.suspend_mode() == SuspendMode::Gate
        && meta::label(job, names::MANAGED) == Some("true");
    let relevant = facts.is_namespace_managed
        && !facts.is_implied_kind
        && !(old.is_some() && is_held_by_owner(kind, job));
    (marked && relevant && facts.has_enabled_owner).then(|| {
        format!(
            "pod owner is managed by kueue, label '{}=true' might lead to unexpected behaviour",
            names::MANAGED
        )
    })
}
