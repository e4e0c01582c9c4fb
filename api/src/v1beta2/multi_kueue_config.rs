//! MultiKueueConfig: the worker clusters that a MultiKueue admission check can use.

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema;

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
    /// Whether worker clusters must use the flavors that the hub charged, and their names there. Not
    /// part of Kueue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flavor_pins: Option<FlavorPinning>,
}

impl MultiKueueConfigSpec {
    /// Whether worker clusters must use the flavors that the hub charged.
    #[must_use]
    pub fn pins_flavors(&self) -> bool {
        // With automated quota, the hub's one flavor stands for those of all workers.
        let default = match self.quota_management.unwrap_or_default() {
            QuotaManagement::Manual => FlavorPinPolicy::Pinned,
            QuotaManagement::Automated => FlavorPinPolicy::None,
        };
        let policy = self.flavor_pins.as_ref().and_then(|pinning| pinning.policy);
        policy.unwrap_or(default) == FlavorPinPolicy::Pinned
    }

    /// The name of the hub's flavor on a worker cluster.
    #[must_use]
    pub fn worker_flavor<'a>(&'a self, cluster: &str, flavor: &'a str) -> &'a str {
        let mapping = self.flavor_pins.as_ref().map(|it| it.mapping.as_slice()).unwrap_or_default();
        let rows =
            mapping.iter().map(|it| (it.cluster.as_deref(), &*it.flavor, &*it.worker_flavor));
        switchyard_syntax::flavor_pins::worker_flavor(rows, cluster, flavor)
    }
}

/// Whether worker clusters must use the flavors that the hub charged, and their names there.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[schemars(inline)]
#[serde(rename_all = "camelCase")]
pub struct FlavorPinning {
    /// `Pinned`, or `None`: each cluster chooses flavors by itself. If absent, `None` with
    /// `quotaManagement: Automated`, whose flavor stands for those of all workers, and else
    /// `Pinned`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<FlavorPinPolicy>,
    /// Names of flavors that differ on worker clusters. An entry for one cluster precedes an entry
    /// for all. The first of several equal entries counts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), extend("x-kubernetes-list-type" = "atomic"))]
    pub mapping: Vec<FlavorMapping>,
}

/// Whether worker clusters must use the flavors that the hub charged.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[schemars(inline)]
pub enum FlavorPinPolicy {
    /// They must.
    #[default]
    Pinned,
    /// Each cluster chooses.
    None,
}

/// The name of a flavor on worker clusters.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[schemars(inline)]
#[serde(rename_all = "camelCase")]
pub struct FlavorMapping {
    /// The ResourceFlavor on the hub.
    #[schemars(length(min = 1, max = 253), regex(pattern = schema::SUBDOMAIN))]
    pub flavor: String,
    /// The ResourceFlavor on the worker.
    #[schemars(length(min = 1, max = 253), regex(pattern = schema::SUBDOMAIN))]
    pub worker_flavor: String,
    /// The MultiKueueCluster. All clusters if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub cluster: Option<String>,
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
