//! Beginnings of messages that one program writes and another one reads.

/// A hub's message when none of its clusters can run a workload. The answers of the clusters follow.
pub const NO_CLUSTER: &str = "No worker cluster can run it: ";
/// A hub's message while it waits for a cluster. The answers of the clusters follow.
pub const WAITS_FOR_CLUSTER: &str = "Waiting for a worker cluster: ";
