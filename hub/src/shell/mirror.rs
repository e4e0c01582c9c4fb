//! What runs elsewhere, shown on the hub's own job: its status, and at the end Finished on its Workload.
//!
//! Per workload, one write at a time and the newest status wins. A terminal state goes at once; what changes on the
//! way there waits a moment, so that a short job costs one write instead of three.

use std::sync::Arc;
use std::time::Duration;

use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use switchyard_api::jobs::{JobKind, merge_diff};
use switchyard_api::names;
use switchyard_api::v1beta2::Workload;
use switchyard_controller::Context;
use switchyard_controller::object::Object;

use super::payload::owner;

/// How long a status that is not terminal waits for the next one.
pub(super) const SETTLE: Duration = Duration::from_millis(800);
/// How long it waits that a job has come further (its first pods, a first one ready) than was shown a moment ago. The Job
/// controller tells of ready pods, and of ended ones, up to a second late: a job that ends within that moment is spared
/// the write.
pub(super) const FURTHER: Duration = Duration::from_millis(1500);
/// How long either waits at most where the API server is slow: in a burst it has better to do.
pub(super) const WHEN_SLOW: Duration = Duration::from_secs(5);
/// How long a job's status rests after it was shown, unless the job ends, or has its first pods, or a first one ready:
/// what else happens on the way is worth one write now and then.
pub(super) const QUIET: Duration = Duration::from_secs(5);
/// One call, answer included.
const CALL: Duration = Duration::from_secs(30);
const CONFLICTS: u32 = 8;

/// What to show.
#[derive(Debug, Clone)]
pub(super) enum Show {
    /// The remote job's status.
    Status(Arc<Value>),
    /// That nothing runs any more, so that the job can be queued again.
    Nothing,
}

/// The job behind a workload, as the store has it.
pub(super) fn job_of(ctx: &Context, workload: &Workload) -> Option<(&'static dyn JobKind, Arc<Object>)> {
    let (kind, owner) = owner(workload)?;
    let id = kind.id();
    let store = &ctx.stores.job(id.group, id.kind)?.store;
    let job = store.get(workload.metadata.namespace.as_deref()?, &owner.name)?;
    (job.uid().as_deref() == Some(&owner.uid)).then_some((kind, job))
}

/// Writes what is to be shown on the job of a workload. Says whether the job shows it now; a job that is gone has
/// nothing to show.
///
/// # Errors
/// When the API server could not be reached or refuses.
pub(super) async fn show(ctx: &Context, workload: &Workload, what: &Show) -> anyhow::Result<()> {
    let Some((kind, mut job)) = job_of(ctx, workload) else { return Ok(()) };
    let resource = kind.id().api_resource();
    let api: Api<Object> = Api::namespaced_with(ctx.client.clone(), &job.namespace().unwrap_or_default(), &resource);
    for _ in 0..CONFLICTS {
        let wanted = match what {
            Show::Status(status) => {
                let remote = json!({"spec": {"suspend": false}, "status": **status});
                kind.mirror_status(&job.value, &remote)
            }
            Show::Nothing => {
                let reset = kind.reset_status(&job.value, ctx.clock.now());
                if reset.is_none() && is_shown_running(kind, &job.value) {
                    anyhow::bail!("the job is not suspended yet");
                }
                reset
            }
        };
        let Some(wanted) = wanted else { return Ok(()) };
        let before = job.value.get("status").cloned().unwrap_or_else(|| json!({}));
        let Some(difference) = merge_diff(&before, &wanted) else { return Ok(()) };
        if !ctx.leading() {
            anyhow::bail!("not the leader");
        }
        let metadata = json!({"resourceVersion": job.resource_version(), "uid": job.uid()});
        let patch = json!({"metadata": metadata, "status": difference});
        let params = PatchParams { field_manager: Some(names::FIELD_MANAGER.into()), ..PatchParams::default() };
        let name = job.name_any();
        let written = tokio::time::timeout(CALL, api.patch_status(&name, &params, &Patch::Merge(&patch))).await?;
        ctx.metrics.wrote("job_status", written.is_ok());
        match written {
            Ok(after) => {
                observe(ctx, kind, after);
                return Ok(());
            }
            Err(kube::Error::Api(status)) if status.is_not_found() => return Ok(()),
            Err(kube::Error::Api(status)) if status.is_conflict() => {
                let Some(fresh) = tokio::time::timeout(CALL, api.get_opt(&name)).await?? else { return Ok(()) };
                if fresh.uid() != job.uid() {
                    return Ok(());
                }
                job = Arc::new(fresh);
            }
            Err(error) => return Err(error.into()),
        }
    }
    anyhow::bail!("others kept writing the job's status")
}

/// A job that runs elsewhere and has not been suspended here: its status cannot say yet that nothing runs.
fn is_shown_running(kind: &dyn JobKind, job: &Value) -> bool {
    kind.managed_by(job) == Some(names::MULTIKUEUE_CONTROLLER)
        && !kind.is_suspended(job)
        && kind.is_active(job)
        && kind.finished(job).is_none()
}

fn observe(ctx: &Context, kind: &dyn JobKind, mut job: Object) {
    let id = kind.id();
    if let Some(jobs) = ctx.stores.job(id.group, id.kind) {
        if let Some(fields) = job.value.as_object_mut() {
            fields.entry("apiVersion").or_insert_with(|| id.api_version().into());
            fields.entry("kind").or_insert_with(|| id.kind.into());
        }
        jobs.store.observe(job);
    }
}
