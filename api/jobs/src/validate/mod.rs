//! The webhook's rules for labels and annotations of jobs, common to all kinds (Kueue's
//! `pkg/controller/jobframework/validation.go`).

mod elastic;
pub(super) mod topology;

use serde_json::Value;

pub use elastic::{validate_autoscaling, validate_elastic};
pub use topology::validate_topology;

use crate::{JobKind, SuspendMode, meta, number};
use switchyard_api::validate::{
    admission_gated_by, admission_gated_by_update, on_disconnect, on_stuck,
};
use switchyard_syntax::{
    affinity,
    field::{FieldError, Path},
    labels::{SUBDOMAIN_MESSAGE, is_subdomain},
    names,
};

const IMMUTABLE: &str = "field is immutable";

/// Longest name of an object whose name is a DNS subdomain.
const SUBDOMAIN_MAX: usize = 253;

/// Errors of a new job.
#[must_use]
pub fn validate_create(kind: &dyn JobKind, job: &Value) -> Vec<FieldError> {
    let mut errors = validate_common(kind, job);
    errors.extend(kind.validate(job));
    errors
}

/// Facts besides the job itself that decide whether an update is allowed.
#[derive(Debug, Clone, Copy, Default)]
pub struct UpdateContext {
    /// The namespace has a LocalQueue named `default`.
    pub default_queue: bool,
    /// The feature gate of elastic jobs is on.
    pub elastic: bool,
    /// Pods of the job hold quota, ready or not.
    pub holds_quota: bool,
}

/// Errors of an update of a job.
#[must_use]
pub fn validate_update(
    kind: &dyn JobKind,
    old: &Value,
    new: &Value,
    context: UpdateContext,
) -> Vec<FieldError> {
    let suspended = kind.is_suspended(new);
    let mut errors = validate_common(kind, new);
    errors.extend(queue_name_update(
        old,
        new,
        suspended && !context.holds_quota,
        context.default_queue,
    ));
    if kind.suspend_mode() != SuspendMode::Pods {
        // An elastic job that grows gets another Workload, and Kueue's hub names it.
        errors.extend(prebuilt_update(
            old,
            new,
            suspended || (context.elastic && crate::elastic::is_marked(old)),
        ));
        errors.extend(max_exec_time_update(old, new, suspended && kind.is_suspended(old)));
    }
    errors.extend(priority_class_update(old, new, suspended));
    let annotations = |job: &Value| meta::string_map(job, "/metadata/annotations");
    errors.extend(admission_gated_by_update(&annotations(new), &annotations(old)));
    errors.extend(kind.validate_update(old, new));
    errors
}

fn validate_common(kind: &dyn JobKind, job: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if let Some(queue) = meta::label(job, names::QUEUE_NAME) {
        errors.extend(subdomain(&meta::label_path(names::QUEUE_NAME), queue));
    }
    // Kueue does not check these for kinds that are queued by their pods.
    if kind.suspend_mode() != SuspendMode::Pods {
        errors.extend(prebuilt_name(job));
        errors.extend(max_exec_time(job));
    }
    let annotations = meta::string_map(job, "/metadata/annotations");
    errors.extend(admission_gated_by(&annotations));
    errors.extend(on_disconnect(&annotations));
    errors.extend(on_stuck(&annotations));
    errors.extend(affinity::check(&annotations));
    errors
}

fn prebuilt_name(job: &Value) -> Option<FieldError> {
    let key = names::PREBUILT_WORKLOAD_NAME;
    match meta::annotation(job, key).filter(|name| !name.is_empty()) {
        Some(name) => subdomain(&meta::annotation_path(key), name),
        None => subdomain(&meta::label_path(key), meta::label(job, key)?),
    }
}

fn max_exec_time(job: &Value) -> Option<FieldError> {
    let text = meta::label(job, names::MAX_EXEC_TIME_SECONDS)?;
    let path = &meta::label_path(names::MAX_EXEC_TIME_SECONDS);
    match number::whole(text) {
        Err(problem) => Some(FieldError::invalid(
            path,
            text,
            format!("{problem}: should be a whole number of seconds"),
        )),
        Ok(seconds) => {
            (seconds <= 0).then(|| FieldError::invalid(path, seconds, "should be greater than 0"))
        }
    }
}

fn queue_name_update(
    old: &Value,
    new: &Value,
    waits: bool,
    default_queue: bool,
) -> Vec<FieldError> {
    let (before, after) = (meta::queue_name(old), meta::queue_name(new));
    let path = &meta::label_path(names::QUEUE_NAME);
    let mut errors = Vec::new();
    if !waits && before != after {
        errors.push(FieldError::invalid(path, after, IMMUTABLE));
    }
    if after.is_empty() && !before.is_empty() && default_queue {
        errors.push(FieldError::invalid(
            path,
            "",
            "queue-name must not be empty in namespace with default queue",
        ));
    }
    errors
}

fn prebuilt_update(old: &Value, new: &Value, suspended: bool) -> Option<FieldError> {
    let (before, after) = (meta::prebuilt_workload_name(old), meta::prebuilt_workload_name(new));
    if suspended || before == after {
        return None;
    }
    let path = if meta::annotation(new, names::PREBUILT_WORKLOAD_NAME).is_some() {
        meta::annotation_path(names::PREBUILT_WORKLOAD_NAME)
    } else {
        meta::label_path(names::PREBUILT_WORKLOAD_NAME)
    };
    Some(FieldError::invalid(&path, after, IMMUTABLE))
}

fn max_exec_time_update(old: &Value, new: &Value, both_suspended: bool) -> Option<FieldError> {
    let (before, after) = (
        meta::label(old, names::MAX_EXEC_TIME_SECONDS),
        meta::label(new, names::MAX_EXEC_TIME_SECONDS),
    );
    (!both_suspended && before != after).then(|| {
        FieldError::invalid(
            &meta::label_path(names::MAX_EXEC_TIME_SECONDS),
            after.unwrap_or_default(),
            IMMUTABLE,
        )
    })
}

fn priority_class_update(old: &Value, new: &Value, suspended: bool) -> Option<FieldError> {
    let (before, after) = (meta::workload_priority_class(old), meta::workload_priority_class(new));
    let detail = if before.is_empty() && !after.is_empty() && !suspended {
        "WorkloadPriorityClass cannot be added to a non-suspended workload"
    } else if !before.is_empty() && after.is_empty() {
        "WorkloadPriorityClass cannot be removed from a workload"
    } else {
        return None;
    };
    Some(FieldError::invalid(&meta::label_path(names::PRIORITY_CLASS), after, detail))
}

fn subdomain(path: &Path, name: &str) -> Option<FieldError> {
    if name.len() > SUBDOMAIN_MAX {
        return Some(FieldError::invalid(
            path,
            name,
            format!("must be no more than {SUBDOMAIN_MAX} characters"),
        ));
    }
    (!is_subdomain(name)).then(|| FieldError::invalid(path, name, SUBDOMAIN_MESSAGE))
}
