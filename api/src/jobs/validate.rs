//! Rules for the labels and annotations of jobs that the webhook checks, common to all kinds (inventory 2.10).

use serde_json::Value;

use super::field::IMMUTABLE;
use super::{FieldError, JobKind, meta};
use crate::names;

/// Longest name of an object whose name is a DNS subdomain.
const SUBDOMAIN_MAX: usize = 253;

/// What is wrong with a new job.
#[must_use]
pub fn validate_create(kind: &dyn JobKind, job: &Value) -> Vec<FieldError> {
    let mut errors = validate_common(job);
    errors.extend(kind.validate(job));
    errors
}

/// What is wrong with an update of a job. `default_queue` tells that the namespace has a LocalQueue named `default`.
#[must_use]
pub fn validate_update(kind: &dyn JobKind, old: &Value, new: &Value, default_queue: bool) -> Vec<FieldError> {
    let suspended = kind.is_suspended(new);
    let mut errors = validate_common(new);
    errors.extend(queue_name_update(old, new, suspended, default_queue));
    errors.extend(prebuilt_update(old, new, suspended));
    errors.extend(max_exec_time_update(old, new, suspended && kind.is_suspended(old)));
    errors.extend(priority_class_update(old, new, suspended));
    errors.extend(kind.validate_update(old, new));
    errors
}

fn validate_common(job: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if let Some(queue) = meta::label(job, names::QUEUE_NAME) {
        errors.extend(subdomain(FieldError::label_path(names::QUEUE_NAME), queue));
    }
    match meta::annotation(job, names::PREBUILT_WORKLOAD_NAME).filter(|name| !name.is_empty()) {
        Some(name) => errors.extend(subdomain(FieldError::annotation_path(names::PREBUILT_WORKLOAD_NAME), name)),
        None => {
            if let Some(name) = meta::label(job, names::PREBUILT_WORKLOAD_NAME) {
                errors.extend(subdomain(FieldError::label_path(names::PREBUILT_WORKLOAD_NAME), name));
            }
        }
    }
    if let Some(text) = meta::label(job, names::MAX_EXEC_TIME_SECONDS) {
        let path = FieldError::label_path(names::MAX_EXEC_TIME_SECONDS);
        match text.parse::<i32>() {
            Err(_) => errors.push(FieldError::invalid(
                path,
                text,
                format!("parsing {text:?}: should be a whole number of seconds"),
            )),
            Ok(seconds) if seconds <= 0 => errors.push(FieldError::invalid(path, seconds, "should be greater than 0")),
            Ok(_) => {}
        }
    }
    errors
}

fn queue_name_update(old: &Value, new: &Value, suspended: bool, default_queue: bool) -> Vec<FieldError> {
    let (before, after) = (meta::queue_name(old), meta::queue_name(new));
    let path = FieldError::label_path(names::QUEUE_NAME);
    let mut errors = Vec::new();
    if !suspended && before != after {
        errors.push(FieldError::invalid(path.clone(), after, IMMUTABLE));
    }
    if after.is_empty() && !before.is_empty() && default_queue {
        errors.push(FieldError::invalid(path, "", "queue-name must not be empty in namespace with default queue"));
    }
    errors
}

fn prebuilt_update(old: &Value, new: &Value, suspended: bool) -> Option<FieldError> {
    let (before, after) = (meta::prebuilt_workload_name(old), meta::prebuilt_workload_name(new));
    if suspended || before == after {
        return None;
    }
    let path = if meta::annotation(new, names::PREBUILT_WORKLOAD_NAME).is_some() {
        FieldError::annotation_path(names::PREBUILT_WORKLOAD_NAME)
    } else {
        FieldError::label_path(names::PREBUILT_WORKLOAD_NAME)
    };
    Some(FieldError::invalid(path, after, IMMUTABLE))
}

fn max_exec_time_update(old: &Value, new: &Value, both_suspended: bool) -> Option<FieldError> {
    let (before, after) =
        (meta::label(old, names::MAX_EXEC_TIME_SECONDS), meta::label(new, names::MAX_EXEC_TIME_SECONDS));
    (!both_suspended && before != after).then(|| {
        FieldError::invalid(FieldError::label_path(names::MAX_EXEC_TIME_SECONDS), after.unwrap_or_default(), IMMUTABLE)
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
    Some(FieldError::invalid(FieldError::label_path(names::PRIORITY_CLASS), after, detail))
}

fn subdomain(path: String, name: &str) -> Option<FieldError> {
    if name.len() > SUBDOMAIN_MAX {
        return Some(FieldError::invalid(path, name, format!("must be no more than {SUBDOMAIN_MAX} characters")));
    }
    let ok = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let label = |part: &str| {
        !part.is_empty() && part.chars().all(|c| ok(c) || c == '-') && part.starts_with(ok) && part.ends_with(ok)
    };
    (!name.split('.').all(label)).then(|| {
        FieldError::invalid(
            path,
            name,
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start \
             and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
             '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')",
        )
    })
}
