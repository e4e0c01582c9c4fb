//! Where the pods of an admitted pod set go, in a compressed form for very many domains.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Pods by topology domain: the union of the slices.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[x_kube(
    validation = Rule::new("self.slices.all(x, size(x.valuesPerLevel) == size(self.levels))")
        .message("valuesPerLevel must have the same length as the number of levels in this TopologyAssignment")
)]
#[serde(rename_all = "camelCase")]
pub struct TopologyAssignment {
    /// Node label keys of the levels, the widest first.
    #[schemars(length(min = 1, max = 16), inner(length(max = 317)), extend("x-kubernetes-list-type" = "atomic"))]
    pub levels: Vec<String>,
    /// Parts of the assignment.
    #[schemars(length(max = 1000), extend("x-kubernetes-list-type" = "atomic"))]
    pub slices: Vec<TopologyAssignmentSlice>,
}

/// A number of domains with what their values have in common.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[x_kube(
    validation = Rule::new("!has(self.podCounts.individual) || size(self.podCounts.individual) == self.domainCount")
        .message("podCounts.individual must have length equal to domainCount"),
    validation = Rule::new("self.valuesPerLevel.all(x, !has(x.individual) || size(x.individual.roots) == self.domainCount)")
        .message("valuesPerLevel.individual, if set, must have roots of length equal to domainCount of this TopologyAssignmentSlice")
)]
#[serde(rename_all = "camelCase")]
pub struct TopologyAssignmentSlice {
    /// How many domains.
    #[schemars(range(min = 1))]
    pub domain_count: i32,
    /// Their values, one entry a level.
    #[schemars(length(min = 1, max = 16), extend("x-kubernetes-list-type" = "atomic"))]
    pub values_per_level: Vec<TopologyAssignmentSliceLevelValues>,
    /// Their numbers of pods.
    pub pod_counts: TopologyAssignmentSlicePodCounts,
}

/// The values at one level: one for all domains, or one each.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[x_kube(
    validation = Rule::new("has(self.universal) != has(self.individual)")
        .message("exactly one of the fields in [universal individual] must be set")
)]
#[serde(rename_all = "camelCase")]
pub struct TopologyAssignmentSliceLevelValues {
    /// The value of all domains.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub universal: Option<String>,
    /// A value for each domain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub individual: Option<TopologyAssignmentSliceLevelIndividualValues>,
}

/// A value for each domain: prefix, root and suffix joined.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[schemars(inline)]
#[serde(rename_all = "camelCase")]
pub struct TopologyAssignmentSliceLevelIndividualValues {
    /// What all begin with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub prefix: Option<String>,
    /// What all end with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub suffix: Option<String>,
    /// What differs, one a domain.
    #[schemars(length(min = 1, max = 100000), inner(length(max = 63)), extend("x-kubernetes-list-type" = "atomic"))]
    pub roots: Vec<String>,
}

/// Numbers of pods: one for all domains, or one each.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[x_kube(
    validation = Rule::new("[has(self.universal),has(self.individual)].filter(x,x==true).size() == 1")
        .message("exactly one of the fields in [universal individual] must be set")
)]
#[serde(rename_all = "camelCase")]
pub struct TopologyAssignmentSlicePodCounts {
    /// The number in every domain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub universal: Option<i32>,
    /// The number in each domain.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 100000), inner(range(min = 1)), extend("x-kubernetes-list-type" = "atomic"))]
    pub individual: Vec<i32>,
}
