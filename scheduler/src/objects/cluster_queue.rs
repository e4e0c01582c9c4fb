//! ClusterQueues and Cohorts.

use crate::{Amount, LabelSelector, Name};

/// In which order a ClusterQueue gives its quota.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub enum QueueingStrategy {
    /// The head blocks all behind it until it fits.
    StrictFIFO,
    /// A head that does not fit is parked and the next one is tried.
    #[default]
    BestEffortFIFO,
}

/// Whether a queue is stopped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub enum StopPolicy {
    /// Not stopped.
    #[default]
    None,
    /// No new reservations.
    Hold,
    /// No new reservations, and admitted workloads are evicted (by the caller).
    HoldAndDrain,
}

/// What to do at a flavor that would need borrowing or preemption.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub enum FungibilityPolicy {
    /// Stop here and take it.
    MayStopSearch,
    /// Look at the next flavor first.
    TryNextFlavor,
}

/// Which of two flavors is better when neither simply fits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub enum FungibilityPreference {
    /// Borrow rather than preempt.
    #[default]
    BorrowingOverPreemption,
    /// Preempt rather than borrow.
    PreemptionOverBorrowing,
}

/// `spec.flavorFungibility`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub struct FlavorFungibility {
    /// At a flavor that fits only by borrowing.
    pub when_can_borrow: FungibilityPolicy,
    /// At a flavor that fits only by preempting.
    pub when_can_preempt: FungibilityPolicy,
    /// The better of two such flavors.
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

/// Whose workloads may be preempted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub enum PreemptionPolicy {
    /// Nobody's.
    #[default]
    Never,
    /// Those of lower priority.
    LowerPriority,
    /// Those of lower priority, and newer ones of the same.
    LowerOrNewerEqualPriority,
    /// Everybody's.
    Any,
}

/// `spec.preemption.borrowWithinCohort`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub struct BorrowWithinCohort {
    /// `Never` or `LowerPriority`.
    pub policy: PreemptionPolicy,
    /// Only workloads up to this priority may be preempted while borrowing.
    pub max_priority_threshold: Option<i32>,
}

/// `spec.preemption`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub struct PreemptionRules {
    /// In the same ClusterQueue.
    pub within_cluster_queue: PreemptionPolicy,
    /// In other ClusterQueues of the cohort that borrow.
    pub reclaim_within_cohort: PreemptionPolicy,
    /// In other ClusterQueues while this one borrows.
    pub borrow_within_cohort: BorrowWithinCohort,
}

/// The quota of one resource on one flavor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub struct Quota {
    /// What belongs to the queue (or to the cohort's subtree).
    pub nominal: Amount,
    /// How much more may be taken from the parent; `None` is unlimited.
    pub borrowing_limit: Option<Amount>,
    /// How much of the own may be lent to the parent; `None` is all.
    pub lending_limit: Option<Amount>,
}

/// One flavor of a resource group with its quotas.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub struct FlavorQuotas {
    /// The ResourceFlavor's name.
    pub name: Name,
    /// Quota by resource.
    pub resources: Vec<(Name, Quota)>,
}

/// Resources that are always taken from the same flavor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub struct ResourceGroup {
    /// The resources.
    pub covered_resources: Vec<Name>,
    /// The flavors, in the order they are tried.
    pub flavors: Vec<FlavorQuotas>,
}

/// One entry of `spec.admissionChecksStrategy`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub struct AdmissionCheckRule {
    /// The AdmissionCheck's name.
    pub name: Name,
    /// The flavors it applies to; empty is all.
    pub on_flavors: Vec<Name>,
}

/// `spec.admissionScope`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub enum AdmissionScope {
    /// LocalQueues are not weighed against each other.
    #[default]
    NoAdmissionFairSharing,
    /// The LocalQueue with the least recent use goes first.
    UsageBasedAdmissionFairSharing,
}

/// A queue with quota. Build it with struct update syntax from [`ClusterQueue::new`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub struct ClusterQueue {
    /// Its name.
    pub name: Name,
    /// The Cohort it borrows from, with or without an object of that name.
    pub cohort: Option<Name>,
    /// The order.
    pub strategy: QueueingStrategy,
    /// Namespaces whose workloads may use it; `None` is no namespace, an empty selector every namespace.
    pub namespace_selector: Option<LabelSelector>,
    /// The quota.
    pub resource_groups: Vec<ResourceGroup>,
    /// At flavors that need borrowing or preemption.
    pub fungibility: FlavorFungibility,
    /// Whom it may preempt.
    pub preemption: PreemptionRules,
    /// The checks after quota is reserved.
    pub admission_checks: Vec<AdmissionCheckRule>,
    /// Whether it is stopped.
    pub stop_policy: StopPolicy,
    /// Its weight in fair sharing, in thousandths.
    pub fair_weight_milli: i64,
    /// Whether its LocalQueues are weighed.
    pub admission_scope: AdmissionScope,
    /// It is being deleted: it admits nothing more.
    pub deleting: bool,
    /// The last flavor that is worth moving a running workload to, from one variant of it to another.
    #[cfg_attr(feature = "record", serde(default))]
    pub last_acceptable: Option<Name>,
}

impl ClusterQueue {
    /// A ClusterQueue with Kueue's defaults and no quota, open to every namespace.
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

/// A node of the quota tree above ClusterQueues.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub struct Cohort {
    /// Its name.
    pub name: Name,
    /// The Cohort above.
    pub parent: Option<Name>,
    /// Quota shared by everything below.
    pub resource_groups: Vec<ResourceGroup>,
    /// Its weight in fair sharing, in thousandths.
    pub fair_weight_milli: i64,
}

impl Cohort {
    /// A Cohort without parent and without quota of its own.
    pub fn new(name: impl Into<Name>) -> Self {
        Self {
            name: name.into(),
            parent: None,
            resource_groups: Vec::new(),
            fair_weight_milli: 1000,
        }
    }
}
