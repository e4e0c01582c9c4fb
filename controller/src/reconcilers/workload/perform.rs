//! Performs decisions about workloads.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use kube::ResourceExt;
use serde_json::json;
use switchyard_api::{conditions::reasons::events, names, v1beta2::Workload};
use tokio::time::{Instant, sleep};

use super::{Facts, Notification, Plan, Rules, decide};
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

/// Least and longest pause between two explanations.
const PAUSE: [Duration; 2] = [Duration::from_millis(20), Duration::from_secs(1)];
/// So many explanations of one namespace are written at once in a second. Further ones wait.
const AT_ONCE: u32 = 20;

/// Explanations of this second, by namespace.
#[derive(Debug, Default)]
pub(super) struct Written {
    since: Option<Instant>,
    counts: BTreeMap<String, u32>,
}

impl Written {
    /// Whether one more of this namespace may be written now. Counts it.
    fn admits(&mut self, namespace: &str, now: Instant) -> bool {
        if self.since.is_none_or(|since| now >= since + Duration::from_secs(1)) {
            *self = Self { since: Some(now), counts: BTreeMap::new() };
        }
        let count = self.counts.entry(namespace.to_owned()).or_default();
        *count += 1;
        *count <= AT_ONCE
    }
}

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
    pub written: Mutex<Written>,
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
        sleep(began.elapsed().clamp(PAUSE[0], PAUSE[1])).await;
        match outcome {
            Outcome::Failed => Outcome::Failed,
            // The first look has scheduled the next one.
            Outcome::Done | Outcome::Requeue(_) => Outcome::Done,
        }
    }

    fn admits(&self, namespace: &str) -> bool {
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        written.admits(namespace, Instant::now())
    }

    fn plan(&self, key: &Key) -> Option<(Arc<Workload>, Plan)> {
        let ctx = self.ctx;
        let subject = ctx.stores.workloads.by_key(key).filter(|_| ctx.leading())?;
        let facts = Facts::gather(ctx, self.views, &subject);
        let plan = decide(&subject, &facts, self.rules, ctx.clock.now());
        Some((subject, plan))
    }

    async fn perform(&self, key: &Key, subject: &Workload, plan: Plan) -> Outcome {
        let again = plan.again;
        if plan == (Plan { again, ..Plan::default() }) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_namespace_has_its_share_of_a_second() {
        let (mut written, start) = (Written::default(), Instant::now());
        let mut admitted = |namespace: &str, at: Duration, tries: u32| {
            (0..tries).filter(|_| written.admits(namespace, start + at)).count()
        };
        assert_eq!(admitted("crowd", Duration::ZERO, 500), 20);
        assert_eq!(admitted("honest", Duration::from_millis(500), 3), 3);
        assert_eq!(admitted("crowd", Duration::from_millis(999), 5), 0);
        assert_eq!(admitted("crowd", Duration::from_secs(1), 5), 5);
    }
}
