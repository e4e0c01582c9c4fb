//! Performs actions on one job. The only place of the job reconciler that writes.

use futures::{StreamExt as _, TryStreamExt as _, stream};
use kube::{
    Api, Resource, ResourceExt,
    api::{ApiResource, DeleteParams, Patch, PatchParams, PostParams, Preconditions},
};
use serde_json::{Value, json};
use switchyard_api::{
    conditions::{self, truncated_message},
    names,
    v1beta2::Workload,
};
use switchyard_jobs::{JobKind, SuspendMode, merge_diff, meta};

use super::{
    action::Action,
    edit,
    index::{Index, JobKey},
};
use crate::{
    context::{Context, patch_metadata, patch_status},
    stores::JobStore,
    workload::{self, admitted_by, condition, has_reservation, is_admitted, is_finished},
};
use switchyard_platform::write::{WriteError, is_too_large};
use switchyard_platform::{
    api_call::with_deadline, clock::since, events::EventType, object::Object,
};

/// Members of one job that are written in parallel.
const AT_ONCE: usize = 8;

/// The job of the actions.
pub(super) struct Target<'a> {
    pub(super) key: &'a JobKey,
    pub(super) jobs: &'a JobStore,
    pub(super) kind: &'a dyn JobKind,
    /// As it was read. `None` after its deletion.
    pub(super) job: Option<&'a Object>,
}

/// Why an action was not performed.
#[derive(Debug, thiserror::Error)]
pub(super) enum PerformError {
    /// The object changed or was deleted; the watch brings that.
    #[error("{0}")]
    Stale(WriteError),
    /// The workload exists, but the watch has not brought it yet.
    #[error("the workload exists already")]
    Exists,
    /// The server refused the write, and will refuse it again.
    #[error("{what} refused by the API server: {message}")]
    Refused { what: &'static str, message: String },
    #[error("{0}")]
    Failed(WriteError),
}

impl From<WriteError> for PerformError {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::Conflict | WriteError::Gone | WriteError::NotLeading => Self::Stale(error),
            WriteError::Api(source) => match refusal(&source) {
                Some(message) => Self::Refused { what: "workload", message },
                None => Self::Failed(WriteError::Api(source)),
            },
            other @ WriteError::Serialize(_) => Self::Failed(other),
        }
    }
}

/// The server's message if it will refuse the same request again.
///
/// The codes are 400, 413 and 422. 403 and 404 (of a namespace) may pass.
fn refusal(error: &kube::Error) -> Option<String> {
    let kube::Error::Api(status) = error else { return None };
    if is_too_large(error) {
        return Some(format!(
            "it is too large to be stored, make the job smaller: {}",
            status.message
        ));
    }
    matches!(status.code, 400 | 413 | 422).then(|| status.message.clone())
}

/// Performs the actions in order, up to the first that fails.
pub(super) async fn perform(
    ctx: &Context,
    index: &Index,
    target: &Target<'_>,
    actions: Vec<Action>,
) -> Result<(), PerformError> {
    for action in actions {
        match action {
            Action::UpdateJob(wanted) => patch_job(ctx, index, target, &wanted, false).await?,
            Action::UpdateJobStatus(wanted) => patch_job(ctx, index, target, &wanted, true).await?,
            Action::CreateWorkload(workload) => create(ctx, index, target, &workload).await?,
            Action::UpdateWorkload { old, new } => update(ctx, &old, &new).await?,
            Action::UpdateWorkloadStatus { old, status } => {
                patch_status(ctx, &old, &status, "workload_status").await?;
            }
            Action::DeleteWorkload(workload) => delete(ctx, &workload).await?,
            Action::DeleteJob => {
                if let Some(job) = target.job {
                    delete_one(ctx, target, &job.value()).await?;
                }
            }
            Action::Terminate { members, why } => {
                terminate(ctx, target, &members, why.as_ref()).await?
            }
            Action::Event { warning, reason, note } => publish(ctx, target, warning, reason, note),
            Action::MemberEvents { members, reason, note } => {
                publish_to_members(ctx, target, &members, reason, &note)
            }
            Action::WorkloadEvent { workload, reason, note } => {
                ctx.events.normal(&*workload, reason, note)
            }
        }
    }
    Ok(())
}

