//! Changes on the hub that also apply to the copy of a job: its size and the fields of
//! [`crate::Remote::propagated_fields`].

use serde_json::{Value, json};

use super::{JobKind, elastic};

/// A JSON merge patch that brings the hub's changes to the copy: the number of replicas, the counts
/// of an elastic job, and the kind's propagated fields. `None` if there is nothing to change.
#[must_use]
pub fn propagated_changes(kind: &dyn JobKind, wanted: &Value, there: &Value) -> Option<Value> {
    let mut patch = elastic::resizing(kind, wanted, there).unwrap_or_else(|| json!({}));
    if let Some(serving) = kind.serving()
        && let Some(replicas) =
            serving.replicas(wanted).filter(|it| serving.replicas(there) != Some(*it))
    {
        patch["spec"]["replicas"] = replicas.into();
    }
    for pointer in kind.propagated_fields() {
        let value = wanted.pointer(pointer);
        if value != there.pointer(pointer) {
            // Null removes a field that the hub's object no longer has.
            put(&mut patch, pointer, value.cloned().unwrap_or_default());
        }
    }
    patch.as_object().is_some_and(|changes| !changes.is_empty()).then_some(patch)
}

fn put(patch: &mut Value, pointer: &str, value: Value) {
    let fields = pointer.split('/').skip(1);
    *fields.fold(patch, |at, field| &mut at[field]) = value;
}
