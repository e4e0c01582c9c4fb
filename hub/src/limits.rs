//! Bounds that several parts of the hub share.

/// The largest message of an agent, in bytes. Agents begin a new one after 1 MiB, and a single job's status and
/// Workload's status, which an API server keeps to 1.5 MiB each, go into one.
pub(crate) const MAX_AGENT_MESSAGE: usize = 4 * 1024 * 1024;
/// The most workloads that one cluster may speak of in a session.
pub const MAX_WORKLOADS: usize = 200_000;
