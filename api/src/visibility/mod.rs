//! The visibility API, `visibility.kueue.x-k8s.io`: the pending workloads of a queue in their
//! order, and the API's OpenAPI documents ([`openapi`]).

pub mod openapi;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The API group.
pub const GROUP: &str = "visibility.kueue.x-k8s.io";
/// Its versions, the preferred one first. They differ only in their name.
pub const VERSIONS: [&str; 2] = ["v1beta2", "v1beta1"];
/// The subresource with the pending workloads of a queue.
pub const PENDING: &str = "pendingworkloads";
/// The kind of a list of pending workloads.
pub const SUMMARY: &str = "PendingWorkloadsSummary";

/// One page of the pending workloads of a ClusterQueue or LocalQueue, in queue order.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct PendingWorkloadsSummary {
    /// Group and version.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub api_version: String,
    /// `PendingWorkloadsSummary`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// Empty.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// The workloads.
    pub items: Vec<PendingWorkload>,
}

/// A pending workload and its positions.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct PendingWorkload {
    /// The Workload's name, namespace, age and owners.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// The Workload's priority.
    pub priority: i32,
    /// The LocalQueue of the workload.
    pub local_queue_name: String,
    /// The workload's position in the ClusterQueue, from 0.
    pub position_in_cluster_queue: i32,
    /// The workload's position in the LocalQueue, from 0.
    pub position_in_local_queue: i32,
}
