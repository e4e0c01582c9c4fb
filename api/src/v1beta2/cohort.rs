//! Cohort: a node in the tree of queues that lend unused quota to each other.

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{FairSharing, FairSharingStatus, ResourceGroup};
use crate::schema;

/// The cohort's place in the tree and the quota it adds.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "kueue.x-k8s.io",
    version = "v1beta2",
    kind = "Cohort",
    doc = "Cohort is a node in the tree of queues that lend each other unused quota.",
    status = "CohortStatus",
    shortname = "co",
    derive = "PartialEq",
    derive = "Default"
)]
#[x_kube(
    validation = Rule::new("!has(self.parentName) && has(self.resourceGroups) ? self.resourceGroups.all(rg, rg.flavors.all(f, f.resources.all(r, !has(r.borrowingLimit)))) : true")
        .message("borrowingLimit must be nil when parent is empty"),
    validation = Rule::new("!has(self.parentName) && has(self.resourceGroups) ? self.resourceGroups.all(rg, rg.flavors.all(f, f.resources.all(r, !has(r.lendingLimit)))) : true")
        .message("lendingLimit must be nil when parent is empty")
)]
#[serde(rename_all = "camelCase")]
pub struct CohortSpec {
    /// The parent cohort. A root if absent. A cycle stops admission in all queues below it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::reference")]
    pub parent_name: Option<String>,
    /// Quota shared by the subtree, in addition to its queues' quota. The limits apply towards the
    /// parent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "atomic"))]
    pub resource_groups: Vec<ResourceGroup>,
    /// The cohort's weight in fair sharing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fair_sharing: Option<FairSharing>,
}

/// The cohort's share.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[schemars(inline)]
#[serde(rename_all = "camelCase")]
pub struct CohortStatus {
    /// Set only with fair sharing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fair_sharing: Option<FairSharingStatus>,
    /// Written by a DynamicQuotaOrchestrator of Kueue 0.20. Preserved, without effect in
    /// Switchyard.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::kept")]
    pub effective_quotas: Option<serde_json::Value>,
}
