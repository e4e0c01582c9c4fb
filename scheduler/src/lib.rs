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
mod flavors;
mod holders;
mod intern;
mod names;
mod objects;
mod preemption;
mod queue;
mod reason;
#[cfg(feature = "record")]
pub mod record;
mod settings;
mod status;
mod time;
mod tree;
mod views;
mod workloads;

pub use afs::{AdmissionFairSharing, PastUse};
pub use amount::Amount;
pub use decision::{Cycle, Decision, PodSetRequests};
pub use engine::Engine;
pub use event::{Event, RefusedReason};
pub use explain::{
    Bound, Explanation, FlavorOutlook, Head, Held, Kept, Obstacle, Outlook, Place, PodSetOutlook, PreemptionOutlook,
    Refusal, ResourceOutlook, Verdict, Victim,
};
pub use names::{LocalQueueKey, Name, WorkloadKey};
pub use objects::{
    Admission, AdmissionCheck, AdmissionCheckRule, AdmissionScope, BorrowWithinCohort, CheckPhase, CheckState,
    ClusterQueue, Cohort, FlavorFungibility, FlavorQuotas, FungibilityPolicy, FungibilityPreference, LabelSelector,
    LocalQueue, NodeSelectorTerm, Operator, PodSet, PodSetAssignment, PreemptionPolicy, PreemptionRules,
    QueueingStrategy, Quota, Requirement, ResourceFlavor, ResourceGroup, StopPolicy, Taint, TaintEffect, Toleration,
    TolerationOperator, Workload,
};
pub use reason::{Cause, NoFitKind, PodSetReason, Reason};
pub use settings::{FairStrategy, Gates, Preemption, QuotaCheckStrategy, Settings};
pub use time::Time;
pub use views::{
    Changed, ClusterQueueView, CohortView, Inactive, LocalQueueView, PendingEntry, ResourceQuota, ResourceUsage,
    SubtreeQuota, Why,
};
