//! Reads and mirrors the status of jobs whose status has the usual form.

use serde_json::{Map, Value};

use super::JobEnd;
use super::meta::str_at;

/// Conditions of a job object.
pub(super) fn conditions(job: &Value) -> impl Iterator<Item = &Value> {
    job.pointer("/status/conditions").and_then(Value::as_array).into_iter().flatten()
}

/// The first of the job's true conditions with one of these types.
pub(super) fn true_condition<'a>(job: &'a Value, types: &[&str]) -> Option<&'a Value> {
    conditions(job)
        .find(|it| types.contains(&str_at(it, "/type")) && str_at(it, "/status") == "True")
}

/// True when the condition of that type has status True.
pub(super) fn is_true(job: &Value, type_: &str) -> bool {
    true_condition(job, &[type_]).is_some()
}

/// The end of a job that reports it by one of two conditions.
pub(super) fn finished_by(job: &Value, success: &str, failure: &str) -> Option<JobEnd> {
    let condition = true_condition(job, &[success, failure])?;
    let (type_, message) = (str_at(condition, "/type"), str_at(condition, "/message"));
    Some(JobEnd { success: type_ == success, message: message.to_owned() })
}

/// The fields of the job's status. Empty if there is none.
pub(super) fn fields(job: &Value) -> Map<String, Value> {
    job.get("status").and_then(Value::as_object).cloned().unwrap_or_default()
}

/// The copy's status unchanged. `None` if the hub's job shows it already or there is none.
pub(super) fn copied(local: &Value, remote: &Value) -> Option<Value> {
    let status =
        remote.get("status").filter(|it| it.as_object().is_some_and(|it| !it.is_empty()))?;
    (local.get("status") != Some(status)).then(|| status.clone())
}
