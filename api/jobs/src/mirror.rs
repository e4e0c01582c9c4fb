//! The status that a hub's Job shows for its copy in a worker cluster.
//!
//! The hub's Job looks started while its copy runs. API servers from 1.32 check every new status of
//! a Job with `managedBy` against the old one, 1.36 most strictly. So the copied status is
//! adjusted. Each rule is noted where it is applied:
//! - A finished Job never changes again.
//! - `failed` and `succeeded` only grow, also over attempts in several clusters.
//! - `Failed` needs `FailureTarget`. `Complete` needs `SuccessCriteriaMet` and a completion time.
//!   Both need a start time, no active, ready, terminating or uncounted pods, and an end that is
//!   not before the start.
//! - `FailureTarget` and `SuccessCriteriaMet` cannot be removed, so they are withheld until the
//!   end: a failing attempt may still be replaced.
//! - Ready pods never exceed active pods.
//! - The start time of a Job that is not suspended does not change.
//! - While a suspended Job has a start time, its template cannot change. So the start time of a
//!   suspended copy is not shown.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::meta::{i32_at, str_at};
use super::status::{self, conditions, is_true};

fn is_finished(job: &Value) -> bool {
    is_true(job, "Complete") || is_true(job, "Failed")
}

fn is_suspended(job: &Value) -> bool {
    job.pointer("/spec/suspend").and_then(Value::as_bool).unwrap_or(false)
}

/// The status of `local` that shows the status of `remote`. `None` if it shows it already or has
/// finished.
#[must_use]
pub fn merged_status(local: &Value, remote: &Value) -> Option<Value> {
    if is_finished(local) {
        return None;
    }
    let mut status = status::fields(remote);
    // These are uids of the worker cluster's pods.
    status.remove("uncountedTerminatedPods");
    keep_growing(&mut status, local);
    if is_finished(remote) {
        complete(&mut status, remote);
    } else {
        hold_interim_conditions(&mut status, local);
        status.remove("completionTime");
        limit_ready(&mut status);
        if is_suspended(local) && is_suspended(remote) {
            status.remove("startTime");
        }
    }
    keep_start_time(&mut status, local);
    changed(local, status)
}

/// The status of a hub's Job whose copy is gone, so that the Job can be queued and edited again:
/// nothing active, not started, suspended. Counters stay, because they must not shrink. `None` if
/// there is nothing to reset.
#[must_use]
pub fn reset_status(local: &Value, now: Timestamp) -> Option<Value> {
    if is_finished(local) || !is_suspended(local) {
        return None;
    }
    let mut status = status::fields(local);
    if status.is_empty() {
        return None;
    }
    for field in
        ["active", "ready", "terminating", "startTime", "completionTime", "uncountedTerminatedPods"]
    {
        status.remove(field);
    }
    if let Some(Value::Array(list)) = status.get_mut("conditions") {
        for condition in list
            .iter_mut()
            .filter(|c| str_at(c, "/type") == "Suspended" && str_at(c, "/status") != "True")
        {
            *condition = suspended(now);
        }
    }
    changed(local, status)
}

/// The status of a suspended hub's Job that waits, with the condition that the Job controller would
/// set. `None` if it has the condition or is not at rest.
#[must_use]
pub(super) fn waiting_status(local: &Value, now: Timestamp) -> Option<Value> {
    let is_at_rest = i32_at(local, "/status/active").unwrap_or(0) == 0
        && str_at(local, "/status/startTime").is_empty();
    if is_finished(local) || !is_suspended(local) || is_true(local, "Suspended") || !is_at_rest {
        return None;
    }
    let mut status = status::fields(local);
    let mut all: Vec<Value> =
        conditions(local).filter(|it| str_at(it, "/type") != "Suspended").cloned().collect();
    all.push(suspended(now));
    status.insert("conditions".to_owned(), Value::Array(all));
    Some(Value::Object(status))
}

fn suspended(now: Timestamp) -> Value {
    let time = super::meta::rfc3339(now);
    json!({
        "type": "Suspended", "status": "True", "reason": "JobSuspended", "message": "Job suspended",
        "lastProbeTime": time, "lastTransitionTime": time,
    })
}

fn changed(local: &Value, status: Map<String, Value>) -> Option<Value> {
    let before = local.get("status").cloned().unwrap_or_else(|| json!({}));
    let status = Value::Object(status);
    (before != status).then_some(status)
}

fn keep_growing(status: &mut Map<String, Value>, local: &Value) {
    for counter in ["failed", "succeeded"] {
        let before = i32_at(local, &format!("/status/{counter}")).unwrap_or(0);
        let now = status.get(counter).and_then(Value::as_i64).unwrap_or(0);
        if i64::from(before) > now {
            status.insert(counter.to_owned(), Value::from(before));
        }
    }
}

fn hold_interim_conditions(status: &mut Map<String, Value>, local: &Value) {
    // Conditions of the hub's Job stay, whichever controller wrote them.
    let kept: Vec<Value> = conditions(local)
        .filter(|c| matches!(str_at(c, "/type"), "FailureTarget" | "SuccessCriteriaMet"))
        .cloned()
        .collect();
    let Some(Value::Array(list)) = status.get_mut("conditions") else {
        if !kept.is_empty() {
            status.insert("conditions".to_owned(), Value::Array(kept));
        }
        return;
    };
    list.retain(|c| !matches!(str_at(c, "/type"), "FailureTarget" | "SuccessCriteriaMet"));
    list.extend(kept);
    if list.is_empty() {
        status.remove("conditions");
    }
}

fn limit_ready(status: &mut Map<String, Value>) {
    let active = status.get("active").and_then(Value::as_i64).unwrap_or(0);
    if status.get("ready").and_then(Value::as_i64).is_some_and(|ready| ready > active) {
        status.insert("ready".to_owned(), Value::from(active));
    }
}

/// Adds the required parts of a finished status that an older worker left out.
fn complete(status: &mut Map<String, Value>, remote: &Value) {
    for counter in ["active", "ready", "terminating"] {
        status.remove(counter);
    }
    let success = is_true(remote, "Complete");
    let (end, interim) =
        if success { ("Complete", "SuccessCriteriaMet") } else { ("Failed", "FailureTarget") };
    let condition =
        conditions(remote).find(|c| str_at(c, "/type") == end).cloned().unwrap_or_default();
    let ended = str_at(&condition, "/lastTransitionTime").to_owned();
    if !is_true(remote, interim) {
        let mut first = condition;
        if let Some(map) = first.as_object_mut() {
            map.insert("type".to_owned(), Value::from(interim));
        }
        if let Some(Value::Array(list)) = status.get_mut("conditions") {
            list.retain(|c| str_at(c, "/type") != interim);
            list.push(first);
        }
    }
    if success {
        status.entry("completionTime").or_insert_with(|| Value::from(ended.as_str()));
    } else {
        status.remove("completionTime");
    }
    let end = status.get("completionTime").and_then(Value::as_str).unwrap_or(&ended).to_owned();
    status.entry("startTime").or_insert_with(|| Value::from(end));
}

fn keep_start_time(status: &mut Map<String, Value>, local: &Value) {
    if is_suspended(local) {
        return;
    }
    let before = local.pointer("/status/startTime").filter(|t| !t.is_null());
    if let Some(before) = before {
        status.insert("startTime".to_owned(), before.clone());
    }
}
