//! Rules of ResourceFlavors (Kueue's `pkg/webhooks/resourceflavor_webhook.go`).

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Taint, Toleration};

use super::labels;
use crate::{
    field::{FieldError, Path},
    v1beta2::ResourceFlavor,
};

/// Errors of a ResourceFlavor.
#[must_use]
pub fn resource_flavor(flavor: &ResourceFlavor) -> Vec<FieldError> {
    let (spec, path) = (&flavor.spec, Path::new("spec"));
    let mut errors = Vec::new();
    let node_labels = spec.node_labels.iter().map(|(key, value)| (key.as_str(), value.as_str()));
    labels::labels(node_labels, &path.child("nodeLabels"), &mut errors);
    taints(&spec.node_taints, &path.child("nodeTaints"), &mut errors);
    tolerations(&spec.tolerations, &path.child("tolerations"), &mut errors);
    errors
}

fn taints(taints: &[Taint], path: &Path, errors: &mut Vec<FieldError>) {
    let mut seen = BTreeSet::new();
    for (index, taint) in taints.iter().enumerate() {
        let path = path.index(index);
        labels::key(&taint.key, &path.child("key"), errors);
        labels::value(taint.value.as_deref().unwrap_or_default(), &path.child("value"), errors);
        if !seen.insert((&taint.key, &taint.effect)) {
            let value = serde_json::to_value(taint).unwrap_or_default();
            let detail =
                format!("Duplicate value: {value}: taints must be unique by key and effect pair");
            errors.push(FieldError::new(&path, detail));
        }
    }
}

pub(super) fn tolerations(tolerations: &[Toleration], path: &Path, errors: &mut Vec<FieldError>) {
    for (index, toleration) in tolerations.iter().enumerate() {
        if let Some(key) = toleration.key.as_ref().filter(|key| !key.is_empty()) {
            labels::key(key, &path.index(index).child("key"), errors);
        }
    }
}
