//! MultiKueueConfig: the worker clusters that a MultiKueue admission check can use.

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The clusters, the preferred ones first.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "kueue.x-k8s.io",
    version = "v1beta2",
    kind = "MultiKueueConfig",
    doc = "MultiKueueConfig lists the worker clusters that a MultiKueue admission check can use.",
    shortname = "mkconf",
    derive = "PartialEq",
    derive = "Default"
)]
#[serde(rename_all = "camelCase")]
pub struct MultiKueueConfigSpec {
    /// Names of MultiKueueClusters. The Incremental dispatcher tries them in this order.
    #[schemars(length(min = 1, max = 20), inner(length(max = 256)), extend("x-kubernetes-list-type" = "atomic"))]
    #[x_kube(
        validation = Rule::new("size(self.filter(i, size(self.filter(j, j == i)) > 1)) == 0").message("must be unique")
    )]
    pub clusters: Vec<String>,
    /// The manager of the quota of the hub's ClusterQueues. `Manual` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota_management: Option<QuotaManagement>,
}

/// The manager of the quota of the hub's ClusterQueues.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[schemars(inline)]
pub enum QuotaManagement {
    /// Administrators.
    #[default]
    Manual,
    /// The hub: the quota is the sum of the workers' quota.
    Automated,
}
