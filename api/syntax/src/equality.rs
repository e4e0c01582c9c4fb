//! Semantic equality of JSON values, as Kubernetes compares objects.

use serde_json::Value;

use crate::quantity;

/// Semantic equality. Absent equals empty, and quantities under `requests` and `limits` compare by
/// value.
#[must_use]
pub fn same_value(a: &Value, b: &Value) -> bool {
    same(a, b, false)
}

fn same(a: &Value, b: &Value, in_quantities: bool) -> bool {
    match (a, b) {
        (Value::Object(x), Value::Object(y)) => {
            let other = |key: &String| y.get(key).unwrap_or(&Value::Null);
            x.iter()
                .all(|(key, value)| same(value, other(key), in_quantities || holds_quantities(key)))
                && y.iter().all(|(key, value)| x.contains_key(key) || is_empty(value))
        }
        (Value::Array(x), Value::Array(y)) if x.len() == y.len() => {
            x.iter().zip(y).all(|(x, y)| same(x, y, in_quantities))
        }
        (a, b) => a == b || is_empty(a) && is_empty(b) || in_quantities && same_quantity(a, b),
    }
}

fn holds_quantities(key: &str) -> bool {
    matches!(key, "requests" | "limits")
}

fn same_quantity(a: &Value, b: &Value) -> bool {
    let parse = |value: &Value| match value {
        Value::String(text) => quantity::parse(text).ok(),
        Value::Number(number) => quantity::parse(&number.to_string()).ok(),
        _ => None,
    };
    // Quantities may differ in the style of the suffix.
    matches!((parse(a), parse(b)), (Some(a), Some(b)) if a.to_f64() == b.to_f64() && a.milli_value() == b.milli_value())
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.values().all(is_empty),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}
