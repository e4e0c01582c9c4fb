//! Writes of objects: only the difference, only over the version that was read, and only while
//! leading.

use std::{fmt::Debug, sync::Arc};

use kube::{
    Api, Resource, ResourceExt,
    api::{Patch, PatchParams},
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use switchyard_syntax::merge_patch::merge_diff;

use crate::{api_call::with_deadline, store::Store};

#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// This process does not lead, or no longer leads.
    #[error("not the leader")]
    NotLeading,
    /// The object changed since it was read. The newer version triggers another reconcile.
    #[error("the object has changed meanwhile")]
    Conflict,
    /// The object was deleted.
    #[error("the object is gone")]
    Gone,
    /// The server refused the request or was not reached.
    #[error("{0}")]
    Api(#[source] kube::Error),
    /// A defect: the object cannot be serialized.
    #[error("not serializable: {0}")]
    Serialize(#[from] serde_json::Error),
}

impl WriteError {
    /// Whether the server surely has not performed the write, and will not.
    #[must_use]
    pub fn is_definite(&self) -> bool {
        match self {
            Self::NotLeading | Self::Conflict | Self::Gone | Self::Serialize(_) => true,
            Self::Api(error @ kube::Error::Api(status)) => {
                (400..500).contains(&status.code) || is_too_large(error)
            }
            Self::Api(_) => false,
        }
    }
}

/// Whether the object is too large for etcd, or for its client in the API server: a 500.
#[must_use]
pub fn is_too_large(error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else { return false };
    ["request is too large", "larger than max"].iter().any(|text| status.message.contains(text))
}

impl From<kube::Error> for WriteError {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) if status.is_conflict() => Self::Conflict,
            kube::Error::Api(status) if status.is_not_found() => Self::Gone,
            other => Self::Api(other),
        }
    }
}

/// Decides whether this process may write, and counts its writes.
pub trait WriteGate {
    /// Whether this process leads. Checked before each write.
    fn is_leading(&self) -> bool;
    /// Counts a write for the metrics. `what` is the metric's label.
    fn count_write(&self, what: &'static str, succeeded: bool);
}

impl<T: WriteGate> WriteGate for Arc<T> {
    fn is_leading(&self) -> bool {
        (**self).is_leading()
    }

    fn count_write(&self, what: &'static str, succeeded: bool) {
        (**self).count_write(what, succeeded);
    }
}

/// An object to write.
pub struct Target<'a, K> {
    /// The API of its kind and namespace.
    pub api: Api<K>,
    /// Gets the server's answer at once, so that readers see the write before the watch does.
    pub store: &'a Store<K>,
    /// The object as it was read.
    pub object: &'a K,
    /// Field manager of the write.
    pub manager: &'static str,
    /// Label of the write in the metrics.
    pub what: &'static str,
}

impl<K> Target<'_, K>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + 'static,
{
    /// Writes the difference between two states of the status, with the object's resourceVersion as
    /// precondition. Returns the new object, or `None` if there is no difference.
    ///
    /// # Errors
    ///
    /// [`WriteError`]. A [`WriteError::Conflict`] is ordinary: the newer version triggers another
    /// reconcile.
    pub async fn status(
        &self,
        gate: &impl WriteGate,
        before: &Value,
        after: &Value,
    ) -> Result<Option<K>, WriteError> {
        let Some(difference) = merge_diff(before, after) else { return Ok(None) };
        if !gate.is_leading() {
            return Err(WriteError::NotLeading);
        }
        let patch = json!({"metadata": self.precondition(), "status": difference});
        let (name, params, patch) = (self.object.name_any(), self.params(), Patch::Merge(&patch));
        let written = with_deadline(self.api.patch_status(&name, &params, &patch)).await;
        self.observed(gate, written).map(Some)
    }

    /// Writes a merge patch of metadata or spec with the same precondition.
    ///
    /// # Errors
    ///
    /// [`WriteError`].
    pub async fn patch(&self, gate: &impl WriteGate, mut patch: Value) -> Result<K, WriteError> {
        if !gate.is_leading() {
            return Err(WriteError::NotLeading);
        }
        let metadata =
            patch.as_object_mut().map(|patch| patch.entry("metadata").or_insert_with(|| json!({})));
        if let (Some(Value::Object(metadata)), Value::Object(precondition)) =
            (metadata, self.precondition())
        {
            metadata.extend(precondition);
        }
        let (name, params, patch) = (self.object.name_any(), self.params(), Patch::Merge(&patch));
        let written = with_deadline(self.api.patch(&name, &params, &patch)).await;
        self.observed(gate, written)
    }

    /// Adds or removes a finalizer. Returns whether that took a write.
    ///
    /// # Errors
    ///
    /// [`WriteError`].
    pub async fn finalizer(
        &self,
        gate: &impl WriteGate,
        name: &str,
        present: bool,
    ) -> Result<bool, WriteError> {
        let finalizers = self.object.finalizers();
        if finalizers.iter().any(|finalizer| finalizer == name) == present {
            return Ok(false);
        }
        let mut finalizers: Vec<&str> =
            finalizers.iter().map(String::as_str).filter(|finalizer| *finalizer != name).collect();
        if present {
            finalizers.push(name);
        }
        self.patch(gate, json!({"metadata": {"finalizers": finalizers}})).await.map(|_| true)
    }

    fn params(&self) -> PatchParams {
        PatchParams { field_manager: Some(self.manager.into()), ..PatchParams::default() }
    }

    fn precondition(&self) -> Value {
        json!({"resourceVersion": self.object.meta().resource_version, "uid": self.object.meta().uid})
    }

    fn observed(&self, gate: &impl WriteGate, written: kube::Result<K>) -> Result<K, WriteError> {
        gate.count_write(self.what, written.is_ok());
        let written = written?;
        self.store.observe(written.clone());
        Ok(written)
    }
}
