//! The pod template of a pod set, kept as written.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use k8s_openapi::api::core::v1::PodTemplateSpec;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use crate::schema;

/// A pod template as JSON. It keeps fields that the Rust types lack, because it is compared with
/// the job's own template and is sent to worker clusters that may be newer.
///
/// A deserialized template is held as its text, which takes a tenth of the memory of its tree and
/// is shared by all clones. It is rarely read, and then mostly by [`PodTemplate::read`]. A template
/// made from a [`Value`], or edited, is held as a tree.
#[derive(Clone)]
pub struct PodTemplate {
    /// JSON without blanks. Fields keep their order.
    text: Arc<str>,
    /// Takes precedence over the text.
    tree: Option<Box<Value>>,
}

impl Default for PodTemplate {
    fn default() -> Self {
        Value::Object(Map::new()).into()
    }
}

impl PodTemplate {
    /// The template as Kubernetes' type.
    ///
    /// # Errors
    /// If a known field has another type than Kubernetes'.
    pub fn parse(&self) -> Result<PodTemplateSpec, serde_json::Error> {
        self.read()
    }

    /// The fields that the type `T` has.
    ///
    /// # Errors
    /// If one of them has another type than `T`'s.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        match &self.tree {
            Some(tree) => T::deserialize(&**tree),
            // Parse again from the tree: its error has no line and column of the text, which users
            // never see.
            None => serde_json::from_str(&self.text).or_else(|_| T::deserialize(tree(&self.text))),
        }
    }

    /// Names of the ResourceClaimTemplates that its pods use.
    #[must_use]
    pub fn claim_templates(&self) -> Vec<String> {
        if self.tree.is_none() && !self.text.contains("\"resourceClaimTemplateName\"") {
            return Vec::new();
        }
        let claims = self
            .parse()
            .ok()
            .and_then(|template| template.spec?.resource_claims)
            .unwrap_or_default();
        claims.into_iter().filter_map(|claim| claim.resource_claim_template_name).collect()
    }

    /// All fields. Parses the whole text if the template was deserialized and not edited.
    #[must_use]
    pub fn value(&self) -> Cow<'_, Value> {
        match &self.tree {
            Some(tree) => Cow::Borrowed(tree),
            None => Cow::Owned(tree(&self.text)),
        }
    }

    /// All fields, for editing.
    pub fn value_mut(&mut self) -> &mut Value {
        self.tree.get_or_insert_with(|| Box::new(tree(&self.text)))
    }
}

/// Cannot fail: this type wrote the text.
fn tree(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_default()
}

/// Equality of the JSON values, whatever the order of fields and the representation.
impl PartialEq for PodTemplate {
    fn eq(&self, other: &Self) -> bool {
        let as_read = self.tree.is_none() && other.tree.is_none();
        as_read && self.text == other.text || self.value() == other.value()
    }
}

impl fmt::Debug for PodTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PodTemplate").field(&self.value()).finish()
    }
}

impl<'de> Deserialize<'de> for PodTemplate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut text = Vec::new();
        serde_transcode::transcode(deserializer, &mut serde_json::Serializer::new(&mut text))
            .map_err(D::Error::custom)?;
        let text = String::from_utf8(text).map_err(D::Error::custom)?;
        Ok(Self { text: text.into(), tree: None })
    }
}

impl Serialize for PodTemplate {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.tree {
            Some(tree) => tree.serialize(serializer),
            None => serde_transcode::transcode(
                &mut serde_json::Deserializer::from_str(&self.text),
                serializer,
            ),
        }
    }
}

impl From<Value> for PodTemplate {
    fn from(value: Value) -> Self {
        Self { text: Arc::default(), tree: Some(Box::new(value)) }
    }
}

impl TryFrom<&PodTemplateSpec> for PodTemplate {
    type Error = serde_json::Error;

    fn try_from(template: &PodTemplateSpec) -> Result<Self, Self::Error> {
        serde_json::to_value(template).map(Self::from)
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    const READ: &str = r#"{"spec":{"containers":[{"name":"a \"é\"","future":{"big":18446744073709551615,"part":1.0,"none":null}}],"priority":-1}}"#;

    fn read() -> PodTemplate {
        serde_json::from_str(READ).unwrap()
    }

    #[test]
    fn template_round_trip_is_lossless() {
        assert_eq!(serde_json::to_string(&read()).unwrap(), READ);
        let value: Value = serde_json::from_str(READ).unwrap();
        assert_eq!(serde_json::to_value(read()).unwrap(), value);
        assert_eq!(
            serde_json::from_value::<PodTemplate>(value.clone()).unwrap().value().into_owned(),
            value
        );
    }

    proptest! {
        #[test]
        fn numbers_and_text_survive(part in any::<f64>(), below in any::<i64>(), above in any::<u64>(), text in any::<String>()) {
            let value = json!({"part": part, "below": below, "above": above, text.clone(): [text, null]});
            let template: PodTemplate = serde_json::from_str(&value.to_string()).unwrap();
            prop_assert_eq!(&*template.value(), &value);
            prop_assert_eq!(serde_json::to_value(&template).unwrap(), value);
        }
    }

    #[test]
    fn edit_changes_the_template_but_not_its_clones() {
        let mut template = read();
        let clone = template.clone();
        template.value_mut()["spec"]["priority"] = json!(5);
        assert_eq!(template.value()["spec"]["priority"], 5);
        assert_eq!(template.value()["spec"]["containers"], clone.value()["spec"]["containers"]);
        assert_ne!(template, clone);
        template.value_mut()["spec"]["priority"] = json!(-1);
        assert_eq!(template, clone);
    }

    #[test]
    fn field_order_does_not_matter() {
        let [one, other] = [r#"{"a":1,"b":[2]}"#, r#"{ "b": [2], "a": 1 }"#]
            .map(|it| serde_json::from_str::<PodTemplate>(it).unwrap());
        assert_eq!(one, other);
        assert_eq!(one, json!({"a": 1, "b": [2]}).into());
        assert_ne!(one, json!({"a": 1, "b": []}).into());
    }

    #[test]
    fn parse_error_has_no_line_and_column() {
        let template: PodTemplate = serde_json::from_str(r#"{"spec":{"containers":7}}"#).unwrap();
        let said = template.parse().unwrap_err().to_string();
        assert_eq!(
            said,
            PodTemplate::from(json!({"spec": {"containers": 7}})).parse().unwrap_err().to_string()
        );
        assert!(!said.contains("line"), "{said}");
    }
}
