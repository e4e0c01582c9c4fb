//! LocalQueue: a namespace's access to a ClusterQueue.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::{
    api::resource::Quantity,
    apis::meta::v1::{Condition, Time},
};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{FairSharing, StopPolicy};
use crate::schema;

/// The ClusterQueue that it gives access to.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "kueue.x-k8s.io",
    version = "v1beta2",
    kind = "LocalQueue",
    doc = "LocalQueue is a namespace's door to a ClusterQueue; jobs name it in their label.",
    namespaced,
    status = "LocalQueueStatus",
    shortname = "queue",
    shortname = "queues",
    shortname = "lq",
    derive = "PartialEq",
    derive = "Default",
    printcolumn(
        name = "ClusterQueue",
        type_ = "string",
        json_path = ".spec.clusterQueue",
        description = "ClusterQueue behind it"
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
        description = "Admitted workloads that have not finished"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct LocalQueueSpec {
    /// The ClusterQueue. Immutable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::reference")]
    #[x_kube(validation = Rule::new("self == oldSelf").message("field is immutable"))]
    pub cluster_queue: Option<String>,
    /// Whether the queue is stopped.
    #[serde(default)]
    pub stop_policy: StopPolicy,
    /// The queue's weight if past usage influences the order of admission.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fair_sharing: Option<FairSharing>,
}

/// Usage of the queue.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[schemars(inline)]
#[serde(rename_all = "camelCase")]
pub struct LocalQueueStatus {
    /// `Active`: the ClusterQueue exists and is active, and neither queue is stopped.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
    /// Number of pending workloads.
    #[serde(default)]
    #[schemars(extend("default" = null))]
    pub pending_workloads: i32,
    /// Number of unfinished workloads with reserved quota.
    #[serde(default)]
    #[schemars(extend("default" = null))]
    pub reserving_workloads: i32,
    /// Number of admitted, unfinished workloads.
    #[serde(default)]
    #[schemars(extend("default" = null))]
    pub admitted_workloads: i32,
    /// Quota reserved, by flavor.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub flavors_reservation: Vec<LocalQueueFlavorUsage>,
    /// Quota of admitted workloads, by flavor.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub flavors_usage: Vec<LocalQueueFlavorUsage>,
    /// The queue's share. Set only if past usage influences the order of admission.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fair_sharing: Option<LocalQueueFairSharingStatus>,
}

/// Usage of one flavor.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[schemars(inline)]
#[serde(rename_all = "camelCase")]
pub struct LocalQueueFlavorUsage {
    /// The ResourceFlavor.
    #[schemars(schema_with = "schema::reference")]
    pub name: String,
    /// By resource.
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub resources: Vec<LocalQueueResourceUsage>,
}

/// Usage of one resource in one flavor.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[schemars(inline)]
#[serde(rename_all = "camelCase")]
pub struct LocalQueueResourceUsage {
    /// The resource.
    pub name: String,
    /// Total usage.
    #[serde(default)]
    #[schemars(schema_with = "schema::quantity", extend("default" = null))]
    pub total: Quantity,
}

/// The queue's share and past usage.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[schemars(inline)]
#[serde(rename_all = "camelCase")]
pub struct LocalQueueFairSharingStatus {
    /// As in [`super::FairSharingStatus`].
    pub weighted_share: i64,
    /// Past usage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admission_fair_sharing_status: Option<LocalQueueAdmissionFairSharingStatus>,
}

/// Past usage, which decays over time.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[schemars(inline)]
#[serde(rename_all = "camelCase")]
pub struct LocalQueueAdmissionFairSharingStatus {
    /// Usage by resource.
    #[schemars(schema_with = "schema::resource_list")]
    pub consumed_resources: BTreeMap<String, Quantity>,
    /// Time of the last calculation.
    #[schemars(schema_with = "schema::time")]
    pub last_update: Time,
}
