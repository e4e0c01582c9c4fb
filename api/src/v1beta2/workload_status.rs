//! What has been decided about a workload.

use k8s_openapi::apimachinery::pkg::{
    api::resource::Quantity,
    apis::meta::v1::{Condition, Time},
};
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{AdmissionCheckState, PreemptionGateState, TopologyAssignment, workload::main};
use crate::{SmallMap, schema};

/// What has been decided about a workload.
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
    /// The quota that it holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admission: Option<Admission>,
    /// How often it was put back into the queue, and when it may be tried again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requeue_state: Option<RequeueState>,
    /// Pods whose quota is not needed any more.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 18), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub reclaimable_pods: Vec<ReclaimablePod>,
    /// The checks that apply and how they stand.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub admission_checks: Vec<AdmissionCheckState>,
    /// What it asked for when it was last considered; empty while it holds quota.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 18), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub resource_requests: Vec<PodSetRequest>,
    /// Seconds that it was admitted before its last eviction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accumulated_past_execution_time_seconds: Option<i32>,
    /// Counts over its life.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduling_stats: Option<SchedulingStats>,
    /// Worker clusters that may take it; not with `clusterName`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 20), inner(length(max = 256)), extend("x-kubernetes-list-type" = "atomic"))]
    pub nominated_cluster_names: Vec<String>,
    /// The worker cluster that has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub cluster_name: Option<String>,
    /// Failed nodes that ran pods of it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub unhealthy_nodes: Vec<UnhealthyNode>,
    /// How its preemption gates stand.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub preemption_gates: Vec<PreemptionGateState>,
    /// How it was sent to a worker cluster. Not part of Kueue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dispatch: Option<DispatchStatus>,
}

/// How a workload was sent to a worker cluster.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[schemars(inline)]
#[serde(rename_all = "camelCase")]
pub struct DispatchStatus {
    /// Counts assignments to a cluster. It is written before it is sent, and never goes down for the uid by which clusters know
    /// the workload; agents refuse a lower one.
    #[schemars(range(min = 0))]
    pub attempt: i64,
    /// The uid by which worker clusters know it, if that is not its own: it took over what ran there when the hub had
    /// forgotten it, or the copy of the workload from which its elastic job has grown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    pub workload_uid: Option<String>,
    /// Where that attempt was sent. It stays when an eviction takes `clusterName` away, until the next attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub cluster_name: Option<String>,
    /// The attempts that were taken from their cluster before their job had ended; the last ones only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8), extend("x-kubernetes-list-type" = "atomic"))]
    pub history: Vec<PastAttempt>,
}

/// An attempt that was taken from its cluster before its job had ended.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[schemars(inline)]
#[serde(rename_all = "camelCase")]
pub struct PastAttempt {
    /// Which.
    #[schemars(range(min = 0))]
    pub attempt: i64,
    /// Where it was.
    #[schemars(length(max = 256))]
    pub cluster_name: String,
    /// Why, such as `ClusterLost`, `GoneOnWorker`, `EvictedOnWorker`, `RefusedByWorker`, `ClusterDrained`,
    /// `Moved` or `ExecutionTimeExceeded`.
    #[schemars(length(max = 64))]
    pub reason: String,
    /// When.
    #[schemars(schema_with = "schema::time")]
    pub at: Time,
}

/// The quota that a workload holds.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[schemars(inline)]
#[serde(rename_all = "camelCase")]
pub struct Admission {
    /// The ClusterQueue whose quota it is.
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
    /// What all its pods together hold, of each resource.
    #[serde(default, skip_serializing_if = "SmallMap::is_empty")]
    #[schemars(schema_with = "schema::resource_list")]
    pub resource_usage: SmallMap<Quantity>,
    /// How many pods were counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub count: Option<i32>,
    /// Where the pods go.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topology_assignment: Option<TopologyAssignment>,
    /// Set when the places are chosen only after the nodes exist.
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

/// Whether places that are chosen late have been chosen.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[schemars(inline)]
pub enum DelayedTopologyRequestState {
    /// Not yet.
    #[default]
    Pending,
    /// They have.
    Ready,
}

/// How often a workload was put back into the queue, and when it may be tried again.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[schemars(inline)]
#[serde(rename_all = "camelCase")]
pub struct RequeueState {
    /// How often.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub count: Option<i32>,
    /// Not before this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::time")]
    pub requeue_at: Option<Time>,
}

/// Pods of one pod set whose quota is not needed any more.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[schemars(inline)]
#[serde(rename_all = "camelCase")]
pub struct ReclaimablePod {
    /// The pod set.
    #[schemars(schema_with = "schema::pod_set_name")]
    pub name: String,
    /// How many.
    #[schemars(range(min = 0))]
    pub count: i32,
}

/// What one pod set asked for in all.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[schemars(inline)]
#[serde(rename_all = "camelCase")]
pub struct PodSetRequest {
    /// The pod set.
    #[schemars(schema_with = "schema::pod_set_name")]
    pub name: String,
    /// What all its pods together ask for.
    #[serde(default, skip_serializing_if = "SmallMap::is_empty")]
    #[schemars(schema_with = "schema::resource_list")]
    pub resources: SmallMap<Quantity>,
}

/// Counts over a workload's life.
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

/// How often a workload was evicted for one reason and cause.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[schemars(inline)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadSchedulingStatsEviction {
    /// The reason of the Evicted condition.
    #[schemars(length(max = 316))]
    pub reason: String,
    /// What lies behind it; may be empty.
    #[schemars(length(max = 316))]
    pub underlying_cause: String,
    /// How often.
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
