//! Writing objects of ours: the difference only, only over the version that was looked at, and only while leading.

use std::{fmt::Debug, time::Duration};

use kube::{
    Api, Resource, ResourceExt,
    api::{Patch, PatchParams},
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use switchyard_jobs::merge_diff;

use crate::context::Context;
use switchyard_platform::store::Store;

/// The API server itself gives a request up after a minute. An answer that takes longer will not come: the connection is
/// dead, and whoever waits for it would wait for ever.
const ANSWER_DEADLINE: Duration = Duration::from_secs(70);

/// Waits for the answer to a request, not longer than the API server would work on it. It may have been done all the same.
pub(crate) async fn answered<T>(request: impl Future<Output = kube::Result<T>>) -> kube::Result<T> {
    match tokio::time::timeout(ANSWER_DEADLINE, request).await {
        Ok(answer) => answer,
        Err(_) => {
            let message =
                format!("no answer from the API server within {} s", ANSWER_DEADLINE.as_secs());
            Err(kube::Error::Service(message.into()))
        }
    }
}

/// Why a write did not happen.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// We do not lead (any more).
    #[error("not the leader")]
    NotLeading,
    /// Somebody wrote first; look again.
    #[error("the object has changed meanwhile")]
    Conflict,
    /// It is gone.
    #[error("the object is gone")]
    Gone,
    /// The server refused or was not reached.
    #[error("{0}")]
    Api(#[source] kube::Error),
    /// It cannot be written as JSON: a fault of ours.
    #[error("not serializable: {0}")]
    Serialize(#[from] serde_json::Error),
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

/// One object to be written: where, for what, and in whose name.
pub struct Target<'a, K> {
    /// The API of its kind and namespace.
    pub api: Api<K>,
    /// Where the answer is shown at once to all who read.
    pub store: &'a Store<K>,
    /// The object as it was looked at.
    pub object: &'a K,
    /// Field manager.
    pub manager: &'static str,
    /// Labels the write in the metrics.
    pub what: &'static str,
}

impl<K> Target<'_, K>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + 'static,
{
    /// Writes the difference between two states of the status, if there is one, with the object's resourceVersion as
    /// precondition. Returns the new object, or none when there was nothing to write.
    ///
    /// # Errors
    /// [`WriteError`]. Conflicts are ordinary: look again when the newer version arrives.
    pub async fn status(
        &self,
        ctx: &Context,
        before: &Value,
        after: &Value,
    ) -> Result<Option<K>, WriteError> {
        let Some(difference) = merge_diff(before, after) else { return Ok(None) };
        if !ctx.leading() {
            return Err(WriteError::NotLeading);
        }
        let patch = json!({"metadata": self.precondition(), "status": difference});
        let (name, params, patch) = (self.object.name_any(), self.params(), Patch::Merge(&patch));
        let written = with_deadline(self.api.patch_status(&name, &params, &patch)).await;
        self.observed(ctx, written).map(Some)
    }

    /// Writes a merge patch of metadata or spec under the same precondition.
    ///
    /// # Errors
    /// [`WriteError`].
    pub async fn patch(&self, ctx: &Context, mut patch: Value) -> Result<K, WriteError> {
        if !ctx.leading() {
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
        self.observed(ctx, written)
    }

    /// Adds a finalizer, or takes it off. Returns whether that needed a write.
    ///
    /// # Errors
    /// [`WriteError`].
    pub async fn finalizer(
        &self,
        ctx: &Context,
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
        self.patch(ctx, json!({"metadata": {"finalizers": finalizers}})).await.map(|_| true)
    }

    fn params(&self) -> PatchParams {
        PatchParams { field_manager: Some(self.manager.into()), ..PatchParams::default() }
    }

    fn precondition(&self) -> Value {
        json!({"resourceVersion": self.object.meta().resource_version, "uid": self.object.meta().uid})
    }

    fn observed(&self, ctx: &Context, written: kube::Result<K>) -> Result<K, WriteError> {
        ctx.metrics.wrote(self.what, written.is_ok());
        let written = written?;
        self.store.observe(written.clone());
        Ok(written)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_dead_connection_is_an_error_and_not_a_wait_for_ever() {
        let error = with_deadline(std::future::pending::<kube::Result<()>>()).await.unwrap_err();
        assert_eq!(
            WriteError::from(error).to_string(),
            "ServiceError: no answer from the API server within 70 s"
        );
    }
}
