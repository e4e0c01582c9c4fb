//! Checks that a file has the fields and types of the configuration. The schema of the Rust types
//! is the only list of them.

use std::sync::LazyLock;

use schemars::generate::SchemaSettings;
use serde_json::{Map, Value};

use super::{API_VERSION, Configuration, GoDuration};
use switchyard_syntax::{
    field::{FieldError, Path, nearest},
    quantity,
};

/// Marks fields of the newer version in the schema of the older one.
pub(super) const NEWER: &str = "x-newer";

pub(super) static SCHEMA: LazyLock<Value> = LazyLock::new(|| {
    let settings =
        SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
    settings.into_generator().into_root_schema_for::<Configuration>().to_value()
});

/// Errors of fields and types.
pub(super) fn errors(value: &Value) -> Vec<FieldError> {
    errors_by(&SCHEMA, value)
}

/// Errors of fields and types, by this schema.
pub(super) fn errors_by(schema: &Value, value: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    check(value, schema, &Path::root(), &mut errors);
    errors
}

fn check(value: &Value, schema: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    let schema = without_null(schema);
    if schema.get(NEWER).is_some() {
        let message = format!("is not known in this version, write apiVersion: {API_VERSION}");
        return errors.push(FieldError::new(path, message));
    }
    if let Some(names) = names(schema) {
        return check_name(value, &names, path, errors);
    }
    if schema.get("x-kubernetes-int-or-string").is_some()
        || schema.get("format").is_some_and(|f| f == "quantity")
    {
        return check_quantity(value, path, errors);
    }
    match type_of(schema) {
        Some("object") => check_object(value, schema, path, errors),
        Some("array") => check_array(value, schema, path, errors),
        Some("string") => check_string(value, schema, path, errors),
        Some("integer") => check_integer(value, schema, path, errors),
        Some("number") if !value.is_number() => errors.push(type_error(value, "a number", path)),
        Some("boolean") if !value.is_boolean() => {
            errors.push(type_error(value, "true or false", path))
        }
        _ => {}
    }
}

/// The schema of an optional field's value.
pub(super) fn without_null(schema: &Value) -> &Value {
    let is_null = |schema: &&Value| type_of(schema) == Some("null");
    let choices = schema.get("anyOf").and_then(Value::as_array);
    choices.and_then(|all| all.iter().find(|schema| !is_null(schema))).unwrap_or(schema)
}

/// As [`without_null`], as a mutable reference.
pub(super) fn without_null_mut(schema: &mut Value) -> &mut Value {
    let is_null = |schema: &Value| type_of(schema) == Some("null");
    let choices = schema.get("anyOf").and_then(Value::as_array);
    match choices.and_then(|all| all.iter().position(|schema| !is_null(schema))) {
        Some(index) => &mut schema["anyOf"][index],
        None => schema,
    }
}

/// The fields of an object that is not a map.
#[cfg(test)]
pub(super) fn properties(schema: &Value) -> Option<&Map<String, Value>> {
    without_null(schema).get("properties").and_then(Value::as_object)
}

pub(super) fn type_of(schema: &Value) -> Option<&str> {
    match schema.get("type")? {
        Value::Array(all) => {
            all.iter().filter_map(Value::as_str).find(|name| *name != "null").or(Some("null"))
        }
        one => one.as_str(),
    }
}

/// The values of an enumeration.
fn names(schema: &Value) -> Option<Vec<&str>> {
    if let Some(values) = schema.get("enum").and_then(Value::as_array) {
        return Some(values.iter().filter_map(Value::as_str).collect());
    }
    let variants = schema.get("oneOf").and_then(Value::as_array)?;
    Some(
        variants
            .iter()
            .filter_map(|variant| variant.get("const").and_then(Value::as_str))
            .collect(),
    )
}

fn check_name(value: &Value, names: &[&str], path: &Path, errors: &mut Vec<FieldError>) {
    let Some(text) = value.as_str() else {
        return errors.push(type_error(value, &format!("one of {}", names.join(", ")), path));
    };
    if !names.contains(&text) {
        let hint =
            nearest(text, names.iter().copied()).map(|name| format!(", did you mean {name}?"));
        let hint = hint.unwrap_or_default();
        errors.push(FieldError::new(
            path,
            format!("is {text:?}, must be one of {}{hint}", names.join(", ")),
        ));
    }
}

fn check_object(value: &Value, schema: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    let Some(map) = value.as_object() else {
        return errors.push(type_error(value, "a mapping", path));
    };
    let none = Map::new();
    let properties = schema.get("properties").and_then(Value::as_object).unwrap_or(&none);
    let others = schema.get("additionalProperties").filter(|others| others.is_object());
    for (name, value) in map {
        match properties.get(name) {
            Some(schema) => check(value, schema, &path.child(name), errors),
            None => match others {
                Some(schema) => check(value, schema, &path.key(name), errors),
                None => errors.push(unknown(name, properties, path)),
            },
        }
    }
    for name in schema
        .get("required")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
    {
        if !map.contains_key(name) {
            errors.push(FieldError::new(&path.child(name), "required"));
        }
    }
}

fn unknown(name: &str, known: &Map<String, Value>, path: &Path) -> FieldError {
    let message = match nearest(name, known.keys().map(String::as_str)) {
        Some(near) => format!("unknown field, did you mean {near}?"),
        None => {
            let all: Vec<&str> = known.keys().map(String::as_str).collect();
            format!("unknown field, known here are {}", all.join(", "))
        }
    };
    FieldError::new(&path.child(name), message)
}

fn check_array(value: &Value, schema: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    let Some(items) = value.as_array() else {
        return errors.push(type_error(value, "a list", path));
    };
    if let Some(schema) = schema.get("items") {
        for (index, item) in items.iter().enumerate() {
            check(item, schema, &path.index(index), errors);
        }
    }
}

fn check_string(value: &Value, schema: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    let Some(text) = value.as_str() else {
        let expected =
            if is_duration(schema) { "a duration such as 5m or 1h30m" } else { "a string" };
        return errors.push(type_error(value, expected, path));
    };
    if is_duration(schema)
        && let Err(error) = text.parse::<GoDuration>()
    {
        errors.push(FieldError::new(path, error.to_string()));
    }
}

fn is_duration(schema: &Value) -> bool {
    schema.get("format").is_some_and(|format| format == switchyard_syntax::duration::FORMAT)
}

fn check_quantity(value: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    match value {
        Value::Number(_) => {}
        Value::String(text) => {
            if let Err(error) = quantity::parse(text) {
                errors.push(FieldError::new(path, error.to_string()));
            }
        }
        _ => errors.push(type_error(value, "a quantity such as 500m or 4Gi", path)),
    }
}

fn check_integer(value: &Value, schema: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    let Some(number) = value.as_i64() else {
        return errors.push(type_error(value, "a whole number", path));
    };
    let (low, high) = match schema.get("format").and_then(Value::as_str) {
        Some("int32") => (i64::from(i32::MIN), i64::from(i32::MAX)),
        Some("uint16") => (0, i64::from(u16::MAX)),
        Some("uint32") => (0, i64::from(u32::MAX)),
        _ => (i64::MIN, i64::MAX),
    };
    if !(low..=high).contains(&number) {
        errors.push(FieldError::new(path, format!("is {number}, must be from {low} to {high}")));
    }
}

fn type_error(value: &Value, expected: &str, path: &Path) -> FieldError {
    let what = match value {
        Value::Null => "nothing".to_owned(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => value.to_string(),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "a mapping".to_owned(),
    };
    FieldError::new(path, format!("is {what}, must be {expected}"))
}
