//! Reads objects of lists and watches, of which some may not fit their type. None of them may stop
//! the list or the watch of a kind.
//!
//! Any user who may write one object could otherwise stop a kind for everyone. API servers store
//! objects that Rust types cannot read:
//! - `metadata.managedFields` with a time in the last hours of the year 9999,
//! - JSON that is nested deeper than 128 levels, in fields without a schema,
//! - on Kubernetes 1.32, numbers such as 5.000000001 in a field for integers.

use std::{borrow::Cow, collections::BTreeMap, sync::LazyLock};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{Resource, api::ObjectMeta, runtime::watcher::Event};
use prometheus_client::metrics::counter::Counter;
use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, Error as _},
};
use serde_json::value::RawValue;
use tokio::time::Instant;

use crate::log_limit::LogLimit;

/// An object of a list or a watch.
#[derive(Debug, Clone)]
pub enum Readable<K> {
    Object(K),
    Unreadable(Box<Unreadable>),
}

/// The known parts of an object that its type cannot read.
#[derive(Debug, Clone)]
pub struct Unreadable {
    /// Without times, finalizers and managed fields.
    pub metadata: ObjectMeta,
    /// The reason.
    pub error: String,
}

impl<K> Readable<K> {
    /// The object, if it was read. Logs a warning if not.
    pub fn or_warn(self, kind: &str) -> Option<K> {
        match self {
            Self::Object(object) => Some(object),
            Self::Unreadable(unreadable) => {
                unreadable.warn(kind);
                None
            }
        }
    }
}

/// Objects that this process has skipped.
static SKIPPED: LazyLock<Counter> = LazyLock::new(Counter::default);

/// The counter of objects that this process has skipped, for its metrics.
#[must_use]
pub fn skipped() -> Counter {
    SKIPPED.clone()
}

impl Unreadable {
    /// Counts that the object is skipped, and logs it, at most ten times in ten seconds.
    pub fn warn(&self, kind: &str) {
        static LIMIT: LazyLock<LogLimit> = LazyLock::new(LogLimit::default);
        SKIPPED.inc();
        let Some(left_out) = LIMIT.admit(Instant::now()) else { return };
        tracing::warn!(
            kind,
            namespace = self.metadata.namespace.as_deref().unwrap_or_default(),
            name = self.metadata.name.as_deref().unwrap_or_default(),
            error = self.error,
            left_out,
            "object cannot be read and is skipped"
        );
    }
}

/// Applies `edit` to an event with an object. An event with an unreadable object stays as it is.
pub fn edit_readable<A, B>(
    event: Event<Readable<A>>,
    edit: impl FnOnce(Event<A>) -> Option<Event<B>>,
) -> Option<Event<Readable<B>>> {
    let event = match event {
        Event::Apply(Readable::Unreadable(it)) => {
            return Some(Event::Apply(Readable::Unreadable(it)));
        }
        Event::Delete(Readable::Unreadable(it)) => {
            return Some(Event::Delete(Readable::Unreadable(it)));
        }
        Event::InitApply(Readable::Unreadable(it)) => {
            return Some(Event::InitApply(Readable::Unreadable(it)));
        }
        Event::Apply(Readable::Object(object)) => Event::Apply(object),
        Event::Delete(Readable::Object(object)) => Event::Delete(object),
        Event::InitApply(Readable::Object(object)) => Event::InitApply(object),
        Event::Init => Event::Init,
        Event::InitDone => Event::InitDone,
    };
    Some(match edit(event)? {
        Event::Apply(object) => Event::Apply(Readable::Object(object)),
        Event::Delete(object) => Event::Delete(Readable::Object(object)),
        Event::InitApply(object) => Event::InitApply(Readable::Object(object)),
        Event::Init => Event::Init,
        Event::InitDone => Event::InitDone,
    })
}

impl<'de, K: DeserializeOwned> Deserialize<'de> for Readable<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Box::<RawValue>::deserialize(deserializer)?;
        let error = match serde_json::from_str(text.get()) {
            Ok(object) => return Ok(Self::Object(object)),
            Err(error) => error.to_string(),
        };
        if let Some(object) = without_managed_fields(text.get()) {
            return Ok(Self::Object(object));
        }
        let Head { metadata } = serde_json::from_str(text.get()).map_err(D::Error::custom)?;
        let metadata = ObjectMeta {
            name: metadata.name,
            namespace: metadata.namespace,
            uid: metadata.uid,
            resource_version: metadata.resource_version,
            labels: metadata.labels,
            annotations: metadata.annotations,
            owner_references: metadata.owner_references,
            ..ObjectMeta::default()
        };
        Ok(Self::Unreadable(Box::new(Unreadable { metadata, error })))
    }
}

/// Reads the object once more without its managed fields, whose times and depth users choose.
fn without_managed_fields<K: DeserializeOwned>(text: &str) -> Option<K> {
    type Fields = BTreeMap<String, Box<RawValue>>;
    let mut object: Fields = serde_json::from_str(text).ok()?;
    let metadata = object.get_mut("metadata")?;
    let mut fields: Fields = serde_json::from_str(metadata.get()).ok()?;
    fields.remove("managedFields")?;
    *metadata = serde_json::value::to_raw_value(&fields).ok()?;
    serde_json::from_str(&serde_json::to_string(&object).ok()?).ok()
}

