//! Cohort: v1beta1's fair-sharing status has the shape of a LocalQueue's.

use serde_json::Value;

use super::schema as edit;
use crate::field::FieldError;

pub(super) fn schema(root: &mut Value) {
    let quantity = edit::at(root, "spec.fairSharing.weight")["pattern"].clone();
    let quantity = serde_json::json!({"x-kubernetes-int-or-string": true, "pattern": quantity});
    edit::set(
        root,
        "status.fairSharing.admissionFairSharingStatus",
        edit::admission_fair_sharing_status(&quantity),
    );
}

pub(super) fn to_v1beta2(object: &mut Value) -> Result<(), FieldError> {
    super::remove(object.pointer_mut("/status/fairSharing"), "admissionFairSharingStatus");
    Ok(())
}

pub(super) fn to_v1beta1(_: &mut Value) -> Result<(), FieldError> {
    Ok(())
}
