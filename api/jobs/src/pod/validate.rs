//! Rules of pods (Kueue's `pkg/controller/jobs/pod/pod_webhook.go`).

use serde_json::Value;

use super::group::total_count;
use super::one::{group_name, is_unretriable};
use crate::meta::{annotation, annotation_path, label, label_path, prebuilt_workload_name};
use switchyard_syntax::field::{FieldError, Path};
use switchyard_syntax::labels::{SUBDOMAIN_MESSAGE, is_subdomain};
use switchyard_syntax::names;

pub(super) fn pod(pod: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if label(pod, names::MANAGED).is_some_and(|value| value != "true") {
        errors.push(FieldError::forbidden(
            &label_path(names::MANAGED),
            "managed label value can only be 'true'",
        ));
    }
    errors.extend(group(pod));
    let (name, prebuilt) = (group_name(pod).unwrap_or_default(), prebuilt_workload_name(pod));
    if !name.is_empty() && !prebuilt.is_empty() && prebuilt != name {
        let path = path_of(pod, names::PREBUILT_WORKLOAD_NAME);
        errors.push(FieldError::invalid(
            &path,
            prebuilt,
            "prebuilt workload and pod group should be equal",
        ));
    }
    errors
}

/// A pod must have both a group name and a group size, or neither.
fn group(pod: &Value) -> Vec<FieldError> {
    let count_path = annotation_path(names::POD_GROUP_TOTAL_COUNT);
    let path = path_of(pod, names::POD_GROUP_NAME);
    let by = if annotated(pod, names::POD_GROUP_NAME) { "annotation" } else { "label" };
    let both = format!(
        "both the '{}' annotation and the '{}' {by} should be set",
        names::POD_GROUP_TOTAL_COUNT,
        names::POD_GROUP_NAME
    );
    let count = annotation(pod, names::POD_GROUP_TOTAL_COUNT);
    let mut errors = Vec::new();
    match (group_name(pod), count) {
        (None, None) => return errors,
        (None, Some(_)) => errors.push(FieldError::required(&path, &both)),
        (Some(name), count) => {
            if !is_subdomain(name) {
                errors.push(FieldError::invalid(&path, name, SUBDOMAIN_MESSAGE));
            }
            if count.is_none() {
                errors.push(FieldError::required(&count_path, &both));
            }
        }
    }
    if let (Some(text), Err(problem)) = (count, total_count(pod)) {
        errors.push(FieldError::invalid(&count_path, text, problem));
    }
    errors
}

pub(super) fn pod_update(old: &Value, new: &Value) -> Vec<FieldError> {
    let mut errors = pod(new);
    if group_name(new).is_some() && is_unretriable(old) && !is_unretriable(new) {
        let path = annotation_path(names::RETRIABLE_IN_GROUP);
        errors.push(FieldError::forbidden(
            &path,
            "unretriable pod group can't be converted to retriable",
        ));
    }
    let role = |pod: &Value| annotation(pod, names::ROLE_HASH).map(str::to_owned);
    if group_name(old).is_some() && role(old).is_some() && role(new) != role(old) {
        let path = annotation_path(names::ROLE_HASH);
        errors.push(FieldError::invalid(
            &path,
            role(new).unwrap_or_default(),
            "field is immutable",
        ));
    }
    if let Some(before) = group_name(old)
        && group_name(new) != Some(before)
    {
        let after = group_name(new).unwrap_or_default();
        errors.push(FieldError::invalid(
            &path_of(new, names::POD_GROUP_NAME),
            after,
            "field is immutable",
        ));
    }
    errors
}

fn annotated(pod: &Value, key: &str) -> bool {
    annotation(pod, key).is_some_and(|value| !value.is_empty())
}

/// The path of the annotation, or of the label if the pod uses that.
fn path_of(pod: &Value, key: &str) -> Path {
    if annotated(pod, key) { annotation_path(key) } else { label_path(key) }
}
