//! LocalQueue: a namespace's door to a ClusterQueue.

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

/// Which ClusterQueue it leads to.
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
    /// The queue's weight when past use counts in the order of admission.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fair_sharing: Option<FairSharing>,
}

/// What the queue holds.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[schemars(inline)]
#[serde(rename_all = "camelCase")]
pub struct LocalQueueStatus {
    /// `Active`: the ClusterQueue exists and is active, and nothing is stopped.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
    /// How many workloads wait.
    #[serde(default)]
    #[schemars(extend("default" = null))]
    pub pending_workloads: i32,
    /// How many workloads hold quota and have not finished.
    #[serde(default)]
    #[schemars(extend("default" = null))]
    pub reserving_workloads: i32,
    /// How many workloads are admitted and have not finished.
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
    /// The queue's share; only when past use counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fair_sharing: Option<LocalQueueFairSharingStatus>,
}

/// What is used of one flavor.
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

/// What is used of one resource of one flavor.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[schemars(inline)]
#[serde(rename_all = "camelCase")]
pub struct LocalQueueResourceUsage {
    /// The resource.
    pub name: String,
    /// All that is used.
    #[serde(default)]
    #[schemars(schema_with = "schema::quantity", extend("default" = null))]
    pub total: Quantity,
}

/// The queue's share and past use.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[schemars(inline)]
#[serde(rename_all = "camelCase")]
pub struct LocalQueueFairSharingStatus {
    /// As in [`super::FairSharingStatus`].
    pub weighted_share: i64,
    /// Past use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admission_fair_sharing_status: Option<LocalQueueAdmissionFairSharingStatus>,
}

/// Past use, decaying with time.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[schemars(inline)]
#[serde(rename_all = "camelCase")]
pub struct LocalQueueAdmissionFairSharingStatus {
    /// Use by resource.
    #[schemars(schema_with = "schema::resource_list")]
    pub consumed_resources: BTreeMap<String, Quantity>,
    /// When it was reckoned last.
    #[schemars(schema_with = "schema::time")]
    pub last_update: Time,
}
