//! Writing a Workload.

use kube::{
    Api, ResourceExt,
    api::{DeleteParams, Preconditions},
};
use serde_json::Value;
use switchyard_api::{
    names,
    v1beta2::{Workload, WorkloadStatus},
};

use crate::context::Context;
pub use switchyard_platform::write::WriteError;
use switchyard_platform::{api_call::with_deadline, write::Target};

/// Writes the difference between the workload's status and `status`, if there is one, with the workload's resourceVersion as
/// precondition, and shows the result to all readers of the store. `what` labels the write in the metrics.
/// Returns the new object, or none when there was nothing to write.
///
/// # Errors
/// [`WriteError`]. Conflicts are ordinary: the workload will be looked at again when the newer version arrives.
pub async fn patch_status(
    ctx: &Context,
    workload: &Workload,
    status: &WorkloadStatus,
    what: &'static str,
) -> Result<Option<Workload>, WriteError> {
    let before =
        serde_json::to_value(workload.status.as_ref().unwrap_or(&WorkloadStatus::default()))?;
    target(ctx, workload, names::ADMISSION_MANAGER, what)
        .status(ctx, &before, &serde_json::to_value(status)?)
        .await
}

/// Writes a merge patch of metadata or spec under the same precondition.
///
/// # Errors
/// [`WriteError`].
pub async fn patch_metadata(
    ctx: &Context,
    workload: &Workload,
    patch: Value,
    what: &'static str,
) -> Result<Workload, WriteError> {
    target(ctx, workload, names::FIELD_MANAGER, what).patch(ctx, patch).await
}

/// Deletes it, if it is still the same.
///
/// # Errors
/// [`WriteError`].
pub(crate) async fn delete(ctx: &Context, workload: &Workload) -> Result<(), WriteError> {
    if !ctx.leading() {
        return Err(WriteError::NotLeading);
    }
    let preconditions = Preconditions { uid: workload.uid(), resource_version: None };
    let params = DeleteParams::background().preconditions(preconditions);
    let api: Api<Workload> =
        Api::namespaced(ctx.client.clone(), &workload.namespace().unwrap_or_default());
    let deleted = with_deadline(api.delete(&workload.name_any(), &params)).await;
    ctx.metrics.wrote("delete", deleted.is_ok());
    deleted?;
    Ok(())
}

fn target<'a>(
    ctx: &'a Context,
    object: &'a Workload,
    manager: &'static str,
    what: &'static str,
) -> Target<'a, Workload> {
    let api = Api::namespaced(ctx.client.clone(), &object.namespace().unwrap_or_default());
    Target { api, store: &ctx.stores.workloads, object, manager, what }
}
