//! Edits of v1beta2's schemas into v1beta1's.

use serde_json::{Value, json};

/// The schema at a path such as `spec.podSets.[].count`, where `[]` stands for the items of a list.
pub(super) fn at<'a>(root: &'a mut Value, path: &str) -> &'a mut Value {
    path.split('.').fold(root, |schema, name| match name {
        "[]" => &mut schema["items"],
        name => &mut schema["properties"][name],
    })
}

/// Adds or replaces the schema at a path.
pub(super) fn set(root: &mut Value, path: &str, schema: Value) {
    *at(root, path) = schema;
}

/// Renames the field at a path, also in `required`.
pub(super) fn rename(root: &mut Value, path: &str, to: &str) {
    let (parent, from) = path.rsplit_once('.').unwrap_or(("", path));
    let parent = if parent.is_empty() { root } else { at(root, parent) };
    super::rename(parent.get_mut("properties"), from, to);
    for name in parent["required"].as_array_mut().into_iter().flatten().filter(|name| *name == from)
    {
        *name = to.into();
    }
}

/// Removes the field at a path.
pub(super) fn remove(root: &mut Value, path: &str) -> Value {
    let (parent, name) = path.rsplit_once('.').unwrap_or(("", path));
    let parent = if parent.is_empty() { root } else { at(root, parent) };
    if let Some(required) = parent.get_mut("required").and_then(Value::as_array_mut) {
        required.retain(|field| field != name);
        if required.is_empty() {
            super::remove(Some(&mut *parent), "required");
        }
    }
    super::remove(parent.get_mut("properties"), name).unwrap_or_default()
}

/// Adds a validation rule with its message.
pub(super) fn add_rule(schema: &mut Value, rule: &str, message: &str) {
    let added = json!({"rule": rule, "message": message});
    match schema["x-kubernetes-validations"].as_array_mut() {
        Some(rules) => rules.push(added),
        None => schema["x-kubernetes-validations"] = json!([added]),
    }
}

/// Removes the validation rules that contain a text.
pub(super) fn drop_rules(schema: &mut Value, with: &str) {
    let Some(rules) = schema.get_mut("x-kubernetes-validations").and_then(Value::as_array_mut)
    else {
        return;
    };
    rules.retain(|rule| !rule["rule"].as_str().unwrap_or_default().contains(with));
    if rules.is_empty() {
        super::remove(Some(schema), "x-kubernetes-validations");
    }
}

/// Replaces a text in the rules of a schema and in their messages.
pub(super) fn in_rules(schema: &mut Value, from: &str, to: &str) {
    for rule in schema["x-kubernetes-validations"].as_array_mut().into_iter().flatten() {
        for field in ["rule", "message"] {
            if let Some(text) = rule[field].as_str() {
                rule[field] = text.replace(from, to).into();
            }
        }
    }
}

/// The schema of the recorded past usage beside a share.
pub(super) fn admission_fair_sharing_status(quantity: &Value) -> Value {
    json!({
        "description": "Past use. Nothing writes it any more.",
        "type": "object",
        "required": ["consumedResources", "lastUpdate"],
        "properties": {
            "consumedResources": {"type": "object", "additionalProperties": quantity},
            "lastUpdate": {"type": "string", "format": "date-time"},
        },
    })
}
