//! API fields: which worker clusters jobs need, prefer or must not use.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::labels::label_selector_schema;

/// Which worker clusters the jobs of a ClusterQueue need, prefer or must not use.
///
/// A job's own annotations replace the corresponding part for that job. All clusters must belong to
/// the MultiKueueConfig.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[schemars(inline)]
#[serde(rename_all = "camelCase")]
pub struct ClusterAffinity {
    /// The only clusters that jobs may go to. A cluster has to match both parts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub required: Option<ClusterRule>,
    /// Clusters that BestFit chooses before others with room. A cluster that matches both parts
    /// comes first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preferred: Option<ClusterRule>,
    /// Clusters that jobs must not go to. A cluster that matches one of the parts is excluded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub excluded: Option<ClusterRule>,
}

/// MultiKueueClusters by name, by label, or both.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[schemars(inline)]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "has(self.names) || has(self.selector)",
    "message": "names, selector or both must be set",
}]))]
#[serde(rename_all = "camelCase")]
pub struct ClusterRule {
    /// Names of MultiKueueClusters.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 64), inner(length(min = 1, max = 253)), extend("x-kubernetes-list-type" = "atomic"))]
    pub names: Vec<String>,
    /// Selects by the labels of MultiKueueClusters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "label_selector_schema")]
    pub selector: Option<LabelSelector>,
}
