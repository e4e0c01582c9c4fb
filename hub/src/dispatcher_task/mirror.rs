//! What runs elsewhere, shown on the hub's own job: its status, and at the end Finished on its Workload.
//!
//! Per workload, one write at a time and the newest status wins. A terminal state goes at once; what changes on the
//! way there waits a moment, so that a short job costs one write instead of three.

use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt as _, TryStreamExt as _, stream};
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use switchyard_api::names;
use switchyard_api::v1beta2::Workload;
use switchyard_controller::Context;
use switchyard_jobs::{JobKind, merge_diff, meta};
use switchyard_platform::object::Object;

use super::payload::{Owned, owner, shown_on};

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
/// Members of one group that are written to at once.
const AT_ONCE: usize = 4;

/// What to show.
#[derive(Debug, Clone)]
pub(super) enum Show {
    /// The remote job's status.
    Status(Arc<Value>),
    /// That nothing runs any more, so that the job can be queued again.
    Nothing,
}

/// The owners of a workload as the store has them: one object, or those members of a group that are there.
fn objects(ctx: &Context, workload: &Workload, owned: &Owned<'_>) -> Option<Vec<Arc<Object>>> {
    let id = owned.kind.id();
    let store = &ctx.stores.job(id.group, id.kind)?.store;
    let namespace = workload.metadata.namespace.as_deref()?;
    let there = owned.owners.iter().filter_map(|owner| {
        let job = store.get(namespace, &owner.name)?;
        (job.metadata.uid.as_ref() == Some(&owner.uid)).then_some(job)
    });
    Some(there.collect())
}

/// The job that is sent for a workload; a group composed of those members that are there.
pub(super) fn job_of(
    ctx: &Context,
    workload: &Workload,
) -> Option<(&'static dyn JobKind, Arc<Object>)> {
    let owned = owner(workload)?;
    let (kind, objects) = (owned.kind, objects(ctx, workload, &owned)?);
    if !owned.is_group {
        return Some((kind, objects.into_iter().next()?));
    }
    let members: Vec<Value> =
        objects.iter().map(|member| Arc::unwrap_or_clone(member.value())).collect();
    let group = (!members.is_empty()).then(|| Object::new(kind.compose(members)))?;
    Some((kind, Arc::new(group.ok()?)))
}

/// Whether the job of a workload shows that it has ended. The pods of a group do not say it: they may show how an earlier
/// attempt went, as a pod that has ended is never shown as anything else.
pub(super) fn shows_end(ctx: &Context, workload: &Workload) -> bool {
    let Some(owned) = owner(workload).filter(|owned| !owned.is_group) else { return false };
    let job = objects(ctx, workload, &owned).and_then(|jobs| jobs.into_iter().next());
    job.is_some_and(|job| owned.kind.finished(&job.value()).is_some())
}

/// Writes what is to be shown on the job of a workload, and ends well once the job shows it; a job that is gone has
/// nothing to show. Of a group, each member shows what is said of it.
///
/// # Errors
/// When the API server could not be reached or refuses.
pub(super) async fn show(ctx: &Context, workload: &Workload, what: &Show) -> anyhow::Result<()> {
    let Some(owned) = shown_on(workload) else { return Ok(()) };
    let (kind, is_group) = (owned.kind, owned.is_group);
    let Some(objects) = objects(ctx, workload, &owned) else { return Ok(()) };
    let shown = objects.into_iter().filter_map(|object| match what {
        Show::Status(status) if is_group => {
            let of_member = status.get("pods")?.get(object.metadata.name.as_deref()?)?;
            Some((object, Show::Status(Arc::new(of_member.clone()))))
        }
        what => Some((object, what.clone())),
    });
    let written = stream::iter(shown).map(Ok::<_, anyhow::Error>);
    written
        .try_for_each_concurrent(AT_ONCE, async |(object, what)| {
            show_one(ctx, kind, object, &what).await
        })
        .await
}

