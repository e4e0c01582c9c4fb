//! The agent protocol, generated from `proto/agent.proto`.
//!
//! The file itself is the documentation: what each message means, who may send it, and what is promised.

/// Version 1 of the protocol.
#[allow(missing_docs, clippy::all, clippy::pedantic, unreachable_pub)] // generated
pub mod v1 {
    tonic::include_proto!("switchyard.agent.v1");
}

/// The protocol versions that this build speaks, inclusive.
pub const VERSIONS: std::ops::RangeInclusive<u32> = 1..=1;
