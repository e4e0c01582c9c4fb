//! Converts topology requests and assignments between the API and the engine.

use switchyard_api::v1beta2::{
    self as api, DelayedTopologyRequestState, PodSetTopologyRequest, TopologyAssignmentSlice,
    TopologyAssignmentSliceLevelIndividualValues as Individual,
    TopologyAssignmentSliceLevelValues as LevelValues, TopologyAssignmentSlicePodCounts as Counts,
};
use switchyard_scheduler::{
    self as engine, AssignedDomain, DelayedTopology, Name, PodCounts, SliceLayer,
    TopologyAssignment, TopologyRequest, encode,
};

pub(crate) fn request(request: &PodSetTopologyRequest) -> TopologyRequest {
    let name = |text: &Option<String>| text.as_deref().map(Name::from);
    let layers = request.podset_slice_required_topology_constraints.iter();
    TopologyRequest {
        required: name(&request.required),
        preferred: name(&request.preferred),
        unconstrained: request.unconstrained,
        slice_topology: name(&request.pod_set_slice_required_topology),
        slice_size: request.pod_set_slice_size,
        slice_layers: layers
            .map(|layer| SliceLayer {
                topology: Name::from(layer.topology.as_str()),
                size: layer.size,
            })
            .collect(),
        group: name(&request.pod_set_group_name),
        pod_index_label: name(&request.pod_index_label),
        sub_group_index_label: name(&request.sub_group_index_label),
        sub_group_count: request.sub_group_count,
    }
}

/// The assignment that a status records.
pub(crate) fn assignment(assignment: &api::TopologyAssignment) -> TopologyAssignment {
    let name = |text: String| Name::from(text);
    let domains = assignment.domains();
    TopologyAssignment {
        levels: assignment.levels.iter().map(|level| Name::from(level.as_str())).collect(),
        domains: domains
            .map(|domain| AssignedDomain {
                values: domain.values.into_iter().map(name).collect(),
                count: domain.count,
            })
            .collect(),
    }
}

/// The assignment for a status. `by_prefix` writes hosts with a common name prefix together
/// (Kueue's `TASAssignmentsEncodingByHostnamePrefix`).
pub(crate) fn assignment_to_api(
    assignment: &TopologyAssignment,
    by_prefix: bool,
) -> api::TopologyAssignment {
    api::TopologyAssignment {
        levels: assignment.levels.iter().map(ToString::to_string).collect(),
        slices: encode(assignment, by_prefix).into_iter().map(slice).collect(),
    }
}

fn slice(slice: engine::EncodedSlice) -> TopologyAssignmentSlice {
    TopologyAssignmentSlice {
        domain_count: i32::try_from(slice.domain_count).unwrap_or(i32::MAX),
        values_per_level: slice.values_per_level.into_iter().map(level_values).collect(),
        pod_counts: match slice.pod_counts {
            PodCounts::Universal(count) => Counts { universal: Some(count), ..Counts::default() },
            PodCounts::Individual(counts) => Counts { universal: None, individual: counts },
        },
    }
}

fn level_values(values: engine::LevelValues) -> LevelValues {
    match values {
        engine::LevelValues::Universal(value) => {
            LevelValues { universal: Some(value), individual: None }
        }
        engine::LevelValues::Individual { prefix, suffix, roots } => {
            let given = |text: String| (!text.is_empty()).then_some(text);
            let individual = Individual { prefix: given(prefix), suffix: given(suffix), roots };
            LevelValues { universal: None, individual: Some(individual) }
        }
    }
}

pub(crate) fn delayed(state: DelayedTopologyRequestState) -> DelayedTopology {
    match state {
        DelayedTopologyRequestState::Pending => DelayedTopology::Pending,
        DelayedTopologyRequestState::Ready => DelayedTopology::Ready,
    }
}

pub(crate) fn delayed_to_api(state: DelayedTopology) -> DelayedTopologyRequestState {
    match state {
        DelayedTopology::Pending => DelayedTopologyRequestState::Pending,
        DelayedTopology::Ready => DelayedTopologyRequestState::Ready,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(hosts: &[(&str, i32)]) -> TopologyAssignment {
        TopologyAssignment {
            levels: vec!["kubernetes.io/hostname".into()],
            domains: hosts
                .iter()
                .map(|(host, count)| AssignedDomain {
                    values: vec![Name::from(*host)],
                    count: *count,
                })
                .collect(),
        }
    }

    #[rstest::rstest]
    #[case::single_host(&[("a", 2)])]
    #[case::common_prefix(&[("node-1", 1), ("node-2", 3)])]
    #[case::several_slices(&[("pool-a-1", 1), ("pool-a-2", 1), ("pool-b-1", 2), ("pool-b-2", 2)])]
    #[case::empty(&[])]
    fn assignment_survives_a_round_trip(#[case] of: &[(&str, i32)]) {
        let of = hosts(of);
        for by_prefix in [true, false] {
            assert_eq!(assignment(&assignment_to_api(&of, by_prefix)), of);
        }
    }

    #[test]
    fn slice_is_encoded_as_in_the_api() {
        let written =
            serde_json::to_string(&assignment_to_api(&hosts(&[("n-1", 1), ("n-2", 1)]), true))
                .unwrap();
        insta::assert_snapshot!(written, @r#"{"levels":["kubernetes.io/hostname"],"slices":[{"domainCount":2,"valuesPerLevel":[{"individual":{"prefix":"n-","roots":["1","2"]}}],"podCounts":{"universal":1}}]}"#);
    }
}
