//! Mirrors a remote job's status to the job on the hub.
//!
//! A terminal status is written at once. Others wait a moment for the next one, so that a short job
//! costs one write instead of three.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use switchyard_api::names;
use switchyard_api::v1beta2::Workload;
use switchyard_controller::Context;
use switchyard_jobs::{JobKind, merge_diff, meta};
use switchyard_platform::object::Object;

use super::payload::{JobOwner, sent_owner, status_owner};

/// How long a status that is not terminal waits for the next one.
pub(super) const SETTLE: Duration = Duration::from_millis(800);
/// How long progress (first pods, first ready pod) waits within [`PAUSE`]. Kueue-managed Jobs
/// report ready and ended pods up to a second late, so a job that ends within this time costs no
/// extra write.
pub(super) const PROGRESS: Duration = Duration::from_millis(1500);
/// The longest of these waits while the API server is slow.
pub(super) const MAX_DELAY: Duration = Duration::from_secs(5);
/// Pause after a status was written. Progress and the end of the job break it.
pub(super) const PAUSE: Duration = Duration::from_secs(5);
/// Deadline of one API call.
const CALL: Duration = Duration::from_secs(30);
const CONFLICTS: u32 = 8;
/// Concurrent reads or writes of members of one pod group.
const AT_ONCE: usize = 4;

/// The status to write.
#[derive(Debug, Clone)]
pub(super) enum JobStatus {
    /// The remote job's status.
    Remote(Arc<Value>),
    /// A status without running pods, so that the job can be queued again.
    Cleared,
}

/// The workload's owners in the store: one object, or the present members of a pod group.
fn objects(ctx: &Context, workload: &Workload, owned: &JobOwner<'_>) -> Option<Vec<Arc<Object>>> {
    let id = owned.kind.id();
    let store = &ctx.stores.job(id.group, id.kind)?.store;
    let namespace = workload.metadata.namespace.as_deref()?;
    let there = owned.owners.iter().filter_map(|owner| {
        let job = store.get(namespace, &owner.name)?;
        (job.metadata.uid.as_ref() == Some(&owner.uid)).then_some(job)
    });
    Some(there.collect())
}

/// The job that is sent for a workload. For a pod group, its present members as one object.
pub(super) fn sent_job(
    ctx: &Context,
    workload: &Workload,
) -> Option<(&'static dyn JobKind, Arc<Object>)> {
    let owned = sent_owner(workload)?;
    let (kind, objects) = (owned.kind, objects(ctx, workload, &owned)?);
    if !owned.is_group {
        return Some((kind, objects.into_iter().next()?));
    }
    let members: Vec<Value> =
        objects.iter().map(|member| Arc::unwrap_or_clone(member.value())).collect();
    let group = (!members.is_empty()).then(|| Object::new(kind.compose(members)))?;
    Some((kind, Arc::new(group.ok()?)))
}

/// Whether the workload's job shows its end. Pods of a group do not count: an ended pod keeps the
/// status of an earlier attempt.
pub(super) fn has_finished(ctx: &Context, workload: &Workload) -> bool {
    let Some(owned) = sent_owner(workload).filter(|owned| !owned.is_group) else { return false };
    let job = objects(ctx, workload, &owned).and_then(|jobs| jobs.into_iter().next());
    job.is_some_and(|job| owned.kind.finished(&job.value()).is_some())
}

/// The status that one object of the workload shows. A member whose pod the cluster has lost is shown
/// as waiting.
fn shown(object: &Object, what: &JobStatus, is_group: bool) -> Option<JobStatus> {
    let JobStatus::Remote(status) = what else { return Some(what.clone()) };
    if !is_group {
        return Some(what.clone());
    }
    // Without `pods`, the members are unknown: the status was too long, or no pod has this hub's
    // marks.
    let members = status.get("pods")?.as_object()?;
    let own = members.get(object.metadata.name.as_deref()?);
    Some(own.map_or(JobStatus::Cleared, |own| JobStatus::Remote(Arc::new(own.clone()))))
}

