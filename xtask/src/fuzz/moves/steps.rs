//! Removes steps, workloads and edits.

use serde_json::Value;

use super::{changed, key, list};

/// Scenarios without one step, the last step first, because steps after the difference do not matter.
pub(super) fn without_steps(scenario: &Value) -> Vec<Value> {
    let count = list(scenario, "steps").len();
    let without = |at: usize| {
        changed(scenario, |scenario| {
            if let Some(steps) = scenario["steps"].as_array_mut() {
                steps.remove(at);
            }
        })
    };
    if count < 2 { Vec::new() } else { (0..count).rev().filter_map(without).collect() }
}

/// Scenarios without half of a step's workloads, and without one of them.
pub(super) fn without_workloads(scenario: &Value) -> Vec<Value> {
    let mut groups = Vec::new();
    for step in list(scenario, "steps") {
        let keys: Vec<_> = list(step, "submit").iter().map(key).collect();
        if keys.len() > 3 {
            let (left, right) = keys.split_at(keys.len() / 2);
            groups.extend([left.to_vec(), right.to_vec()]);
        }
    }
    let submitted = list(scenario, "steps").iter().flat_map(|step| list(step, "submit"));
    groups.extend(submitted.map(|workload| vec![key(workload)]));
    groups
        .iter()
        .filter_map(|keys| {
            changed(scenario, |scenario| forget(scenario, &|key| keys.iter().any(|k| k == key)))
        })
        .collect()
}

/// Removes workloads and all that refers to them.
pub(super) fn forget(scenario: &mut Value, gone: &dyn Fn(&str) -> bool) {
    for step in scenario["steps"].as_array_mut().into_iter().flatten() {
        super::retain(step, "submit", |workload| !gone(&key(workload)));
        for field in NAMING {
            match step.get_mut(field) {
                Some(Value::Array(names)) => names.retain(|name| !name.as_str().is_some_and(gone)),
                Some(Value::Object(by_name)) => by_name.retain(|name, _| !gone(name)),
                _ => {}
            }
        }
    }
}

/// The edits of a step that name workloads.
const NAMING: [&str; 6] = ["finish", "delete", "reclaim", "priority", "checks", "requeue"];

/// Scenarios without one edit of a step, and without one part of an edit.
pub(super) fn without_edits(scenario: &Value) -> Vec<Value> {
    let mut smaller = Vec::new();
    for (number, step) in list(scenario, "steps").iter().enumerate() {
        for (field, edit) in
            step.as_object().into_iter().flatten().filter(|(field, _)| *field != "submit")
        {
            smaller.extend(changed(scenario, |scenario| {
                if let Some(step) = scenario["steps"][number].as_object_mut() {
                    step.remove(field);
                }
            }));
            let parts = edit.as_array().map_or(0, Vec::len)
                + edit.as_object().map_or(0, serde_json::Map::len);
            if parts > 1 {
                smaller.extend((0..parts).filter_map(|at| {
                    changed(scenario, |scenario| {
                        remove_part(&mut scenario["steps"][number][field], at)
                    })
                }));
            }
        }
    }
    smaller
}

fn remove_part(edit: &mut Value, at: usize) {
    match edit {
        Value::Array(list) => {
            list.remove(at);
        }
        Value::Object(fields) => {
            if let Some(field) = fields.keys().nth(at).cloned() {
                fields.remove(&field);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
