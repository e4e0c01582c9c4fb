use crate::{Amount, LabelSelector, Name};

/// `spec.queueingStrategy`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub enum QueueingStrategy {
    /// The head blocks the workloads behind it until it fits.
    StrictFIFO,
    /// A head that does not fit is parked, and the next one is tried.
    #[default]
    BestEffortFIFO,
}

/// `spec.stopPolicy`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub enum StopPolicy {
    #[default]
    None,
    /// No new reservations.
    Hold,
    /// No new reservations, and the caller evicts admitted workloads.
    HoldAndDrain,
}

/// The action at a flavor that needs borrowing or preemption.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub enum FungibilityPolicy {
    /// Use this flavor.
    MayStopSearch,
    /// Try the next flavor first.
    TryNextFlavor,
}

/// Which of two flavors is better if both need borrowing or preemption.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub enum FungibilityPreference {
    /// Borrow rather than preempt.
    #[default]
    BorrowingOverPreemption,
    /// Preempt rather than borrow.
    PreemptionOverBorrowing,
}

/// Kueue KEP-582.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub struct FlavorFungibility {
    pub when_can_borrow: FungibilityPolicy,
    pub when_can_preempt: FungibilityPolicy,
    pub preference: FungibilityPreference,
}

impl Default for FlavorFungibility {
    fn default() -> Self {
        Self {
            when_can_borrow: FungibilityPolicy::MayStopSearch,
            when_can_preempt: FungibilityPolicy::TryNextFlavor,
            preference: FungibilityPreference::default(),
        }
    }
}

/// Which workloads may be preempted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub enum PreemptionPolicy {
    #[default]
    Never,
    LowerPriority,
    /// Lower priority, and newer ones of equal priority.
    LowerOrNewerEqualPriority,
    Any,
}

/// `spec.preemption.borrowWithinCohort`. Kueue KEP-1337.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub struct BorrowWithinCohort {
    /// `Never` or `LowerPriority`.
    pub policy: PreemptionPolicy,
    /// The highest priority that may be preempted while borrowing.
    pub max_priority_threshold: Option<i32>,
}

/// `spec.preemption`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub struct PreemptionRules {
    /// Victims in the same ClusterQueue.
    pub within_cluster_queue: PreemptionPolicy,
    /// Victims in ClusterQueues of the cohort that borrow.
    pub reclaim_within_cohort: PreemptionPolicy,
    /// Victims in other ClusterQueues while this one borrows.
    pub borrow_within_cohort: BorrowWithinCohort,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub struct Quota {
    pub nominal: Amount,
    /// `None` is unlimited.
    pub borrowing_limit: Option<Amount>,
    /// `None` lends everything. Kueue KEP-1224.
    pub lending_limit: Option<Amount>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub struct FlavorQuotas {
    pub name: Name,
    pub resources: Vec<(Name, Quota)>,
}

/// Resources whose quota comes from one flavor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub struct ResourceGroup {
    pub covered_resources: Vec<Name>,
    /// In the order of attempts.
    pub flavors: Vec<FlavorQuotas>,
}

/// One entry of `spec.admissionChecksStrategy`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub struct AdmissionCheckRule {
    pub name: Name,
    /// Empty applies to all flavors.
    pub on_flavors: Vec<Name>,
}

/// `spec.admissionScope`. Kueue KEP-4136.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub enum AdmissionScope {
    /// LocalQueues have no order among each other.
    #[default]
    NoAdmissionFairSharing,
    /// The LocalQueue with the least past usage goes first.
    UsageBasedAdmissionFairSharing,
}

/// Build it with struct update syntax from [`ClusterQueue::new`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub struct ClusterQueue {
    pub name: Name,
    /// May name a Cohort without an object.
    pub cohort: Option<Name>,
    pub strategy: QueueingStrategy,
    /// `None` selects no namespace, an empty selector all.
    pub namespace_selector: Option<LabelSelector>,
    pub resource_groups: Vec<ResourceGroup>,
    pub fungibility: FlavorFungibility,
    pub preemption: PreemptionRules,
    pub admission_checks: Vec<AdmissionCheckRule>,
    pub stop_policy: StopPolicy,
    /// In fair sharing, in thousandths.
    pub fair_weight_milli: i64,
    pub admission_scope: AdmissionScope,
    /// Being deleted: admits no more workloads.
    pub deleting: bool,
    /// `lastAcceptableFlavorName`: the last flavor worth a migration of a running variant. Kueue
    /// KEP-8691.
    #[cfg_attr(feature = "record", serde(default))]
    pub last_acceptable: Option<Name>,
}

impl ClusterQueue {
    /// Kueue's defaults, no quota, open to all namespaces.
    pub fn new(name: impl Into<Name>) -> Self {
        Self {
            name: name.into(),
            cohort: None,
            strategy: QueueingStrategy::default(),
            namespace_selector: Some(LabelSelector::default()),
            resource_groups: Vec::new(),
            fungibility: FlavorFungibility::default(),
            preemption: PreemptionRules::default(),
            admission_checks: Vec::new(),
            stop_policy: StopPolicy::None,
            fair_weight_milli: 1000,
            admission_scope: AdmissionScope::default(),
            deleting: false,
            last_acceptable: None,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub struct Cohort {
    pub name: Name,
    pub parent: Option<Name>,
    /// Shared by all nodes below.
    pub resource_groups: Vec<ResourceGroup>,
    /// In fair sharing, in thousandths.
    pub fair_weight_milli: i64,
}

impl Cohort {
    pub fn new(name: impl Into<Name>) -> Self {
        Self {
            name: name.into(),
            parent: None,
            resource_groups: Vec::new(),
            fair_weight_milli: 1000,
        }
    }
}
