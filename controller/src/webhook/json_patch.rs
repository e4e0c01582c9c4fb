//! JSON Patch (RFC 6902), the form in which an admission review returns changes.
//!
//! The crate `json-patch` is not used: it edits lists element by element. Lists that are replaced
//! whole keep the patch short and readable in audit logs.

use serde_json::{Value, json};

/// The operations that turn `from` into `to`. A list that differs is replaced whole.
#[must_use]
pub(super) fn json_patch(from: &Value, to: &Value) -> Vec<Value> {
    let mut operations = Vec::new();
    diff("", from, to, &mut operations);
    operations
}

fn diff(path: &str, from: &Value, to: &Value, operations: &mut Vec<Value>) {
    match (from, to) {
        (Value::Object(before), Value::Object(after)) => {
            for key in before.keys().filter(|key| !after.contains_key(*key)) {
                operations.push(json!({"op": "remove", "path": below(path, key)}));
            }
            for (key, new) in after {
                match before.get(key) {
                    Some(old) => diff(&below(path, key), old, new, operations),
                    None => operations
                        .push(json!({"op": "add", "path": below(path, key), "value": new})),
                }
            }
        }
        _ if from == to => (),
        _ => operations.push(json!({"op": "replace", "path": path, "value": to})),
    }
}

/// A JSON pointer (RFC 6901) to a member, with `~` and `/` escaped.
fn below(path: &str, key: &str) -> String {
    format!("{path}/{}", key.replace('~', "~0").replace('/', "~1"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patch_has_only_differences_with_escaped_keys() {
        let from = json!({"metadata": {"labels": {"a/b": "1"}}, "spec": {"suspend": false, "x": 1, "l": [1]}});
        let to = json!({"metadata": {"labels": {"a/b": "2", "c~d": "3"}}, "spec": {"suspend": true, "l": [1, 2]}});
        let got: Vec<String> = json_patch(&from, &to).iter().map(ToString::to_string).collect();
        insta::assert_snapshot!(got.join("\n"), @r#"
        {"op":"replace","path":"/metadata/labels/a~1b","value":"2"}
        {"op":"add","path":"/metadata/labels/c~0d","value":"3"}
        {"op":"remove","path":"/spec/x"}
        {"op":"replace","path":"/spec/l","value":[1,2]}
        {"op":"replace","path":"/spec/suspend","value":true}
        "#);
        assert!(json_patch(&from, &from).is_empty());
    }
}
