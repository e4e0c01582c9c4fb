//! Topology assignment: the domains of an admitted pod set's pods, in a compressed form for very
//! many domains.

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

/// Most domains that are read from an assignment, which is as many as one slice may have. A packed
/// assignment may describe very many.
pub const MAX_DOMAINS: usize = 100_000;

/// One domain of an assignment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Domain {
    /// Its value at each level of the assignment, the widest first.
    pub values: Vec<String>,
    /// Number of pods in it.
    pub count: i32,
}

impl TopologyAssignment {
    /// The domains in their order, at most [`MAX_DOMAINS`]. A slice with too few values or counts
    /// ends early.
    pub fn domains(&self) -> impl Iterator<Item = Domain> {
        self.slices.iter().flat_map(TopologyAssignmentSlice::domains).take(MAX_DOMAINS)
    }
}

impl TopologyAssignmentSlice {
    fn domains(&self) -> impl Iterator<Item = Domain> {
        let count = usize::try_from(self.domain_count).unwrap_or_default();
        (0..count).map_while(|at| {
            let values =
                self.values_per_level.iter().map(|values| values.at(at)).collect::<Option<_>>()?;
            Some(Domain { values, count: self.pod_counts.at(at)? })
        })
    }
}

impl TopologyAssignmentSliceLevelValues {
    fn at(&self, index: usize) -> Option<String> {
        if let Some(universal) = &self.universal {
            return Some(universal.clone());
        }
        let individual = self.individual.as_ref()?;
        let part = |part: &Option<String>| part.clone().unwrap_or_default();
        Some(part(&individual.prefix) + individual.roots.get(index)? + &part(&individual.suffix))
    }
}

impl TopologyAssignmentSlicePodCounts {
    fn at(&self, index: usize) -> Option<i32> {
        self.universal.or_else(|| self.individual.get(index).copied())
    }
}

/// A number of domains and the values that they share.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[x_kube(
    validation = Rule::new("!has(self.podCounts.individual) || size(self.podCounts.individual) == self.domainCount")
        .message("podCounts.individual must have length equal to domainCount"),
    validation = Rule::new("self.valuesPerLevel.all(x, !has(x.individual) || size(x.individual.roots) == self.domainCount)")
        .message("valuesPerLevel.individual, if set, must have roots of length equal to domainCount of this TopologyAssignmentSlice")
)]
#[serde(rename_all = "camelCase")]
pub struct TopologyAssignmentSlice {
    /// Number of domains.
    #[schemars(range(min = 1))]
    pub domain_count: i32,
    /// Values of the domains, one entry for each level.
    #[schemars(length(min = 1, max = 16), extend("x-kubernetes-list-type" = "atomic"))]
    pub values_per_level: Vec<TopologyAssignmentSliceLevelValues>,
    /// Numbers of pods in the domains.
    pub pod_counts: TopologyAssignmentSlicePodCounts,
}

/// Values at one level: one for all domains, or one for each.
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
    /// Common prefix.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub prefix: Option<String>,
    /// Common suffix.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub suffix: Option<String>,
    /// The differing parts, one for each domain.
    #[schemars(length(min = 1, max = 100000), inner(length(max = 63)), extend("x-kubernetes-list-type" = "atomic"))]
    pub roots: Vec<String>,
}

/// Numbers of pods: one for all domains, or one for each.
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

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    #[rstest]
    #[case::all_alike(
        json!({"domainCount": 2, "valuesPerLevel": [{"universal": "a"}, {"individual": {"prefix": "n-", "roots": ["1", "2"]}}],
               "podCounts": {"universal": 3}}),
        &["a/n-1=3", "a/n-2=3"])]
    #[case::each_its_own(
        json!({"domainCount": 2, "valuesPerLevel": [{"individual": {"roots": ["x", "y"], "suffix": ".z"}}],
               "podCounts": {"individual": [1, 2]}}),
        &["x.z=1", "y.z=2"])]
    #[case::fewer_values_than_it_says(
        json!({"domainCount": 3, "valuesPerLevel": [{"individual": {"roots": ["x"]}}], "podCounts": {"universal": 1}}), &["x=1"])]
    #[case::fewer_counts_than_it_says(
        json!({"domainCount": 3, "valuesPerLevel": [{"universal": "x"}], "podCounts": {"individual": [1]}}), &["x=1"])]
    #[case::a_negative_count(
        json!({"domainCount": -1, "valuesPerLevel": [{"universal": "x"}], "podCounts": {"universal": 1}}), &[])]
    fn domains_are_read(#[case] slice: Value, #[case] expected: &[&str]) {
        let assignment: TopologyAssignment =
            serde_json::from_value(json!({"levels": ["l"], "slices": [slice]})).unwrap();
        let shown = |domain: Domain| format!("{}={}", domain.values.join("/"), domain.count);
        assert_eq!(assignment.domains().map(shown).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn packed_assignment_is_read_up_to_a_bound() {
        let slice = json!({"domainCount": i32::MAX, "valuesPerLevel": [{"universal": "x"}], "podCounts": {"universal": 1}});
        let assignment: TopologyAssignment =
            serde_json::from_value(json!({"levels": ["l"], "slices": [slice]})).unwrap();
        assert_eq!(assignment.domains().count(), MAX_DOMAINS);
    }
}
