//! Reconciles jobs: one matching workload per job, and jobs run only while their workload is
//! admitted.
//!
//! A change of a job, of its workload or of a prebuilt workload queues the job's key, and so does a
//! namespace that becomes managed. A reconcile gathers [`JobInputs`] from the stores, calls
//! [`decide`], and performs the decision.

mod action;
pub(crate) mod ancestor;
mod case;
mod checks;
mod create;
mod decide;
mod edit;
mod ensure;
mod gather;
mod group;
mod index;
mod inputs;
mod leaving;
pub(crate) mod lookup;
pub(crate) mod owners;
mod perform;
mod pod_group_owner;
mod ready;
mod reclaim;
mod slices;
mod triggers;

#[cfg(test)]
mod tests;

use std::{sync::Arc, time::Duration};

pub(crate) use action::{Action, Decision, Next};
pub use case::finished_note;
use decide::asks_for_owners;
pub(crate) use decide::decide;
use index::{Index, JobKey};
pub(crate) use inputs::{Ancestor, Gates, JobInputs, PodsReadyDelay, Prebuilt};
use kube::core::Selector;
use perform::{PerformError, Target, is_gone, perform, publish};
use ready::ReadyJobs;
use switchyard_api::{conditions::reasons::events, v1beta2::Workload};
use switchyard_config::Configuration;
use switchyard_jobs::{kind_for, meta};
use switchyard_platform::work_queue::{self, Outcome, Queue};
use tokio_util::sync::CancellationToken;

use crate::{context::Context, reconcilers::left_pods};

/// Jobs reconciled in parallel. Each waits for one or two API writes of a few milliseconds.
const CONCURRENCY: usize = 32;
/// After a conflict the watch brings the newer object. This delay covers the case that it does not.
const AFTER_CONFLICT: Duration = Duration::from_secs(1);
/// Delay after a refusal. The server refuses the same write again, unless something unseen changes.
const AFTER_REFUSAL: Duration = Duration::from_secs(15);
/// Delay before `PodsReady` is written. Shorter jobs skip that write, one beside about four others
/// per job.
const PODS_READY_DELAY: Duration = Duration::from_secs(5);

/// Runs until `shutdown`. The stores must be ready, because a missing job counts as deleted.
///
/// # Errors
///
/// When the configuration's namespace selector is invalid.
pub(crate) async fn run(ctx: Arc<Context>, shutdown: CancellationToken) -> anyhow::Result<()> {
    let reconciler = Arc::new(Reconciler::new(ctx)?);
    reconciler.subscribe();
    let looks = work_queue::run(reconciler.queue.clone(), CONCURRENCY, shutdown.clone(), |key| {
        reconciler.reconcile(key)
    });
    tokio::join!(looks, reconciler.follow_leadership(&shutdown));
    Ok(())
}

/// When `PodsReady` is first written: well before the timeout, and at once if the next admission
/// waits for it.
fn pods_ready_delay(config: &Configuration) -> PodsReadyDelay {
    let rules = &config.wait_for_pods_ready;
    if rules.block_admission && config.waits_for_pods_ready() {
        return PodsReadyDelay::default();
    }
    let timeout = rules.timeout.std();
    let after_ready = PODS_READY_DELAY.min(timeout / 4);
    PodsReadyDelay { ready_for: Duration::ZERO, after_ready, after_admission: timeout / 2 }
}

struct Reconciler {
    ctx: Arc<Context>,
    pods_ready: PodsReadyDelay,
    ready: ReadyJobs,
    managed_namespaces: Selector,
    // Keys of labels, and of annotations.
    keys_to_copy: (Vec<String>, Vec<String>),
    index: Index,
    queue: Queue<JobKey>,
}

impl Reconciler {
    fn new(ctx: Arc<Context>) -> anyhow::Result<Self> {
        Ok(Self {
            pods_ready: pods_ready_delay(&ctx.config),
            ready: ReadyJobs::default(),
            managed_namespaces: lookup::managed_namespaces(&ctx.config, &ctx.namespace)?,
            keys_to_copy: ctx.config.keys_to_copy(),
            index: Index::default(),
            queue: Queue::default(),
            ctx,
        })
    }

