//! Writes of Workloads.

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
use switchyard_platform::{
    api_call::with_deadline,
    write::{Target, WriteError},
};

/// Writes the difference between the workload's status and `status`, with its resourceVersion as
/// precondition. Readers of the store see the result at once. `what` labels the write in the
/// metrics. Returns the new object, or `None` if there is no difference.
///
/// # Errors
///
/// [`WriteError`]. A conflict is ordinary: the newer version triggers another reconcile.
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

/// Writes a merge patch of metadata or spec with the same precondition.
///
/// # Errors
///
/// [`WriteError`].
pub async fn patch_metadata(
    ctx: &Context,
    workload: &Workload,
    patch: Value,
    what: &'static str,
) -> Result<Workload, WriteError> {
    target(ctx, workload, names::FIELD_MANAGER, what).patch(ctx, patch).await
}

/// Deletes the workload with its uid as precondition.
///
/// # Errors
///
/// [`WriteError`].
pub(crate) async fn delete_workload(ctx: &Context, workload: &Workload) -> Result<(), WriteError> {
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