/// All other fields are skipped, at any depth.
#[derive(Deserialize)]
struct Head {
    metadata: Metadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    labels: Option<BTreeMap<String, String>>,
    annotations: Option<BTreeMap<String, String>>,
    owner_references: Option<Vec<OwnerReference>>,
}

impl<K: Resource> Resource for Readable<K> {
    type DynamicType = K::DynamicType;
    type Scope = K::Scope;

    fn kind(of: &K::DynamicType) -> Cow<'_, str> {
        K::kind(of)
    }

    fn group(of: &K::DynamicType) -> Cow<'_, str> {
        K::group(of)
    }

    fn version(of: &K::DynamicType) -> Cow<'_, str> {
        K::version(of)
    }

    fn api_version(of: &K::DynamicType) -> Cow<'_, str> {
        K::api_version(of)
    }

    fn plural(of: &K::DynamicType) -> Cow<'_, str> {
        K::plural(of)
    }

    fn meta(&self) -> &ObjectMeta {
        match self {
            Self::Object(object) => object.meta(),
            Self::Unreadable(it) => &it.metadata,
        }
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        match self {
            Self::Object(object) => object.meta_mut(),
            Self::Unreadable(it) => &mut it.metadata,
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::{batch::v1::Job, core::v1::Pod};
    use kube::core::{ObjectList, WatchEvent};
    use serde_json::{Value, json};

    use super::*;
    use crate::object::Object;

    fn pod(spec: &Value) -> String {
        let metadata = json!({"name": "p", "namespace": "ns", "uid": "u", "resourceVersion": "7", "labels": {"a": "b"}});
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}).to_string()
    }

    /// A pod whose JSON is nested too deep, in a field that typed readers skip.
    fn deep() -> String {
        let nested = format!("{}{}", "[".repeat(1_000), "]".repeat(1_000));
        pod(&json!({"containers": [], "unknown": "NESTED"})).replace("\"NESTED\"", &nested)
    }

    /// A pod with a time that Kubernetes stores and no Rust type holds.
    fn late() -> String {
        let managed = json!([{"manager": "m", "time": "9999-12-31T23:59:59Z", "fieldsV1": {}}]);
        let mut pod: Value = serde_json::from_str(&pod(&json!({"containers": []}))).unwrap();
        pod["metadata"]["managedFields"] = managed;
        pod.to_string()
    }

    #[test]
    fn deep_managed_fields_do_not_hide_an_object() {
        let nested = format!("{}{}", "{\"f:a\":".repeat(200), "{}".to_owned() + &"}".repeat(200));
        let late = late().replace("\"fieldsV1\":{}", &format!("\"fieldsV1\":{nested}"));
        assert!(serde_json::from_str::<Value>(&late).is_err());
        let pod: Readable<Pod> = serde_json::from_str(&late).unwrap();
        assert!(matches!(pod, Readable::Object(_)), "{pod:?}");
    }

    fn read<K: Resource>(items: &[Readable<K>]) -> Vec<(bool, &str, &str)> {
        items
            .iter()
            .map(|item| {
                let meta = item.meta();
                let read = matches!(item, Readable::Object(_));
                let [uid, version] =
                    [&meta.uid, &meta.resource_version].map(|it| it.as_deref().unwrap_or_default());
                (read, uid, version)
            })
            .collect()
    }

    #[test]
    fn unreadable_object_spares_the_rest_of_its_list() {
        let good = pod(&json!({"containers": []}));
        let wrong = pod(&json!({"containers": [], "priority": 5.000_000_001}));
        let list = format!(
            r#"{{"kind":"PodList","apiVersion":"v1","metadata":{{"resourceVersion":"9"}},"items":[{wrong},{good},{},{}]}}"#,
            deep(),
            late()
        );
        let pods: ObjectList<Readable<Pod>> = serde_json::from_str(&list).unwrap();
        let named = |read| (read, "u", "7");
        assert_eq!(read(&pods.items), [false, true, true, true].map(named));
        let pods: ObjectList<Readable<Object>> = serde_json::from_str(&list).unwrap();
        assert_eq!(read(&pods.items), [true, true, false, true].map(named));
        assert!(serde_json::from_str::<Pod>(&late()).is_err());
    }

    #[test]
    fn unreadable_object_spares_the_watch() {
        for kind in ["ADDED", "MODIFIED", "DELETED"] {
            let event = format!(r#"{{"type":"{kind}","object":{}}}"#, deep());
            let event: WatchEvent<Readable<Object>> = serde_json::from_str(&event).unwrap();
            let (WatchEvent::Added(pod) | WatchEvent::Modified(pod) | WatchEvent::Deleted(pod)) =
                event
            else {
                panic!("{kind}")
            };
            let Readable::Unreadable(pod) = pod else { panic!("{kind}") };
            assert_eq!(pod.metadata.name.as_deref(), Some("p"));
            assert_eq!(pod.metadata.labels, Some([("a".into(), "b".into())].into()));
            assert!(pod.error.contains("recursion limit"), "{}", pod.error);
        }
    }

    #[test]
    fn readable_object_has_the_path_of_its_kind() {
        let path = |it: &str| format!("/apis/batch/v1/namespaces/{it}/jobs");
        assert_eq!(Readable::<Job>::url_path(&(), Some("ns")), path("ns"));
    }
}
