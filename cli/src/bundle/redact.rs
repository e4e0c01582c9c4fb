//! Removes what may be secret.

use serde_json::Value;

const REDACTED: &str = "REDACTED";

/// Annotations that repeat whole objects, environment included.
const APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Takes command lines, environment values and applied configurations out of an object, at any depth.
pub(super) fn redact(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            if fields.contains_key(APPLIED) {
                fields.insert(APPLIED.to_owned(), REDACTED.into());
            }
            // Managed fields are long, and say nothing that is needed.
            fields.remove("managedFields");
            for (name, value) in fields.iter_mut() {
                match (&**name, &mut *value) {
                    ("command" | "args", Value::Array(words)) => {
                        words.clear();
                        words.push(REDACTED.into());
                    }
                    ("env", Value::Array(variables)) => variables.iter_mut().for_each(hide_value),
                    _ => redact(value),
                }
            }
        }
        Value::Array(values) => values.iter_mut().for_each(redact),
        _ => {}
    }
}

fn hide_value(variable: &mut Value) {
    if let Some(value) = variable.get_mut("value") {
        *value = REDACTED.into();
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn tokens_in_templates_are_taken_away() {
        let container = json!({"name": "c", "image": "i", "command": ["run", "--token=s3cret"], "args": ["s3cret"],
            "env": [{"name": "TOKEN", "value": "s3cret"}, {"name": "FROM", "valueFrom": {"secretKeyRef": {"name": "n"}}}]});
        let mut object = json!({
            "metadata": {"name": "a", "annotations": {APPLIED: "{\"token\": \"s3cret\"}", "kept": "yes"},
                "managedFields": [{"manager": "kubectl"}]},
            "spec": {"podSets": [{"template": {"spec": {"containers": [container]}}}]},
        });
        redact(&mut object);
        let text = object.to_string();
        assert!(!text.contains("s3cret") && !text.contains("managedFields"), "{text}");
        for kept in ["\"kept\":\"yes\"", "secretKeyRef", "\"TOKEN\"", "\"image\":\"i\""] {
            assert!(text.contains(kept), "{kept}: {text}");
        }
    }
}
