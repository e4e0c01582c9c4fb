//! Removes what may be secret.

use serde_json::Value;

const REDACTED: &str = "REDACTED";

/// Longest annotation of other programs, in bytes. Longer ones repeat whole objects, environment
/// included, as `kubectl.kubernetes.io/last-applied-configuration` does.
const LONGEST: usize = 256;
/// Annotations under these names are kept at any length.
const KEPT: [&str; 2] = ["switchyard.dev/", "kueue.x-k8s.io/"];

/// Takes command lines, values of environment and HTTP headers, and long annotations out of an
/// object, at any depth.
pub(super) fn redact(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            // Managed fields are long, and say nothing that is needed.
            fields.remove("managedFields");
            for (name, value) in fields.iter_mut() {
                match (&**name, &mut *value) {
                    ("command" | "args", Value::Array(words)) => {
                        words.clear();
                        words.push(REDACTED.into());
                    }
                    ("env" | "httpHeaders", Value::Array(named)) => {
                        named.iter_mut().for_each(hide_value);
                    }
                    ("annotations", Value::Object(annotations)) => {
                        annotations.iter_mut().for_each(|(name, value)| hide_long(name, value));
                    }
                    _ => redact(value),
                }
            }
        }
        Value::Array(values) => values.iter_mut().for_each(redact),
        _ => {}
    }
}

fn hide_long(name: &str, value: &mut Value) {
    let is_kept = KEPT.iter().any(|prefix| name.starts_with(prefix));
    if !is_kept && value.as_str().is_some_and(|text| text.len() > LONGEST) {
        *value = REDACTED.into();
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
        let long = format!("{{\"token\": \"s3cret\", \"padding\": \"{}\"}}", "x".repeat(LONGEST));
        let probe =
            json!({"httpGet": {"httpHeaders": [{"name": "Authorization", "value": "s3cret"}]}});
        let container = json!({"name": "c", "image": "i", "livenessProbe": probe, "command": ["run", "--token=s3cret"], "args": ["s3cret"],
            "env": [{"name": "TOKEN", "value": "s3cret"}, {"name": "FROM", "valueFrom": {"secretKeyRef": {"name": "n"}}}]});
        let mut object = json!({
            "metadata": {"name": "a", "annotations": {"kubectl.kubernetes.io/last-applied-configuration": long, "kept": "yes"},
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
