//! The agent protocol, generated from `proto/agent.proto`.
//!
//! The file itself is the documentation: what each message means, who may send it, and what is promised. Beside the
//! generated code stand the few computations both ends must agree on.

#![warn(missing_docs)]

#[cfg(feature = "transport")]
pub mod codec;
pub mod digest;
mod payload;
pub mod trouble;

/// Version 1 of the protocol.
#[allow(missing_docs, clippy::all, clippy::pedantic, unreachable_pub)] // generated
pub mod v1 {
    include!(concat!(env!("OUT_DIR"), "/switchyard.agent.v1.rs"));
}

pub use payload::{payload_hash, pod_sets_hash};

/// The protocol versions that this build speaks, inclusive.
pub const VERSIONS: std::ops::RangeInclusive<u32> = 1..=1;

/// The largest message either end accepts, in bytes. Snapshots and inventories are split well below it.
pub const MAX_MESSAGE: usize = 16 * 1024 * 1024;

/// The largest payload (Workload and job together) an agent takes, in bytes.
pub const MAX_PAYLOAD: usize = 3 * 1024 * 1024;

/// The highest attempt that a hub gives out: hubs count from one.
pub const MAX_ATTEMPT: u64 = 1 << 52;

/// The longest uid of a Workload, in bytes. An API server's has 36 characters.
pub const MAX_UID: usize = 128;

/// The longest name of an object or of a namespace, in bytes.
pub const MAX_NAME: usize = 253;

/// Whether a hub's Workload can have this uid: letters, digits and hyphens.
#[must_use]
pub fn is_uid(text: &str) -> bool {
    (1..=MAX_UID).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

/// Whether a hub can have given out this attempt.
#[must_use]
pub fn is_attempt(attempt: u64) -> bool {
    (1..=MAX_ATTEMPT).contains(&attempt)
}

/// Reason of `EVICTED` when somebody else deleted the job, or its Workload, on the worker: the attempt is over. With `RUNNING`
/// the Workload is gone, and the job's pods are not yet.
pub const DELETED_ON_WORKER: &str = "DeletedOnWorker";

/// The DNS name that every hub's certificate carries beside its own: agents verify it, whatever address they dial.
pub const SERVER_NAME: &str = "switchyard-hub";
