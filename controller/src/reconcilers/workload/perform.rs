//! Performs decisions about workloads.

use kube::ResourceExt;
use serde_json::json;
use switchyard_api::{conditions::reasons::events, names, v1beta2::Workload};

use super::{Facts, Notification, Plan, Rules, decide};
use crate::{
    context::{Context, delete_workload, patch_metadata, patch_status},
    engine::{admission::admitted_note, views::Views},
    reconcilers::left_pods,
};
use switchyard_platform::write::WriteError;
use switchyard_platform::{store::Key, work_queue::Outcome};

pub(super) async fn reconcile(ctx: &Context, views: &Views, rules: &Rules, key: Key) -> Outcome {
    if !ctx.leading() {
        return Outcome::Done;
    }
    let Some(subject) = ctx.stores.workloads.by_key(&key) else { return Outcome::Done };
    let facts = Facts::gather(ctx, views, &subject);
    let plan = decide(&subject, &facts, rules, ctx.clock.now());
    let again = plan.again;
    if plan == (Plan { again, ..Plan::default() }) {
        return again.map_or(Outcome::Done, Outcome::Requeue);
    }
    // An unfinished workload with quota loses its finalizer only after the end of its job.
    if plan.release
        && let Some(wait) = left_pods::wait(ctx, &subject).await
    {
        return wait;
    }
    match perform(ctx, &subject, plan).await {
        Ok(()) => again.map_or(Outcome::Done, Outcome::Requeue),
        // The newer version triggers another reconcile.
        Err(WriteError::Gone | WriteError::NotLeading) => Outcome::Done,
        Err(WriteError::Conflict) => Outcome::Failed,
        Err(error) => {
            tracing::warn!(workload = %key, %error, "workload not updated");
            Outcome::Failed
        }
    }
}

#[tracing::instrument(name = "lifecycle", skip_all, fields(workload = %Key::of(subject)))]
async fn perform(ctx: &Context, subject: &Workload, plan: Plan) -> Result<(), WriteError> {
    let mut current = subject.clone();
    if let Some(status) = &plan.status {
        match patch_status(ctx, subject, status, "lifecycle").await? {
            Some(written) => current = written,
            None if !plan.deactivate && !plan.release && !plan.delete => return Ok(()),
            None => (),
        }
    }
    for notification in plan.notifications {
        publish(ctx, subject, &current, notification);
    }
    if plan.deactivate {
        current =
            patch_metadata(ctx, &current, json!({"spec": {"active": false}}), "deactivate").await?;
    }
    if plan.release {
        let kept: Vec<_> =
            current.finalizers().iter().filter(|name| *name != names::RESOURCE_IN_USE).collect();
        current =
            patch_metadata(ctx, &current, json!({"metadata": {"finalizers": kept}}), "release")
                .await?;
    }
    if plan.delete {
        delete_workload(ctx, &current).await?;
    }
    Ok(())
}

/// `before` is the workload before the write.
fn publish(ctx: &Context, before: &Workload, workload: &Workload, notification: Notification) {
    match notification {
        Notification::Event { warning: true, reason, note } => {
            ctx.events.warning(workload, reason, note)
        }
        Notification::Event { warning: false, reason, note } => {
            ctx.events.normal(workload, reason, note)
        }
        Notification::Evicted { cluster_queue, evicted } => {
            ctx.announce_eviction(before, workload, &cluster_queue, &evicted)
        }
        Notification::Admitted { cluster_queue, waited, reserved_for } => {
            ctx.events.normal(
                workload,
                events::ADMITTED,
                admitted_note(&cluster_queue, reserved_for),
            );
            ctx.count_admitted(workload, &cluster_queue, waited, Some(reserved_for));
        }
    }
}
