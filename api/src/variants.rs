//! Variants of a Workload (Kueue's `ConcurrentAdmission`). In a ClusterQueue with such a policy, a
//! job's Workload (the *parent*) is not queued itself. One variant for each flavor is queued, and
//! the parent is admitted with the variant that is.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

use crate::{
    names,
    v1beta2::{PreemptionGate, Workload},
    workload_names::variant_name,
};

/// The feature gate.
pub const FEATURE_GATE: &str = "ConcurrentAdmission";
/// The preemption gate of each variant. Only one variant of a parent may preempt at a time.
pub const PREEMPTION_GATE: &str = "kueue.x-k8s.io/concurrent-admission";

const API_GROUP: &str = "kueue.x-k8s.io/";
const KIND: &str = "Workload";

/// Annotations of a parent that its variants must not have.
const OWN: [&str; 4] = [
    names::IS_GROUP_WORKLOAD,
    names::ELASTIC_JOB,
    names::WORKLOAD_SLICE_NAME,
    names::WORKLOAD_SLICE_REPLACEMENT_FOR,
];

/// Annotations that variants copy from their parent, also after creation.
pub const FOLLOWED: [&str; 2] = [names::ADMISSION_GATED_BY, names::PRIORITY_BOOST];

/// Whether the Workload has variants, by its label.
#[must_use]
pub fn is_parent(workload: &Workload) -> bool {
    let label = workload
        .metadata
        .labels
        .as_ref()
        .and_then(|labels| labels.get(names::CONCURRENT_ADMISSION_PARENT));
    label.is_some_and(|value| value == "true")
}

/// The parent of a variant.
#[must_use]
pub fn parent_of(workload: &Workload) -> Option<&OwnerReference> {
    let mut owners = workload.metadata.owner_references.iter().flatten();
    owners.find(|owner| owner.kind == KIND && owner.api_version.starts_with(API_GROUP))
}

/// The only flavors that the Workload may use. `None` allows all flavors.
#[must_use]
pub fn allowed_flavors(workload: &Workload) -> Option<Vec<&str>> {
    let text =
        workload.metadata.annotations.as_ref()?.get(names::WORKLOAD_ALLOWED_RESOURCE_FLAVORS)?;
    Some(text.split(',').map(str::trim).filter(|flavor| !flavor.is_empty()).collect())
}

/// The flavor of a variant.
#[must_use]
pub fn flavor_of(variant: &Workload) -> Option<&str> {
    allowed_flavors(variant)?.first().copied()
}

/// Creates the variant of a Workload for a flavor.
#[must_use]
pub fn make(parent: &Workload, flavor: &str) -> Workload {
    let (name, uid) = (
        parent.metadata.name.clone().unwrap_or_default(),
        parent.metadata.uid.clone().unwrap_or_default(),
    );
    let mut labels = parent.metadata.labels.clone().unwrap_or_default();
    labels.remove(names::CONCURRENT_ADMISSION_PARENT);
    let mut annotations = parent.metadata.annotations.clone().unwrap_or_default();
    annotations.retain(|key, _| !OWN.contains(&key.as_str()));
    annotations.insert(names::WORKLOAD_ALLOWED_RESOURCE_FLAVORS.into(), flavor.into());
    let metadata = ObjectMeta {
        name: Some(variant_name(&name, &uid, flavor)),
        namespace: parent.metadata.namespace.clone(),
        labels: Some(labels),
        annotations: Some(annotations),
        owner_references: Some(vec![OwnerReference {
            api_version: format!("{API_GROUP}v1beta2"),
            kind: KIND.into(),
            name,
            uid,
            controller: Some(true),
            block_owner_deletion: Some(true),
        }]),
        ..ObjectMeta::default()
    };
    let mut spec = parent.spec.clone();
    if !spec.preemption_gates.iter().any(|gate| gate.name == PREEMPTION_GATE) {
        spec.preemption_gates.push(PreemptionGate { name: PREEMPTION_GATE.into() });
    }
    Workload { metadata, spec, status: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parent() -> Workload {
        serde_json::from_value(serde_json::json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
            "metadata": {
                "name": "job-train-199b9", "namespace": "ns", "uid": "1234", "resourceVersion": "7",
                "finalizers": [names::RESOURCE_IN_USE],
                "labels": {names::CONCURRENT_ADMISSION_PARENT: "true", "team": "red"},
                "annotations": {names::IS_GROUP_WORKLOAD: "true", "note": "kept"},
                "ownerReferences": [
                    {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "u", "controller": true},
                ],
            },
            "spec": {"queueName": "lq", "preemptionGates": [{"name": "theirs"}]},
        }))
        .unwrap()
    }

    #[test]
    fn variant_copies_its_parent_for_one_flavor() {
        let (parent, variant) = (parent(), make(&parent(), "spot"));
        assert!(is_parent(&parent) && parent_of(&parent).is_none() && flavor_of(&parent).is_none());
        assert!(!is_parent(&variant));
        assert_eq!(parent_of(&variant).map(|owner| owner.uid.as_str()), Some("1234"));
        assert_eq!(
            (flavor_of(&variant), variant.spec.queue_name.as_deref()),
            (Some("spot"), Some("lq"))
        );
        let gates: Vec<_> =
            variant.spec.preemption_gates.iter().map(|gate| gate.name.as_str()).collect();
        assert_eq!(gates, ["theirs", PREEMPTION_GATE]);
        let annotations: Vec<_> = variant.metadata.annotations.unwrap().into_keys().collect();
        assert_eq!(annotations, [names::WORKLOAD_ALLOWED_RESOURCE_FLAVORS, "note"]);
        assert_eq!(variant.metadata.labels.unwrap().into_keys().collect::<Vec<_>>(), ["team"]);
        assert_eq!((variant.metadata.finalizers, variant.metadata.resource_version), (None, None));
    }

    #[test]
    fn variant_of_several_allowed_flavors_is_for_the_first() {
        let mut workload = parent();
        let all = workload.metadata.annotations.get_or_insert_default();
        all.insert(names::WORKLOAD_ALLOWED_RESOURCE_FLAVORS.into(), "a, b,,".into());
        assert_eq!(allowed_flavors(&workload), Some(vec!["a", "b"]));
        assert_eq!(flavor_of(&workload), Some("a"));
    }
}