/// Publishes an event about the job.
pub(super) fn publish(
    ctx: &Context,
    target: &Target<'_>,
    warning: bool,
    reason: &str,
    note: String,
) {
    let Some(job) = target.job else { return };
    let type_ = if warning { EventType::Warning } else { EventType::Normal };
    ctx.events.publish(job.object_ref(&target.jobs.resource), type_, reason, note);
}

/// Publishes a Normal event about each of these members of the job.
fn publish_to_members(
    ctx: &Context,
    target: &Target<'_>,
    members: &[Value],
    reason: &str,
    note: &str,
) {
    for member in members.iter().filter_map(|member| Object::new(member.clone()).ok()) {
        ctx.events.publish(
            member.object_ref(&target.jobs.resource),
            EventType::Normal,
            reason,
            note.to_owned(),
        );
    }
}

fn params() -> PatchParams {
    PatchParams {
        field_manager: Some(names::JOB_CONTROLLER_MANAGER.into()),
        ..PatchParams::default()
    }
}

fn job_api(ctx: &Context, resource: &ApiResource, namespace: &str) -> Api<Object> {
    Api::namespaced_with(ctx.client.clone(), namespace, resource)
}

/// Asks the API server whether the job is really deleted. The watches of jobs and workloads may be
/// apart by a moment.
pub(super) async fn is_gone(
    ctx: &Context,
    target: &Target<'_>,
    uids: &[String],
) -> Result<bool, kube::Error> {
    let api = job_api(ctx, &target.jobs.resource, &target.key.key.namespace);
    let found = with_deadline(api.get_opt(&target.key.key.name)).await?;
    // A job that is watched by its label counts as gone once it has lost the label.
    let lost = |job: &Value| {
        target.kind.suspend_mode() == SuspendMode::Gate
            && meta::label(job, names::MANAGED) != Some("true")
    };
    let same = |job: &Object| uids.iter().any(|uid| Some(uid) == job.metadata.uid.as_ref());
    Ok(found.is_none_or(|job| !same(&job) || lost(&job.value())))
}

async fn patch_job(
    ctx: &Context,
    index: &Index,
    target: &Target<'_>,
    wanted: &Value,
    status: bool,
) -> Result<(), PerformError> {
    let Some(job) = target.job else { return Ok(()) };
    let value = job.value();
    let now = target.kind.members(&value);
    let pairs = target.kind.members(wanted).iter().filter_map(|wanted| {
        let now = now.iter().find(|now| meta::name(now) == meta::name(wanted))?;
        Some((now, wanted, job_patch(now, wanted, status)?))
    });
    all(pairs.map(async |(now, wanted, patch)| {
        patch_one(ctx, target, meta::name(now), patch, status).await?;
        if target.kind.suspend_mode() == SuspendMode::Gate
            && target.kind.is_suspended(now)
            && !target.kind.is_suspended(wanted)
        {
            measure_ungated(ctx, index, target);
        }
        Ok::<(), PerformError>(())
    }))
    .await
}

/// Measures the time from a workload's admission to the ungating of a pod.
fn measure_ungated(ctx: &Context, index: &Index, target: &Target<'_>) {
    let owned =
        index.owned(target.key).into_iter().filter_map(|key| ctx.stores.workloads.by_key(&key));
    for workload in owned.filter(|workload| is_admitted(workload)) {
        let admitted = condition(&workload, conditions::ADMITTED)
            .map(|admitted| admitted.last_transition_time.0);
        if let (Some(cluster_queue), Some(admitted)) = (admitted_by(&workload), admitted) {
            let after = since(ctx.clock.now(), admitted);
            ctx.metrics.ungated(
                names::ADMISSION_SCHEDULING_GATE,
                cluster_queue,
                target.key.composed,
                after,
            );
        }
    }
}

/// Sends several requests in parallel, up to the first that fails.
async fn all(
    requests: impl Iterator<Item = impl Future<Output = Result<(), PerformError>>>,
) -> Result<(), PerformError> {
    stream::iter(requests).map(Ok).try_for_each_concurrent(AT_ONCE, |request| request).await
}

