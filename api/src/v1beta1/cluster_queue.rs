//! ClusterQueue: `cohortName` is called `cohort`, admission checks may be a flat list, the
//! fungibility policies have other names, and the status could list the first pending workloads.

use serde_json::{Value, json};

use super::schema as edit;
use crate::field::FieldError;

/// v1beta1's older names of [`MAY_STOP_SEARCH`], each with its field.
const OLD_POLICIES: [(&str, &str); 2] =
    [("whenCanBorrow", "Borrow"), ("whenCanPreempt", "Preempt")];
const MAY_STOP_SEARCH: &str = "MayStopSearch";

pub(super) fn schema(root: &mut Value) {
    edit::rename(root, "spec.cohortName", "cohort");
    edit::in_rules(edit::at(root, "spec"), "self.cohortName", "self.cohort");
    for (field, old) in OLD_POLICIES {
        let policies = &mut edit::at(root, &format!("spec.flavorFungibility.{field}"))["enum"];
        if let Some(policies) = policies.as_array_mut() {
            policies.push(old.into());
        }
    }
    let checks = json!({
        "type": "array",
        "maxItems": 64,
        "items": {"type": "string", "minLength": 1, "maxLength": 316},
        "description": "AdmissionChecks for all flavors. With any here, admissionChecksStrategy is not looked at.",
    });
    edit::set(root, "spec.admissionChecks", checks);
    let strategy = edit::at(root, "spec.admissionChecksStrategy");
    super::remove(Some(&mut *strategy), "required");
    super::remove(Some(edit::at(strategy, "admissionChecks")), "minItems");
    let quantity = edit::at(root, "status.flavorsUsage.[].resources.[].total").clone();
    edit::set(
        root,
        "status.fairSharing.admissionFairSharingStatus",
        edit::admission_fair_sharing_status(&quantity),
    );
    edit::set(root, "status.pendingWorkloadsStatus", pending_workloads_status());
}

fn pending_workloads_status() -> Value {
    json!({
        "type": "object",
        "description": "The first workloads that wait. Nothing has written it since v0.14 of Kueue.",
        "required": ["lastChangeTime"],
        "properties": {
            "clusterQueuePendingWorkload": {
                "type": "array",
                "x-kubernetes-list-type": "atomic",
                "items": {
                    "type": "object",
                    "required": ["name", "namespace"],
                    "properties": {"name": {"type": "string"}, "namespace": {"type": "string"}},
                },
            },
            "lastChangeTime": {"type": "string", "format": "date-time"},
        },
    })
}

pub(super) fn to_v1beta2(object: &mut Value) -> Result<(), FieldError> {
    super::rename(object.get_mut("spec"), "cohort", "cohortName");
    if let Some(spec) = object.get_mut("spec") {
        policies(spec);
        admission_checks(spec);
    }
    super::remove(object.get_mut("status"), "pendingWorkloadsStatus");
    super::remove(object.pointer_mut("/status/fairSharing"), "admissionFairSharingStatus");
    Ok(())
}

pub(super) fn to_v1beta1(object: &mut Value) -> Result<(), FieldError> {
    super::rename(object.get_mut("spec"), "cohortName", "cohort");
    Ok(())
}

fn policies(spec: &mut Value) {
    let Some(fungibility) = spec.get_mut("flavorFungibility") else { return };
    for (field, old) in OLD_POLICIES {
        if let Some(policy) = fungibility.get_mut(field)
            && policy == old
        {
            *policy = MAY_STOP_SEARCH.into();
        }
    }
}

/// The flat list takes precedence over the strategy, as in Kueue.
fn admission_checks(spec: &mut Value) {
    let flat = super::remove(Some(&mut *spec), "admissionChecks").unwrap_or_default();
    let mut names: Vec<&str> = Vec::new();
    for name in flat.as_array().into_iter().flatten().filter_map(Value::as_str) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    if !names.is_empty() {
        let rules: Vec<Value> = names.iter().map(|name| json!({"name": name})).collect();
        spec["admissionChecksStrategy"] = json!({"admissionChecks": rules});
    }
    let rules = spec.pointer("/admissionChecksStrategy/admissionChecks").and_then(Value::as_array);
    if rules.is_none_or(Vec::is_empty) {
        super::remove(Some(spec), "admissionChecksStrategy");
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::a_flat_list(
        json!({"admissionChecks": ["a", "b", "a"]}),
        json!({"admissionChecksStrategy": {"admissionChecks": [{"name": "a"}, {"name": "b"}]}})
    )]
    #[case::a_flat_list_goes_before_a_strategy(
        json!({"admissionChecks": ["a"], "admissionChecksStrategy": {"admissionChecks": [{"name": "b"}]}}),
        json!({"admissionChecksStrategy": {"admissionChecks": [{"name": "a"}]}})
    )]
    #[case::an_empty_list_says_nothing(
        json!({"admissionChecks": [], "admissionChecksStrategy": {"admissionChecks": [{"name": "b"}]}}),
        json!({"admissionChecksStrategy": {"admissionChecks": [{"name": "b"}]}})
    )]
    #[case::an_empty_strategy_is_none(json!({"admissionChecksStrategy": {}}), json!({}))]
    #[case::old_policies(
        json!({"flavorFungibility": {"whenCanBorrow": "Borrow", "whenCanPreempt": "Preempt"}}),
        json!({"flavorFungibility": {"whenCanBorrow": "MayStopSearch", "whenCanPreempt": "MayStopSearch"}})
    )]
    #[case::a_policy_in_the_other_field_is_left_to_the_schema(
        json!({"flavorFungibility": {"whenCanBorrow": "Preempt"}}),
        json!({"flavorFungibility": {"whenCanBorrow": "Preempt"}})
    )]
    #[case::a_cohort(json!({"cohort": "all"}), json!({"cohortName": "all"}))]
    fn specs_of_v1beta1(#[case] spec: Value, #[case] expected: Value) {
        let mut object = json!({"spec": spec});
        to_v1beta2(&mut object).unwrap();
        assert_eq!(object["spec"], expected);
    }
}
