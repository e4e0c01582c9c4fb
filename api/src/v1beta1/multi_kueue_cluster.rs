//! MultiKueueCluster: the fields of `clusterSource` are in `spec` itself.

use serde_json::{Map, Value};

use super::schema as edit;
use crate::field::FieldError;

/// The connection types.
const SOURCES: [&str; 3] = ["kubeConfig", "clusterProfileRef", "agent"];

pub(super) fn schema(root: &mut Value) {
    let source = edit::remove(root, "spec.clusterSource");
    let spec = edit::at(root, "spec");
    for name in SOURCES {
        edit::set(spec, name, source["properties"][name].clone());
    }
    edit::in_rules(spec, "clusterSource.agent", "agent");
    // Kueue's v1beta1 always has a `kubeConfig`. Without a location it is empty.
    if let Some(location) = edit::at(spec, "kubeConfig.location").as_object_mut() {
        location.remove("minLength");
    }
    for rule in source["x-kubernetes-validations"].as_array().into_iter().flatten() {
        let text = |field: &str| rule[field].as_str().unwrap_or_default();
        let rule = text("rule").replace(
            "has(self.kubeConfig)",
            "has(self.kubeConfig) && self.kubeConfig.location != ''",
        );
        edit::add_rule(spec, &rule, text("message"));
    }
}

pub(super) fn to_v1beta2(object: &mut Value) -> Result<(), FieldError> {
    let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else { return Ok(()) };
    let mut source = Map::new();
    for name in SOURCES {
        if let Some(value) = spec.remove(name) {
            source.insert(name.to_owned(), value);
        }
    }
    // Kueue writes a `kubeConfig` without a location beside another connection type.
    if source.get("kubeConfig").is_some_and(|it| it["location"].as_str().is_none_or(str::is_empty))
    {
        source.remove("kubeConfig");
    }
    spec.insert("clusterSource".to_owned(), Value::Object(source));
    Ok(())
}

pub(super) fn to_v1beta1(object: &mut Value) -> Result<(), FieldError> {
    let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else { return Ok(()) };
    let source = spec.remove("clusterSource").unwrap_or_default();
    for name in SOURCES {
        if let Some(value) = source.get(name) {
            spec.insert(name.to_owned(), value.clone());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn kubeconfig_without_a_location_is_dropped() {
        let empty = json!({"location": "", "locationType": ""});
        let mut object =
            json!({"spec": {"kubeConfig": empty, "clusterProfileRef": {"name": "east"}}});
        to_v1beta2(&mut object).unwrap();
        assert_eq!(
            object,
            json!({"spec": {"clusterSource": {"clusterProfileRef": {"name": "east"}}}})
        );
    }
}
