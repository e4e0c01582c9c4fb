//! AdmissionCheck: v1beta1 also has `retryDelayMinutes`, which has no effect.

use serde_json::{Value, json};

use super::schema as edit;
use crate::field::FieldError;

const DEFAULT_DELAY: i64 = 15;

pub(super) fn schema(root: &mut Value) {
    let delay = json!({
        "type": "integer",
        "format": "int64",
        "default": DEFAULT_DELAY,
        "description": "Has had no effect since v0.8 of Kueue.",
    });
    edit::set(root, "spec.retryDelayMinutes", delay);
}

pub(super) fn to_v1beta2(object: &mut Value) -> Result<(), FieldError> {
    super::remove(object.get_mut("spec"), "retryDelayMinutes");
    Ok(())
}

pub(super) fn to_v1beta1(object: &mut Value) -> Result<(), FieldError> {
    if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
        spec.insert("retryDelayMinutes".into(), DEFAULT_DELAY.into());
    }
    Ok(())
}
