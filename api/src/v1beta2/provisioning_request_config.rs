//! ProvisioningRequestConfig: how ProvisioningRequests for the cluster autoscaler are created.

use std::collections::BTreeMap;

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema;

/// Content of the requests, and how they are retried.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "kueue.x-k8s.io",
    version = "v1beta2",
    kind = "ProvisioningRequestConfig",
    doc = "ProvisioningRequestConfig says how ProvisioningRequests for the cluster autoscaler are made.",
    shortname = "prc",
    derive = "PartialEq",
    derive = "Default"
)]
#[serde(rename_all = "camelCase")]
pub struct ProvisioningRequestConfigSpec {
    /// The provisioning class.
    #[schemars(length(min = 1, max = 253), regex(pattern = schema::SUBDOMAIN))]
    pub provisioning_class_name: String,
    /// Parameters for the class.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::parameters")]
    pub parameters: BTreeMap<String, String>,
    /// Only pod sets that request one of these resources need a ProvisioningRequest. All pod sets
    /// if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100), extend("x-kubernetes-list-type" = "set"))]
    pub managed_resources: Vec<String>,
    /// How a failed request is retried.
    #[serde(default)]
    pub retry_strategy: ProvisioningRequestRetryStrategy,
    /// Additions to the pod sets, so that the pods land on the new nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_set_updates: Option<ProvisioningRequestPodSetUpdates>,
    /// Which pod sets are merged in a request. None if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_set_merge_policy: Option<PodSetMergePolicy>,
}

/// How a failed request is retried.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[schemars(inline)]
#[serde(rename_all = "camelCase", default)]
pub struct ProvisioningRequestRetryStrategy {
    /// Retries before the workload is deactivated. Zero means no retry.
    pub backoff_limit_count: i32,
    /// Seconds before the first retry. Doubled for each further one.
    pub backoff_base_seconds: i32,
    /// The longest wait in seconds.
    pub backoff_max_seconds: i32,
}

impl Default for ProvisioningRequestRetryStrategy {
    fn default() -> Self {
        Self { backoff_limit_count: 3, backoff_base_seconds: 60, backoff_max_seconds: 1800 }
    }
}

/// Additions to the pod sets.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[schemars(inline)]
#[serde(rename_all = "camelCase")]
pub struct ProvisioningRequestPodSetUpdates {
    /// Node selectors.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["key"]))]
    pub node_selector: Vec<ProvisioningRequestPodSetUpdatesNodeSelector>,
}

/// A node selector whose value comes from the request's status.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[schemars(inline)]
#[serde(rename_all = "camelCase")]
pub struct ProvisioningRequestPodSetUpdatesNodeSelector {
    /// The selector's key.
    #[schemars(length(min = 1, max = 317), regex(pattern = schema::LABEL_KEY))]
    pub key: String,
    /// Key of the value in `status.provisioningClassDetails` of the request.
    #[schemars(length(min = 1, max = 32768))]
    pub value_from_provisioning_class_detail: String,
}

/// Which pod sets are merged in a request.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
#[schemars(inline)]
pub enum PodSetMergePolicy {
    /// Pod sets with equal templates.
    IdenticalPodTemplates,
    /// Pod sets that are equal in all fields that scheduling uses.
    IdenticalWorkloadSchedulingRequirements,
}
