//! The common parts of all remote copies.

use serde_json::{Value, json};

use super::{KindId, RemoteMeta, meta};
use switchyard_syntax::names;

/// The copy of a job: name, namespace, the user's labels and annotations, its spec, and the link
/// to its Workload. It has no owner, uid, finalizer or status.
pub(super) fn remote_object(id: KindId, job: &Value, remote: RemoteMeta<'_>) -> Value {
    let mut copy = json!({
        "apiVersion": id.api_version(),
        "kind": id.kind,
        "metadata": { "name": meta::name(job), "namespace": meta::namespace(job) },
    });
    let spec = job.get("spec").cloned().unwrap_or_else(|| json!({}));
    if let Some(fields) = copy.as_object_mut() {
        fields.insert("spec".to_owned(), spec);
    }
    for (key, value) in meta::string_map(job, "/metadata/labels") {
        meta::set_label(&mut copy, &key, &value);
    }
    for (key, value) in meta::string_map(job, "/metadata/annotations") {
        // The last applied configuration would repeat the whole manifest.
        if key != "kubectl.kubernetes.io/last-applied-configuration" && key != names::STOPPING {
            meta::set_annotation(&mut copy, &key, &value);
        }
    }
    meta::set_label(&mut copy, names::MULTIKUEUE_ORIGIN, remote.origin);
    meta::set_prebuilt_workload_name(&mut copy, remote.workload);
    copy
}

/// A List of objects that are sent as one job.
pub(super) fn list(items: &[Value]) -> Value {
    json!({ "apiVersion": "v1", "kind": "List", "items": items })
}

/// The objects of a sent job: the items of a List, or the object itself.
#[must_use]
pub fn sent_objects(job: Value) -> Vec<Value> {
    match job {
        Value::Object(mut fields) if fields.get("kind").is_some_and(|kind| kind == "List") => {
            match fields.remove("items") {
                Some(Value::Array(items)) => items,
                _ => Vec::new(),
            }
        }
        one => vec![one],
    }
}
