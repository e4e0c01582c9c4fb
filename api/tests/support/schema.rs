//! Checks a structural schema without a server: types, limits, patterns and lists, in the API
//! server's words. `kube_cel` checks CEL rules. Sufficient for the schemas of this crate, not in
//! general.

use regex::Regex;
use serde_json::{Map, Value};

/// All schema errors of the value.
pub(crate) fn errors(value: &Value, schema: &Value) -> Vec<String> {
    let mut errors = Vec::new();
    check(value, schema, "", &mut errors);
    errors
}

fn check(value: &Value, schema: &Value, path: &str, errors: &mut Vec<String>) {
    if schema["x-kubernetes-int-or-string"] == true {
        if !value.is_i64() && !value.is_string() {
            errors.push(wrong_type(path, "integer,string", value));
        }
    } else if let Some(expected) = schema["type"].as_str() {
        let fits = match expected {
            "object" => value.is_object(),
            "array" => value.is_array(),
            "string" => value.is_string(),
            "boolean" => value.is_boolean(),
            "integer" => value.is_i64() || value.is_u64(),
            "number" => value.is_number(),
            other => panic!("{path}: type {other}"),
        };
        if !fits {
            return errors.push(wrong_type(path, expected, value));
        }
    }
    match value {
        Value::Object(map) => check_object(map, schema, path, errors),
        Value::Array(items) => check_array(items, schema, path, errors),
        Value::String(text) => check_string(text, schema, path, errors),
        Value::Number(number) => check_number(number.as_f64().unwrap(), schema, path, errors),
        Value::Null | Value::Bool(_) => {}
    }
    if let Some(known) = schema["enum"].as_array().filter(|known| !known.contains(value)) {
        let known: Vec<String> = known.iter().map(Value::to_string).collect();
        errors.push(format!(
            "{path}: Unsupported value: {value}: supported values: {}",
            known.join(", ")
        ));
    }
}

fn wrong_type(path: &str, expected: &str, value: &Value) -> String {
    format!("{path}: Invalid value: {path} in body must be of type {expected}: {value}")
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

fn check_object(map: &Map<String, Value>, schema: &Value, path: &str, errors: &mut Vec<String>) {
    for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        if !map.contains_key(name) {
            errors.push(format!("{}: Required value", join(path, name)));
        }
    }
    for (name, value) in map {
        let schema = schema["properties"].get(name).or_else(|| schema.get("additionalProperties"));
        if let Some(schema) = schema {
            check(value, schema, &join(path, name), errors);
        }
    }
    over(map.len(), &schema["maxProperties"], path, errors);
}

fn over(count: usize, max: &Value, path: &str, errors: &mut Vec<String>) {
    if let Some(max) = max.as_u64().filter(|max| count as u64 > *max) {
        errors.push(format!("{path}: Too many: {count}: must have at most {max} items"));
    }
}

fn check_array(items: &[Value], schema: &Value, path: &str, errors: &mut Vec<String>) {
    over(items.len(), &schema["maxItems"], path, errors);
    if let Some(min) = schema["minItems"].as_u64().filter(|min| (items.len() as u64) < *min) {
        errors.push(format!(
            "{path}: Invalid value: {}: {path} in body should have at least {min} items",
            items.len()
        ));
    }
    for (index, item) in items.iter().enumerate() {
        check(item, &schema["items"], &format!("{path}[{index}]"), errors);
    }
    let key = |item: &Value| match schema["x-kubernetes-list-type"].as_str() {
        Some("map") => {
            let keys = schema["x-kubernetes-list-map-keys"].as_array().unwrap();
            let key = |name: &Value| {
                (name.as_str().unwrap().to_owned(), item[name.as_str().unwrap()].clone())
            };
            Some(Value::Object(keys.iter().map(key).collect()))
        }
        Some("set") => Some(item.clone()),
        _ => None,
    };
    let keys: Vec<Value> = items.iter().filter_map(key).collect();
    for (index, key) in keys.iter().enumerate() {
        if keys[..index].contains(key) {
            errors.push(format!("{path}[{index}]: Duplicate value: {key}"));
        }
    }
}

fn check_string(text: &str, schema: &Value, path: &str, errors: &mut Vec<String>) {
    let length = text.chars().count() as u64;
    if let Some(max) = schema["maxLength"].as_u64().filter(|max| length > *max) {
        errors.push(format!("{path}: Too long: may not be more than {max} bytes"));
    }
    if let Some(min) = schema["minLength"].as_u64().filter(|min| length < *min) {
        errors.push(format!(
            "{path}: Invalid value: {text:?}: {path} in body should be at least {min} chars long"
        ));
    }
    if let Some(pattern) = schema["pattern"].as_str()
        && !Regex::new(pattern).unwrap().is_match(text)
    {
        errors.push(format!(
            "{path}: Invalid value: {text:?}: {path} in body should match '{pattern}'"
        ));
    }
}

/// The format is not checked, because API servers such as 1.32 do not check it.
fn check_number(number: f64, schema: &Value, path: &str, errors: &mut Vec<String>) {
    if let Some(min) = schema["minimum"].as_f64().filter(|min| number < *min) {
        errors
            .push(format!("{path}: Invalid value: {number}: {path} in body should be greater than or equal to {min}"));
    }
    if let Some(max) = schema["maximum"].as_f64().filter(|max| number > *max) {
        errors.push(format!(
            "{path}: Invalid value: {number}: {path} in body should be less than or equal to {max}"
        ));
    }
}
