//! MultiKueueCluster: a worker cluster, its connection, and the policy for its loss.

use k8s_openapi::apimachinery::pkg::{
    api::resource::Quantity,
    apis::meta::v1::{Condition, Time},
};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::OnDisconnect;
use crate::schema;

/// The connection to the worker cluster, and the policy for its loss.
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
        name = "Link",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Active')].reason",
        description = "State of the link to the cluster. Not part of Kueue"
    ),
    printcolumn(
        name = "Since",
        type_ = "date",
        json_path = ".status.conditions[?(@.type=='Active')].lastTransitionTime",
        description = "When the cluster was connected or lost. Not part of Kueue"
    ),
    printcolumn(
        name = "Agent",
        type_ = "string",
        json_path = ".status.agent.software",
        description = "Version of the agent; (hosted) without one. Not part of Kueue"
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
    /// The connection to the cluster.
    pub cluster_source: ClusterSource,
    /// The policy for the cluster's jobs if it is lost. Not part of Kueue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_disconnect: Option<OnDisconnect>,
    /// The cost of the cluster, in a unit of the administrator's choice. 0 if absent. BestFit
    /// chooses the cheapest of the clusters that have room now. Not part of Kueue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1_000_000))]
    pub cost: Option<i32>,
}

/// The connection to a worker cluster: exactly one of the fields.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[x_kube(
    validation = Rule::new("[has(self.kubeConfig),has(self.clusterProfileRef),has(self.agent)].filter(x,x==true).size() == 1")
        .message("exactly one of the fields in [kubeConfig clusterProfileRef agent] must be set")
)]
#[serde(rename_all = "camelCase")]
pub struct ClusterSource {
    /// A kubeconfig that the hub holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kube_config: Option<KubeConfig>,
    /// A ClusterProfile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_profile_ref: Option<ClusterProfileReference>,
    /// An agent in the cluster, which dials the hub. Not part of Kueue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentSource>,
}

/// Location of a kubeconfig.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[schemars(inline)]
#[serde(rename_all = "camelCase")]
pub struct KubeConfig {
    /// Name of a Secret in the hub's own namespace with the key `kubeconfig`, or a path on the
    /// hub's disk.
    #[schemars(length(min = 1, max = 256))]
    pub location: String,
    /// Type of the location.
    #[serde(default)]
    pub location_type: LocationType,
}

/// Type of a kubeconfig's location.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[schemars(inline)]
pub enum LocationType {
    /// A Secret.
    #[default]
    Secret,
    /// A path on the hub's disk.
    Path,
}

/// Reference to a ClusterProfile.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[schemars(inline)]
#[serde(rename_all = "camelCase")]
pub struct ClusterProfileReference {
    /// The ClusterProfile.
    #[schemars(length(min = 1, max = 256))]
    pub name: String,
}

/// The connection by an agent, which enrols with a token for this object's name.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[schemars(inline)]
pub struct AgentSource {}

/// Whether the cluster is connected, and its agent's report.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[schemars(inline)]
#[serde(rename_all = "camelCase")]
pub struct MultiKueueClusterStatus {
    /// `Active`: connected.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
    /// Report of the connected agent. Not part of Kueue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentStatus>,
    /// Orphans: workloads with this hub's mark on the cluster that the hub does not know. Only the
    /// first ones. Not part of Kueue.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "atomic"))]
    pub orphans: Vec<OrphanedWorkload>,
}

/// A workload with this hub's mark on a cluster that the hub does not know.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[schemars(inline)]
#[serde(rename_all = "camelCase")]
pub struct OrphanedWorkload {
    /// Uid of the Workload on the hub.
    #[schemars(length(max = 64))]
    pub workload_uid: String,
    /// Namespace on the cluster.
    #[schemars(length(max = 64))]
    pub namespace: String,
    /// Name on the cluster.
    #[schemars(length(max = 253))]
    pub name: String,
    /// The attempt that created it.
    #[schemars(range(min = 0))]
    pub attempt: i64,
    /// Its state on the cluster, such as `Running`.
    #[schemars(length(max = 32))]
    pub state: String,
    /// Since when the hub knows of it.
    #[schemars(schema_with = "schema::time")]
    pub since: Time,
    /// Why it stays on the cluster, with a remedy. Absent if it will be deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    pub note: Option<String>,
}

/// Report of the connected agent.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[schemars(inline)]
#[serde(rename_all = "camelCase")]
pub struct AgentStatus {
    /// Start of the session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::time")]
    pub connected_since: Option<Time>,
    /// Name and version of the agent's software.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub software: Option<String>,
    /// Version of the agent protocol.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub version: Option<String>,
    /// Id of the session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub session_id: Option<String>,
    /// Uid of the connected cluster (of its namespace kube-system). No other MultiKueueCluster may
    /// lead to the same cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub cluster_uid: Option<String>,
    /// Since when the agent reports that it cannot write to its own API server. Kept after the
    /// session ends, because a fence on this cluster is unreliable until the agent recovers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::time")]
    pub unable_since: Option<Time>,
    /// Capacity of the cluster, by queue, flavor and resource.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), extend("x-kubernetes-list-type" = "atomic"))]
    pub capacity: Vec<AgentCapacity>,
}

/// Capacity of one resource of one flavor behind one LocalQueue of the worker.
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
    /// Nominal quota of the ClusterQueue.
    #[schemars(schema_with = "schema::quantity")]
    pub nominal: Quantity,
    /// Usage of that quota.
    #[schemars(schema_with = "schema::quantity")]
    pub used: Quantity,
    /// Quota that a new workload could get now, including borrowed quota.
    #[schemars(schema_with = "schema::quantity")]
    pub available: Quantity,
    /// Free on all nodes of the flavor together. Absent if the cluster does not report its
    /// nodes, or not exactly because there are many different ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::quantity")]
    pub free_on_nodes: Option<Quantity>,
    /// Free on the node of the flavor that has most of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::quantity")]
    pub free_on_one_node: Option<Quantity>,
}
