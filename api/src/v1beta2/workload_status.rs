//! The status of a workload: all decisions about it.

use k8s_openapi::apimachinery::pkg::{
    api::resource::Quantity,
    apis::meta::v1::{Condition, Time},
};
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{AdmissionCheckState, PreemptionGateState, TopologyAssignment, workload::main};
use crate::{SmallMap, schema};

/// All decisions about a workload.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[x_kube(
    validation = Rule::new("!has(oldSelf.clusterName) || !has(self.clusterName) || oldSelf.clusterName == self.clusterName")
        .message("clusterName is immutable once set"),
    validation = Rule::new("!has(self.clusterName) || (!has(self.nominatedClusterNames) || (has(self.nominatedClusterNames) && size(self.nominatedClusterNames) == 0))")
        .message("clusterName and nominatedClusterNames are mutually exclusive")
)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadStatus {
    /// See [`crate::conditions`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
    /// The quota that the workload holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admission: Option<Admission>,
    /// How often it was requeued, and when it may be tried again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requeue_state: Option<RequeueState>,
    /// Pods whose quota is no longer needed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 18), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub reclaimable_pods: Vec<ReclaimablePod>,
    /// States of the admission checks that apply.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub admission_checks: Vec<AdmissionCheckState>,
    /// Requests at the last scheduling attempt. Empty while it holds quota.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 18), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub resource_requests: Vec<PodSetRequest>,
    /// Seconds that it was admitted before its last eviction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accumulated_past_execution_time_seconds: Option<i32>,
    /// Counters over its lifetime.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduling_stats: Option<SchedulingStats>,
    /// Worker clusters that may take it. Not together with `clusterName`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 20), inner(length(max = 256)), extend("x-kubernetes-list-type" = "atomic"))]
    pub nominated_cluster_names: Vec<String>,
    /// The worker cluster that has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub cluster_name: Option<String>,
    /// Failed nodes that ran its pods.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub unhealthy_nodes: Vec<UnhealthyNode>,
    /// States of its preemption gates.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub preemption_gates: Vec<PreemptionGateState>,
    /// How it was dispatched to a worker cluster. Not part of Kueue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dispatch: Option<DispatchStatus>,
}

/// How a workload was dispatched to a worker cluster.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[schemars(inline)]
#[serde(rename_all = "camelCase")]
pub struct DispatchStatus {
    /// Number of the assignment to a cluster. It is written before it is sent, and never decreases
    /// for one `workloadUid`. Agents reject lower attempts.
    #[schemars(range(min = 0))]
    pub attempt: i64,
    /// The uid of this workload on worker clusters, if it differs from its own. Either the workload
    /// adopted a copy that the hub had forgotten, or it replaces an earlier workload of its elastic
    /// job and takes over the copy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    pub workload_uid: Option<String>,
    /// The cluster of this attempt. It stays after an eviction has removed `clusterName`, until the
    /// next attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub cluster_name: Option<String>,
    /// Attempts that left their cluster before their job ended. Only the last ones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8), extend("x-kubernetes-list-type" = "atomic"))]
    pub history: Vec<PastAttempt>,
    /// How many times the hub has moved the workload because it had no ready pod (`onStuck`).
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schemars(range(min = 1), extend("default" = null))]
    pub stuck_moves: i32,
    /// Flavors on the cluster that differ from those that the hub charged, because the cluster
    /// cannot be pinned.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "atomic"))]
    pub other_flavors: Vec<OtherFlavor>,
}

impl DispatchStatus {
    /// The most past attempts, as the schema allows.
    const HISTORY: usize = 8;

    /// Adds a past attempt, and drops the oldest if there are too many.
    pub fn remember(&mut self, past: PastAttempt) {
        self.history.push(past);
        let surplus = self.history.len().saturating_sub(Self::HISTORY);
        self.history.drain(..surplus);
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde asks for")]
fn is_zero(number: &i32) -> bool {
    *number == 0
}

/// A flavor on the cluster that differs from the one that the hub charged.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[schemars(inline)]
#[serde(rename_all = "camelCase")]
pub struct OtherFlavor {
    /// Name of the pod set.
    #[schemars(length(max = 317))]
    pub pod_set: String,
    /// The resource.
    #[schemars(length(max = 317))]
    pub resource: String,
    /// The flavor on the cluster that corresponds to the hub's charge.
    #[schemars(length(max = 253))]
    pub charged: String,
    /// The flavor that the cluster uses.
    #[schemars(length(max = 253))]
    pub used: String,
}

/// An attempt that left its cluster before its job ended.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[schemars(inline)]
#[serde(rename_all = "camelCase")]
pub struct PastAttempt {
    /// Number of the attempt.
    #[schemars(range(min = 0))]
    pub attempt: i64,
    /// The cluster it left.
    #[schemars(length(max = 256))]
    pub cluster_name: String,
    /// Why it left, such as `ClusterLost`, `GoneOnWorker`, `EvictedOnWorker`, `RefusedByWorker`,
    /// `ClusterDrained`, `Moved`, `Stuck`, `PodsReadyTimeout`, `Withdrawn`, `FollowsFirstReplica` or
    /// `ExecutionTimeExceeded`.
    #[schemars(length(max = 64))]
    pub reason: String,
    /// When it left.
    #[schemars(schema_with = "schema::time")]
    pub at: Time,
}

/// The quota that a workload holds.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[schemars(inline)]
#[serde(rename_all = "camelCase")]
pub struct Admission {
    /// The ClusterQueue that the quota belongs to.
    #[serde(default)]
    #[schemars(schema_with = "schema::reference", extend("default" = null))]
    pub cluster_queue: String,
    /// One entry for each pod set.
    #[serde(default)]
    #[schemars(
        length(max = 18),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"], "default" = null)
    )]
    pub pod_set_assignments: Vec<PodSetAssignment>,
}

