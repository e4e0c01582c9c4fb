//! The parts of the configuration that change decisions.

use std::time::Duration;

/// `resources.quotaCheckStrategy`: requested resources that no resource group covers. Kueue
/// KEP-7513.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub enum QuotaCheckStrategy {
    /// The workload cannot be admitted.
    #[default]
    BlockUndeclared,
    /// The engine ignores the resource.
    IgnoreUndeclared,
}

/// Fixed for the lifetime of an engine.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub struct EngineSettings {
    pub quota_check: QuotaCheckStrategy,
    /// How long the engine collects triggers of one cohort tree before it retries parked workloads.
    /// Zero retries at once.
    pub requeue_window: Duration,
    /// Park all workloads of a class when one of them cannot be admitted.
    pub equivalence_hashing: bool,
    /// Admit fewer pods than requested where a pod set has `minCount`.
    pub partial_admission: bool,
    /// Share quota by dominant resource share.
    pub fair_sharing: bool,
    /// `waitForPodsReady.blockAdmission`: admit one workload at a time, after the pods of all
    /// admitted ones are ready.
    pub block_admission: bool,
    #[cfg_attr(feature = "record", serde(default))]
    pub gates: EngineGates,
    /// Topology-aware scheduling. If set, the caller reports capacity leaves. If unset, the engine
    /// treats a flavor with a topology like any other.
    #[cfg_attr(feature = "record", serde(default))]
    pub topology: Option<TopologyGates>,
}

/// Kueue's feature gates of topology-aware scheduling. The defaults are Kueue's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub struct TopologyGates {
    /// `TASProfileMixed`: unconstrained pods go to the domains with the least free capacity.
    pub mixed_profile: bool,
    /// `TASFailedNodeReplacementFailFast`: evict the workload if the first attempt finds no
    /// replacement node.
    pub fail_fast: bool,
    /// `SkipReassignmentForPodOwnedWorkloads`: a workload owned by a single pod keeps its node.
    pub keep_single_pods: bool,
    /// `TASHandleOverlappingFlavors`: flavors of the same hosts see each other's usage.
    pub overlapping_flavors: bool,
    /// `TASRecomputeAssignmentWithinSchedulingCycle`: place a workload again if an earlier entry of
    /// the cycle took its domains.
    pub recompute: bool,
    /// `TASBalancedPlacement`: for a preferred level, spread pods evenly over the fewest domains.
    pub balanced: bool,
    /// `ElasticJobsViaWorkloadSlicesWithTAS`: running pods of an elastic job stay in place when the
    /// job changes size.
    pub elastic: bool,
}

impl Default for TopologyGates {
    fn default() -> Self {
        Self {
            mixed_profile: true,
            fail_fast: true,
            keep_single_pods: true,
            overlapping_flavors: true,
            recompute: true,
            balanced: false,
            elastic: false,
        }
    }
}

/// Kueue's feature gates that change decisions. The defaults are Kueue's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub struct EngineGates {
    /// `FlavorFungibility`: use a ClusterQueue's `flavorFungibility` and resume a search where the
    /// last one ended. If off, take the first flavor that fits, else the first of the best ones.
    pub flavor_fungibility: bool,
    /// `FlavorFungibilityPreserveScanProgress`: keep the position of a search although the workload
    /// was overtaken or changed, and for one cycle although quota changed.
    pub preserve_scan_progress: bool,
    /// `PrioritySortingWithinCohort`: heads of higher priority go first within a cycle.
    pub priority_sorting: bool,
    /// `FairSharingPreemptWithinNominal`: a queue within its nominal quota preempts without a
    /// comparison of shares.
    pub preempt_within_nominal: bool,
    /// `FairSharingPrioritizeNonBorrowing`: an entry that does not borrow goes before entries of
    /// lower share.
    pub prioritize_non_borrowing: bool,
    /// `PrioritizePreemptorWorkloads`: workloads with issued preemptions go first.
    pub prioritize_preemptors: bool,
    /// `SchedulerTimestampPreemptionBuffer`: at equal priority, preempt only workloads that are
    /// newer by five minutes.
    pub timestamp_buffer: bool,
    /// `BestEffortFIFOReleaseFailedPreemptors`, Switchyard's own gate: a preemptor that fails later
    /// stops being the head of its queue, as in Kueue 0.19.3 (PR 14863). Off by default, because
    /// v0.19.2 decides otherwise.
    #[cfg_attr(feature = "record", serde(default))]
    pub release_failed_preemptors: bool,
    /// `AdmitIntoReleasedQuotaOnly`, Switchyard's own gate: the quota of a victim is free once its
    /// eviction has ended, and not from the cycle that preempts it. Off by default, because v0.19.2
    /// decides otherwise.
    #[cfg_attr(feature = "record", serde(default, skip_serializing_if = "std::ops::Not::not"))]
    pub released_quota_only: bool,
    /// `AdmissionFairSharingAnchorAtQuotaReservation` of Kueue 0.20: reserved quota counts as usage
    /// of its LocalQueue, not only the quota of admitted workloads. Off by default, because v0.19.2
    /// decides otherwise.
    #[cfg_attr(feature = "record", serde(default))]
    #[cfg_attr(feature = "record", serde(rename = "use_counts_from_reservation"))]
    pub usage_from_reservation: bool,
}

/// For callers that perform [`Decision::Preempt`](crate::Decision::Preempt).
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub struct PreemptionSettings {
    /// If an earlier entry of the cycle took some of an entry's victims, search for others at once
    /// instead of in the next cycle. Kueue's gate
    /// `RecomputeAssignmentUponPreemptionTargetsOverlap`: off in 0.19, on from 0.20.
    pub recompute_overlaps: bool,
    /// In the order of attempts. Needs [`EngineSettings::fair_sharing`].
    pub fair_strategies: Vec<FairStrategy>,
}

/// `fairSharing.preemptionStrategies`: when a workload of another queue may be preempted. Kueue:
/// `pkg/scheduler/preemption/fairsharing/strategy.go`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub enum FairStrategy {
    /// The preemptor's share, with the workload, is at most the other queue's share without the
    /// victim.
    LessThanOrEqualToFinalShare,
    /// The preemptor's share, with the workload, is below the other queue's present share.
    LessThanInitialShare,
}

impl Default for EngineGates {
    fn default() -> Self {
        Self {
            flavor_fungibility: true,
            preserve_scan_progress: true,
            priority_sorting: true,
            preempt_within_nominal: true,
            prioritize_non_borrowing: true,
            prioritize_preemptors: false,
            timestamp_buffer: false,
            release_failed_preemptors: false,
            released_quota_only: false,
            usage_from_reservation: false,
        }
    }
}

impl Default for PreemptionSettings {
    fn default() -> Self {
        let fair_strategies =
            vec![FairStrategy::LessThanOrEqualToFinalShare, FairStrategy::LessThanInitialShare];
        Self { recompute_overlaps: true, fair_strategies }
    }
}

impl Default for EngineSettings {
    fn default() -> Self {
        Self {
            quota_check: QuotaCheckStrategy::default(),
            requeue_window: Duration::from_secs(1),
            equivalence_hashing: true,
            partial_admission: true,
            fair_sharing: false,
            block_admission: false,
            gates: EngineGates::default(),
            topology: None,
        }
    }
}
