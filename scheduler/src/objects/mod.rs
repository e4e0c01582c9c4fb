//! API objects, reduced to the fields that decisions depend on.
//!
//! The caller converts the API's objects; this module knows no Kubernetes types.

mod cluster_queue;
mod flavor;
mod local_queue;
mod selector;
mod topology;
mod workload;

pub use cluster_queue::{
    AdmissionCheckRule, AdmissionScope, BorrowWithinCohort, ClusterQueue, Cohort,
    FlavorFungibility, FlavorQuotas, FungibilityPolicy, FungibilityPreference, PreemptionPolicy,
    PreemptionRules, QueueingStrategy, Quota, ResourceGroup, StopPolicy,
};
pub use flavor::{ResourceFlavor, Taint, TaintEffect, Toleration, TolerationOperator};
pub use local_queue::{AdmissionCheck, LocalQueue};
pub use selector::{LabelSelector, NodeSelectorTerm, Operator, Requirement};
pub use topology::{
    AssignedDomain, CapacityLeaf, DelayedTopology, HOSTNAME_LABEL, NonTasPod, SliceLayer, Topology,
    TopologyAssignment, TopologyRequest,
};
pub use workload::{
    Admission, CheckPhase, CheckState, PodSet, PodSetAssignment, PodSetUpdate, Workload,
};
