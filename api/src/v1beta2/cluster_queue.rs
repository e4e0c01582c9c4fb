//! ClusterQueue: a pool of quota, and how workloads compete for it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    AdmissionScope, ClusterAffinity, ClusterQueuePreemption, FairSharing, FairSharingStatus,
    FlavorFungibility, FlavorUsage, OnDisconnect, ResourceGroup,
};
use crate::schema;

/// The quota and the rules of one queue.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "kueue.x-k8s.io",
    version = "v1beta2",
    kind = "ClusterQueue",
    doc = "ClusterQueue is a pool of quota that workloads from several namespaces share.",
    status = "ClusterQueueStatus",
    shortname = "cq",
    derive = "PartialEq",
    derive = "Default",
    printcolumn(
        name = "Cohort",
        type_ = "string",
        json_path = ".spec.cohortName",
        description = "Cohort of this ClusterQueue"
    ),
    printcolumn(
        name = "Strategy",
        type_ = "string",
        json_path = ".spec.queueingStrategy",
        priority = 1,
        description = "How workloads are ordered"
    ),
    printcolumn(
        name = "Pending Workloads",
        type_ = "integer",
        json_path = ".status.pendingWorkloads",
        description = "Workloads that wait"
    ),
    printcolumn(
        name = "Admitted Workloads",
        type_ = "integer",
        json_path = ".status.admittedWorkloads",
        priority = 1,
        description = "Admitted workloads that have not finished"
    )
)]
#[x_kube(
    validation = Rule::new("!has(self.cohortName) && has(self.resourceGroups) ? self.resourceGroups.all(rg, rg.flavors.all(f, f.resources.all(r, !has(r.borrowingLimit)))) : true")
        .message("borrowingLimit must be nil when cohort is empty"),
    validation = Rule::new("!has(self.cohortName) && has(self.resourceGroups) ? self.resourceGroups.all(rg, rg.flavors.all(f, f.resources.all(r, !has(r.lendingLimit)))) : true")
        .message("lendingLimit must be nil when cohort is empty"),
    validation = Rule::new("!has(self.resourceGroups) || self.resourceGroups.all(rg, rg.flavors.all(f, f.resources.all(r, !has(r.lendingLimit) || quantity(string(r.lendingLimit)).compareTo(quantity(string(r.nominalQuota))) <= 0)))")
        .message("lendingLimit must be less than or equal to the nominalQuota"),
    validation = Rule::new("!has(self.resourceGroups) || self.resourceGroups.map(rg, size(rg.flavors)).sum() <= 256")
        .message("total number of flavors across all resourceGroups must be ≤ 256"),
    validation = Rule::new("!has(self.resourceGroups) || self.resourceGroups.map(rg, size(rg.coveredResources)).sum() <= 256")
        .message("total number of covered resources across all resourceGroups must be ≤ 256"),
    validation = Rule::new("!has(self.resourceGroups) || self.resourceGroups.all(rg, rg.flavors.map(f, size(f.resources)).sum() <= 512)")
        .message("number of flavor-resource combinations in a resourceGroup must be ≤ 512"),
    validation = Rule::new("has(self.concurrentAdmissionPolicy) == has(oldSelf.concurrentAdmissionPolicy) && (!has(self.concurrentAdmissionPolicy) || self.concurrentAdmissionPolicy == oldSelf.concurrentAdmissionPolicy)")
        .message("concurrentAdmissionPolicy: field is immutable")
)]
#[serde(rename_all = "camelCase")]
pub struct ClusterQueueSpec {
    /// Groups of resources with the flavors that provide them. A resource and a flavor belong to one group only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "atomic"))]
    pub resource_groups: Vec<ResourceGroup>,
    /// The cohort whose unused quota this queue may borrow. It may name a Cohort object or nothing but itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::reference")]
    pub cohort_name: Option<String>,
    /// How workloads of equal priority are ordered.
    #[serde(default)]
    pub queueing_strategy: QueueingStrategy,
    /// Which namespaces may submit. Absent means none, `{}` means all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::label_selector")]
    pub namespace_selector: Option<LabelSelector>,
    /// Whether to try the next flavor before borrowing or preempting in this one.
    #[serde(default)]
    pub flavor_fungibility: FlavorFungibility,
    /// Which workloads may be preempted for one of this queue.
    #[serde(default)]
    pub preemption: ClusterQueuePreemption,
    /// The admission checks that workloads of this queue must pass.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admission_checks_strategy: Option<AdmissionChecksStrategy>,
    /// Whether the queue is stopped.
    #[serde(default)]
    pub stop_policy: StopPolicy,
    /// The queue's weight in fair sharing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fair_sharing: Option<FairSharing>,
    /// Whether past use counts in the order of admission.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admission_scope: Option<AdmissionScope>,
    /// Lets a workload try for several flavors at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrent_admission_policy: Option<ConcurrentAdmissionPolicy>,
    /// What happens to the queue's jobs when their worker cluster is lost; goes before the MultiKueueCluster's, and behind
    /// a workload's own annotation. Not part of Kueue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_disconnect: Option<OnDisconnect>,
    /// Worker clusters that the queue's jobs need, prefer or must not use. An annotation of a job goes before it. Not part of Kueue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_affinity: Option<ClusterAffinity>,
}

