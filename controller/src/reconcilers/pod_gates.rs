//! Takes scheduling gates of ours off pods: for the pods of elastic jobs and for those that topology-aware scheduling places.

use std::sync::Arc;

use futures::{StreamExt as _, stream};
use switchyard_api::{conditions, v1beta2::Workload};
use switchyard_jobs::elastic;

use crate::{
    context::Context,
    workload::{admitted_by, condition, is_group_workload, runs},
};
use switchyard_platform::{clock::since, store::Key, work_queue::Outcome, write::WriteError};

/// Pods of one chain that are written to at once.
const AT_ONCE: usize = 8;

/// The workload of a chain by which its pods run: the newest that is admitted.
pub(crate) fn active(workloads: Vec<Arc<Workload>>) -> Option<Arc<Workload>> {
    elastic::in_order(workloads).into_iter().rfind(|it| runs(it))
}

/// Performs the writes of one chain. One that fails keeps no other back.
pub(crate) async fn all(writes: Vec<impl Future<Output = Outcome>>) -> Outcome {
    let done: Vec<Outcome> = stream::iter(writes).buffer_unordered(AT_ONCE).collect().await;
    if done.contains(&Outcome::Failed) { Outcome::Failed } else { Outcome::Done }
}

/// A gate that is taken off pods.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Gate {
    pub(crate) name: &'static str,
    /// Logged when it cannot be taken off.
    pub(crate) failure: &'static str,
}

impl Gate {
    /// Measures, logs or has repeated what came of taking it off a pod of the workload.
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

    /// Measures how long after the admission of its workload a pod lost the gate.
    fn measure(&self, ctx: &Context, workload: &Workload) {
        let admitted = condition(workload, conditions::ADMITTED)
            .map(|admitted| admitted.last_transition_time.0);
        if let (Some(cluster_queue), Some(admitted)) = (admitted_by(workload), admitted) {
            let waited = since(ctx.clock.now(), admitted);
            ctx.metrics.ungated(self.name, cluster_queue, is_group_workload(workload), waited);
        }
    }
}
