#![expect(clippy::needless_pass_by_value, reason = "fixtures are shorter with values than with references")]

mod borrowing;
mod fleet;
mod running;
mod usage;

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use switchyard_api::v1beta2::{ClusterQueue, Cohort, LocalQueue, Workload};

use crate::{Cluster, Finding, Owner};

/// What was seen of a cluster `here`, with a ClusterQueue `cq` that counts cpu and memory.
pub(super) fn here() -> Cluster {
    Cluster { name: "here".into(), is_whole: true, ..Cluster::default() }.queue("cq", "9", json!({}))
}

fn object<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn owned_by(uid: &str) -> Value {
    json!([{"apiVersion": "batch/v1", "kind": "Job", "name": uid, "uid": uid, "controller": true}])
}

fn condition(type_: &str) -> Value {
    let time = "2026-11-21T10:00:00Z";
    json!({"type": type_, "status": "True", "reason": "R", "message": "", "lastTransitionTime": time})
}

/// A Workload `ns/NAME` of the job of the same uid.
pub(super) struct Of(Value);

pub(super) fn workload(name: &str) -> Of {
    Of(json!({
        "metadata": {"name": name, "namespace": "ns", "uid": format!("uid-{name}"), "ownerReferences": owned_by(name)},
        "spec": {"queueName": "lq", "podSets": []},
        "status": {"conditions": []},
    }))
}

impl Of {
    pub(super) fn with(mut self, patch: Value) -> Self {
        switchyard_api::jobs::apply_merge(&mut self.0, &patch);
        self
    }

    /// Admitted with a pod set of so many pods that ask for so much cpu together.
    pub(super) fn admitted(self, count: i32, cpu: &str) -> Self {
        self.holds(&["QuotaReserved", "Admitted"], count, cpu)
    }

    pub(super) fn reserved(self, count: i32, cpu: &str) -> Self {
        self.holds(&["QuotaReserved"], count, cpu)
    }

    fn holds(self, conditions: &[&str], count: i32, cpu: &str) -> Self {
        let pod_set = json!({"name": "main", "count": count, "template": {}});
        let assignment =
            json!({"name": "main", "count": count, "flavors": {"cpu": "default"}, "resourceUsage": {"cpu": cpu}});
        let conditions: Vec<Value> = conditions.iter().map(|it| condition(it)).collect();
        self.with(json!({
            "spec": {"podSets": [pod_set]},
            "status": {"conditions": conditions, "admission": {"clusterQueue": "cq", "podSetAssignments": [assignment]}},
        }))
    }
}

/// A pod `ns/NAME` on a node.
pub(super) fn pod(name: &str, cpu: &str) -> Of {
    Of(json!({
        "metadata": {"name": name, "namespace": "ns", "uid": format!("pod-{name}")},
        "spec": {"nodeName": "n", "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]},
        "status": {"phase": "Running"},
    }))
}

impl Cluster {
    pub(super) fn queue(mut self, name: &str, cpu: &str, patch: Value) -> Self {
        let quota = json!([{"name": "cpu", "nominalQuota": cpu}, {"name": "memory", "nominalQuota": "1Gi"}]);
        let group =
            json!({"coveredResources": ["cpu", "memory"], "flavors": [{"name": "default", "resources": quota}]});
        let queue = Of(json!({"metadata": {"name": name}, "spec": {"resourceGroups": [group]}}));
        self.cluster_queues.push(object::<ClusterQueue>(queue.with(patch).0));
        self
    }

    pub(super) fn local_queue(mut self, status: Value) -> Self {
        let queue =
            json!({"metadata": {"name": "lq", "namespace": "ns"}, "spec": {"clusterQueue": "cq"}, "status": status});
        self.local_queues.push(object::<LocalQueue>(queue));
        self
    }

    pub(super) fn cohort(mut self, name: &str, spec: Value) -> Self {
        self.cohorts.push(object::<Cohort>(json!({"metadata": {"name": name}, "spec": spec})));
        self
    }

    /// An object with this uid, and what controls it.
    pub(super) fn owner(mut self, kind: &str, uid: &str, above: &str, labels: Value) -> Self {
        let owners = if above.is_empty() { json!([]) } else { owned_by(above) };
        let meta = json!({"name": uid, "namespace": "ns", "uid": uid, "labels": labels, "ownerReferences": owners});
        self.owners.push(Owner { kind: kind.into(), meta: object(meta) });
        self
    }

    pub(super) fn workload(mut self, workload: Of) -> Self {
        self.workloads.push(object::<Workload>(workload.0));
        self
    }

    pub(super) fn pod(mut self, pod: Of) -> Self {
        self.pods.push(object::<Pod>(pod.0));
        self
    }

    /// A pod of the job with this uid.
    pub(super) fn pod_of(self, job: &str, pod: Of) -> Self {
        self.pod(pod.with(json!({"metadata": {"ownerReferences": owned_by(job)}})))
    }
}

pub(super) fn messages(found: &[Finding]) -> Vec<&str> {
    found.iter().map(|finding| finding.message.as_str()).collect()
}
