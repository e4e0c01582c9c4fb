//! Removes Switchyard's scheduling gates from pods, for elastic jobs and for topology-aware
//! scheduling.

use std::sync::Arc;

use futures::{StreamExt as _, stream};
use switchyard_api::{conditions, v1beta2::Workload};
use switchyard_jobs::elastic;

use crate::{
    context::Context,
    workload::{admitted_by, condition, is_group_workload, runs},
};
use switchyard_platform::{clock::since, store::Key, work_queue::Outcome, write::WriteError};

/// Pods of one chain that are written in parallel.
const AT_ONCE: usize = 8;

/// The slice of a chain that its pods run with: the newest admitted one.
pub(crate) fn active(workloads: Vec<Arc<Workload>>) -> Option<Arc<Workload>> {
    elastic::in_order(workloads).into_iter().rfind(|it| runs(it))
}

/// Performs the writes of one chain. A failed write does not hold others back.
pub(crate) async fn all(writes: Vec<impl Future<Output = Outcome>>) -> Outcome {
    let done: Vec<Outcome> = stream::iter(writes).buffer_unordered(AT_ONCE).collect().await;
    if done.contains(&Outcome::Failed) { Outcome::Failed } else { Outcome::Done }
}

/// A scheduling gate.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Gate {
    pub(crate) name: &'static str,
    /// Log message if it cannot be removed.
    pub(crate) failure: &'static str,
}

impl Gate {
    /// The outcome of removing it from a pod: measured, logged or repeated.
    pub(crate) fn outcome(
        &self,
        ctx: &Context,
        workload: &Workload,
        pod: &Key,
        written: Result<(), WriteError>,
    ) -> Outcome {
        match written {
            Ok(()) => {
                self.measure(ctx, workload);
                Outcome::Done
            }
            Err(WriteError::Gone | WriteError::NotLeading) => Outcome::Done,
            Err(WriteError::Conflict) => Outcome::Failed,
            Err(error) => {
                tracing::warn!(%pod, %error, "{}", self.failure);
                Outcome::Failed
            }
        }
    }

    /// Measures the time from the workload's admission to the removal.
    fn measure(&self, ctx: &Context, workload: &Workload) {
        let admitted = condition(workload, conditions::ADMITTED)
            .map(|admitted| admitted.last_transition_time.0);
        if let (Some(cluster_queue), Some(admitted)) = (admitted_by(workload), admitted) {
            let waited = since(ctx.clock.now(), admitted);
            ctx.metrics.ungated(self.name, cluster_queue, is_group_workload(workload), waited);
        }
    }
}
