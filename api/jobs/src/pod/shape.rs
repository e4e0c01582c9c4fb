//! The shape of a pod: a hash of the fields that matter to admission. Pods of a group with equal
//! shapes form one pod set.
//!
//! The hash equals Kueue's, except for affinity, topology spread constraints and resource claims,
//! whose fields Kueue hashes in another order. Only equality of equal pods is required: a pod with
//! a recorded hash keeps it.

use std::fmt::Write as _;

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use switchyard_syntax::equality::same_value;
use switchyard_syntax::field::{FieldError, Path};

/// Bytes of the hash that are kept.
const BYTES: usize = 4;

/// Fields of tolerations and ports, in the order of their Go types.
const TOLERATION: &[&str] = &["key", "operator", "value", "effect", "tolerationSeconds"];
const PORT: &[&str] = &["name", "hostPort", "containerPort", "protocol", "hostIP"];

/// The hash of a pod's shape, in eight hex digits.
#[must_use]
pub fn shape_hash(pod: &Value) -> String {
    let shape = format!("{{\"spec\":{}}}", shape(pod.get("spec").unwrap_or(&Value::Null)));
    // As Go's JSON encoder escapes them.
    let shape = shape.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026");
    Sha256::digest(shape.as_bytes()).iter().take(BYTES).fold(String::new(), |mut hex, byte| {
        // Writing to a String cannot fail.
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

/// The shape as JSON with sorted fields.
fn shape(spec: &Value) -> String {
    let field = |name: &str| text(spec.get(name));
    // The pod's own resources, only if it has some.
    let resources =
        spec.get("resources").filter(|it| !it.is_null()).map(|it| text(it.get("requests")));
    let resources =
        resources.map_or_else(String::new, |requests| format!("\"resources\":{requests},"));
    format!(
        "{{\"affinity\":{},\"containers\":{},\"initContainers\":{},\"nodeSelector\":{},\"overhead\":{},\"priority\":{},\
         \"resourceClaims\":{},{resources}\"runtimeClassName\":{},\"tolerations\":{},\"topologySpreadConstraints\":{}}}",
        field("affinity"),
        list(spec.get("containers"), container),
        list(spec.get("initContainers"), container),
        field("nodeSelector"),
        field("overhead"),
        field("priority"),
        field("resourceClaims"),
        field("runtimeClassName"),
        list(spec.get("tolerations"), |item| ordered(item, TOLERATION)),
        field("topologySpreadConstraints"),
    )
}

/// Fields of a pod's spec that belong to the shape with all their subfields.
const WHOLE: &[&str] = &[
    "nodeSelector",
    "affinity",
    "tolerations",
    "runtimeClassName",
    "priority",
    "topologySpreadConstraints",
    "overhead",
    "resourceClaims",
];

/// Errors of changes to the shape of a pod spec. Pods of a group must keep their shape.
pub(crate) fn changed_shape(old: &Value, new: &Value, path: &Path) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for field in WHOLE {
        errors.extend(kept(field, old.get(*field), new.get(*field), &path.child(field)));
    }
    let requests = |of: &Value| of.pointer("/resources/requests").cloned();
    let of_pod = path.child("resources").child("requests");
    errors.extend(kept("requests", requests(old).as_ref(), requests(new).as_ref(), &of_pod));
    for field in ["initContainers", "containers"] {
        let list =
            |of: &Value| of.get(field).and_then(Value::as_array).cloned().unwrap_or_default();
        let (old, new, path) = (list(old), list(new), path.child(field));
        if old.len() != new.len() {
            let detail = "field is immutable: their number cannot change";
            errors.push(FieldError::invalid(&path, Value::from(new), detail));
            continue;
        }
        for (index, (old, new)) in old.iter().zip(&new).enumerate() {
            let path = path.index(index);
            let at = path.child("resources").child("requests");
            errors.extend(kept("requests", requests(old).as_ref(), requests(new).as_ref(), &at));
            errors.extend(kept("ports", old.get("ports"), new.get("ports"), &path.child("ports")));
        }
    }
    errors
}

/// The error of a changed field.
fn kept(field: &str, old: Option<&Value>, new: Option<&Value>, path: &Path) -> Option<FieldError> {
    // `same_value` compares quantities by value only below `requests` and `limits`.
    let field = if field == "overhead" { "requests" } else { field };
    let under = |value: Option<&Value>| json!({ field: value });
    let changed = !same_value(&under(old), &under(new));
    changed
        .then(|| FieldError::invalid(path, new.cloned().unwrap_or_default(), "field is immutable"))
}

fn text(value: Option<&Value>) -> String {
    value.unwrap_or(&Value::Null).to_string()
}

fn container(container: &Value) -> String {
    let requests = text(container.pointer("/resources/requests"));
    let ports = list(container.get("ports"), |port| ordered(port, PORT));
    format!("{{\"ports\":{ports},\"resources\":{{\"requests\":{requests}}}}}")
}

/// A JSON list with items written by `one`. An empty list becomes null.
fn list(items: Option<&Value>, one: impl Fn(&Value) -> String) -> String {
    match items.and_then(Value::as_array).filter(|items| !items.is_empty()) {
        Some(items) => format!("[{}]", items.iter().map(one).collect::<Vec<_>>().join(",")),
        None => "null".to_owned(),
    }
}

/// A JSON object with its fields in this order.
fn ordered(item: &Value, fields: &[&str]) -> String {
    let given = fields.iter().filter_map(|field| Some(format!("\"{field}\":{}", item.get(field)?)));
    format!("{{{}}}", given.collect::<Vec<_>>().join(","))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn shape_matches_kueues_input_of_the_hash() {
        let toleration = json!({"effect": "NoExecute", "key": "gone", "operator": "Exists", "tolerationSeconds": 300});
        let spec = json!({
            "containers": [{
                "name": "c", "image": "i",
                "resources": {"requests": {"memory": "1Gi", "cpu": "1"}, "limits": {"cpu": "2"}},
                "ports": [{"protocol": "TCP", "containerPort": 80}],
            }],
            "priority": 0, "nodeSelector": {"b": "1", "a": "2"}, "tolerations": [toleration],
            "schedulingGates": [{"name": "kueue.x-k8s.io/admission"}], "volumes": [{"name": "v"}],
        });
        insta::assert_snapshot!(shape(&spec), @r#"{"affinity":null,"containers":[{"ports":[{"containerPort":80,"protocol":"TCP"}],"resources":{"requests":{"cpu":"1","memory":"1Gi"}}}],"initContainers":null,"nodeSelector":{"a":"2","b":"1"},"overhead":null,"priority":0,"resourceClaims":null,"runtimeClassName":null,"tolerations":[{"key":"gone","operator":"Exists","effect":"NoExecute","tolerationSeconds":300}],"topologySpreadConstraints":null}"#);
        assert_eq!(shape_hash(&json!({ "spec": spec })), "92030f51");
    }

    #[test]
    fn requests_of_the_pod_as_a_whole_count_where_there_are_any() {
        let plain = json!({"spec": {"containers": [{"name": "c"}]}});
        let whole = json!({"spec": {"containers": [{"name": "c"}], "resources": {"requests": {"cpu": "1"}}}});
        assert_ne!(shape_hash(&plain), shape_hash(&whole));
        let other =
            json!({"spec": {"containers": [{"name": "d", "image": "other"}], "volumes": []}});
        assert_eq!(
            shape_hash(&plain),
            shape_hash(&other),
            "names, images and volumes do not matter"
        );
    }
}
