//! The RayCluster that KubeRay creates for a RayJob or RayService. Ray's autoscaler changes the
//! counts there and not in the job, so the counts are attached to elastic jobs.

use serde_json::{Value, json};

use super::super::meta::{generation, list_at, namespace, str_at};
use super::super::plain::Slot;
use super::super::{Dependency, KindId, elastic};
use super::{CLUSTER_ID, workers};

/// The field of the job with the attached counts. Not a field of the API.
const CHILD: &str = "switchyard.dev/rayCluster";
const AT: &str = "/switchyard.dev~1rayCluster";

/// Kinds of such objects.
pub(super) static KINDS: [KindId; 1] = [CLUSTER_ID];

/// The RayCluster of an elastic job, named at a JSON pointer.
pub(super) fn named(job: &Value, at: &str) -> Option<Dependency> {
    let name = str_at(job, at);
    let exists = elastic::is_marked(job) && !name.is_empty();
    exists.then(|| Dependency {
        kind: CLUSTER_ID,
        namespace: namespace(job).to_owned(),
        name: name.to_owned(),
    })
}

/// Attaches the fields of the RayCluster with its size.
pub(super) fn attach(job: &mut Value, cluster: &Value) {
    let group = |group: &Value| {
        let field = |name: &str| group.get(name).cloned().unwrap_or_default();
        json!({"groupName": field("groupName"), "replicas": field("replicas"), "numOfHosts": field("numOfHosts")})
    };
    let groups: Vec<Value> = list_at(cluster, "/spec/workerGroupSpecs").iter().map(group).collect();
    let child = json!({"metadata": {"generation": generation(cluster)}, "spec": {"workerGroupSpecs": groups}});
    if let Some(fields) = job.as_object_mut() {
        fields.insert(CHILD.to_owned(), child);
    }
}

/// Overrides the counts of the worker groups with the RayCluster's. A group that exists only in the
/// job, for a newer RayCluster, keeps the job's count.
pub(super) fn take_counts(job: &Value, slots: &mut [Slot]) {
    let groups = list_at(job, &format!("{AT}/spec/workerGroupSpecs"));
    for slot in slots.iter_mut().skip(1) {
        let counted = groups.iter().find(|group| str_at(group, "/groupName") == slot.name);
        if let Some(group) =
            counted.filter(|group| !group.get("replicas").is_none_or(Value::is_null))
        {
            slot.count = workers(group);
        }
    }
}

/// The generations of the job and of the RayCluster, as in Kueue's Workload names.
pub(super) fn size_generation(job: &Value) -> String {
    match job.pointer(AT) {
        Some(child) => format!("{}_{}", generation(job), generation(child)),
        None => generation(job).to_string(),
    }
}
