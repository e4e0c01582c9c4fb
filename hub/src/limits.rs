//! Bounds that several parts of the hub share.

/// Largest message from an agent, in bytes. Agents start a new one after 1 MiB. One job's status
/// and its Workload's status go into one message, and an API server keeps each below 1.5 MiB.
pub(crate) const MAX_AGENT_MESSAGE: usize = 4 * 1024 * 1024;
/// Most workloads that one cluster may report in a session.
pub use switchyard_dispatcher::MAX_WORKLOADS;