/// Writes the status to the workload's job, or to each member of its pod group. A deleted job needs
/// no write.
///
/// # Errors
/// The API server refuses or does not answer.
pub(super) async fn write_job_status(
    ctx: &Context,
    workload: &Workload,
    what: &JobStatus,
) -> anyhow::Result<()> {
    let Some(owned) = status_owner(workload) else { return Ok(()) };
    let (kind, is_group) = (owned.kind, owned.is_group);
    let Some(mut objects) = objects(ctx, workload, &owned) else { return Ok(()) };
    objects.extend(read_missing(ctx, workload, &owned, &objects, what).await?);
    let shown = objects.into_iter().filter_map(|object| {
        let shown = shown(&object, what, is_group)?;
        Some((object, shown))
    });
    let written = stream::iter(shown).map(Ok::<_, anyhow::Error>);
    written
        .try_for_each_concurrent(AT_ONCE, async |(object, what)| {
            write_one(ctx, kind, object, &what).await
        })
        .await
}

/// Reads owners that the store lacks from the API server: watches may be apart.
/// Leaves out deleted and recreated owners, and members of a pod group that the status does not
/// name.
async fn read_missing(
    ctx: &Context,
    workload: &Workload,
    owned: &JobOwner<'_>,
    there: &[Arc<Object>],
    what: &JobStatus,
) -> anyhow::Result<Vec<Arc<Object>>> {
    let there: BTreeSet<&str> = there.iter().filter_map(|it| it.metadata.uid.as_deref()).collect();
    let is_shown = |owner: &OwnerReference| match what {
        _ if !owned.is_group => true,
        JobStatus::Remote(status) => status["pods"].get(&owner.name).is_some(),
        JobStatus::Cleared => false,
    };
    let namespace = workload.metadata.namespace.as_deref().unwrap_or_default();
    let api: Api<Object> =
        Api::namespaced_with(ctx.client.clone(), namespace, &owned.kind.id().api_resource());
    let missing: Vec<OwnerReference> = owned
        .owners
        .iter()
        .filter(|owner| !there.contains(&*owner.uid) && is_shown(owner))
        .map(|owner| (*owner).clone())
        .collect();
    let read = stream::iter(missing).map(|owner| {
        let api = api.clone();
        async move {
            let found = tokio::time::timeout(CALL, api.get_opt(&owner.name)).await??;
            let same = found.filter(|found| found.metadata.uid.as_ref() == Some(&owner.uid));
            anyhow::Ok(same.map(Arc::new))
        }
    });
    let read: Vec<Option<Arc<Object>>> = read.buffer_unordered(AT_ONCE).try_collect().await?;
    Ok(read.into_iter().flatten().collect())
}

async fn write_one(
    ctx: &Context,
    kind: &dyn JobKind,
    mut job: Arc<Object>,
    what: &JobStatus,
) -> anyhow::Result<()> {
    let resource = kind.id().api_resource();
    let api: Api<Object> =
        Api::namespaced_with(ctx.client.clone(), &job.namespace().unwrap_or_default(), &resource);
    for _ in 0..CONFLICTS {
        let value = job.value();
        let wanted = match what {
            JobStatus::Remote(status) => {
                let remote = json!({"spec": {"suspend": false}, "status": **status});
                kind.mirror_status(&value, &remote)
            }
            JobStatus::Cleared => {
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

/// Whether a dispatched job is not suspended yet, so that its status cannot be cleared. A job under
/// deletion is never suspended, and keeps its status.
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
    fn member_of_group_shows_its_own_pod() {
        let member = |name: &str| {
            let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}});
            Object::new(pod).unwrap()
        };
        let told = |name: &str, status: Value| match shown(
            &member(name),
            &JobStatus::Remote(Arc::new(status)),
            true,
        ) {
            Some(JobStatus::Remote(status)) => status["phase"].to_string(),
            Some(JobStatus::Cleared) => "waiting".to_owned(),
            None => "as before".to_owned(),
        };
        let pods = json!({"pods": {"a": {"phase": "Running"}}});
        assert_eq!(told("a", pods.clone()), "\"Running\"");
        assert_eq!(told("b", pods), "waiting", "the cluster has lost it");
        assert_eq!(told("a", json!({"pods": {}})), "waiting", "the cluster has lost all");
        assert_eq!(told("a", json!({})), "as before", "a status that was too long");
    }

    #[test]
    fn job_waits_for_suspension_unless_being_deleted() {
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
