//! The dispatcher: decides which worker cluster runs which workload.
//!
//! The crate is pure: [`Dispatcher::apply`] takes a [`DispatchEvent`] and the time, and returns
//! [`DispatchAction`]s. The hub's dispatcher task feeds it and performs the actions.
//!
//! # How a workload gets to a cluster
//! 1. The engine reserves quota on the hub. [`DispatchEvent::QuotaReserved`] or a changed Workload
//!    ([`WorkloadFacts`]) brings it here.
//! 2. *Nominate* (`dispatcher/nominate.rs`): choose clusters by capacity, affinity and refusals.
//!    An offer is an assignment in phase `Reserve`: the agent makes a suspended copy.
//! 3. The agents answer with [`Observation`]s (`dispatcher/observed.rs`): reserved, waiting, refused
//!    or unfit.
//! 4. *Commit*: [`WorkloadWrite::Commit`] writes cluster and attempt to the Workload's status, and
//!    the other offers are withdrawn.
//! 5. *Run* (`dispatcher/reconcile.rs`): when the API shows the commit, the assignment changes to
//!    phase `Run`, and the agent starts the job.
//! 6. *End*: [`WorkloadWrite::Finish`] writes the end. Then the agent gets the acknowledgement.
//! 7. *Remove*: a tombstone, that is an assignment in phase `Absent`, removes the copy. The hub
//!    forgets the tombstone when the cluster reports that nothing is left.
//!
//! An attempt may end before its job: its cluster evicts, loses or refuses it, or the hub gives it
//! up. Then [`WorkloadWrite::Retry`] evicts the workload on the hub. [`WorkloadWrite::Release`]
//! returns its quota once nothing runs. The next attempt has a higher number.
//!
//! # Guarantees
//! - A cluster runs an attempt only after the API confirmed this cluster and attempt.
//! - At most one cluster shall run an attempt. A higher attempt runs only when no lower one can, or
//!   when the lower one's cluster was given up. A [`LossPolicy`] or an administrator who
//!   declares the cluster lost gives it up.
//! - An end is acknowledged only after it is written, or if it is not needed.
//! - The API is the truth. All state here can be rebuilt from Workloads and the clusters'
//!   inventories.
//!
//! # Assumptions
//! Observations of one cluster arrive in the order in which the agent made them. They may be late
//! and repeated.
//!
//! # Files
//! Inputs: `events.rs`, `workload.rs`, `observations.rs`, `capacity.rs`, `cluster_config.rs`,
//! `flavor_pins.rs`, `settings.rs`. Outputs: `actions.rs`. Decisions: `dispatcher/`. Helpers of the
//! dispatcher task, also pure: `live_sessions.rs`, `observation_cache.rs`, `write_guard.rs`,
//! `write_retries.rs`.

mod actions;
pub mod capacity;
mod cluster_config;
mod dispatcher;
mod events;
mod flavor_pins;
mod live_sessions;
mod observation_cache;
mod observations;
mod settings;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;
mod workload;
pub mod write_guard;
mod write_retries;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub use actions::{
    CLUSTER_DRAINED, CLUSTER_LOST, DispatchAction, RequestedAssignment, RetriedAttempt, STUCK,
    WorkloadWrite,
};
pub use cluster_config::{ClusterConfig, LossPolicy};
pub use dispatcher::{
    BreakerTrip, ClusterSummary, Contact, Dispatcher, LostContact, MAX_WORKLOADS, OrphanView,
    Stuck, StuckOutlook, TIMED_OUT,
};
pub use events::{DispatchEvent, WriteOutcome, WriteResult};
pub use flavor_pins::{ClusterPins, FlavorMismatch, FlavorName, PinRules};
pub use live_sessions::LiveSessions;
pub use observation_cache::{LastObservation, ObservationCache};
pub use observations::{CopyOrigin, Observation, PreemptionGate, is_terminal};
use observations::{has_reason, is_running};
pub use settings::{BreakerLimits, DispatchMode, DispatcherSettings, StoreLoss};
use workload::JobKey;
pub use workload::{
    AdoptRequest, CheckStatus, JobIdentity, MemoryReservation, Replica, StuckFacts, StuckPolicy,
    WorkloadFacts, WorkloadState,
};
pub use write_retries::WriteRetries;

/// Shared text: names of objects, resources and clusters.
pub type Name = Arc<str>;
/// Uid of a Workload.
pub type Uid = Arc<str>;
pub type UnixMillis = i64;

/// How far attempts and epochs that clusters report may exceed those that the hub knows. A lost or
/// restored store forgets some, but never a million.
pub const MAX_LEAD: u64 = 1 << 20;

pub use switchyard_proto::v1::{Phase, Reason, State};

/// Reason code of [`State::Refused`] if the hub could not build or send the assignment.
pub const CANNOT_SEND: &str = "CannotSend";

pub type Uids = BTreeSet<Uid>;

/// Removes a value from a set, and the set itself when it is empty.
fn take_from<K: Ord, V: Ord>(sets: &mut BTreeMap<K, BTreeSet<V>>, key: &K, value: &V) {
    if let Some(set) = sets.get_mut(key) {
        set.remove(value);
        if set.is_empty() {
            sets.remove(key);
        }
    }
}
