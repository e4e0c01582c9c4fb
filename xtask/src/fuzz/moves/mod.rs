//! Ways to make a scenario smaller and keep it valid.

mod fields;
mod objects;
mod steps;

use serde_json::Value;

/// All scenarios that are one removal smaller, the largest removals first.
pub(crate) fn smaller(scenario: &Value) -> Vec<Value> {
    let mut all = steps::without_steps(scenario);
    all.extend(objects::without_queues(scenario));
    all.extend(steps::without_workloads(scenario));
    all.extend(objects::without_cohorts(scenario));
    all.extend(objects::without_flavors(scenario));
    all.extend(objects::without_resources(scenario));
    all.extend(steps::without_edits(scenario));
    all.extend(objects::without_namespaces(scenario));
    all.extend(fields::simpler(scenario));
    all.retain(|smaller| is_sound(smaller) || !is_sound(scenario));
    all
}

/// Whether all ClusterQueues have quota and all containers have requests. Scenarios are not about such edge cases.
fn is_sound(scenario: &Value) -> bool {
    let mut sound = true;
    let mut read = scenario.clone();
    everywhere(&mut read, &mut |value| {
        let without_groups =
            value["kind"] == "ClusterQueue" && list(&value["spec"], "resourceGroups").is_empty();
        let without_requests = value["requests"].as_object().is_some_and(serde_json::Map::is_empty);
        sound &= !without_groups && !without_requests;
    });
    sound
}

/// A list in the scenario, to read.
fn list<'a>(value: &'a Value, field: &str) -> &'a [Value] {
    value[field].as_array().map_or(&[], Vec::as_slice)
}

/// The scenario after a change; `None` if nothing changed.
fn changed(scenario: &Value, change: impl FnOnce(&mut Value)) -> Option<Value> {
    let mut smaller = scenario.clone();
    change(&mut smaller);
    (smaller != *scenario).then_some(smaller)
}

/// Leaves only the elements of a list that `keep` wants.
fn retain(value: &mut Value, field: &str, keep: impl FnMut(&Value) -> bool) {
    if let Some(list) = value.get_mut(field).and_then(Value::as_array_mut) {
        list.retain(keep);
    }
}

/// Calls `change` on the value and everything in it, the inner first.
fn everywhere(value: &mut Value, change: &mut impl FnMut(&mut Value)) {
    match value {
        Value::Array(list) => list.iter_mut().for_each(|inner| everywhere(inner, change)),
        Value::Object(fields) => fields.values_mut().for_each(|inner| everywhere(inner, change)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
    change(value);
}

/// `metadata.name`.
fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

/// `metadata.namespace` and `metadata.name`, as steps name workloads.
fn key(object: &Value) -> String {
    format!("{}/{}", object["metadata"]["namespace"].as_str().unwrap_or_default(), name(object))
}
