//! Objects of kinds that are handled as JSON: the jobs.

mod cached_json;

use std::{fmt, sync::Arc};

use kube::{
    Resource,
    api::{ApiResource, ObjectMeta},
};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use serde_json::Value;

use self::cached_json::CachedJson;

/// An object as the server sent it, without `metadata.managedFields`. Serializing gives the whole
/// object.
///
/// Thousands are held and few are read; see [`Object::value`] for the cost of a read.
#[derive(Clone)]
pub struct Object {
    /// The scalar fields of its `metadata`: names, versions, times. Maps and lists are only in
    /// [`Object::value`].
    pub metadata: ObjectMeta,
    held: Arc<CachedJson>,
}

impl Object {
    /// Parses an object's metadata.
    ///
    /// # Errors
    ///
    /// When `metadata` is missing or malformed.
    pub fn new(mut value: Value) -> Result<Self, serde_json::Error> {
        if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("managedFields");
        }
        let metadata = ObjectMeta::deserialize(value.get("metadata").unwrap_or(&Value::Null))?;
        let metadata = ObjectMeta {
            labels: None,
            annotations: None,
            owner_references: None,
            finalizers: None,
            ..metadata
        };
        Ok(Self { metadata, held: CachedJson::new(value) })
    }

    /// The whole object: cached if it was used recently, else parsed again.
    #[must_use]
    pub fn value(&self) -> Arc<Value> {
        self.held.value()
    }

    /// The object with at least its `metadata`. Cheaper than [`Object::value`] if the object is not
    /// cached.
    #[must_use]
    pub fn head(&self) -> Arc<Value> {
        self.held.head()
    }

    /// Fills in `apiVersion` and `kind`, which the server omits in lists.
    pub fn typed(&mut self, resource: &ApiResource) {
        let value = self.held.value();
        if value.get("apiVersion").is_some() && value.get("kind").is_some() {
            return;
        }
        let mut value = Arc::unwrap_or_clone(value);
        if let Some(fields) = value.as_object_mut() {
            fields.entry("apiVersion").or_insert_with(|| resource.api_version.clone().into());
            fields.entry("kind").or_insert_with(|| resource.kind.clone().into());
        }
        self.held = CachedJson::new(value);
    }
}

impl PartialEq for Object {
    fn eq(&self, other: &Self) -> bool {
        self.value() == other.value()
    }
}

impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Object").field(&self.value()).finish()
    }
}

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::new(Value::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

impl Serialize for Object {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.value().serialize(serializer)
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
    fn listed_object_gets_its_type_and_loses_managed_fields() {
        let listed = json!({"metadata": {"name": "a", "namespace": "ns", "managedFields": [{}], "uid": "1"}, "spec": {"x": 1}});
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
