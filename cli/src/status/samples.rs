//! Workloads of tests.

use serde_json::{Value, json};
use switchyard_api::v1beta2::Workload;

#[expect(
    clippy::needless_pass_by_value,
    reason = "the tables below read better without references"
)]
pub(crate) fn workload(name: &str, spec: Value, status: Value) -> Workload {
    let object = json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
        "metadata": {
            "name": format!("job-{name}-1a2b3"), "namespace": "team",
            "creationTimestamp": "2026-11-21T10:00:00Z",
            "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": "u", "controller": true}],
        },
        "spec": spec,
        "status": status,
    });
    serde_json::from_value(object).unwrap()
}

pub(crate) fn spec() -> Value {
    json!({"queueName": "main", "priority": 5, "podSets": [{"name": "main", "count": 1, "template": {"spec": {"containers": []}}}]})
}

pub(crate) fn condition(type_: &str, status: &str, reason: &str, message: &str) -> Value {
    json!({"type": type_, "status": status, "reason": reason, "message": message, "lastTransitionTime": "2026-11-21T10:01:00Z"})
}

/// A job in each state.
pub(crate) fn workloads() -> Vec<Workload> {
    let reserved =
        condition("QuotaReserved", "True", "QuotaReserved", "Quota reserved in ClusterQueue cq");
    let admitted = condition("Admitted", "True", "Admitted", "The workload is admitted");
    let waits = "couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor a, 1 more needed";
    vec![
        workload("new", spec(), json!({})),
        workload(
            "waits",
            spec(),
            json!({"conditions": [condition("QuotaReserved", "False", "WaitingForQuota", waits)]}),
        ),
        workload(
            "dispatching",
            spec(),
            json!({"conditions": [reserved], "admissionChecks": [{"name": "fleet", "state": "Pending",
                "message": "east: no room", "lastTransitionTime": "2026-11-21T10:01:00Z"}]}),
        ),
        workload(
            "runs",
            spec(),
            json!({"conditions": [reserved, admitted, condition("PodsReady", "True", "Started", "")],
                "clusterName": "east", "dispatch": {"attempt": 2},
                "admission": {"clusterQueue": "cq", "podSetAssignments": [
                    {"name": "main", "count": 1, "flavors": {"cpu": "a"}, "resourceUsage": {"cpu": "2"}}]},
                "schedulingStats": {"evictions": [{"reason": "Preempted", "underlyingCause": "", "count": 1}]}}),
        ),
        workload(
            "stops",
            spec(),
            json!({"conditions": [reserved, condition("Evicted", "True", "Preempted", "Preempted for another")]}),
        ),
        workload(
            "done",
            spec(),
            json!({"conditions": [condition("Finished", "True", "Succeeded", "Job finished successfully")]}),
        ),
        workload(
            "broken",
            spec(),
            json!({"conditions": [condition("Finished", "True", "Failed", "exit code 1")]}),
        ),
    ]
}

/// A job that was moved once and lost once.
pub(crate) fn moved() -> Workload {
    let history = json!([
        {"attempt": 1, "clusterName": "east", "reason": "ClusterLost", "at": "2026-11-21T10:01:00Z"},
        {"attempt": 2, "clusterName": "north", "reason": "Moved", "at": "2026-11-21T10:04:00Z"},
    ]);
    let reserved =
        condition("QuotaReserved", "True", "QuotaReserved", "Quota reserved in ClusterQueue cq");
    let admitted = condition("Admitted", "True", "Admitted", "The workload is admitted");
    let status = json!({"conditions": [reserved, admitted], "clusterName": "west", "dispatch": {"attempt": 3, "history": history}});
    workload("moved", spec(), status)
}
