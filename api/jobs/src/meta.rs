//! Reads and edits the parts that all job objects share.
//!
//! Jobs stay JSON (`serde_json::Value`). Reading them into typed structs and writing them back
//! would drop fields that a newer API server knows and this build does not.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Map, Value};

use switchyard_syntax::names;

pub use switchyard_syntax::field::{annotation_path, label_path};

/// Last transition of the conditions in the object's status.
#[must_use]
pub fn last_transition(object: &Value) -> Option<Timestamp> {
    let conditions = object.pointer("/status/conditions")?.as_array()?;
    conditions.iter().filter_map(|condition| time_at(condition, "/lastTransitionTime")).max()
}

/// The time at a JSON pointer.
#[must_use]
pub fn time_at(object: &Value, pointer: &str) -> Option<Timestamp> {
    str_at(object, pointer).parse().ok()
}

/// The string at a JSON pointer. Empty if it is absent or of another type.
#[must_use]
pub fn str_at<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// The integer at a JSON pointer. `None` if it is absent or not a 32-bit integer.
#[must_use]
pub fn i32_at(object: &Value, pointer: &str) -> Option<i32> {
    object.pointer(pointer).and_then(Value::as_i64).and_then(|n| i32::try_from(n).ok())
}

/// The integer at a JSON pointer, or `default` if it is absent.
pub(super) fn count_at(object: &Value, pointer: &str, default: i64) -> i64 {
    object.pointer(pointer).and_then(Value::as_i64).unwrap_or(default)
}

/// The list at a JSON pointer, or an empty list if it is absent.
pub(super) fn list_at<'a>(object: &'a Value, pointer: &str) -> &'a [Value] {
    object.pointer(pointer).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// Path of a field, as keys of nested objects.
pub type Keys = &'static [&'static str];

/// The field that names the controller of a job, in most kinds.
pub(super) const MANAGED_BY: Keys = &["spec", "managedBy"];

/// The value of a field.
pub(super) fn value_at(object: &Value, keys: Keys) -> Option<&Value> {
    keys.iter().try_fold(object, |at, key| at.get(key))
}

/// Sets or removes a field.
pub(super) fn set_value(object: &mut Value, keys: Keys, value: Option<Value>) {
    let Some((last, parents)) = keys.split_last() else { return };
    let Some(map) = object_mut(object, parents) else { return };
    match value {
        Some(value) => map.insert((*last).to_owned(), value),
        None => map.remove(*last),
    };
}

/// `metadata.name`.
#[must_use]
pub fn name(object: &Value) -> &str {
    str_at(object, "/metadata/name")
}

/// `metadata.namespace`.
#[must_use]
pub fn namespace(object: &Value) -> &str {
    str_at(object, "/metadata/namespace")
}

/// `metadata.uid`.
#[must_use]
pub fn uid(object: &Value) -> &str {
    str_at(object, "/metadata/uid")
}

/// `metadata.resourceVersion`.
#[must_use]
pub fn resource_version(object: &Value) -> &str {
    str_at(object, "/metadata/resourceVersion")
}

/// True once the object is being deleted.
#[must_use]
pub fn is_deleting(object: &Value) -> bool {
    object.pointer("/metadata/deletionTimestamp").is_some_and(|v| !v.is_null())
}

/// Whether a foreign finalizer keeps the object. Kueue's own finalizers do not count. Neither do
/// the garbage collector's, which may wait for Kueue's.
#[must_use]
pub fn is_held_by_others(object: &Value) -> bool {
    let finalizers = object.pointer("/metadata/finalizers").and_then(Value::as_array);
    let not_of_others = ["foregroundDeletion", "orphan", names::TERMINAL_STATE];
    let of_others = |finalizer: &Value| !not_of_others.iter().any(|it| finalizer == it);
    finalizers.is_some_and(|finalizers| finalizers.iter().any(of_others))
}

/// The value of a label.
#[must_use]
pub fn label<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object.get("metadata")?.get("labels")?.get(key)?.as_str()
}

/// The value of an annotation.
#[must_use]
pub fn annotation<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object.get("metadata")?.get("annotations")?.get(key)?.as_str()
}

/// The map of strings at a JSON pointer, without entries that are not strings.
#[must_use]
pub fn string_map(object: &Value, pointer: &str) -> BTreeMap<String, String> {
    object
        .pointer(pointer)
        .and_then(Value::as_object)
        .map(|map| {
            map.iter().filter_map(|(k, v)| Some((k.clone(), v.as_str()?.to_owned()))).collect()
        })
        .unwrap_or_default()
}

