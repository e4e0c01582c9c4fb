//! ClusterQueue: a pool of quota, and how workloads compete for it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    AdmissionScope, ClusterAffinity, ClusterQueuePreemption, FairSharing, FairSharingStatus,
    FlavorFungibility, FlavorUsage, OnDisconnect, OnStuck, ResourceGroup,
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
    validation = Rule::new("!has(self.resourceGroups) || self.resourceGroups.map(rg, size(rg.flavors)).sum() <= 256")
        .message("total number of flavors across all resourceGroups must be ≤ 256"),
    validation = Rule::new("!has(self.resourceGroups) || self.resourceGroups.map(rg, size(rg.coveredResources)).sum() <= 256")
        .message("total number of covered resources across all resourceGroups must be ≤ 256"),
    validation = Rule::new("!has(self.resourceGroups) || self.resourceGroups.all(rg, rg.flavors.map(f, size(f.resources)).sum() <= 512)")
        .message("number of flavor-resource combinations in a resourceGroup must be ≤ 512"),
    validation = Rule::new("has(self.concurrentAdmissionPolicy) == has(oldSelf.concurrentAdmissionPolicy) && (!has(self.concurrentAdmissionPolicy) || self.concurrentAdmissionPolicy == oldSelf.concurrentAdmissionPolicy)")
        .message("concurrentAdmissionPolicy: field is immutable"),
    validation = Rule::new("!has(self.onStuck) || duration(self.onStuck.after) >= duration('10s')")
        .message("onStuck.after must be at least 10s: a cluster needs time to start pods")
)]
#[serde(rename_all = "camelCase")]
pub struct ClusterQueueSpec {
    /// Groups of resources with the flavors that provide them. A resource and a flavor belong to
    /// one group only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "atomic"))]
    pub resource_groups: Vec<ResourceGroup>,
    /// The cohort whose unused quota this queue may borrow. A Cohort object of this name need not
    /// exist.
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
    /// Which workloads a workload of this queue may preempt.
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
    /// Whether past usage influences the order of admission.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admission_scope: Option<AdmissionScope>,
    /// Lets a workload try several flavors at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrent_admission_policy: Option<ConcurrentAdmissionPolicy>,
    /// The policy for the queue's jobs if their worker cluster is lost. Takes precedence over the
    /// MultiKueueCluster's policy. A job's annotation takes precedence over this. Not part of
    /// Kueue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_disconnect: Option<OnDisconnect>,
    /// When the hub moves the queue's jobs without a ready pod to another cluster. Absent: never. A
    /// job's annotation takes precedence. Not part of Kueue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_stuck: Option<OnStuck>,
    /// Worker clusters that the queue's jobs need, prefer or must not use. A job's annotation takes
    /// precedence. Not part of Kueue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_affinity: Option<ClusterAffinity>,
}

impl ClusterQueueSpec {
    /// The rules of its admission checks.
    #[must_use]
    pub fn admission_checks(&self) -> &[AdmissionCheckStrategyRule] {
        let strategy = self.admission_checks_strategy.as_ref();
        strategy.map(|strategy| strategy.admission_checks.as_slice()).unwrap_or_default()
    }
}

/// How workloads of equal priority are ordered within a queue.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[schemars(inline)]
pub enum QueueingStrategy {
    /// By time. A workload that does not fit blocks those behind it.
    StrictFIFO,
    /// By time. Workloads behind one that does not fit may pass it.
    #[default]
    BestEffortFIFO,
}

/// The effect of a stopped queue on workloads.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[schemars(inline)]
pub enum StopPolicy {
    /// The queue is active.
    #[default]
    None,
    /// Nothing new is admitted and reservations are released. Admitted workloads run on.
    Hold,
    /// Nothing new is admitted and admitted workloads are evicted.
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

/// The workloads that one check applies to.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[schemars(inline)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionCheckStrategyRule {
    /// The AdmissionCheck.
    #[schemars(schema_with = "schema::admission_check_name")]
    pub name: String,
    /// Only workloads with one of these flavors. All workloads if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::reference_set")]
    pub on_flavors: Vec<String>,
}

/// How a workload that tries several flavors moves between them.
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
    /// Whether it moves.
    pub mode: ConcurrentAdmissionMigrationMode,
    /// Limits of the move.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub constraints: Option<ConcurrentAdmissionConstraints>,
}

/// Whether an admitted workload moves to a better flavor.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[schemars(inline)]
pub enum ConcurrentAdmissionMigrationMode {
    /// It moves if a flavor earlier in the list has room.
    #[default]
    TryPreferredFlavors,
    /// It keeps the flavor of its first admission.
    RetainFirstAdmission,
}

/// Limits of moves between flavors.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[schemars(inline)]
#[serde(rename_all = "camelCase")]
pub struct ConcurrentAdmissionConstraints {
    /// The last flavor in the list that a workload may move to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::reference")]
    pub last_acceptable_flavor_name: Option<String>,
}

/// Usage of the queue.
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
    /// Number of pending workloads.
    #[serde(default)]
    #[schemars(extend("default" = null))]
    pub pending_workloads: i32,
    /// Number of workloads with reserved quota.
    #[serde(default)]
    #[schemars(extend("default" = null))]
    pub reserving_workloads: i32,
    /// Number of admitted, unfinished workloads.
    #[serde(default)]
    #[schemars(extend("default" = null))]
    pub admitted_workloads: i32,
    /// The queue's share. Set only with fair sharing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fair_sharing: Option<FairSharingStatus>,
    /// Written by a DynamicQuotaOrchestrator of Kueue 0.20. Preserved, without effect in
    /// Switchyard.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::kept")]
    pub effective_quotas: Option<serde_json::Value>,
}
