//! Quota in the spec of ClusterQueues and Cohorts, and usage in their status.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema;

/// Resources that are assigned together, and the flavors that provide them.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[x_kube(
    validation = Rule::new("self.flavors.all(x, size(x.resources) == size(self.coveredResources))")
        .message("flavors must have the same number of resources as the coveredResources"),
    validation = Rule::new("self.flavors.all(f, size(f.resources) != size(self.coveredResources) || f.resources.map(r, r.name) == self.coveredResources)")
        .message("resources of each flavor must match the name in coveredResources, in the same order")
)]
#[serde(rename_all = "camelCase")]
pub struct ResourceGroup {
    /// The resources of this group.
    #[schemars(length(min = 1, max = 64), inner(length(max = 317)), extend("x-kubernetes-list-type" = "atomic"))]
    pub covered_resources: Vec<String>,
    /// The flavors, in the order in which they are tried. Each lists the covered resources in the
    /// same order.
    #[schemars(
        length(min = 1, max = 64),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    pub flavors: Vec<FlavorQuotas>,
}

/// The quotas of one flavor.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[schemars(inline)]
#[serde(rename_all = "camelCase")]
pub struct FlavorQuotas {
    /// The ResourceFlavor. The queue is inactive while it does not exist.
    #[schemars(schema_with = "schema::reference")]
    pub name: String,
    /// One quota for each resource.
    #[schemars(
        length(min = 1, max = 64),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    pub resources: Vec<ResourceQuota>,
}

/// The quota of one resource in one flavor.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[schemars(inline)]
#[serde(rename_all = "camelCase")]
pub struct ResourceQuota {
    /// The resource.
    #[schemars(length(max = 317))]
    pub name: String,
    /// Quota that belongs to this queue. Not negative.
    #[schemars(schema_with = "schema::quota")]
    pub nominal_quota: Quantity,
    /// Most quota that may be borrowed from the cohort. Unlimited if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::quota")]
    pub borrowing_limit: Option<Quantity>,
    /// Most unused quota that may be lent to the cohort. All of it if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::quota")]
    pub lending_limit: Option<Quantity>,
}

/// Usage of one flavor in a ClusterQueue.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[schemars(inline)]
#[serde(rename_all = "camelCase")]
pub struct FlavorUsage {
    /// The ResourceFlavor.
    #[schemars(schema_with = "schema::reference")]
    pub name: String,
    /// By resource.
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub resources: Vec<ResourceUsage>,
}

/// Usage of one resource of one flavor in a ClusterQueue.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[schemars(inline)]
#[serde(rename_all = "camelCase")]
pub struct ResourceUsage {
    /// The resource.
    pub name: String,
    /// Total usage, including borrowed quota.
    #[serde(default)]
    #[schemars(schema_with = "schema::quantity", extend("default" = null))]
    pub total: Quantity,
    /// Usage beyond the nominal quota.
    #[serde(default)]
    #[schemars(schema_with = "schema::quantity", extend("default" = null))]
    pub borrowed: Quantity,
}
