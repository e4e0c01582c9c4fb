//! Small numbers that stand for objects within one engine. A number is reused once its object is
//! gone.

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct WorkloadId(pub(crate) u32);

/// A LocalQueue that exists, or that a workload names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct LocalQueueId(pub(crate) u32);

impl LocalQueueId {
    /// No id orders before this one.
    pub(crate) const FIRST: Self = Self(0);
}

/// A node of the quota tree: a ClusterQueue or a Cohort.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct NodeId(pub(crate) u32);

/// A class of equivalent workloads. Never reused, so that a remembered id always means the same
/// class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct ClassId(pub(crate) u64);
