//! Performs decisions about workloads.

use std::sync::Arc;

use kube::ResourceExt;
use parking_lot::Mutex;
use serde_json::json;
use switchyard_api::{conditions::reasons::events, names, v1beta2::Workload};
use tokio::time::{Instant, sleep};

use super::{
    Notification, Rules, WorkloadInputs, WorkloadPlan, decide,
    explanation_limit::{ExplanationLimit, pause_after},
};
use crate::{
    context::{Context, delete_workload, patch_metadata, patch_status},
    engine::{admission::admitted_note, views::Views},
    reconcilers::left_pods,
};
use switchyard_platform::write::WriteError;
use switchyard_platform::{
    store::Key,
    work_queue::{Outcome, Queue},
};

pub(super) struct Reconciler<'a> {
    pub ctx: &'a Context,
    pub views: &'a Views,
    pub rules: &'a Rules,
    /// The workloads to reconcile.
    pub queue: &'a Queue<Key>,
    /// Workloads that only need an explanation why they wait, and whose namespace has had many.
    /// They are written one at a time, with pauses: a queue that becomes inactive changes those of
    /// all its workloads, and other tenants' jobs could start meanwhile.
    pub explanations: &'a Queue<Key>,
    pub explanation_limit: Mutex<ExplanationLimit>,
}

impl Reconciler<'_> {
    pub(super) async fn reconcile(&self, key: Key) -> Outcome {
        let Some((subject, plan)) = self.plan(&key) else { return Outcome::Done };
        if plan.only_explains(&subject) && !self.admits(&key.namespace) {
            self.explanations.add(key);
            return plan.again.map_or(Outcome::Done, Outcome::Requeue);
        }
        self.perform(&key, &subject, plan).await
    }

    /// Writes an explanation that waited. Anything else goes back to [`Self::reconcile`].
    pub(super) async fn explain(&self, key: Key) -> Outcome {
        let Some((subject, plan)) = self.plan(&key) else { return Outcome::Done };
        if !plan.only_explains(&subject) {
            if plan.status.is_some() {
                self.queue.add(key);
            }
            return Outcome::Done;
        }
        let began = Instant::now();
        let outcome = self.perform(&key, &subject, plan).await;
        sleep(pause_after(began.elapsed())).await;
        match outcome {
            Outcome::Failed => Outcome::Failed,
            // The first look has scheduled the next one.
            Outcome::Done | Outcome::Requeue(_) => Outcome::Done,
        }
    }

    fn admits(&self, namespace: &str) -> bool {
        let mut limit = self.explanation_limit.lock();
        limit.admits(namespace, Instant::now())
    }

    fn plan(&self, key: &Key) -> Option<(Arc<Workload>, WorkloadPlan)> {
        let ctx = self.ctx;
        let subject = ctx.stores.workloads.by_key(key).filter(|_| ctx.leading())?;
        let inputs = WorkloadInputs::gather(ctx, self.views, &subject);
        let plan = decide(&subject, &inputs, self.rules, ctx.clock.now());
        Some((subject, plan))
    }

    async fn perform(&self, key: &Key, subject: &Workload, plan: WorkloadPlan) -> Outcome {
        let again = plan.again;
        if plan == (WorkloadPlan { again, ..WorkloadPlan::default() }) {
            return again.map_or(Outcome::Done, Outcome::Requeue);
        }
        // An unfinished workload with quota loses its finalizer only after the end of its job.
        if plan.release
            && let Some(wait) = left_pods::wait(self.ctx, subject).await
        {
            return wait;
        }
        match perform(self.ctx, subject, plan).await {
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
}

#[tracing::instrument(name = "lifecycle", skip_all, fields(workload = %Key::of(subject)))]
async fn perform(ctx: &Context, subject: &Workload, plan: WorkloadPlan) -> Result<(), WriteError> {
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
