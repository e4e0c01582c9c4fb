//! Workload: the priority class has a name and a source, topology assignments list each domain, and
//! one status field has a misspelled name.

use serde_json::{Value, json};

use super::{schema as edit, topology_assignment};
use crate::{
    field::{FieldError, Path},
    v1beta2::{PriorityClassGroup, PriorityClassRef},
};

/// The source of a WorkloadPriorityClass.
const KUEUE: &str = "kueue.x-k8s.io/workloadpriorityclass";
/// The source of a pod PriorityClass.
const POD: &str = "scheduling.k8s.io/priorityclass";
/// `accumulatedPastExecutionTimeSeconds`.
const ACCUMULATED: &str = "accumulatedPastExexcutionTimeSeconds";

/// CEL: quota was reserved in the old and new object, and both have the field.
fn reserved_and_has(field: &str) -> String {
    format!(
        "has(oldSelf.status) && has(oldSelf.status.conditions) && oldSelf.status.conditions.exists(c, c.type == \
         'QuotaReserved' && c.status == 'True') && has(oldSelf.spec.{field}) && has(self.spec.{field})"
    )
}

pub(super) fn schema(root: &mut Value) {
    let reference = edit::remove(root, "spec.priorityClassRef");
    let mut name = reference["properties"]["name"].clone();
    super::remove(Some(&mut name), "minLength");
    edit::set(root, "spec.priorityClassName", name);
    let source = json!({
        "type": "string",
        "enum": [KUEUE, POD, ""],
        "default": "",
        "description": "What priorityClassName is a name of.",
    });
    edit::set(root, "spec.priorityClassSource", source);
    let spec = edit::at(root, "spec");
    edit::drop_rules(spec, "priorityClassRef");
    edit::add_rule(
        spec,
        "!has(self.priorityClassName) || has(self.priority)",
        "priority should not be nil when priorityClassName is set",
    );
    edit::drop_rules(root, "priorityClassRef");
    edit::add_rule(
        root,
        &format!(
            "({}) ? oldSelf.spec.priorityClassSource == self.spec.priorityClassSource : true",
            reserved_and_has("priorityClassSource")
        ),
        "priorityClassSource is immutable while workload quota reserved",
    );
    edit::add_rule(
        root,
        &format!(
            "({} && self.spec.priorityClassSource != '{KUEUE}') ? oldSelf.spec.priorityClassName == \
             self.spec.priorityClassName : true",
            reserved_and_has("priorityClassName")
        ),
        "priorityClassName is immutable while workload quota reserved and priorityClassSource is not equal to \
         kueue.x-k8s.io/workloadpriorityclass",
    );
    edit::rename(root, "status.accumulatedPastExecutionTimeSeconds", ACCUMULATED);
    topology_assignment::schema(edit::at(
        root,
        "status.admission.podSetAssignments.[].topologyAssignment",
    ));
}

pub(super) fn to_v1beta2(object: &mut Value) -> Result<(), FieldError> {
    if let Some(spec) = object.get_mut("spec") {
        priority_class_ref(spec);
    }
    super::rename(object.get_mut("status"), ACCUMULATED, "accumulatedPastExecutionTimeSeconds");
    assignments(object, topology_assignment::to_v1beta2)
}

pub(super) fn to_v1beta1(object: &mut Value) -> Result<(), FieldError> {
    if let Some(spec) = object.get_mut("spec") {
        priority_class_source(spec);
    }
    super::rename(object.get_mut("status"), "accumulatedPastExecutionTimeSeconds", ACCUMULATED);
    assignments(object, topology_assignment::to_v1beta1)
}

/// A name without a source names nothing, as in Kueue.
fn priority_class_ref(spec: &mut Value) {
    let name = super::remove(Some(&mut *spec), "priorityClassName").unwrap_or_default();
    let source = super::remove(Some(&mut *spec), "priorityClassSource").unwrap_or_default();
    let name = name.as_str().unwrap_or_default();
    let reference = match source.as_str() {
        _ if name.is_empty() => None,
        Some(KUEUE) => Some(PriorityClassRef::workload(name)),
        Some(POD) => Some(PriorityClassRef::pod(name)),
        _ => None,
    };
    if let Some(Ok(reference)) = reference.map(serde_json::to_value) {
        spec["priorityClassRef"] = reference;
    }
}

fn priority_class_source(spec: &mut Value) {
    let reference = super::remove(Some(&mut *spec), "priorityClassRef").unwrap_or_default();
    let reference: Option<PriorityClassRef> = serde_json::from_value(reference).ok();
    let source = reference.as_ref().map_or("", |reference| match reference.group {
        PriorityClassGroup::Kueue => KUEUE,
        PriorityClassGroup::Scheduling => POD,
    });
    spec["priorityClassSource"] = source.into();
    if let Some(reference) = reference {
        spec["priorityClassName"] = reference.name.into();
    }
}

fn assignments(
    object: &mut Value,
    convert: impl Fn(&Value, &Path) -> Result<Value, FieldError>,
) -> Result<(), FieldError> {
    let path = Path::new("status").child("admission").child("podSetAssignments");
    let all =
        object.pointer_mut("/status/admission/podSetAssignments").and_then(Value::as_array_mut);
    for (index, pod_set) in all.into_iter().flatten().enumerate() {
        if let Some(assignment) = pod_set.get_mut("topologyAssignment") {
            *assignment = convert(assignment, &path.index(index).child("topologyAssignment"))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::a_workload_priority_class(
        json!({"priorityClassName": "high", "priorityClassSource": KUEUE}),
        json!({"priorityClassRef": {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "high"}})
    )]
    #[case::a_class_of_pods(
        json!({"priorityClassName": "high", "priorityClassSource": POD}),
        json!({"priorityClassRef": {"group": "scheduling.k8s.io", "kind": "PriorityClass", "name": "high"}})
    )]
    #[case::a_name_without_a_source(json!({"priorityClassName": "high", "priorityClassSource": ""}), json!({}))]
    #[case::a_source_without_a_name(json!({"priorityClassSource": POD}), json!({}))]
    fn priority_classes_of_v1beta1(#[case] spec: Value, #[case] expected: Value) {
        let mut object = json!({"spec": spec});
        to_v1beta2(&mut object).unwrap();
        assert_eq!(object["spec"], expected);
    }
}
