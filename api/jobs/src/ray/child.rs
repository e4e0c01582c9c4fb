//! The RayCluster that KubeRay makes for a RayJob or a RayService. Ray's autoscaler changes the counts there and not in the job,
//! so they are attached to an elastic job before it is looked at.

use serde_json::{Value, json};

use super::super::meta::{generation, namespace, str_at};
use super::super::plain::{Slot, list_at};
use super::super::{Dependency, KindId, elastic};
use super::{CLUSTER_ID, workers};

/// Where it is attached. No field of the kinds'.
const CHILD: &str = "switchyard.dev/rayCluster";
const AT: &str = "/switchyard.dev~1rayCluster";

/// The kind of such an object.
pub(super) static KINDS: [KindId; 1] = [CLUSTER_ID];

/// The RayCluster of an elastic job, which it names at a JSON pointer.
pub(super) fn named(job: &Value, at: &str) -> Option<Dependency> {
    let name = str_at(job, at);
    let is_told = elastic::is_marked(job) && !name.is_empty();
    is_told.then(|| Dependency {
        kind: CLUSTER_ID,
        namespace: namespace(job).to_owned(),
        name: name.to_owned(),
    })
}

/// Attaches of a RayCluster what tells its size.
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

/// Gives the groups of workers the counts that they have there. Those that are not there, as a newer cluster is to come
/// that has them, keep what the job says.
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

/// The generation of the job, and of the RayCluster, as in Kueue's names of workloads.
pub(super) fn size_generation(job: &Value) -> String {
    match job.pointer(AT) {
        Some(child) => format!("{}_{}", generation(job), generation(child)),
        None => generation(job).to_string(),
    }
}
