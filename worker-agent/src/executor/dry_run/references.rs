//! The objects that a pod refers to and admission does not check. Pure.

use std::collections::BTreeSet;

use serde_json::Value;

/// The most references of one pod that are checked.
const MAX: usize = 16;

/// An object of the pod's namespace that its containers need in order to start.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Reference {
    pub(super) kind: &'static str,
    pub(super) plural: &'static str,
    pub(super) name: String,
}

const CONFIG_MAP: (&str, &str) = ("ConfigMap", "configmaps");
const SECRET: (&str, &str) = ("Secret", "secrets");
const CLAIM: (&str, &str) = ("PersistentVolumeClaim", "persistentvolumeclaims");

/// The fields of volumes, and of sources of projected volumes, that name objects.
const VOLUMES: &[(&str, &str, (&str, &str))] = &[
    ("configMap", "name", CONFIG_MAP),
    ("secret", "secretName", SECRET),
    ("secret", "name", SECRET),
    ("persistentVolumeClaim", "claimName", CLAIM),
];

/// The fields of variables that name objects.
const VARIABLES: &[(&str, &str, (&str, &str))] = &[
    ("configMapRef", "name", CONFIG_MAP),
    ("secretRef", "name", SECRET),
    ("configMapKeyRef", "name", CONFIG_MAP),
    ("secretKeyRef", "name", SECRET),
];

/// The required references of a pod.
pub(super) fn references(pod: &Value) -> Vec<Reference> {
    let spec = pod.get("spec").unwrap_or(&Value::Null);
    let volumes = list(spec, "volumes");
    let sources = volumes
        .iter()
        .filter_map(|volume| volume.get("projected"))
        .flat_map(|it| list(it, "sources"));
    let containers = list(spec, "containers").iter().chain(list(spec, "initContainers"));
    let variables = containers.flat_map(|container| {
        let values = list(container, "env").iter().filter_map(|variable| variable.get("valueFrom"));
        list(container, "envFrom").iter().chain(values)
    });
    let in_volumes = volumes.iter().chain(sources).flat_map(|volume| named(volume, VOLUMES));
    let all: BTreeSet<Reference> =
        in_volumes.chain(variables.flat_map(|it| named(it, VARIABLES))).collect();
    all.into_iter().take(MAX).collect()
}

fn named(
    source: &Value,
    fields: &'static [(&str, &str, (&str, &str))],
) -> impl Iterator<Item = Reference> {
    let found = |(field, name, (kind, plural)): &(&str, &str, (&'static str, &'static str))| {
        let value =
            source.get(field).filter(|value| value.get("optional") != Some(&Value::Bool(true)))?;
        let name = value.get(name)?.as_str()?.to_owned();
        Some(Reference { kind, plural, name })
    };
    fields.iter().filter_map(found).collect::<Vec<_>>().into_iter()
}

fn list<'a>(value: &'a Value, field: &str) -> &'a [Value] {
    value.get(field).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn required_references_are_found_in_all_fields() {
        let pod = json!({"spec": {
            "imagePullSecrets": [{"name": "pull"}],
            "volumes": [
                {"configMap": {"name": "a"}}, {"configMap": {"name": "spare", "optional": true}},
                {"secret": {"secretName": "b"}}, {"persistentVolumeClaim": {"claimName": "c"}}, {"emptyDir": {}},
                {"projected": {"sources": [
                    {"secret": {"name": "d"}}, {"configMap": {"name": "spare", "optional": true}},
                    {"serviceAccountToken": {"path": "t"}},
                ]}},
            ],
            "initContainers": [{"envFrom": [{"configMapRef": {"name": "e"}}, {"secretRef": {"name": "b"}}]}],
            "containers": [{"env": [
                {"name": "A", "valueFrom": {"secretKeyRef": {"name": "f", "key": "k"}}},
                {"name": "B", "valueFrom": {"configMapKeyRef": {"name": "spare", "key": "k", "optional": true}}},
                {"name": "C", "value": "v"}, {"name": "D", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            ]}],
        }});
        let found: Vec<String> =
            references(&pod).iter().map(|it| format!("{} {}", it.plural, it.name)).collect();
        let wanted = [
            "configmaps a",
            "configmaps e",
            "persistentvolumeclaims c",
            "secrets b",
            "secrets d",
            "secrets f",
        ];
        assert_eq!(found, wanted);
        assert!(references(&json!({})).is_empty());
        let many: Vec<Value> =
            (0..40).map(|n| json!({"configMap": {"name": format!("m-{n}")}})).collect();
        assert_eq!(references(&json!({"spec": {"volumes": many}})).len(), MAX);
    }
}
