//! The pod template of a pod set, kept as it was written.

use k8s_openapi::api::core::v1::PodTemplateSpec;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::schema;

/// A pod template as JSON. Fields that this version of Kubernetes' types does not know survive, because a template is
/// compared with the job's own and handed to worker clusters that may be newer than us.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(transparent)]
pub struct PodTemplate(pub Value);

impl Default for PodTemplate {
    fn default() -> Self {
        Self(Value::Object(Map::new()))
    }
}

impl PodTemplate {
    /// The fields that we know.
    ///
    /// # Errors
    /// When a known field has another shape than Kubernetes'.
    pub fn parse(&self) -> Result<PodTemplateSpec, serde_json::Error> {
        PodTemplateSpec::deserialize(&self.0)
    }

    /// The template's `spec`, if it has one.
    #[must_use]
    pub fn spec(&self) -> Option<&Map<String, Value>> {
        self.0.get("spec").and_then(Value::as_object)
    }

    /// The template's `metadata.labels` or `metadata.annotations`, where they are strings.
    fn metadata(&self, field: &str) -> impl Iterator<Item = (&str, &str)> {
        let map = self.0.get("metadata").and_then(|m| m.get(field)).and_then(Value::as_object);
        map.into_iter().flatten().filter_map(|(key, value)| Some((key.as_str(), value.as_str()?)))
    }

    /// The template's labels.
    pub fn labels(&self) -> impl Iterator<Item = (&str, &str)> {
        self.metadata("labels")
    }

    /// The template's annotations.
    pub fn annotations(&self) -> impl Iterator<Item = (&str, &str)> {
        self.metadata("annotations")
    }
}

impl From<Value> for PodTemplate {
    fn from(value: Value) -> Self {
        Self(value)
    }
}

impl TryFrom<&PodTemplateSpec> for PodTemplate {
    type Error = serde_json::Error;

    fn try_from(template: &PodTemplateSpec) -> Result<Self, Self::Error> {
        serde_json::to_value(template).map(Self)
    }
}

impl JsonSchema for PodTemplate {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "PodTemplate".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let container = json_schema!({
            "type": "object",
            "x-kubernetes-preserve-unknown-fields": true,
            "required": ["name"],
            "properties": {
                "name": {"type": "string"},
                "image": {"type": "string"},
                "resources": {
                    "type": "object",
                    "x-kubernetes-preserve-unknown-fields": true,
                    "properties": {
                        "limits": schema::resource_list(generator),
                        "requests": schema::resource_list(generator),
                    },
                },
            },
        });
        let containers = json_schema!({
            "type": "array",
            "items": container,
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
        });
        json_schema!({
            "type": "object",
            "x-kubernetes-preserve-unknown-fields": true,
            "properties": {
                "metadata": {
                    "type": "object",
                    "x-kubernetes-preserve-unknown-fields": true,
                    "properties": {
                        "annotations": schema::string_map(generator),
                        "labels": schema::string_map(generator),
                    },
                },
                "spec": {
                    "type": "object",
                    "x-kubernetes-preserve-unknown-fields": true,
                    "required": ["containers"],
                    "properties": {
                        "containers": containers,
                        "initContainers": containers,
                        "nodeSelector": schema::string_map(generator),
                        "overhead": schema::resource_list(generator),
                        "priority": {"type": "integer", "format": "int32"},
                        "priorityClassName": {"type": "string"},
                        "restartPolicy": {"type": "string"},
                        "runtimeClassName": {"type": "string"},
                        "schedulingGates": {
                            "type": "array",
                            "items": {
                                "type": "object",
                                "x-kubernetes-preserve-unknown-fields": true,
                                "required": ["name"],
                                "properties": {"name": {"type": "string"}},
                            },
                            "x-kubernetes-list-type": "map",
                            "x-kubernetes-list-map-keys": ["name"],
                        },
                        "tolerations": {
                            "type": "array",
                            "items": {
                                "type": "object",
                                "x-kubernetes-preserve-unknown-fields": true,
                                "properties": {
                                    "effect": {"type": "string"},
                                    "key": {"type": "string"},
                                    "operator": {"type": "string"},
                                    "tolerationSeconds": {"type": "integer", "format": "int64"},
                                    "value": {"type": "string"},
                                },
                            },
                            "x-kubernetes-list-type": "atomic",
                        },
                    },
                },
            },
        })
    }
}