/// The quota that one pod set holds.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[schemars(inline)]
#[serde(rename_all = "camelCase")]
pub struct PodSetAssignment {
    /// The pod set.
    #[serde(default = "main")]
    #[schemars(schema_with = "schema::pod_set_name_or_main")]
    pub name: String,
    /// The flavor of each resource.
    #[serde(default, skip_serializing_if = "SmallMap::is_empty")]
    #[schemars(schema_with = "schema::flavors_by_resource")]
    pub flavors: SmallMap<String>,
    /// Usage of all its pods together, by resource.
    #[serde(default, skip_serializing_if = "SmallMap::is_empty")]
    #[schemars(schema_with = "schema::resource_list")]
    pub resource_usage: SmallMap<Quantity>,
    /// Number of admitted pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub count: Option<i32>,
    /// Topology domains of the pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topology_assignment: Option<TopologyAssignment>,
    /// Set if topology domains are chosen only after the nodes exist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delayed_topology_request: Option<DelayedTopologyRequestState>,
}

impl Default for PodSetAssignment {
    fn default() -> Self {
        Self {
            name: main(),
            flavors: SmallMap::default(),
            resource_usage: SmallMap::default(),
            count: None,
            topology_assignment: None,
            delayed_topology_request: None,
        }
    }
}

/// Whether delayed topology domains have been chosen.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[schemars(inline)]
pub enum DelayedTopologyRequestState {
    /// No.
    #[default]
    Pending,
    /// Yes.
    Ready,
}

/// How often a workload was requeued, and when it may be tried again.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[schemars(inline)]
#[serde(rename_all = "camelCase")]
pub struct RequeueState {
    /// Number of requeues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub count: Option<i32>,
    /// Earliest time of the next try.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::time")]
    pub requeue_at: Option<Time>,
}

/// Pods of one pod set whose quota is no longer needed.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[schemars(inline)]
#[serde(rename_all = "camelCase")]
pub struct ReclaimablePod {
    /// The pod set.
    #[schemars(schema_with = "schema::pod_set_name")]
    pub name: String,
    /// Number of pods.
    #[schemars(range(min = 0))]
    pub count: i32,
}

/// Total requests of one pod set.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[schemars(inline)]
#[serde(rename_all = "camelCase")]
pub struct PodSetRequest {
    /// The pod set.
    #[schemars(schema_with = "schema::pod_set_name")]
    pub name: String,
    /// Requests of all its pods together.
    #[serde(default, skip_serializing_if = "SmallMap::is_empty")]
    #[schemars(schema_with = "schema::resource_list")]
    pub resources: SmallMap<Quantity>,
}

/// Counters over a workload's lifetime.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[schemars(inline)]
#[serde(rename_all = "camelCase")]
pub struct SchedulingStats {
    /// Evictions by reason and cause.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 256),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["reason", "underlyingCause"])
    )]
    pub evictions: Vec<WorkloadSchedulingStatsEviction>,
}

/// Evictions of a workload for one reason and cause.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[schemars(inline)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadSchedulingStatsEviction {
    /// The reason of the Evicted condition.
    #[schemars(length(max = 316))]
    pub reason: String,
    /// The cause behind the reason. May be empty.
    #[schemars(length(max = 316))]
    pub underlying_cause: String,
    /// Number of evictions.
    #[schemars(range(min = 0))]
    pub count: i32,
}

/// A failed node that ran pods of a workload.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[schemars(inline)]
#[serde(rename_all = "camelCase")]
pub struct UnhealthyNode {
    /// The node.
    #[schemars(length(max = 63))]
    pub name: String,
}
