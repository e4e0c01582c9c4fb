//! The quota engine: which workload gets which quota, and why another does not.
//!
//! Pure, synchronous and deterministic: events and the time come in through [`Engine::apply`] and
//! [`Engine::cycle`], decisions come out, and the same events give the same decisions in every run. Nothing here
//! reads a clock, holds a client or awaits.

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
mod flavors;
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

pub use afs::{AdmissionFairSharing, PastUse};
pub use amount::Amount;
pub use decision::{Cycle, Decision, PodSetRequests};
pub use engine::Engine;
pub use event::{Event, RefusedReason};
pub use explain::{
    Bound, Explanation, FlavorOutlook, Head, Held, Kept, Obstacle, Outlook, Place, PodSetOutlook,
    PreemptionOutlook, Refusal, ResourceOutlook, Verdict, Victim,
};
pub use names::{LocalQueueKey, Name, WorkloadKey};
pub use objects::{
    Admission, AdmissionCheck, AdmissionCheckRule, AdmissionScope, AssignedDomain,
    BorrowWithinCohort, CapacityLeaf, CheckPhase, CheckState, ClusterQueue, Cohort,
    DelayedTopology, FlavorFungibility, FlavorQuotas, FungibilityPolicy, FungibilityPreference,
    HOSTNAME_LABEL, LabelSelector, LocalQueue, NodeSelectorTerm, Operator, OutsidePod, PodSet,
    PodSetAssignment, PodSetUpdate, PreemptionPolicy, PreemptionRules, QueueingStrategy, Quota,
    Requirement, ResourceFlavor, ResourceGroup, SliceLayer, StopPolicy, Taint, TaintEffect,
    Toleration, TolerationOperator, Topology, TopologyAssignment, TopologyRequest, Workload,
};
pub use reason::{Cause, NO_QUEUE, NoFitKind, PodSetReason, Reason};
pub use settings::{FairStrategy, Gates, Preemption, QuotaCheckStrategy, Settings, TopologyGates};
pub use time::Time;
pub use topology::{
    Encoded, EncodedSlice, Excluded, Failure, LayerRoom, PodCounts, Values, encode,
};
pub use views::{
    Changed, ClusterQueueView, CohortView, Inactive, LocalQueueView, PendingEntry, ResourceQuota,
    ResourceUsage, SubtreeQuota, Why,
};
