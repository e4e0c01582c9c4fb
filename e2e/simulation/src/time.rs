//! Virtual time, and the times that hub and clusters share.

/// Milliseconds since the start of the run.
pub type Ms = u64;

/// The start of the run on a correct wall clock, in milliseconds since the epoch.
pub(crate) const START: i64 = 1_700_000_000_000;

/// How late a request may be performed after its sender's timeout, on the hub or on a worker.
pub(crate) const LATE: Ms = 30_000;

/// The duration of agents' leases.
pub(crate) const LEASE: Ms = 30_000;
/// How long the hub waits for a cluster without an agent before it gives the cluster up.
pub(crate) const WORKER_LOST: Ms = 45_000;
