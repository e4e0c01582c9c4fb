//! Message prefixes that one program writes and another parses.

/// Prefix of a hub's message if none of its clusters can run a Workload. The clusters' answers
/// follow.
pub const NO_CLUSTER: &str = "No worker cluster can run it: ";
/// Prefix of a hub's message while a Workload waits for a cluster. The clusters' answers follow.
pub const WAITS_FOR_CLUSTER: &str = "Waiting for a worker cluster: ";
