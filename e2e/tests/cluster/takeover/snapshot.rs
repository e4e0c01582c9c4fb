//! A snapshot of all objects, and the changes between two.

use std::collections::BTreeMap;

use kube::ResourceExt as _;
use kube::api::ListParams;
use serde_json::Value;

use super::site::Site;

/// The compared kinds.
const KINDS: [(&str, &str); 5] = [
    ("v1", "Pod"),
    ("batch/v1", "Job"),
    ("kueue.x-k8s.io/v1beta2", "Workload"),
    ("kueue.x-k8s.io/v1beta2", "LocalQueue"),
    ("kueue.x-k8s.io/v1beta2", "ClusterQueue"),
];

/// Every object by kind and name, without what names its last writer.
pub(crate) struct Snapshot(BTreeMap<String, Value>);

impl Snapshot {
    pub(crate) async fn take(site: &Site<'_>) -> anyhow::Result<Self> {
        let mut objects = BTreeMap::new();
        for (version, kind) in KINDS {
            let api = site.cluster.dynamic(version, kind, &site.namespace).await?;
            for mut object in api.list(&ListParams::default()).await? {
                object.metadata.managed_fields = None;
                object.metadata.resource_version = None;
                let name = format!("{kind} {}", object.name_any());
                let mut object = serde_json::to_value(object)?;
                by_type(&mut object["status"]["conditions"]);
                match kind {
                    "Workload" => {
                        forget_reasons(&mut object["status"]);
                        forget_ended(&mut object);
                    }
                    "ClusterQueue" => forget_holds(&mut object),
                    "LocalQueue" => {
                        forget_holds(&mut object);
                        // Kueue leaves out the one that it is just trying, and may leave it at that.
                        object["status"]["pendingWorkloads"].take();
                    }
                    _ => {}
                }
                objects.insert(name, object);
            }
        }
        Ok(Self(objects))
    }

    /// The differences to a later snapshot, a line for each field. New objects are no change.
    pub(crate) fn changes(&self, later: &Self) -> Vec<String> {
        let mut changes = Vec::new();
        for (name, before) in &self.0 {
            match later.0.get(name) {
                Some(after) => compare(name, before, after, &mut changes),
                None => changes.push(format!("{name} is gone")),
            }
        }
        changes
    }
}

/// Conditions by their type instead of by the order in which they were first written.
fn by_type(conditions: &mut Value) {
    let list = conditions.take();
    for condition in list.as_array().into_iter().flatten() {
        conditions[condition["type"].as_str().unwrap_or_default()] = condition.clone();
    }
}

/// The reason for waiting may change or appear at any moment.
fn forget_reasons(status: &mut Value) {
    let is = |condition: &Value, wanted: &str| condition["status"].as_str() == Some(wanted);
    if is(&status["conditions"]["QuotaReserved"], "True") {
        return;
    }
    if let Some(conditions) = status["conditions"].as_object_mut() {
        conditions.retain(|_, condition| is(condition, "True"));
    }
    if let Some(status) = status.as_object_mut() {
        status.remove("resourceRequests");
    }
}

/// The traces of a hold that is over.
fn forget_holds(queue: &mut Value) {
    if let Some(metadata) = queue["metadata"].as_object_mut() {
        metadata.remove("generation");
    }
    if let Some(active) = queue["status"]["conditions"]["Active"].as_object_mut() {
        active.retain(|field, _| ["status", "reason", "message"].contains(&field.as_str()));
    }
}

/// Only the end of a finished workload: Kueue removes its finalizer at some time, Switchyard does not.
fn forget_ended(workload: &mut Value) {
    let finished = workload["status"]["conditions"]["Finished"].take();
    if finished["status"].as_str() == Some("True") {
        *workload = finished;
    }
}

fn compare(path: &str, before: &Value, after: &Value, changes: &mut Vec<String>) {
    match (before, after) {
        (Value::Object(old), Value::Object(new)) => {
            for key in old.keys().chain(new.keys().filter(|key| !old.contains_key(*key))) {
                compare(&format!("{path}/{key}"), &before[key], &after[key], changes);
            }
        }
        (Value::Array(old), Value::Array(new)) if old.len() == new.len() => {
            for (index, (old, new)) in old.iter().zip(new).enumerate() {
                compare(&format!("{path}/{index}"), old, new, changes);
            }
        }
        _ if before != after => changes.push(format!("{path}: {before} -> {after}")),
        _ => {}
    }
}
