//! How a ClusterQueue chooses between flavors, borrowing and preemption.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Whether to try the next flavor before borrowing or preempting in this one.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[x_kube(
    validation = Rule::new("!has(self.preference) || (self.whenCanBorrow == 'TryNextFlavor' && self.whenCanPreempt == 'TryNextFlavor')")
        .message("preference can only be set when both whenCanBorrow and whenCanPreempt are TryNextFlavor")
)]
#[serde(rename_all = "camelCase")]
pub struct FlavorFungibility {
    /// If the workload fits by borrowing.
    #[serde(default)]
    pub when_can_borrow: FlavorFungibilityPolicy,
    /// If the workload fits by preemption.
    #[serde(default = "try_next_flavor")]
    pub when_can_preempt: FlavorFungibilityPolicy,
    /// Which to prefer if every flavor needs borrowing or preemption.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preference: Option<FlavorFungibilityPreference>,
}

impl Default for FlavorFungibility {
    fn default() -> Self {
        Self {
            when_can_borrow: FlavorFungibilityPolicy::MayStopSearch,
            when_can_preempt: try_next_flavor(),
            preference: None,
        }
    }
}

fn try_next_flavor() -> FlavorFungibilityPolicy {
    FlavorFungibilityPolicy::TryNextFlavor
}

/// Whether to stop at a flavor or try the next.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[schemars(inline)]
pub enum FlavorFungibilityPolicy {
    /// Use this flavor.
    #[default]
    MayStopSearch,
    /// Try the next flavor first.
    TryNextFlavor,
}

/// Whether borrowing or preemption is preferred.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[schemars(inline)]
pub enum FlavorFungibilityPreference {
    /// Prefer borrowing.
    #[default]
    BorrowingOverPreemption,
    /// Prefer preemption.
    PreemptionOverBorrowing,
}

/// Which workloads a workload of this queue may preempt.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[x_kube(
    validation = Rule::new("!(self.reclaimWithinCohort == 'Never' && has(self.borrowWithinCohort) &&  self.borrowWithinCohort.policy != 'Never')")
        .message("reclaimWithinCohort=Never and borrowWithinCohort.Policy!=Never")
)]
#[serde(rename_all = "camelCase")]
pub struct ClusterQueuePreemption {
    /// Borrowing workloads of other queues in the cohort, to reclaim this queue's nominal quota.
    #[serde(default)]
    pub reclaim_within_cohort: ReclaimWithinCohort,
    /// Workloads of other queues in the cohort, for a workload that itself borrows.
    #[serde(default)]
    pub borrow_within_cohort: BorrowWithinCohort,
    /// Workloads of this queue.
    #[serde(default)]
    pub within_cluster_queue: WithinClusterQueue,
}

/// Which workloads may be preempted to reclaim nominal quota.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[schemars(inline)]
pub enum ReclaimWithinCohort {
    /// None.
    #[default]
    Never,
    /// Workloads of lower priority.
    LowerPriority,
    /// Any workload.
    Any,
}

/// Which workloads may be preempted within the queue.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[schemars(inline)]
pub enum WithinClusterQueue {
    /// None.
    #[default]
    Never,
    /// Workloads of lower priority.
    LowerPriority,
    /// Workloads of lower priority, and newer ones of equal priority.
    LowerOrNewerEqualPriority,
}

/// Which workloads a borrowing workload may preempt.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[schemars(inline)]
#[serde(rename_all = "camelCase")]
pub struct BorrowWithinCohort {
    /// Whether a borrowing workload may preempt.
    #[serde(default)]
    pub policy: BorrowWithinCohortPolicy,
    /// Only workloads of at most this priority.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_priority_threshold: Option<i32>,
}

/// Whether a borrowing workload may preempt.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[schemars(inline)]
pub enum BorrowWithinCohortPolicy {
    /// No.
    #[default]
    Never,
    /// Yes, workloads of lower priority.
    LowerPriority,
}
