//! The controller of ProvisioningRequest admission checks: the cluster autoscaler is asked for room before a workload with
//! quota may start.
//!
//! As Kueue's (`pkg/controller/admissionchecks/provisioning`): a workload that has quota gets one ProvisioningRequest for
//! each of our checks, with a PodTemplate for each of its pod sets; what the autoscaler answers becomes the state of the
//! check. [`decide`] says purely what is to be done about one workload. A cluster that knows no ProvisioningRequests
//! is not an error: the checks are inactive until it does.

mod check;
mod decide;
mod facts;
mod objects;
mod owned;
mod perform;
mod request_name;
mod state;
mod triggers;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use owned::Owned;
use tokio_util::sync::CancellationToken;

use crate::{
    context::Context,
    store::Key,
    work::{self, Queue},
};

/// Workloads looked at in parallel.
const WORKERS: usize = 8;

/// What is to be looked at.
#[derive(Debug, Default)]
struct Queues {
    /// AdmissionChecks: whether they are active.
    checks: Queue<Key>,
    /// Workloads with checks.
    workloads: Queue<Key>,
}

/// Looks after all ProvisioningRequest checks, and the workloads that have some, until `shutdown`.
pub(crate) async fn run(ctx: Arc<Context>, shutdown: CancellationToken) {
    let (queues, owned) = (Arc::new(Queues::default()), Arc::new(Owned::default()));
    triggers::connect(&ctx, &queues, &owned);
    let again = triggers::everything_again(&ctx, &queues, &shutdown);
    let (ctx, owned) = (&*ctx, &*owned);
    let check = |key| async move { check::look(ctx, key).await };
    let workload = |key| async move { perform::look(ctx, owned, key).await };
    tokio::join!(
        work::run(queues.checks.clone(), 1, shutdown.clone(), check),
        work::run(queues.workloads.clone(), WORKERS, shutdown.clone(), workload),
        again,
    );
}
