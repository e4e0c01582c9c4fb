//! The agent protocol, generated from `proto/agent.proto`.
//!
//! `proto/agent.proto` is the reference of the wire: meaning, units, bounds and guarantees of each
//! message. This crate adds the computations on which both ends must agree: hashes, the digest, and
//! the bounds of what they accept.
//!
//! Feature `transport` (default) adds the gRPC clients, servers and codec. Feature `keys` adds the
//! keys that prove copies. Pure crates turn both off.

#![warn(missing_docs)]

mod cluster_identity;
#[cfg(feature = "transport")]
pub mod codec;
#[cfg(feature = "keys")]
pub mod copy_key;
pub mod digest;
mod payload;
pub mod room;
pub mod trouble;

pub use cluster_identity::{BadIdentity, ClusterIdentity};

/// Version 1 of the protocol.
#[allow(missing_docs, clippy::all, clippy::pedantic, unreachable_pub)] // generated
pub mod v1 {
    include!(concat!(env!("OUT_DIR"), "/switchyard.agent.v1.rs"));
}

impl v1::Reason {
    /// A reason with this code and message.
    pub fn new(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self { code: code.into(), message: message.into() }
    }
}

impl v1::Payload {
    /// A payload with its hash.
    #[must_use]
    pub fn new(workload: Vec<u8>, job: Vec<u8>) -> Self {
        Self { hash: payload_hash(&workload, &job), workload, job }
    }

    /// Bytes of both objects.
    #[must_use]
    pub fn size(&self) -> usize {
        self.workload.len() + self.job.len()
    }
}

impl v1::PreemptionGate {
    /// A gate with these times, in seconds since the Unix epoch.
    #[must_use]
    pub fn new(opened: Option<i64>, blocked: Option<i64>) -> Self {
        Self { opened: opened.map(timestamp), blocked: blocked.map(timestamp) }
    }

    /// When the hub opened the gate, in seconds since the Unix epoch.
    #[must_use]
    pub fn opened_at(&self) -> Option<i64> {
        self.opened.map(|at| at.seconds)
    }

    /// Since when the gate has blocked a preemption, in seconds since the Unix epoch.
    #[must_use]
    pub fn blocked_since(&self) -> Option<i64> {
        self.blocked.map(|at| at.seconds)
    }
}

/// A time in whole seconds since the Unix epoch, as Kubernetes stores times.
#[must_use]
pub fn timestamp(seconds: i64) -> prost_types::Timestamp {
    prost_types::Timestamp { seconds, nanos: 0 }
}

pub use payload::{payload_hash, pod_sets_hash};

/// The protocol versions that this build speaks.
pub const VERSIONS: std::ops::RangeInclusive<u32> = 1..=1;

/// The largest message that an agent accepts, in bytes. Hubs accept 4 MiB from agents. Snapshots and
/// inventories are split well below these bounds.
pub const MAX_MESSAGE: usize = 16 * 1024 * 1024;

/// The largest payload (Workload and job together) that an agent accepts, in bytes.
pub const MAX_PAYLOAD: usize = 3 * 1024 * 1024;

/// The highest attempt that a hub assigns. Hubs count from 1.
pub const MAX_ATTEMPT: u64 = 1 << 52;

/// The longest uid of a Workload that either end accepts, in bytes. API servers generate 36
/// characters.
pub const MAX_UID: usize = 128;

/// The longest name of an object or a namespace, in bytes.
pub const MAX_NAME: usize = 253;

/// Whether the text is a valid uid of a hub's Workload: letters, digits and hyphens, at most
/// [`MAX_UID`] bytes.
#[must_use]
pub fn is_uid(text: &str) -> bool {
    (1..=MAX_UID).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

/// Whether a hub can have assigned this attempt: 1 to [`MAX_ATTEMPT`].
#[must_use]
pub fn is_attempt(attempt: u64) -> bool {
    (1..=MAX_ATTEMPT).contains(&attempt)
}

/// Reason of state `EVICTED`: another client deleted the job or its Workload on the worker, which
/// ends the attempt. With state `RUNNING`: the Workload is deleted, and the job still has pods.
pub const DELETED_ON_WORKER: &str = "DeletedOnWorker";

/// Reason of [`v1::State::Running`] for a job that its fence has stopped. Its pods are not gone yet,
/// or the agent does not know.
pub const STOPPING: &str = "Stopping";

/// A DNS name that every hub certificate contains. Agents verify it, whatever address they dial.
pub const SERVER_NAME: &str = "switchyard-hub";
