//! The hub's part in admission: reservations of workloads that run on another cluster.

use std::sync::Arc;

use jiff::Timestamp;
use switchyard_api::v1beta2;

use switchyard_platform::store::Key;

/// Takes over reservations of dispatched workloads. Implemented by the hub.
pub trait Placement: Send + Sync {
    /// The engine reserved quota in memory. It stays reserved until the API shows it or the
    /// placement refuses it.
    ///
    /// Returns whether the placement takes the reservation over. It then writes the admission or
    /// calls [`EngineHandle::refuse`](crate::engine::EngineHandle::refuse). Otherwise the
    /// controller writes the reservation. Must not block: the engine's task calls it.
    fn reserved(&self, reservation: Reservation) -> bool;

    /// The engine preempts this workload's reservation, which the API does not show yet.
    ///
    /// The placement refuses the reservation. If the API may show it by now, the placement calls
    /// [`EngineHandle::preemption_failed`](crate::engine::EngineHandle::preemption_failed) instead,
    /// so that the engine evicts the workload there. Called repeatedly. Must not block.
    fn withdraw(&self, key: &Key, uid: &str);
}

/// Quota reserved in memory for a workload whose ClusterQueue has a MultiKueue check.
#[derive(Debug, Clone)]
pub struct Reservation {
    /// As it was when the engine decided.
    pub workload: Arc<v1beta2::Workload>,
    /// The engine's cycle that decided it.
    pub cycle: u64,
    /// The value for `status.admission`.
    pub admission: v1beta2::Admission,
    /// Name of the MultiKueue AdmissionCheck.
    pub check: String,
    /// Whether other checks must become Ready, too.
    pub other_checks: bool,
    /// The workload's queue-order time.
    pub waited_since: Timestamp,
    /// The flavors that were considered, for the event.
    pub note: String,
}
