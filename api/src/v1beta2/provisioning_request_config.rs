//! ProvisioningRequestConfig: how ProvisioningRequests for the cluster autoscaler are made.

use std::collections::BTreeMap;

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema;

/// What the requests ask for and how they are retried.
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
    /// Only pod sets that ask for one of these resources are requested; all of them when empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100), extend("x-kubernetes-list-type" = "set"))]
    pub managed_resources: Vec<String>,
    /// How a failed request is retried.
    #[serde(default)]
    pub retry_strategy: ProvisioningRequestRetryStrategy,
    /// What is added to the pod sets so that they land on the new nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_set_updates: Option<ProvisioningRequestPodSetUpdates>,
    /// Which pod sets are merged in a request; none when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_set_merge_policy: Option<PodSetMergePolicy>,
}

/// How a failed request is retried.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[schemars(inline)]
#[serde(rename_all = "camelCase", default)]
pub struct ProvisioningRequestRetryStrategy {
    /// How often, before the workload is deactivated; zero is never.
    pub backoff_limit_count: i32,
    /// Seconds before the first retry; doubled for each further one.
    pub backoff_base_seconds: i32,
    /// The longest wait in seconds.
    pub backoff_max_seconds: i32,
}

impl Default for ProvisioningRequestRetryStrategy {
    fn default() -> Self {
        Self { backoff_limit_count: 3, backoff_base_seconds: 60, backoff_max_seconds: 1800 }
    }
}

/// What is added to the pod sets.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[schemars(inline)]
#[serde(rename_all = "camelCase")]
pub struct ProvisioningRequestPodSetUpdates {
    /// Node selectors.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["key"]))]
    pub node_selector: Vec<ProvisioningRequestPodSetUpdatesNodeSelector>,
}

/// One node selector whose value the request's answer gives.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[schemars(inline)]
#[serde(rename_all = "camelCase")]
pub struct ProvisioningRequestPodSetUpdatesNodeSelector {
    /// The selector's key.
    #[schemars(length(min = 1, max = 317), regex(pattern = schema::LABEL_KEY))]
    pub key: String,
    /// The key in `status.provisioningClassDetails` of the request that holds the value.
    #[schemars(length(min = 1, max = 32768))]
    pub value_from_provisioning_class_detail: String,
}

/// Which pod sets are merged in a request.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
#[schemars(inline)]
pub enum PodSetMergePolicy {
    /// Those whose templates are equal.
    IdenticalPodTemplates,
    /// Those that are equal in all that scheduling looks at.
    IdenticalWorkloadSchedulingRequirements,
}
