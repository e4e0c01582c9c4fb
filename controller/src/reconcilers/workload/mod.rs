//! Reconciles Workloads outside the engine: eviction, deactivation, stop policies, admission
//! checks, requeuing, the end.
//!
//! [`decide`] plans the whole change of one workload. A reconcile makes at most one write to the
//! object and one to its status. Any change of an input triggers another.
//!
//! The job reconciler starts and stops jobs, and releases quota once their pods are gone.

mod decide;
mod explanation_limit;
mod inputs;
mod perform;
mod triggers;

use std::sync::Arc;

pub(crate) use decide::{Notification, WorkloadPlan, decide};
pub(crate) use inputs::{PodsReadyRules, Readiness, Rules, WorkloadInputs};
use parking_lot::Mutex;
use perform::Reconciler;
use tokio_util::sync::CancellationToken;

use crate::{context::Context, engine::views::Views};
use switchyard_platform::work_queue::{self, Queue};

/// Workloads reconciled in parallel.
const WORKERS: usize = 32;

/// Runs until `shutdown`.
pub(crate) async fn run(ctx: Arc<Context>, views: Arc<Views>, shutdown: CancellationToken) {
    let queue = Queue::default();
    triggers::connect(&ctx, &queue);
    let again = triggers::on_leadership(ctx.clone(), queue.clone(), shutdown.clone());
    let inactive =
        triggers::on_inactive_queues(ctx.clone(), views.clone(), queue.clone(), shutdown.clone());
    let rules = Rules::of(&ctx.config);
    let explanations = Queue::default();
    let reconciler = &Reconciler {
        ctx: &ctx,
        views: &views,
        rules: &rules,
        queue: &queue,
        explanations: &explanations,
        explanation_limit: Mutex::default(),
    };
    tokio::join!(
        work_queue::run(queue.clone(), WORKERS, shutdown.clone(), |key| reconciler.reconcile(key)),
        work_queue::run(explanations.clone(), 1, shutdown, |key| reconciler.explain(key)),
        again,
        inactive
    );
}
