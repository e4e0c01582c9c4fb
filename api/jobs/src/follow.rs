//! What goes on being a hub's of an object that it has sent: its size, and the fields that its kind says.

use serde_json::{Value, json};

use super::{JobKind, elastic};

/// A JSON merge patch that brings what has changed on the hub to the object that is there: the number of its replicas, or of an
/// elastic job's pods, and the fields that its kind says. None if all is as wanted.
#[must_use]
pub fn following(kind: &dyn JobKind, wanted: &Value, there: &Value) -> Option<Value> {
    let mut patch = elastic::resizing(kind, wanted, there).unwrap_or_else(|| json!({}));
    if let Some(serving) = kind.serving()
        && let Some(replicas) =
            serving.replicas(wanted).filter(|it| serving.replicas(there) != Some(*it))
    {
        patch["spec"]["replicas"] = replicas.into();
    }
    for pointer in kind.followed_fields() {
        let value = wanted.pointer(pointer);
        if value != there.pointer(pointer) {
            // One that is there no more is taken away.
            put(&mut patch, pointer, value.cloned().unwrap_or_default());
        }
    }
    patch.as_object().is_some_and(|changes| !changes.is_empty()).then_some(patch)
}

fn put(patch: &mut Value, pointer: &str, value: Value) {
    let fields = pointer.split('/').skip(1);
    *fields.fold(patch, |at, field| &mut at[field]) = value;
}
