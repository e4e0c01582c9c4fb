//! Finishes a workload slice that another one replaced.

use std::time::Duration;

use switchyard_api::{conditions::reasons::finished, v1beta2::Workload};

use super::{build, reserve::CONFLICTS};
use crate::{
    context::{Context, patch_status},
    workload,
};
use switchyard_platform::store::Key;
use switchyard_platform::write::WriteError;

/// Marks the workload with this name and uid as finished. If that fails, the job reconciler does
/// it.
pub async fn end_replaced(ctx: &Context, key: &Key, uid: &str, new: &Workload) {
    let message = build::replaced_message(new);
    for attempt in 0..CONFLICTS {
        let found =
            ctx.stores.workloads.by_key(key).filter(|it| it.metadata.uid.as_deref() == Some(uid));
        let Some(old) = found.filter(|old| !workload::is_finished(old)) else { return };
        let edit = build::replaced_status(ctx.edit(&old), &message);
        match patch_status(ctx, &old, &edit.status, "replacement").await {
            Ok(Some(after)) => {
                ctx.metrics.slice_replaced(workload::admitted_by(&old).unwrap_or_default());
                return ctx.events.normal(&after, finished::WORKLOAD_SLICE_REPLACED, message);
            }
            Ok(None) | Err(WriteError::Gone | WriteError::NotLeading) => return,
            Err(WriteError::Conflict) => {
                tokio::time::sleep(Duration::from_millis(5 << attempt)).await
            }
            Err(error) => {
                return tracing::warn!(workload = %key, %error, "replaced, and not declared finished");
            }
        }
    }
}