async fn show_one(
    ctx: &Context,
    kind: &dyn JobKind,
    mut job: Arc<Object>,
    what: &Show,
) -> anyhow::Result<()> {
    let resource = kind.id().api_resource();
    let api: Api<Object> =
        Api::namespaced_with(ctx.client.clone(), &job.namespace().unwrap_or_default(), &resource);
    for _ in 0..CONFLICTS {
        let value = job.value();
        let wanted = match what {
            Show::Status(status) => {
                let remote = json!({"spec": {"suspend": false}, "status": **status});
                kind.mirror_status(&value, &remote)
            }
            Show::Nothing => {
                let reset = kind.reset_status(&value, ctx.clock.now());
                if reset.is_none() && waits_for_suspension(kind, &value) {
                    anyhow::bail!("the job is not suspended yet");
                }
                reset
            }
        };
        let Some(wanted) = wanted else { return Ok(()) };
        let before = value.get("status").cloned().unwrap_or_else(|| json!({}));
        let Some(difference) = merge_diff(&before, &wanted) else { return Ok(()) };
        if !ctx.leading() {
            anyhow::bail!("not the leader");
        }
        let metadata = json!({"resourceVersion": job.resource_version(), "uid": job.uid()});
        let patch = json!({"metadata": metadata, "status": difference});
        let params = PatchParams {
            field_manager: Some(names::FIELD_MANAGER.into()),
            ..PatchParams::default()
        };
        let name = job.name_any();
        let written =
            tokio::time::timeout(CALL, api.patch_status(&name, &params, &Patch::Merge(&patch)))
                .await?;
        ctx.metrics.wrote("job_status", written.is_ok());
        match written {
            Ok(after) => {
                observe(ctx, kind, after);
                return Ok(());
            }
            Err(kube::Error::Api(status)) if status.is_not_found() => return Ok(()),
            Err(kube::Error::Api(status)) if status.is_conflict() => {
                let Some(fresh) = tokio::time::timeout(CALL, api.get_opt(&name)).await?? else {
                    return Ok(());
                };
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

/// A job that runs elsewhere and has not been suspended here: its status cannot say yet that nothing runs. One that is being
/// deleted is not suspended any more, and goes with the status that it has.
fn waits_for_suspension(kind: &dyn JobKind, job: &Value) -> bool {
    kind.managed_by(job) == Some(names::MULTIKUEUE_CONTROLLER)
        && !meta::is_deleting(job)
        && !kind.is_suspended(job)
        && kind.is_active(job)
        && kind.finished(job).is_none()
}

fn observe(ctx: &Context, kind: &dyn JobKind, mut job: Object) {
    let id = kind.id();
    if let Some(jobs) = ctx.stores.job(id.group, id.kind) {
        job.typed(&jobs.resource);
        jobs.store.observe(job);
    }
}

#[cfg(test)]
mod tests {
    use switchyard_jobs::kind_for;

    use super::*;

    #[test]
    fn a_job_waits_for_its_suspension_unless_it_is_being_deleted() {
        let kind = kind_for("batch", "Job").unwrap();
        let job = |suspended: bool, active: i32, metadata: Value| {
            json!({
                "apiVersion": "batch/v1", "kind": "Job", "metadata": metadata,
                "spec": {"suspend": suspended, "managedBy": names::MULTIKUEUE_CONTROLLER},
                "status": {"active": active},
            })
        };
        let deleting = json!({"name": "a", "deletionTimestamp": "2026-11-25T22:38:38Z"});
        for (what, job, waits) in [
            ("it is shown as running", job(false, 2, json!({"name": "a"})), true),
            ("it is suspended", job(true, 2, json!({"name": "a"})), false),
            ("nothing of it is shown as running", job(false, 0, json!({"name": "a"})), false),
            ("it is deleted in the foreground", job(false, 2, deleting), false),
        ] {
            assert_eq!(waits_for_suspension(kind, &job), waits, "{what}");
        }
    }
}
