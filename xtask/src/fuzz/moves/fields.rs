//! Removes fields, or sets them to the values that Kueue's webhooks would default them to.

use serde_json::{Value, json};

use super::changed;

/// Optional fields.
const OPTIONAL: [&str; 15] = [
    "minCount",
    "nodeSelector",
    "tolerations",
    "nodeLabels",
    "nodeTaints",
    "borrowingLimit",
    "lendingLimit",
    "maxPriorityThreshold",
    "fairSharing",
    "cohortName",
    "parentName",
    "preference",
    "labels",
    "admissionChecksStrategy",
    "onFlavors",
];

/// The simplest value of a required field.
fn plainest(field: &str) -> Option<Value> {
    Some(match field {
        "preemption" => json!({
            "withinClusterQueue": "Never", "reclaimWithinCohort": "Never", "borrowWithinCohort": { "policy": "Never" },
        }),
        "borrowWithinCohort" => json!({ "policy": "Never" }),
        "withinClusterQueue" | "reclaimWithinCohort" => json!("Never"),
        "flavorFungibility" => {
            json!({ "whenCanBorrow": "MayStopSearch", "whenCanPreempt": "TryNextFlavor" })
        }
        "queueingStrategy" => json!("BestEffortFIFO"),
        "stopPolicy" => json!("None"),
        "count" => json!(1),
        "cpu" | "memory" | "nvidia.com/gpu" => json!("1"),
        _ => return None,
    })
}

/// Scenarios with one field removed or set to its simplest value, and scenarios without one of several pod sets.
pub(super) fn simpler(scenario: &Value) -> Vec<Value> {
    let mut pointers = Vec::new();
    collect(scenario, "", &mut pointers);
    pointers.iter().filter_map(|(parent, field)| simplified(scenario, parent, field)).collect()
}

/// Collects the places of all fields and list elements: the parent's JSON pointer, and the last part.
fn collect(value: &Value, at: &str, into: &mut Vec<(String, String)>) {
    let children: Vec<(String, &Value)> = match value {
        Value::Array(list) => {
            list.iter().enumerate().map(|(index, inner)| (index.to_string(), inner)).collect()
        }
        Value::Object(fields) => {
            fields.iter().map(|(field, inner)| (field.clone(), inner)).collect()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => return,
    };
    for (field, inner) in children {
        into.push((at.to_owned(), field.clone()));
        collect(inner, &format!("{at}/{}", field.replace('~', "~0").replace('/', "~1")), into);
    }
}

fn simplified(scenario: &Value, parent: &str, field: &str) -> Option<Value> {
    let at_start = parent.is_empty();
    let owner = if at_start { scenario } else { scenario.pointer(parent)? };
    let in_pod_sets =
        parent.ends_with("/podSets") && owner.as_array().is_some_and(|sets| sets.len() > 1);
    let priority = field == "priority" && parent.ends_with("/spec");
    // Keys of the scenario itself, such as `name` and `start`, are no fields of objects.
    if at_start
        || !(in_pod_sets || priority || OPTIONAL.contains(&field) || plainest(field).is_some())
    {
        return None;
    }
    changed(scenario, |scenario| match scenario.pointer_mut(parent) {
        Some(Value::Array(sets)) if in_pod_sets => {
            sets.remove(field.parse().unwrap_or(0));
        }
        Some(Value::Object(owner)) => match plainest(field) {
            _ if priority => {
                owner.insert(field.to_owned(), json!(0));
            }
            Some(plain) => {
                owner.insert(field.to_owned(), plain);
            }
            None => {
                owner.remove(field);
            }
        },
        _ => {}
    })
}
