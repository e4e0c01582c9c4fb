//! Memory that stores use per Job and per Workload: `cargo bench -p switchyard-controller --bench
//! memory`.
//!
//! Measures resident memory with the programs' own allocator: the growth of a store divided by its
//! number of objects.

use std::time::Instant;

use kube::Resource;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use switchyard_controller::workload;
use switchyard_platform::{object::Object, store::Store};

/// Bytes allowed per object. As plain JSON trees they took 15,000 to 18,000.
const JOB: usize = 3_500;
const PENDING: usize = 4_000;
const RUNNING: usize = 5_500;

fn main() {
    if std::env::args().any(|arg| arg == "--list") {
        return;
    }
    println!("\nMemory (bytes an object, and microseconds to take it in)");
    // Start-up cost of the allocator belongs to no object.
    measure("warm-up", usize::MAX, &Store::<Object>::default(), job);
    measure("Job", JOB, &Store::<Object>::default(), job);
    let workloads = || Store::stripped(workload::strip_unused_fields);
    measure("Workload, pending", PENDING, &workloads(), |number| sample(number, false));
    measure("Workload, running", RUNNING, &workloads(), |number| sample(number, true));
}

fn measure<K>(what: &str, bound: usize, store: &Store<K>, object: impl Fn(usize) -> Value)
where
    K: Resource + DeserializeOwned + Send + Sync + 'static,
{
    const COUNT: usize = 15_000;
    let texts: Vec<String> = (0..COUNT).map(|number| object(number).to_string()).collect();
    let (before, start) = (resident(), Instant::now());
    for text in &texts {
        if let Ok(object) = serde_json::from_str::<K>(text) {
            store.insert(object);
        }
    }
    let (took, grown) = (start.elapsed(), resident().saturating_sub(before));
    assert_eq!(store.len(), COUNT, "{what}: all are read");
    let (each, length) = (grown / COUNT, texts.iter().map(String::len).sum::<usize>() / COUNT);
    let micros = took.as_secs_f64() * 1e6 / COUNT as f64;
    println!("  {what:<20} {each:>6}  of {length:>5} as text  {micros:>6.1} µs");
    assert!(each <= bound, "more than {bound} bytes for {what}");
}

/// Resident memory in bytes, as the kernel counts it.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB"))
        .unwrap_or_default();
    line.parse::<usize>().unwrap_or_default() * 1024
}

const WHEN: &str = "2026-01-01T00:00:00Z";

fn uid(number: usize) -> String {
    format!("7a4f5e0c-7a52-4f0e-9d57-{number:012}")
}

/// A short pod template as the API server stores it.
fn template(number: usize) -> Value {
    let resources =
        json!({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1", "memory": "1Gi"}});
    let container = json!({
        "name": "main", "image": "registry.example.org/team/job:1", "command": ["python", "-m", "train"],
        "args": ["--seed", number.to_string(), "--epochs", "20"], "imagePullPolicy": "IfNotPresent",
        "env": [{"name": "MODE", "value": "batch"}, {"name": "REGION", "value": "east"}],
        "resources": resources, "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
    });
    json!({
        "metadata": {"labels": {"batch.kubernetes.io/job-name": format!("sample-{number}")}},
        "spec": {
            "containers": [container], "dnsPolicy": "ClusterFirst", "restartPolicy": "Never",
            "schedulerName": "default-scheduler", "securityContext": {}, "terminationGracePeriodSeconds": 30,
        },
    })
}

fn managed_fields() -> Value {
    let fields =
        json!({"f:spec": {"f:suspend": {}, "f:template": {"f:spec": {"f:containers": {}}}}});
    json!([{"apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": fields, "manager": "m", "operation": "Update", "time": WHEN}])
}

fn job(number: usize) -> Value {
    let uid = uid(number);
    let mut template = template(number);
    template["metadata"]["labels"]["batch.kubernetes.io/controller-uid"] = json!(uid);
    json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {
            "name": format!("sample-{number}"), "namespace": "team", "uid": uid, "resourceVersion": (100_000 + number).to_string(),
            "generation": 1, "creationTimestamp": WHEN, "labels": {"kueue.x-k8s.io/queue-name": "queue"},
            "managedFields": managed_fields(),
        },
        "spec": {
            "backoffLimit": 6, "completionMode": "NonIndexed", "completions": 1, "parallelism": 1,
            "managedBy": "kueue.x-k8s.io/multikueue", "manualSelector": false, "podReplacementPolicy": "TerminatingOrFailed",
            "selector": {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}, "suspend": true, "template": template,
        },
        "status": {"conditions": [condition("Suspended", "JobSuspended", "Job suspended")], "ready": 0, "terminating": 0},
    })
}

fn condition(type_: &str, reason: &str, message: &str) -> Value {
    json!({"type": type_, "status": "True", "reason": reason, "message": message, "lastTransitionTime": WHEN, "observedGeneration": 1})
}

fn sample(number: usize, running: bool) -> Value {
    let owner = json!({
        "apiVersion": "batch/v1", "kind": "Job", "name": format!("sample-{number}"), "uid": uid(number),
        "controller": true, "blockOwnerDeletion": true,
    });
    let waits = json!({"conditions": [condition("QuotaReserved", "Pending", "couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor default, 1 more needed")]});
    let assignment = json!({"name": "main", "count": 1, "flavors": {"cpu": "default", "memory": "default"}, "resourceUsage": {"cpu": "1", "memory": "1Gi"}});
    let runs = json!({
        "admission": {"clusterQueue": "queue", "podSetAssignments": [assignment]},
        "admissionChecks": [{"name": "dispatch", "state": "Ready", "message": "The workload got reservation on \"east-1\"", "lastTransitionTime": WHEN}],
        "clusterName": "east-1", "dispatch": {"attempt": 1},
        "conditions": [
            condition("QuotaReserved", "QuotaReserved", "Quota reserved in ClusterQueue queue"),
            condition("Admitted", "Admitted", "The workload is admitted"),
            condition("PodsReady", "PodsReady", "All pods were ready or succeeded since the workload admission"),
        ],
    });
    json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
        "metadata": {
            "name": format!("job-sample-{number}-7a4f5"), "namespace": "team", "uid": uid(number),
            "resourceVersion": (200_000 + number).to_string(), "generation": 1, "creationTimestamp": WHEN,
            "labels": {"kueue.x-k8s.io/job-uid": uid(number)}, "finalizers": ["kueue.x-k8s.io/resource-in-use"],
            "ownerReferences": [owner], "managedFields": managed_fields(),
        },
        "spec": {
            "active": true, "priority": 0, "queueName": "queue",
            "podSets": [{"name": "main", "count": 1, "template": template(number)}],
        },
        "status": if running { runs } else { waits },
    })
}