/// How workloads of equal priority are ordered within a queue.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[schemars(inline)]
pub enum QueueingStrategy {
    /// By time; one that does not fit holds up those behind it.
    StrictFIFO,
    /// By time; those behind one that does not fit may pass it.
    #[default]
    BestEffortFIFO,
}

/// What happens to workloads when a queue is stopped.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[schemars(inline)]
pub enum StopPolicy {
    /// The queue works.
    #[default]
    None,
    /// Nothing new is admitted and reservations are given back; what is admitted runs on.
    Hold,
    /// Nothing new is admitted and what is admitted is evicted.
    HoldAndDrain,
}

/// The admission checks of a queue.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[schemars(inline)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionChecksStrategy {
    /// One rule for each check.
    #[schemars(
        length(min = 1, max = 64),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    pub admission_checks: Vec<AdmissionCheckStrategyRule>,
}

/// Which workloads one check applies to.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[schemars(inline)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionCheckStrategyRule {
    /// The AdmissionCheck.
    #[schemars(schema_with = "schema::admission_check_name")]
    pub name: String,
    /// Only workloads that get one of these flavors; all of them when empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::reference_set")]
    pub on_flavors: Vec<String>,
}

/// How a workload that tries for several flavors moves between them.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[schemars(inline)]
#[serde(rename_all = "camelCase")]
pub struct ConcurrentAdmissionPolicy {
    /// When an admitted workload may move to a better flavor.
    pub migration: ConcurrentAdmissionMigration,
}

/// When an admitted workload may move to a better flavor.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[schemars(inline)]
#[serde(rename_all = "camelCase")]
pub struct ConcurrentAdmissionMigration {
    /// Whether it moves at all.
    pub mode: ConcurrentAdmissionMigrationMode,
    /// Bounds on the move.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub constraints: Option<ConcurrentAdmissionConstraints>,
}

/// Whether an admitted workload moves to a better flavor.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[schemars(inline)]
pub enum ConcurrentAdmissionMigrationMode {
    /// It moves when one earlier in the list has room.
    #[default]
    TryPreferredFlavors,
    /// It stays where it was admitted first.
    RetainFirstAdmission,
}

/// Bounds on moving between flavors.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[schemars(inline)]
#[serde(rename_all = "camelCase")]
pub struct ConcurrentAdmissionConstraints {
    /// The last flavor in the list that is worth moving to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::reference")]
    pub last_acceptable_flavor_name: Option<String>,
}

/// What the queue holds.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[schemars(inline)]
#[serde(rename_all = "camelCase")]
pub struct ClusterQueueStatus {
    /// `Active` and others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
    /// Quota reserved, by flavor.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub flavors_reservation: Vec<FlavorUsage>,
    /// Quota of admitted workloads, by flavor.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub flavors_usage: Vec<FlavorUsage>,
    /// How many workloads wait.
    #[serde(default)]
    #[schemars(extend("default" = null))]
    pub pending_workloads: i32,
    /// How many workloads hold quota.
    #[serde(default)]
    #[schemars(extend("default" = null))]
    pub reserving_workloads: i32,
    /// How many workloads are admitted and not finished.
    #[serde(default)]
    #[schemars(extend("default" = null))]
    pub admitted_workloads: i32,
    /// The queue's share; only with fair sharing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fair_sharing: Option<FairSharingStatus>,
    /// Written by a DynamicQuotaOrchestrator of Kueue 0.20. Kept, and without effect here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::kept")]
    pub effective_quotas: Option<serde_json::Value>,
}
