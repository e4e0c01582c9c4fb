//! The visibility API, `visibility.kueue.x-k8s.io`: which workloads wait in a queue, in its order, and how that is described
//! to programs ([`openapi`]).

pub mod openapi;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The API group.
pub const GROUP: &str = "visibility.kueue.x-k8s.io";
/// Its versions, the preferred one first. They differ in nothing but their name.
pub const VERSIONS: [&str; 2] = ["v1beta2", "v1beta1"];
/// The resource of pending workloads below a queue.
pub const PENDING: &str = "pendingworkloads";
/// The kind of a list of pending workloads.
pub const SUMMARY: &str = "PendingWorkloadsSummary";

/// The workloads that wait in a ClusterQueue or LocalQueue, in its order: a page of them.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct PendingWorkloadsSummary {
    /// The group and the version.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub api_version: String,
    /// PendingWorkloadsSummary.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// Empty.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// The workloads.
    pub items: Vec<PendingWorkload>,
}

/// A workload that waits, and its places.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct PendingWorkload {
    /// The Workload's name, namespace, age and owners.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// The Workload's priority.
    pub priority: i32,
    /// The LocalQueue that the workload is in.
    pub local_queue_name: String,
    /// The workload's place in the ClusterQueue, from 0.
    pub position_in_cluster_queue: i32,
    /// The workload's place in the LocalQueue, from 0.
    pub position_in_local_queue: i32,
}
