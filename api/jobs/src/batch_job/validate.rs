//! Rules of Jobs (Kueue's `pkg/controller/jobs/job/job_webhook.go`): annotations of partial
//! admission, and updates while running.

use serde_json::Value;

use super::{
    BatchJob, completions, completions_follow_parallelism, is_indexed, parallelism, pods_count,
    spec_suspended,
};
use crate::meta::{annotation, annotation_path};
use crate::{JobKind, number};
use switchyard_syntax::field::{FieldError, Path};
use switchyard_syntax::names;

pub(super) fn job(job: &Value) -> Vec<FieldError> {
    let mut errors = min_parallelism(job);
    errors.extend(sync_completions(job));
    errors
}

pub(super) fn update(old: &Value, new: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if annotation(old, names::JOB_MIN_PARALLELISM) != annotation(new, names::JOB_MIN_PARALLELISM) {
        errors.extend(min_parallelism(new));
    }
    errors.extend(sync_completions(new));
    if annotation(old, names::JOB_MIN_PARALLELISM).is_some()
        && !spec_suspended(old)
        && parallelism(old) != parallelism(new)
    {
        errors.push(FieldError::forbidden(
            &Path::new("spec").child("parallelism"),
            "cannot change when partial admission is enabled and the job is not suspended",
        ));
    }
    if !BatchJob.is_suspended(old)
        && !BatchJob.is_suspended(new)
        && completions_follow_parallelism(old) != completions_follow_parallelism(new)
    {
        errors.push(FieldError::forbidden(
            &annotation_path(names::JOB_COMPLETIONS_EQUAL_PARALLELISM),
            "field is immutable while the job is not suspended",
        ));
    }
    errors
}

fn min_parallelism(job: &Value) -> Vec<FieldError> {
    let Some(text) = annotation(job, names::JOB_MIN_PARALLELISM) else { return Vec::new() };
    let path = &annotation_path(names::JOB_MIN_PARALLELISM);
    match number::whole(text) {
        Err(problem) => {
            vec![FieldError::invalid(path, text, format!("{problem}: should be a whole number"))]
        }
        Ok(count) if count <= 0 || count >= pods_count(job) => {
            vec![FieldError::invalid(
                path,
                count,
                format!("should be between 0 and {}", pods_count(job) - 1),
            )]
        }
        Ok(_) => Vec::new(),
    }
}

fn sync_completions(job: &Value) -> Vec<FieldError> {
    let Some(text) = annotation(job, names::JOB_COMPLETIONS_EQUAL_PARALLELISM) else {
        return Vec::new();
    };
    let path = &annotation_path(names::JOB_COMPLETIONS_EQUAL_PARALLELISM);
    let mut errors = Vec::new();
    match number::parse_bool(text) {
        Err(problem) => {
            errors.push(FieldError::invalid(
                path,
                text,
                format!("{problem}: should be true or false"),
            ));
        }
        Ok(false) => {}
        Ok(true) => {
            if !is_indexed(job) {
                errors.push(FieldError::invalid(
                    path,
                    text,
                    "should not be enabled for NonIndexed jobs",
                ));
            }
            let completions = completions(job);
            if completions.unwrap_or(1) != parallelism(job) {
                let key = names::JOB_COMPLETIONS_EQUAL_PARALLELISM;
                errors.push(FieldError::invalid(
                    &Path::new("spec").child("completions"),
                    Value::from(completions),
                    format!("should be equal to parallelism when {key} annotation is true"),
                ));
            }
        }
    }
    errors
}
