//! Compares an object with a CRD's schema, as the API server does at the next write.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use serde_json::Value;

/// Characters of a value in a message.
const VALUE: usize = 64;
/// Characters of a field's path. Keys of maps are a tenant's words.
const PATH: usize = 256;

/// Why a field does not fit.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Misfit {
    /// The schema lacks the field: the API server drops it.
    Unknown,
    /// The schema forbids the value: the API server refuses the object.
    Forbidden(String),
}

/// The schema of a version of a CRD.
pub(super) fn of_version<'a>(
    crd: &'a CustomResourceDefinition,
    version: &str,
) -> Option<&'a JSONSchemaProps> {
    let version = crd.spec.versions.iter().find(|it| it.name == version)?;
    version.schema.as_ref()?.open_api_v3_schema.as_ref()
}

/// Fields of an object that do not fit, by path. Indexes are left out: `spec.podSets[].name`.
pub(super) fn misfits(schema: &JSONSchemaProps, object: &Value) -> Vec<(String, Misfit)> {
    let mut found = Vec::new();
    for (name, value) in object.as_object().into_iter().flatten() {
        // Every object has these; no schema lists them.
        if matches!(name.as_str(), "apiVersion" | "kind" | "metadata") {
            continue;
        }
        visit_field(schema, name, value, "", &mut found);
    }
    found.sort();
    found.dedup();
    found
}

fn visit_field(
    schema: &JSONSchemaProps,
    name: &str,
    value: &Value,
    path: &str,
    found: &mut Vec<(String, Misfit)>,
) {
    let path = if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
    let path = shown(&path, PATH);
    let known = schema.properties.as_ref().and_then(|all| all.get(name));
    match (known, &schema.additional_properties) {
        (Some(known), _) => visit(known, value, &path, found),
        (None, Some(JSONSchemaPropsOrBool::Schema(values))) => visit(values, value, &path, found),
        (None, Some(JSONSchemaPropsOrBool::Bool(true))) => {}
        (None, _) if schema.x_kubernetes_preserve_unknown_fields == Some(true) => {}
        (None, _) => found.push((path, Misfit::Unknown)),
    }
}

fn visit(schema: &JSONSchemaProps, value: &Value, path: &str, found: &mut Vec<(String, Misfit)>) {
    if let Some(why) = forbidden(schema, value) {
        found.push((path.to_owned(), Misfit::Forbidden(why)));
    }
    // A whole Kubernetes object: the API server prunes it by its own rules.
    if schema.x_kubernetes_embedded_resource == Some(true) {
        return;
    }
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                visit_field(schema, name, value, path, found);
            }
        }
        Value::Array(items) => {
            if let Some(JSONSchemaPropsOrArray::Schema(of_items)) = &schema.items {
                for item in items {
                    visit(of_items, item, &format!("{path}[]"), found);
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// A text of a tenant, cut to a bound.
fn shown(text: &str, max: usize) -> String {
    match text.char_indices().nth(max) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

/// Limits that can be read without an expression language.
fn forbidden(schema: &JSONSchemaProps, value: &Value) -> Option<String> {
    if let Some(allowed) = schema.enum_.as_ref()
        && !allowed.iter().any(|it| it.0 == *value)
    {
        return Some(format!("{} is none of the allowed values", shown(&value.to_string(), VALUE)));
    }
    let over = |length: usize, most: Option<i64>| {
        most.filter(|most| i64::try_from(length).is_ok_and(|length| length > *most))
    };
    match value {
        Value::Number(number) => {
            let number = number.as_f64()?;
            let low = schema.minimum.filter(|least| number < *least);
            let high = schema.maximum.filter(|most| number > *most);
            match (low, high) {
                (Some(least), _) => Some(format!("{number} is below {least}")),
                (None, Some(most)) => Some(format!("{number} is above {most}")),
                (None, None) => None,
            }
        }
        Value::Array(items) => over(items.len(), schema.max_items)
            .map(|most| format!("{} items are more than {most}", items.len())),
        Value::Object(fields) => over(fields.len(), schema.max_properties)
            .map(|most| format!("{} keys are more than {most}", fields.len())),
        Value::String(text) => over(text.chars().count(), schema.max_length)
            .map(|most| format!("it is longer than {most} characters")),
        Value::Null | Value::Bool(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use kube::ResourceExt as _;
    use serde_json::json;

    use super::*;

    fn misfits_of(kind: &str, object: &Value) -> Vec<(String, Misfit)> {
        let crds = switchyard_api::crds();
        let crd = crds.iter().find(|crd| crd.name_any().starts_with(kind)).unwrap();
        misfits(of_version(crd, "v1beta2").unwrap(), object)
    }

    #[test]
    fn later_fields_are_unknown_and_later_values_forbidden() {
        let workload = json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "metadata": {"name": "a"},
            "spec": {
                "queueName": "main",
                "podSets": [
                    {"name": "a", "count": 3, "minCount": -1, "template": {"spec": {"containers": [{"name": "c"}]}}},
                    {"name": "b", "count": 3, "minCount": -1, "template": {"spec": {"containers": [{"name": "c"}]}}},
                ],
                "fromTheFuture": {"a": 1},
            },
            "status": {"admission": {"clusterQueue": "all"}},
        });
        let found = misfits_of("workloads.", &workload);
        let text: Vec<String> = found.iter().map(|(path, it)| format!("{path}: {it:?}")).collect();
        assert_eq!(
            text,
            [
                "spec.fromTheFuture: Unknown",
                "spec.podSets[].minCount: Forbidden(\"-1 is below 0\")"
            ]
        );
    }

    #[test]
    fn messages_cut_values_and_names_of_tenants() {
        let long = "ä".repeat(5000);
        let queue = json!({"spec": {"queueingStrategy": long, (long): 1}});
        let found = misfits_of("clusterqueues.", &queue);
        let text: Vec<String> = found.iter().map(|(path, it)| format!("{path}: {it:?}")).collect();
        assert_eq!(text.len(), 2, "{text:?}");
        assert!(text.iter().all(|it| it.chars().count() < 320), "{text:?}");
    }

    #[test]
    fn kept_status_and_quotas_fit() {
        let queue = json!({
            "spec": {"resourceGroups": [{"coveredResources": ["cpu"], "flavors": [
                {"name": "a", "resources": [{"name": "cpu", "nominalQuota": 5}]}]}]},
            "status": {"effectiveQuotas": [], "conditions": []},
        });
        assert_eq!(misfits_of("clusterqueues.", &queue), []);
        let flavors: Vec<Value> = (0..70).map(|it| json!({"name": format!("f{it}")})).collect();
        let many = json!({"spec": {"resourceGroups": [{"flavors": flavors}]}});
        let found = misfits_of("clusterqueues.", &many);
        assert!(
            matches!(&found[..], [(path, Misfit::Forbidden(why))] if path == "spec.resourceGroups[].flavors" && why.starts_with("70 items")),
            "{found:?}"
        );
    }
}
