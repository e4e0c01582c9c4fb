//! What the configuration file decides about the engine.

use std::time::Duration;

/// What to do about a requested resource that no resource group covers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub enum QuotaCheckStrategy {
    /// The workload cannot be admitted.
    #[default]
    BlockUndeclared,
    /// The resource is not counted.
    IgnoreUndeclared,
}

/// The engine's settings. They do not change while it lives.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub struct Settings {
    /// About undeclared resources.
    pub quota_check: QuotaCheckStrategy,
    /// How long triggers are gathered before parked workloads are tried again, per tree of cohorts. Zero: at once.
    pub requeue_window: Duration,
    /// Park all workloads of the same shape when one of them cannot be admitted.
    pub equivalence_hashing: bool,
    /// Admit fewer pods than asked where a pod set allows it.
    pub partial_admission: bool,
    /// Share by dominant resource.
    pub fair_sharing: bool,
    /// Admit one workload at a time, once the pods of all admitted ones are ready.
    pub block_admission: bool,
}

/// How an engine preempts, for callers that perform its [`Decision::Preempt`](crate::Decision::Preempt).
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub struct Preemption {
    /// When an earlier entry of the cycle takes some of an entry's victims, look for others at once instead of in the
    /// next cycle (Kueue's `RecomputeAssignmentUponPreemptionTargetsOverlap`: off in 0.19, on from 0.20).
    pub recompute_overlaps: bool,
    /// The rules of preemption by fair shares, in the order they are tried. Only with [`Settings::fair_sharing`].
    pub fair_strategies: Vec<FairStrategy>,
}

/// When a workload of another queue may be preempted by fair shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub enum FairStrategy {
    /// The preemptor's share with the workload is no more than the other's without its victim.
    LessThanOrEqualToFinalShare,
    /// The preemptor's share with the workload is less than the other's is now.
    LessThanInitialShare,
}

impl Default for Preemption {
    fn default() -> Self {
        let fair_strategies = vec![FairStrategy::LessThanOrEqualToFinalShare, FairStrategy::LessThanInitialShare];
        Self { recompute_overlaps: true, fair_strategies }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            quota_check: QuotaCheckStrategy::default(),
            requeue_window: Duration::from_secs(1),
            equivalence_hashing: true,
            partial_admission: true,
            fair_sharing: false,
            block_admission: false,
        }
    }
}
