//! The controller of ProvisioningRequest admission checks: before a workload with quota starts, it
//! asks the cluster autoscaler for nodes.
//!
//! As Kueue's `pkg/controller/admissionchecks/provisioning`: a workload with reserved quota gets
//! one ProvisioningRequest per check, with one PodTemplate per pod set. The autoscaler's conditions
//! become the state of the check. [`decide`] is the pure decision about one workload. If the API
//! server does not serve ProvisioningRequests, the checks are inactive until it does.

mod check;
mod decide;
mod facts;
mod objects;
mod perform;
mod request_index;
mod request_name;
mod state;
mod triggers;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use request_index::RequestIndex;
use tokio_util::sync::CancellationToken;

use crate::context::Context;
use switchyard_platform::{
    store::Key,
    work_queue::{self, Queue},
};

/// Workloads reconciled in parallel.
const WORKERS: usize = 8;

#[derive(Debug, Default)]
struct Queues {
    /// AdmissionChecks, for their `Active` condition.
    checks: Queue<Key>,
    /// Workloads with checks.
    workloads: Queue<Key>,
}

/// Reconciles ProvisioningRequest checks and their workloads until `shutdown`.
pub(crate) async fn run(ctx: Arc<Context>, shutdown: CancellationToken) {
    let (queues, index) = (Arc::new(Queues::default()), Arc::new(RequestIndex::default()));
    triggers::subscribe(&ctx, &queues, &index);
    let requeue = triggers::requeue_all(&ctx, &queues, &shutdown);
    let (ctx, index) = (&*ctx, &*index);
    let check = |key| async move { check::reconcile(ctx, key).await };
    let workload = |key| async move { perform::reconcile(ctx, index, key).await };
    tokio::join!(
        work_queue::run(queues.checks.clone(), 1, shutdown.clone(), check),
        work_queue::run(queues.workloads.clone(), WORKERS, shutdown.clone(), workload),
        requeue,
    );
}