/// The object at the path. An absent or null object is created.
///
/// A value of another type stays unchanged and gives `None`. The API server would not have accepted
/// such an object.
pub fn object_mut<'a>(root: &'a mut Value, path: &[&str]) -> Option<&'a mut Map<String, Value>> {
    let mut here = root;
    for key in path {
        let map = here.as_object_mut()?;
        let next = map.entry((*key).to_owned()).or_insert(Value::Null);
        if next.is_null() {
            *next = Value::Object(Map::new());
        }
        here = next;
    }
    here.as_object_mut()
}

/// Sets a label.
pub fn set_label(object: &mut Value, key: &str, value: &str) {
    if let Some(labels) = object_mut(object, &["metadata", "labels"]) {
        labels.insert(key.to_owned(), Value::from(value));
    }
}

/// Sets an annotation.
pub fn set_annotation(object: &mut Value, key: &str, value: &str) {
    if let Some(annotations) = object_mut(object, &["metadata", "annotations"]) {
        annotations.insert(key.to_owned(), Value::from(value));
    }
}

/// Removes an annotation. Returns true if it was there.
pub fn remove_annotation(object: &mut Value, key: &str) -> bool {
    object
        .pointer_mut("/metadata/annotations")
        .and_then(Value::as_object_mut)
        .is_some_and(|annotations| annotations.remove(key).is_some())
}

/// The LocalQueue in the queue label. Empty if there is none.
#[must_use]
pub fn queue_name(object: &Value) -> &str {
    label(object, names::QUEUE_NAME).unwrap_or_default()
}

/// The WorkloadPriorityClass in the label. Empty if there is none.
#[must_use]
pub fn workload_priority_class(object: &Value) -> &str {
    label(object, names::PRIORITY_CLASS).unwrap_or_default()
}

/// The maximum execution time in the label, in seconds, if it is a positive 32-bit number.
#[must_use]
pub fn max_exec_time_seconds(object: &Value) -> Option<i32> {
    label(object, names::MAX_EXEC_TIME_SECONDS)?.parse().ok().filter(|seconds| *seconds > 0)
}

/// The prebuilt Workload of this job: the annotation's value if it is set, else the label's. Empty
/// if there is none.
#[must_use]
pub fn prebuilt_workload_name(object: &Value) -> &str {
    annotation(object, names::PREBUILT_WORKLOAD_NAME)
        .filter(|name| !name.is_empty())
        .or_else(|| label(object, names::PREBUILT_WORKLOAD_NAME))
        .unwrap_or_default()
}

/// Names the prebuilt Workload in a label, which every version of Kueue reads. If the name is too
/// long for a label, in an annotation.
pub fn set_prebuilt_workload_name(object: &mut Value, workload: &str) {
    if workload.len() <= LABEL_VALUE_MAX {
        set_label(object, names::PREBUILT_WORKLOAD_NAME, workload);
    } else {
        set_annotation(object, names::PREBUILT_WORKLOAD_NAME, workload);
    }
}

/// Whether a hub sent the object. The hub then also sends its Workload.
#[must_use]
pub fn is_sent(object: &Value) -> bool {
    label(object, names::MULTIKUEUE_ORIGIN).is_some()
}

/// Longest label value, in bytes (API limit).
pub const LABEL_VALUE_MAX: usize = 63;

/// An owner reference with `controller: true`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Controller {
    /// `apiVersion` of the owner, such as `batch/v1`.
    pub api_version: String,
    /// Kind of the owner.
    pub kind: String,
    /// Name of the owner.
    pub name: String,
    /// uid of the owner.
    pub uid: String,
}

/// `metadata.generation`, which counts the changes of the object's spec.
pub(super) fn generation(object: &Value) -> i64 {
    object.pointer("/metadata/generation").and_then(Value::as_i64).unwrap_or(0)
}

/// The owner with `controller: true`, if there is one.
#[must_use]
pub fn controller_of(object: &Value) -> Option<Controller> {
    let owners = object.pointer("/metadata/ownerReferences")?.as_array()?;
    let owner =
        owners.iter().find(|o| o.get("controller").and_then(Value::as_bool) == Some(true))?;
    Some(Controller {
        api_version: str_at(owner, "/apiVersion").to_owned(),
        kind: str_at(owner, "/kind").to_owned(),
        name: str_at(owner, "/name").to_owned(),
        uid: str_at(owner, "/uid").to_owned(),
    })
}

/// A time in the API's format: UTC, whole seconds.
#[must_use]
pub fn rfc3339(time: jiff::Timestamp) -> String {
    jiff::Timestamp::from_second(time.as_second()).unwrap_or(time).to_string()
}
