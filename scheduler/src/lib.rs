//! The quota engine: reserves quota for workloads and says why the others wait.
//!
//! The crate is pure, synchronous and deterministic. Events and the time come in through
//! [`Engine::apply`] and [`Engine::cycle`]; decisions come out. The same events give the same
//! decisions in every run. The crate has no clock and no client.

mod afs;
mod amount;
mod cluster_queue;
mod decision;
mod engine;
mod event;
mod explain;
#[cfg(test)]
mod fixtures;
mod flavor_resource;
mod flavor_scan;
mod flavors;
mod ids;
mod names;
mod objects;
mod preemption;
mod preemption_order;
mod queue;
mod reason;
#[cfg(feature = "record")]
pub mod record;
mod referenced;
#[cfg(feature = "record")]
mod serde_forms;
mod settings;
mod time;
mod topology;
mod tree;
mod views;
mod workloads;

pub use afs::{AdmissionFairSharing, PastUsage};
pub use amount::Amount;
pub use decision::{Cycle, Decision, PodSetRequests};
pub use engine::Engine;
pub use event::{Event, RefusedReason};
pub use explain::{
    Explanation, FlavorOutlook, NonCandidates, Obstacle, Outlook, PodSetOutlook, PreemptionOutlook,
    QueueHead, QueuePosition, QuotaBound, ReservedQuota, ResourceOutlook, Verdict, Victim,
    WithheldQuota,
};
pub use names::{LocalQueueKey, Name, WorkloadKey};
pub use objects::{
    Admission, AdmissionCheck, AdmissionCheckRule, AdmissionScope, AssignedDomain,
    BorrowWithinCohort, CapacityLeaf, CheckPhase, CheckState, ClusterQueue, Cohort,
    DelayedTopology, FlavorFungibility, FlavorQuotas, FungibilityPolicy, FungibilityPreference,
    HOSTNAME_LABEL, LabelSelector, LocalQueue, NodeSelectorTerm, NonTasPod, Operator, PodSet,
    PodSetAssignment, PodSetUpdate, PreemptionPolicy, PreemptionRules, QueueingStrategy, Quota,
    Requirement, ResourceFlavor, ResourceGroup, SliceLayer, StopPolicy, Taint, TaintEffect,
    Toleration, TolerationOperator, Topology, TopologyAssignment, TopologyRequest, Workload,
};
pub use reason::{
    Cause, NO_QUEUE, NoFitKind, PinQueue, PodSetReason, Reason, not_the_pinned_flavor,
};
pub use settings::{
    EngineGates, EngineSettings, FairStrategy, PreemptionSettings, QuotaCheckStrategy,
    TopologyGates,
};
pub use time::Time;
pub use topology::{
    BestDomain, DomainAmounts, DomainView, EncodedSlice, EncodedSlices, ExcludedLeaves,
    LargestFreeDomain, LayerCapacity, LeafObstacle, LevelValues, ObstructedLeaves, Occupant,
    PlacementFailure, PlacementOutlook, PodCounts, Strictness, TopologyView, encode,
};
pub use views::{
    ChangedQueues, ClusterQueueView, CohortView, InactiveCause, LocalQueueView, PendingEntry,
    PendingReason, ResourceQuota, ResourceUsage, SubtreeQuota,
};