    async fn reconcile(&self, key: JobKey) -> Outcome {
        if !self.ctx.leading() {
            return Outcome::Done;
        }
        let Some(jobs) = self.ctx.stores.job(key.group, key.kind) else { return Outcome::Done };
        let kind = kind_for(key.group, key.kind).filter(|kind| kind.makes_workloads());
        let Some(kind) = kind else { return Outcome::Done };
        if let Some(serving) = kind.serving() {
            return self.reconcile_group_owner(&key, kind, serving).await;
        }
        let object = jobs.store.by_key(&key.key).filter(|_| !key.composed);
        if let Some(member) =
            object.filter(|object| JobKey::of(kind, &key.key, &object.value()) != key)
        {
            // It joined a group, which is reconciled instead.
            self.index.forget(&key);
            let decision = group::leftover_workloads(kind, &member.value(), &self.owned(&key));
            return self
                .act(&Target { key: &key, jobs, kind, job: Some(&*member) }, decision)
                .await;
        }
        let job = self.job(kind, jobs, &key);
        if key.composed {
            self.note_ready(kind, &key, job.as_ref());
        }
        let target = Target { key: &key, jobs, kind, job: job.as_deref() };
        let workloads = self.owned(&key);
        if job.is_none() {
            self.index.forget(&key);
            match self.confirm_gone(&target, &workloads).await {
                Ok(true) => {
                    if let Some(wait) = self.wait_for_pods(&workloads).await {
                        return wait;
                    }
                }
                Ok(false) => return Outcome::Requeue(AFTER_CONFLICT),
                Err(error) => {
                    tracing::warn!(job = ?key, %error, "could not ask whether a job is gone");
                    return Outcome::Failed;
                }
            }
        } else if let Some(wait) = self.wait_while_deleted(&target, &workloads).await {
            return wait;
        } else if workloads.is_empty()
            && let Some(wait) = self.index.arriving(&key, self.ctx.clock.monotonic())
        {
            return Outcome::Requeue(wait);
        }
        let ancestor = self.ancestor(kind, &key, job.as_deref()).await;
        let decision = self.gather_and_decide(kind, &key, job.as_deref(), ancestor, workloads);
        self.act(&target, decision).await
    }

    async fn act(&self, target: &Target<'_>, decision: Decision) -> Outcome {
        let key = target.key;
        let told = decision.actions.iter().any(|action| matches!(action, Action::Event { .. }));
        if let Err(error) = perform(&self.ctx, &self.index, target, decision.actions).await {
            match &error {
                PerformError::Stale(_) | PerformError::Exists => {
                    tracing::debug!(job = ?key, %error, "looked at an old state");
                    return Outcome::Requeue(AFTER_CONFLICT);
                }
                PerformError::Refused { .. } => {
                    tracing::warn!(job = ?key, %error, "write refused");
                    publish(
                        &self.ctx,
                        target,
                        true,
                        events::ERR_WORKLOAD_COMPOSE,
                        error.to_string(),
                    );
                    return Outcome::Requeue(AFTER_REFUSAL);
                }
                PerformError::Failed(_) => tracing::warn!(job = ?key, %error, "write failed"),
            }
            return Outcome::Failed;
        }
        match decision.next {
            Next::OnChange => Outcome::Done,
            Next::After(delay) => Outcome::Requeue(delay),
            Next::Retry(reason) => {
                // Repeated with each retry. If the job got an event, the log needs no line.
                if told {
                    tracing::debug!(job = ?key, reason, "job waits for something that is missing");
                } else {
                    tracing::info!(job = ?key, reason, "job waits for something that is missing");
                }
                Outcome::Failed
            }
        }
    }

    /// Reads the job from the API server before its workloads are finished as orphans.
    async fn confirm_gone(
        &self,
        target: &Target<'_>,
        workloads: &[Arc<Workload>],
    ) -> Result<bool, kube::Error> {
        let owners = workloads
            .iter()
            .flat_map(|workload| workload.metadata.owner_references.iter().flatten());
        let uids: Vec<String> = owners
            .filter(|owner| owner.controller == Some(true))
            .map(|owner| owner.uid.clone())
            .collect();
        if uids.is_empty() {
            return Ok(true);
        }
        is_gone(&self.ctx, target, &uids).await
    }

    /// When to reconcile a job again that is being deleted while its pods run. They are deleted if
    /// its Workload is evicted.
    async fn wait_while_deleted(
        &self,
        target: &Target<'_>,
        workloads: &[Arc<Workload>],
    ) -> Option<Outcome> {
        let job = target.job?.value();
        let kind = target.kind;
        if !meta::is_deleting(&job) || kind.is_composed(&job) || kind.has_cleanup(&job) {
            return None;
        }
        for workload in workloads {
            let must_end = left_pods::must_end(&job, workload);
            // For such a kind the status shows when no pod is left, and its change triggers a
            // reconcile.
            if kind.counts_while_deleted() && !(must_end && kind.is_active(&job)) {
                continue;
            }
            let wait = match must_end {
                true => left_pods::end(&self.ctx, workload).await,
                false => left_pods::wait(&self.ctx, workload).await,
            };
            if wait.is_some() {
                return wait;
            }
        }
        None
    }

    /// When to reconcile again because pods of a deleted job still run. The workload reconciler
    /// releases Workloads that are being deleted.
    async fn wait_for_pods(&self, workloads: &[Arc<Workload>]) -> Option<Outcome> {
        for workload in workloads.iter().filter(|it| it.metadata.deletion_timestamp.is_none()) {
            let wait = left_pods::wait(&self.ctx, workload).await;
            if wait.is_some() {
                return wait;
            }
        }
        None
    }
}