async fn patch_one(
    ctx: &Context,
    target: &Target<'_>,
    name: &str,
    patch: Value,
    status: bool,
) -> Result<(), PerformError> {
    if !ctx.leading() {
        return Err(WriteError::NotLeading.into());
    }
    let api = job_api(ctx, &target.jobs.resource, &target.key.key.namespace);
    let patch = Patch::Merge(&patch);
    let params = params();
    let written = match status {
        true => with_deadline(api.patch_status(name, &params, &patch)).await,
        false => with_deadline(api.patch(name, &params, &patch)).await,
    };
    ctx.metrics.wrote(if status { "job_status" } else { "job" }, written.is_ok());
    match written {
        Ok(mut object) => {
            object.typed(&target.jobs.resource);
            target.jobs.store.observe(object);
            Ok(())
        }
        Err(source) => match refusal(&source) {
            Some(message) => Err(PerformError::Refused { what: "job", message }),
            None => Err(WriteError::from(source).into()),
        },
    }
}

async fn terminate(
    ctx: &Context,
    target: &Target<'_>,
    members: &[Value],
    why: Option<&(String, String)>,
) -> Result<(), PerformError> {
    all(members.iter().map(async |member| {
        if let Some((reason, message)) = why {
            mark(ctx, target, member, reason, message).await?;
        }
        match delete_one(ctx, target, member).await {
            Err(PerformError::Stale(WriteError::Gone)) => Ok(()),
            done => done,
        }
    }))
    .await
}

