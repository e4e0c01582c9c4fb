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
    /// When the workload fits by borrowing.
    #[serde(default)]
    pub when_can_borrow: FlavorFungibilityPolicy,
    /// When the workload fits by preemption.
    #[serde(default = "try_next_flavor")]
    pub when_can_preempt: FlavorFungibilityPolicy,
    /// Which to prefer when every flavor needs one or the other.
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

/// Whether to stop at a flavor or look at the next.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[schemars(inline)]
pub enum FlavorFungibilityPolicy {
    /// This flavor will do.
    #[default]
    MayStopSearch,
    /// Look at the next flavor first.
    TryNextFlavor,
}

/// Which of borrowing and preemption is the lesser evil.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[schemars(inline)]
pub enum FlavorFungibilityPreference {
    /// Borrow rather than preempt.
    #[default]
    BorrowingOverPreemption,
    /// Preempt rather than borrow.
    PreemptionOverBorrowing,
}

/// Which workloads may be preempted for one of this queue.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[x_kube(
    validation = Rule::new("!(self.reclaimWithinCohort == 'Never' && has(self.borrowWithinCohort) &&  self.borrowWithinCohort.policy != 'Never')")
        .message("reclaimWithinCohort=Never and borrowWithinCohort.Policy!=Never")
)]
#[serde(rename_all = "camelCase")]
pub struct ClusterQueuePreemption {
    /// Workloads of other queues in the cohort that borrow, to get back this queue's nominal quota.
    #[serde(default)]
    pub reclaim_within_cohort: ReclaimWithinCohort,
    /// Workloads of other queues in the cohort, for one that itself borrows.
    #[serde(default)]
    pub borrow_within_cohort: BorrowWithinCohort,
    /// Workloads of this queue.
    #[serde(default)]
    pub within_cluster_queue: WithinClusterQueue,
}

/// Who may be preempted to get nominal quota back.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[schemars(inline)]
pub enum ReclaimWithinCohort {
    /// Nobody.
    #[default]
    Never,
    /// Workloads of lower priority.
    LowerPriority,
    /// Any workload.
    Any,
}

/// Who may be preempted within the queue.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[schemars(inline)]
pub enum WithinClusterQueue {
    /// Nobody.
    #[default]
    Never,
    /// Workloads of lower priority.
    LowerPriority,
    /// Workloads of lower priority, and newer ones of equal priority.
    LowerOrNewerEqualPriority,
}

/// Who may be preempted for a workload that borrows.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[schemars(inline)]
#[serde(rename_all = "camelCase")]
pub struct BorrowWithinCohort {
    /// Whether at all.
    #[serde(default)]
    pub policy: BorrowWithinCohortPolicy,
    /// Only workloads of at most this priority.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_priority_threshold: Option<i32>,
}

/// Whether a workload that borrows may preempt.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[schemars(inline)]
pub enum BorrowWithinCohortPolicy {
    /// It may not.
    #[default]
    Never,
    /// It may preempt workloads of lower priority.
    LowerPriority,
}
