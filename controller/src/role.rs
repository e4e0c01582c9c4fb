//! The role of this process among clusters.

/// The role of this process among clusters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Role {
    /// A cluster on its own.
    #[default]
    Single,
    /// Holds global quota. Jobs of dispatching ClusterQueues run on worker clusters.
    Hub,
    /// Holds the local quota of a worker cluster. As [`Self::Single`], and the agent creates jobs.
    Worker,
}
