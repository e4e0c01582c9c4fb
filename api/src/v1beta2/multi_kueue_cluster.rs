//! MultiKueueCluster: a worker cluster, how it is reached, and what its loss means.

use k8s_openapi::apimachinery::pkg::{
    api::resource::Quantity,
    apis::meta::v1::{Condition, Time},
};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::OnDisconnect;
use crate::schema;

/// How the worker cluster is reached, and what its loss means.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "kueue.x-k8s.io",
    version = "v1beta2",
    kind = "MultiKueueCluster",
    doc = "MultiKueueCluster is a worker cluster that jobs can be sent to.",
    status = "MultiKueueClusterStatus",
    shortname = "mkc",
    derive = "PartialEq",
    derive = "Default",
    printcolumn(
        name = "Connected",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Active')].status",
        description = "Whether the cluster is connected"
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp",
        description = "When this object was created"
    )
)]
#[x_kube(
    validation = Rule::new("!has(self.onDisconnect) || self.onDisconnect.policy != 'Fence' || has(self.clusterSource.agent)")
        .message("onDisconnect.policy Fence needs clusterSource.agent: only an agent can stop jobs that the hub cannot reach")
)]
#[serde(rename_all = "camelCase")]
pub struct MultiKueueClusterSpec {
    /// How the cluster is reached.
    pub cluster_source: ClusterSource,
    /// What happens to the cluster's jobs when it is lost. Not part of Kueue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_disconnect: Option<OnDisconnect>,
    /// The cost of the cluster, in a unit of the administrator's choice; 0 when absent. BestFit chooses the cheapest of the clusters
    /// that have room now. Not part of Kueue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1_000_000))]
    pub cost: Option<i32>,
}

/// How a worker cluster is reached: exactly one of the fields.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[x_kube(
    validation = Rule::new("[has(self.kubeConfig),has(self.clusterProfileRef),has(self.agent)].filter(x,x==true).size() == 1")
        .message("exactly one of the fields in [kubeConfig clusterProfileRef agent] must be set")
)]
#[serde(rename_all = "camelCase")]
pub struct ClusterSource {
    /// By a kubeconfig that the hub holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kube_config: Option<KubeConfig>,
    /// By a ClusterProfile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_profile_ref: Option<ClusterProfileReference>,
    /// By an agent in the cluster that dials the hub. Not part of Kueue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentSource>,
}

/// Where a kubeconfig lies.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[schemars(inline)]
#[serde(rename_all = "camelCase")]
pub struct KubeConfig {
    /// The name of a Secret in the hub's own namespace with the key `kubeconfig`, or a path on the hub's disk.
    #[schemars(length(min = 1, max = 256))]
    pub location: String,
    /// Which of the two.
    #[serde(default)]
    pub location_type: LocationType,
}

/// What a kubeconfig's location is.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[schemars(inline)]
pub enum LocationType {
    /// A Secret.
    #[default]
    Secret,
    /// A path on the hub's disk.
    Path,
}

/// Names a ClusterProfile.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[schemars(inline)]
#[serde(rename_all = "camelCase")]
pub struct ClusterProfileReference {
    /// The ClusterProfile.
    #[schemars(length(min = 1, max = 256))]
    pub name: String,
}

/// The cluster is reached by its agent, which enrols with a token for this object's name.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[schemars(inline)]
pub struct AgentSource {}

/// Whether the cluster is connected, and what its agent reports.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[schemars(inline)]
#[serde(rename_all = "camelCase")]
pub struct MultiKueueClusterStatus {
    /// `Active`: connected.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
    /// What the connected agent reports. Not part of Kueue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentStatus>,
    /// Workloads with this hub's mark on the cluster, of which the hub knows nothing; the first ones only. Not part of Kueue.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "atomic"))]
    pub orphans: Vec<OrphanedWorkload>,
}

/// A workload with this hub's mark on a cluster, of which the hub knows nothing.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[schemars(inline)]
#[serde(rename_all = "camelCase")]
pub struct OrphanedWorkload {
    /// The uid that the Workload had on the hub.
    #[schemars(length(max = 64))]
    pub workload_uid: String,
    /// Where it lies on the cluster.
    #[schemars(length(max = 64))]
    pub namespace: String,
    /// Where it lies on the cluster.
    #[schemars(length(max = 253))]
    pub name: String,
    /// The attempt that made it.
    #[schemars(range(min = 0))]
    pub attempt: i64,
    /// What the cluster says of it, such as `Running`.
    #[schemars(length(max = 32))]
    pub state: String,
    /// Since when the hub knows of it.
    #[schemars(schema_with = "schema::time")]
    pub since: Time,
    /// Why it stays there, and what mends it; not if it will be removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    pub note: Option<String>,
}

/// What the connected agent reports.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[schemars(inline)]
#[serde(rename_all = "camelCase")]
pub struct AgentStatus {
    /// When the session began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::time")]
    pub connected_since: Option<Time>,
    /// The agent's software and its version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub software: Option<String>,
    /// The version of the protocol.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub version: Option<String>,
    /// The session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub session_id: Option<String>,
    /// The uid of the cluster (of its namespace kube-system) that was reached. No other MultiKueueCluster may lead to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub cluster_uid: Option<String>,
    /// Since when the agent cannot write to its own API server, by its own word; kept beyond the session in which it said so,
    /// as no fence can be relied upon until it is back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::time")]
    pub unable_since: Option<Time>,
    /// Room in the cluster, by queue, flavor and resource.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), extend("x-kubernetes-list-type" = "atomic"))]
    pub capacity: Vec<AgentCapacity>,
}

/// Room for one resource of one flavor behind one LocalQueue of the worker.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[schemars(inline)]
#[serde(rename_all = "camelCase")]
pub struct AgentCapacity {
    /// The LocalQueue as `namespace/name`.
    #[schemars(length(max = 317))]
    pub local_queue: String,
    /// The ClusterQueue behind it.
    #[schemars(length(max = 253))]
    pub cluster_queue: String,
    /// The ResourceFlavor.
    #[schemars(length(max = 253))]
    pub flavor: String,
    /// The resource.
    #[schemars(length(max = 317))]
    pub resource: String,
    /// The quota that belongs to the ClusterQueue.
    #[schemars(schema_with = "schema::quantity")]
    pub nominal: Quantity,
    /// What is used of it.
    #[schemars(schema_with = "schema::quantity")]
    pub used: Quantity,
    /// What a new workload could get now, with what can be borrowed.
    #[schemars(schema_with = "schema::quantity")]
    pub available: Quantity,
}
