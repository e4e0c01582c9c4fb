//! Objects of kinds that we know only by their JSON: the jobs.

use kube::{
    Resource,
    api::{ApiResource, ObjectMeta},
};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use serde_json::Value;

/// An object as the server sent it, with its metadata parsed.
///
/// `value` is the whole object with `apiVersion` and `kind` (lists leave them out; the watch puts them back) and without
/// `metadata.managedFields`. Serializing gives `value`.
#[derive(Debug, Clone, PartialEq)]
pub struct Object {
    /// The parsed `metadata`, without `managedFields`.
    pub metadata: ObjectMeta,
    /// The whole object.
    pub value: Value,
}

impl Object {
    /// Parses an object's metadata.
    ///
    /// # Errors
    /// When `metadata` is missing or not an object's metadata.
    pub fn new(mut value: Value) -> Result<Self, serde_json::Error> {
        if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("managedFields");
        }
        let metadata = ObjectMeta::deserialize(value.get("metadata").unwrap_or(&Value::Null))?;
        Ok(Self { metadata, value })
    }

    /// Fills `apiVersion` and `kind` where the server left them out.
    pub(crate) fn typed(&mut self, resource: &ApiResource) {
        if let Some(fields) = self.value.as_object_mut() {
            fields.entry("apiVersion").or_insert_with(|| resource.api_version.clone().into());
            fields.entry("kind").or_insert_with(|| resource.kind.clone().into());
        }
    }
}

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::new(Value::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

impl Serialize for Object {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.value.serialize(serializer)
    }
}

impl Resource for Object {
    type DynamicType = ApiResource;
    type Scope = kube::core::DynamicResourceScope;

    fn kind(resource: &ApiResource) -> std::borrow::Cow<'_, str> {
        resource.kind.as_str().into()
    }

    fn group(resource: &ApiResource) -> std::borrow::Cow<'_, str> {
        resource.group.as_str().into()
    }

    fn version(resource: &ApiResource) -> std::borrow::Cow<'_, str> {
        resource.version.as_str().into()
    }

    fn api_version(resource: &ApiResource) -> std::borrow::Cow<'_, str> {
        resource.api_version.as_str().into()
    }

    fn plural(resource: &ApiResource) -> std::borrow::Cow<'_, str> {
        resource.plural.as_str().into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn listed_objects_get_their_type_back_and_lose_managed_fields() {
        let listed =
            json!({"metadata": {"name": "a", "namespace": "ns", "managedFields": [{}], "uid": "1"}, "spec": {"x": 1}});
        let mut object: Object = serde_json::from_value(listed).unwrap();
        object.typed(&ApiResource::erase::<k8s_openapi::api::batch::v1::Job>(&()));
        assert_eq!(object.metadata.uid.as_deref(), Some("1"));
        insta::assert_snapshot!(serde_json::to_string(&object).unwrap(), @r#"{"apiVersion":"batch/v1","kind":"Job","metadata":{"name":"a","namespace":"ns","uid":"1"},"spec":{"x":1}}"#);
    }

    #[test]
    fn metadata_is_required() {
        assert!(serde_json::from_value::<Object>(json!({"spec": {}})).is_err());
    }
}
