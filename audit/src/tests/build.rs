//! Objects for tests, in the namespace `ns`.

use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use switchyard_jobs::apply_merge;

use crate::{Cluster, Owner};

/// An object as JSON.
#[derive(Clone)]
pub(super) struct Object(Value);

fn typed<T: DeserializeOwned>(object: Object) -> T {
    serde_json::from_value(object.0).unwrap()
}

impl Object {
    /// Merges a patch.
    pub(super) fn with(mut self, patch: Value) -> Self {
        apply_merge(&mut self.0, &patch);
        self
    }

    pub(super) fn label(self, key: &str, value: &str) -> Self {
        self.with(json!({"metadata": {"labels": {key: value}}}))
    }

    pub(super) fn annotation(self, key: &str, value: &str) -> Self {
        self.with(json!({"metadata": {"annotations": {key: value}}}))
    }

    /// Sets the queue label.
    pub(super) fn queued(self) -> Self {
        self.label("kueue.x-k8s.io/queue-name", "lq")
    }

    /// Sets the controller to the object of this name.
    pub(super) fn of(self, owner: &str) -> Self {
        let owner = json!({"apiVersion": "v1", "kind": "Owner", "name": owner, "uid": uid(owner), "controller": true});
        self.with(json!({"metadata": {"ownerReferences": [owner]}}))
    }

    pub(super) fn terminating(self) -> Self {
        self.with(json!({"metadata": {"deletionTimestamp": "2026-11-21T10:00:00Z"}}))
    }

    fn condition(mut self, type_: &str) -> Self {
        let time = "2026-11-21T10:00:00Z";
        let condition = json!({"type": type_, "status": "True", "reason": "R", "message": "", "lastTransitionTime": time});
        if let Some(list) = self.0.pointer_mut("/status/conditions").and_then(Value::as_array_mut) {
            list.push(condition);
        }
        self
    }

    /// Reserves quota in `cq` for these pod sets.
    pub(super) fn reserved(self, pod_sets: &[Value]) -> Self {
        let spec = |pod_set: &Value| json!({"name": pod_set["name"], "count": pod_set["count"], "template": {}});
        let specs: Vec<Value> = pod_sets.iter().map(spec).collect();
        let admission = json!({"clusterQueue": "cq", "podSetAssignments": pod_sets});
        self.with(json!({"spec": {"podSets": specs}, "status": {"admission": admission}}))
            .condition("QuotaReserved")
    }

    /// As [`Object::reserved`], and admitted.
    pub(super) fn admitted(self, pod_sets: &[Value]) -> Self {
        self.reserved(pod_sets).condition("Admitted")
    }

    pub(super) fn finished(self) -> Self {
        self.condition("Finished")
    }

    /// Sets reclaimable pods of the pod set `main`.
    pub(super) fn reclaimable(self, count: i32) -> Self {
        self.with(json!({"status": {"reclaimablePods": [{"name": "main", "count": count}]}}))
    }

    /// Makes it a slice of an elastic job.
    pub(super) fn slice(self, replaces: &str) -> Self {
        let this = self.annotation("kueue.x-k8s.io/elastic-job", "true");
        match replaces {
            "" => this,
            old => this
                .annotation("kueue.x-k8s.io/workload-slice-replacement-for", &format!("ns/{old}")),
        }
    }
}

fn uid(name: &str) -> String {
    format!("uid-{name}")
}

fn object(name: &str) -> Object {
    Object(json!({"metadata": {"name": name, "namespace": "ns", "uid": uid(name)}}))
}

/// The owner's name follows the first `-`: `w-job` is the Workload of `job`.
pub(super) fn workload(name: &str) -> Object {
    let owner = name.split_once('-').map_or(name, |(_, owner)| owner);
    object(name)
        .of(owner)
        .with(json!({"spec": {"queueName": "lq", "podSets": []}, "status": {"conditions": []}}))
}

/// A pod set assignment of `count` pods with `cpu` of the flavor `default`.
pub(super) fn pod_set(count: i32, cpu: &str) -> Value {
    pod_set_of("main", "default", count, cpu)
}

pub(super) fn pod_set_of(name: &str, flavor: &str, count: i32, cpu: &str) -> Value {
    json!({"name": name, "count": count, "flavors": {"cpu": flavor}, "resourceUsage": {"cpu": cpu}})
}

/// A pod with a node that requests `cpu`.
pub(super) fn pod(name: &str, cpu: &str) -> Object {
    let container = json!({"name": "c", "resources": {"requests": {"cpu": cpu}}});
    object(name).with(json!({"spec": {"nodeName": "n", "containers": [container]}, "status": {"phase": "Running"}}))
}

pub(super) fn owner(name: &str) -> Object {
    object(name)
}

/// A resource group with one flavor.
pub(super) fn quota(flavor: &str, nominal: &str, limits: &Value) -> Value {
    let mut cpu = json!({"name": "cpu", "nominalQuota": nominal});
    apply_merge(&mut cpu, limits);
    json!({"coveredResources": ["cpu"], "flavors": [{"name": flavor, "resources": [cpu]}]})
}

/// The cluster `here` with the ClusterQueue `cq` of 9 cpu.
pub(super) fn cluster() -> Cluster {
    named("here")
}

pub(super) fn named(name: &str) -> Cluster {
    let cluster = Cluster { name: name.into(), ..Cluster::default() };
    cluster.queue("cq", json!({"resourceGroups": [quota("default", "9", &json!({}))]}))
}

impl Cluster {
    /// Adds or changes a ClusterQueue.
    pub(super) fn queue(self, name: &str, spec: Value) -> Self {
        self.queue_with(name, json!({ "spec": spec }))
    }

    pub(super) fn queue_with(mut self, name: &str, patch: Value) -> Self {
        let known = self
            .cluster_queues
            .iter()
            .position(|queue| queue.metadata.name.as_deref() == Some(name));
        let before = match known {
            Some(at) => Object(serde_json::to_value(self.cluster_queues.remove(at)).unwrap()),
            None => Object(json!({"metadata": {"name": name, "uid": uid(name)}, "spec": {}})),
        };
        self.cluster_queues.push(typed(before.with(patch)));
        self
    }

    /// Adds the LocalQueue `lq` of `cq`.
    pub(super) fn local_queue(mut self, status: &Value) -> Self {
        self.local_queues.push(typed(
            object("lq").with(json!({"spec": {"clusterQueue": "cq"}, "status": status})),
        ));
        self
    }

    pub(super) fn cohort(mut self, name: &str, spec: Value) -> Self {
        self.cohorts.push(typed(Object(json!({"metadata": {"name": name}, "spec": spec}))));
        self
    }

    pub(super) fn owner(mut self, kind: &str, owner: Object) -> Self {
        let metadata = typed(Object(owner.0["metadata"].clone()));
        self.owners.push(Owner { api_version: "v1".into(), kind: kind.into(), metadata });
        self
    }

    /// Adds a queued Job.
    pub(super) fn job(self, name: &str) -> Self {
        self.owner("Job", owner(name).queued())
    }

    pub(super) fn workload(mut self, workload: Object) -> Self {
        self.workloads.push(typed(workload));
        self
    }

    pub(super) fn pod(mut self, pod: Object) -> Self {
        self.pods.push(typed(pod));
        self
    }

    /// Adds pods of a job with `cpu` each.
    pub(super) fn pods(self, job: &str, count: usize, cpu: &str) -> Self {
        (0..count)
            .fold(self, |cluster, number| cluster.pod(pod(&format!("{job}-{number}"), cpu).of(job)))
    }
}
