//! Configuration of a worker cluster, and the policy for a disconnect.

use std::collections::BTreeMap;

use super::Name;

/// Policy for the workloads of a disconnected cluster: `onDisconnect`. Times are in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum LossPolicy {
    /// The workloads stay until the cluster returns or is declared lost.
    #[default]
    Hold,
    /// The agent stops the workloads when its lease has been over for `after`. Then they start
    /// elsewhere.
    Fence {
        /// Counted from the end of the lease.
        after: i64,
    },
    /// The workloads start elsewhere and may run twice until the cluster returns.
    Duplicate {
        /// Counted from the disconnect.
        after: i64,
    },
    /// The workloads start elsewhere after `multiKueue.workerLostTimeout`, as in Kueue.
    GiveUp,
}

impl LossPolicy {
    /// How long after the end of its lease the agent stops the job.
    pub fn fence(self) -> Option<i64> {
        match self {
            Self::Fence { after } => Some(after),
            Self::Hold | Self::Duplicate { .. } | Self::GiveUp => None,
        }
    }
}

/// Configuration of a cluster: the MultiKueueCluster's spec, labels and annotations.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClusterConfig {
    pub on_disconnect: LossPolicy,
    /// The cluster has no agent, so nothing can stop its jobs while it is disconnected.
    pub unfenced: bool,
    /// An administrator declared that the cluster will not return from the current disconnect.
    pub declared_lost: bool,
    /// The cluster gets no new workloads.
    pub cordoned: bool,
    /// The dispatcher moves its workloads to other clusters.
    pub draining: bool,
    /// Changes when an administrator releases the circuit breaker.
    pub release: Option<Name>,
    /// Labels of the MultiKueueCluster, which cluster selectors match.
    pub labels: BTreeMap<String, String>,
    /// The dispatcher prefers the lower cost.
    pub cost: i32,
}

impl ClusterConfig {
    /// Whether it accepts workloads that the earlier configuration excluded.
    pub(super) fn takes_more_than(&self, earlier: &Self) -> bool {
        (earlier.cordoned && !self.cordoned) || (earlier.draining && !self.draining)
    }
}
