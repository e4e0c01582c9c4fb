//! Where reserved workloads go that run on another cluster.

use std::sync::Arc;

use jiff::Timestamp;
use switchyard_api::v1beta2;

use switchyard_platform::store::Key;

/// Takes over reservations that are dispatched. Implemented by the hub.
pub trait Placement: Send + Sync {
    /// Quota for the workload is reserved in memory and stays so until the API shows it, or it is refused.
    ///
    /// True: taken over; the placement will write the admission or refuse the reservation
    /// ([`EngineHandle::refuse`](crate::engine::task::EngineHandle::refuse)). False: the reservation is written as usual.
    /// Called on the engine's task: it must not block.
    fn reserved(&self, reservation: Reservation) -> bool;

    /// The engine gives the quota of this workload, of which the API shows no reservation, to another.
    ///
    /// The placement refuses the reservation, or, when the API may show it by now, says so
    /// ([`EngineHandle::preemption_failed`](crate::engine::task::EngineHandle::preemption_failed)), so that it is evicted there.
    /// Called often and repeatedly: it must not block.
    fn withdraw(&self, key: &Key, uid: &str);
}

/// Quota reserved in memory for a workload whose ClusterQueue has a MultiKueue check.
#[derive(Debug, Clone)]
pub struct Reservation {
    /// As the engine's decision saw it.
    pub workload: Arc<v1beta2::Workload>,
    /// What to write into `status.admission`.
    pub admission: v1beta2::Admission,
    /// Name of the MultiKueue AdmissionCheck.
    pub check: String,
    /// Whether other checks must become Ready as well.
    pub other_checks: bool,
    /// Since when the workload waits: its queue-order time.
    pub waited_since: Timestamp,
    /// The flavors that were considered, for the event.
    pub note: String,
}

/// What a workload asks for, as the engine counts it.
#[must_use]
pub fn pod_sets(
    ctx: &crate::context::Context,
    workload: &v1beta2::Workload,
) -> Vec<switchyard_scheduler::PodSet> {
    crate::engine::convert::pod_sets(ctx, workload)
}