/// Sets the reason for its deletion on a pod.
async fn mark(
    ctx: &Context,
    target: &Target<'_>,
    pod: &Value,
    reason: &str,
    message: &str,
) -> Result<(), PerformError> {
    if !ctx.leading() {
        return Err(WriteError::NotLeading.into());
    }
    let condition = json!({
        "type": "TerminationTarget", "status": "True", "reason": reason,
        "message": truncated_message(message.to_owned()), "lastTransitionTime": meta::rfc3339(ctx.clock.now()),
    });
    // A strategic merge patch merges conditions by type.
    let patch = json!({"metadata": {"uid": meta::uid(pod)}, "status": {"conditions": [condition]}});
    let api = job_api(ctx, &target.jobs.resource, &target.key.key.namespace);
    let marked =
        with_deadline(api.patch_status(meta::name(pod), &params(), &Patch::Strategic(&patch)))
            .await;
    ctx.metrics.wrote("job_status", marked.is_ok());
    match marked.map_err(WriteError::from) {
        Ok(_) | Err(WriteError::Gone) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

async fn delete_one(ctx: &Context, target: &Target<'_>, job: &Value) -> Result<(), PerformError> {
    if !ctx.leading() {
        return Err(WriteError::NotLeading.into());
    }
    let api = job_api(ctx, &target.jobs.resource, &target.key.key.namespace);
    let preconditions =
        Preconditions { uid: Some(meta::uid(job).to_owned()), resource_version: None };
    let params = DeleteParams::background().preconditions(preconditions);
    let deleted = with_deadline(api.delete(meta::name(job), &params)).await;
    ctx.metrics.wrote("job", deleted.is_ok());
    deleted.map(drop).map_err(|error| WriteError::from(error).into())
}

/// The merge patch between two states of a job, with the first one's uid and resourceVersion.
fn job_patch(job: &Value, wanted: &Value, status: bool) -> Option<Value> {
    let mut patch = if status {
        let of = |object: &Value| object.get("status").cloned().unwrap_or_else(|| json!({}));
        json!({ "status": merge_diff(&of(job), &of(wanted))? })
    } else {
        merge_diff(job, wanted)?
    };
    meta::object_mut(&mut patch, &["metadata"])?.extend([
        ("uid".to_owned(), Value::from(meta::uid(job))),
        ("resourceVersion".to_owned(), Value::from(meta::resource_version(job))),
    ]);
    Some(patch)
}

async fn create(
    ctx: &Context,
    index: &Index,
    target: &Target<'_>,
    workload: &Workload,
) -> Result<(), PerformError> {
    if !ctx.leading() {
        return Err(WriteError::NotLeading.into());
    }
    let api: Api<Workload> = Api::namespaced(ctx.client.clone(), &target.key.key.namespace);
    let params =
        PostParams { field_manager: Some(names::FIELD_MANAGER.into()), ..PostParams::default() };
    let created = with_deadline(api.create(&params, workload)).await;
    ctx.metrics.wrote("workload", created.is_ok());
    match created {
        Ok(created) => {
            measure_created(ctx, target, &created);
            index.created(target.key, ctx.clock.monotonic());
            Ok(())
        }
        Err(kube::Error::Api(status)) if status.is_already_exists() => Err(PerformError::Exists),
        Err(source) => Err(match refusal(&source) {
            Some(message) => PerformError::Refused { what: "workload", message },
            None => PerformError::Failed(WriteError::Api(source)),
        }),
    }
}

/// Measures how long a job waited for its workload. Skips jobs that were changed meanwhile.
fn measure_created(ctx: &Context, target: &Target<'_>, workload: &Workload) {
    let value = target.job.map(Object::value);
    let job = value.as_deref().and_then(|job| target.kind.members(job).first());
    let fresh = job.filter(|job| {
        job.pointer("/metadata/generation").and_then(Value::as_i64).unwrap_or_default() <= 1
    });
    let created = fresh.and_then(|job| meta::time_at(job, "/metadata/creationTimestamp"));
    if let Some(created) =
        created.filter(|_| ctx.config.enabled("MetricForWorkloadCreationLatency"))
    {
        ctx.metrics
            .workload_created(target.kind.id().kind, since(workload::created(workload), created));
    }
}

async fn update(ctx: &Context, old: &Workload, new: &Workload) -> Result<(), PerformError> {
    let json = |workload: &Workload| -> Result<Value, WriteError> {
        let mut value = serde_json::to_value(workload)?;
        if let Some(fields) = value.as_object_mut() {
            fields.remove("status");
        }
        Ok(value)
    };
    let Some(patch) = merge_diff(&json(old)?, &json(new)?) else { return Ok(()) };
    patch_metadata(ctx, old, patch, "workload").await?;
    Ok(())
}

/// Deletes a workload. One with quota keeps the finalizer until nothing runs any more.
async fn delete(ctx: &Context, workload: &std::sync::Arc<Workload>) -> Result<(), PerformError> {
    let is_free = !has_reservation(workload) || is_finished(workload);
    if is_free && let Some(Action::UpdateWorkload { old, new }) = edit::drop_finalizer(workload) {
        update(ctx, &old, &new).await?;
    }
    if !ctx.leading() {
        return Err(WriteError::NotLeading.into());
    }
    let api: Api<Workload> =
        Api::namespaced(ctx.client.clone(), &workload.namespace().unwrap_or_default());
    let preconditions =
        Preconditions { uid: workload.metadata.uid.clone(), resource_version: None };
    let params = DeleteParams::background().preconditions(preconditions);
    let deleted = with_deadline(api.delete(&workload.name_any(), &params)).await;
    ctx.metrics.wrote("workload", deleted.is_ok());
    deleted.map(|_| ()).map_err(|error| WriteError::from(error).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job() -> Value {
        json!({
            "apiVersion": "batch/v1", "kind": "Job",
            "metadata": {"name": "a", "namespace": "ns", "uid": "u", "resourceVersion": "7"},
            "spec": {"suspend": true, "future": {"kept": 1}},
            "status": {"startTime": "2026-01-01T00:00:00Z", "active": 1},
        })
    }

    #[test]
    fn patch_has_the_difference_and_the_precondition() {
        let mut wanted = job();
        wanted["spec"]["suspend"] = json!(false);
        insta::assert_snapshot!(job_patch(&job(), &wanted, false).unwrap(), @r#"{"metadata":{"resourceVersion":"7","uid":"u"},"spec":{"suspend":false}}"#);
        wanted["status"].as_object_mut().unwrap().remove("startTime");
        insta::assert_snapshot!(job_patch(&job(), &wanted, true).unwrap(), @r#"{"metadata":{"resourceVersion":"7","uid":"u"},"status":{"startTime":null}}"#);
        assert_eq!(job_patch(&job(), &job(), false), None);
    }
}
