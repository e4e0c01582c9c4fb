//! A Workload's life outside the engine: eviction, deactivation, stop policies, admission checks, back-off, the end.
//!
//! [`decide`] says what is to be done about one workload as it stands; the reconciler around it does that with at most one
//! write to the object and one to its status, and looks again when anything that it decided by changes.
//!
//! What belongs to jobs (starting, stopping, giving quota back once the pods are gone) is the job reconciler's.

mod decide;
mod facts;
mod perform;
mod triggers;

use std::sync::Arc;

pub use decide::{Plan, Told, decide};
pub use facts::{Facts, PodsReadyRules, Rules};
use tokio_util::sync::CancellationToken;

use crate::{context::Context, engine::views::Views};
use switchyard_platform::work_queue::{self, Queue};

/// Workloads looked at in parallel.
const WORKERS: usize = 32;

/// Looks after all Workloads until `shutdown`.
pub(crate) async fn run(ctx: Arc<Context>, views: Arc<Views>, shutdown: CancellationToken) {
    let queue = Queue::default();
    triggers::connect(&ctx, &queue);
    let again = triggers::on_leadership(ctx.clone(), queue.clone(), shutdown.clone());
    let inactive =
        triggers::on_inactive_queues(ctx.clone(), views.clone(), queue.clone(), shutdown.clone());
    let rules = Rules::of(&ctx.config);
    let (ctx, views, rules) = (&ctx, &views, &rules);
    let reconcile = |key| async move { perform::reconcile(ctx, views, rules, key).await };
    tokio::join!(work::run(queue, WORKERS, shutdown, reconcile), again, inactive);
}
