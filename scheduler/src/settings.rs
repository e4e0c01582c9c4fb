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
    /// What Kueue's feature gates switch.
    #[cfg_attr(feature = "record", serde(default))]
    pub gates: Gates,
    /// Topology-aware scheduling. The caller tells of the leaves of capacity then. Without it flavors with a topology are
    /// like any other.
    #[cfg_attr(feature = "record", serde(default))]
    pub topology: Option<TopologyGates>,
}

/// Kueue's feature gates of topology-aware scheduling, by their names. The defaults are Kueue's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub struct TopologyGates {
    /// `TASProfileMixed`: pods that may be anywhere go where the least is free.
    pub mixed_profile: bool,
    /// `TASFailedNodeReplacementFailFast`: a workload is evicted if there is no replacement at the first try.
    pub fail_fast: bool,
    /// `SkipReassignmentForPodOwnedWorkloads`: a workload that is a single pod keeps its node.
    pub keep_single_pods: bool,
    /// `TASHandleOverlappingFlavors`: flavors of the same hosts see each other's use.
    pub overlapping_flavors: bool,
    /// `TASRecomputeAssignmentWithinSchedulingCycle`: a workload whose places an earlier one of the cycle took is placed anew.
    pub recompute: bool,
    /// `TASBalancedPlacement`: pods with a preferred level are spread evenly over as few domains as can be.
    pub balanced: bool,
    /// `ElasticJobsViaWorkloadSlicesWithTAS`: the pods of an elastic job stay where they are when it changes its size.
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

/// Kueue's feature gates that change what is decided, by their names. The defaults are Kueue's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub struct Gates {
    /// `FlavorFungibility`: a ClusterQueue's `flavorFungibility` counts, and a search goes on where the last one ended. Else the
    /// first flavor that fits is taken, or the first of those that take the least.
    pub flavor_fungibility: bool,
    /// `FlavorFungibilityPreserveScanProgress`: where a search ended is remembered although the workload was overtaken or
    /// changed, and for a cycle although quota changed.
    pub preserve_scan_progress: bool,
    /// `PrioritySortingWithinCohort`: of the heads of a cycle, those of higher priority go first.
    pub priority_sorting: bool,
    /// `FairSharingPreemptWithinNominal`: who stays within its own quota preempts whatever the shares.
    pub preempt_within_nominal: bool,
    /// `FairSharingPrioritizeNonBorrowing`: who does not borrow goes before who has the lower share.
    pub prioritize_non_borrowing: bool,
    /// `PrioritizePreemptorWorkloads`: those for which others were told to go come first.
    pub prioritize_preemptors: bool,
    /// `SchedulerTimestampPreemptionBuffer`: of equal priority, only what is newer by five minutes is preempted.
    pub timestamp_buffer: bool,
    /// `BestEffortFIFOReleaseFailedPreemptors`, a gate of Switchyard's: a preemptor that fails later is no longer the head
    /// of its queue, as in Kueue 0.19.3 (PR 14863). Off, since v0.19.2 decides otherwise.
    #[cfg_attr(feature = "record", serde(default))]
    pub release_failed_preemptors: bool,
    /// `AdmissionFairSharingAnchorAtQuotaReservation`, of Kueue 0.20: quota that is reserved counts as use of its
    /// LocalQueue, not only that of admitted workloads. Off, since v0.19.2 decides otherwise.
    #[cfg_attr(feature = "record", serde(default))]
    pub use_counts_from_reservation: bool,
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

impl Default for Gates {
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
            use_counts_from_reservation: false,
        }
    }
}

impl Default for Preemption {
    fn default() -> Self {
        let fair_strategies =
            vec![FairStrategy::LessThanOrEqualToFinalShare, FairStrategy::LessThanInitialShare];
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
            gates: Gates::default(),
            topology: None,
        }
    }
}
