//! Topology requests of jobs: `topologyRequest` of a pod set, from the annotations of its pod
//! template and the labels that number its pods.
//!
//! The rules are those of Kueue's `pkg/controller/jobframework/tas.go`.
//! `validate/topology.rs` has the webhook's checks.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::{JobError, meta, number};
use switchyard_api::v1beta2::{
    PodSet, PodSetTopologyRequest, PodsetSliceRequiredTopologyConstraint,
};
use switchyard_syntax::{field::Path, names};

/// Label of the pods of an Indexed Job.
pub(super) const JOB_COMPLETION_INDEX: &str = "batch.kubernetes.io/job-completion-index";
/// Label of the pods of Kubeflow's jobs.
pub(super) const REPLICA_INDEX: &str = "training.kubeflow.org/replica-index";
/// Label of a JobSet's pods with the index of their Job in its replicated job.
const JOB_INDEX: &str = "jobset.sigs.k8s.io/job-index";
/// Most layers of slices.
pub(super) const MAX_LAYERS: usize = 3;

/// Feature gates of the topology annotations.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TopologyGates {
    /// `TopologyAwareScheduling`.
    pub aware: bool,
    /// `TASMultiLayerTopology`: slices within slices.
    pub multi_layer: bool,
}

/// Labels that number the pods of a pod set. Pods without a number may be placed in any order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodRanks {
    /// Label with the index of a pod, within its subgroup if there are subgroups.
    pub pod_index_label: Option<String>,
    /// Label with the index of the subgroup within the pod set.
    pub sub_group_index_label: Option<String>,
    /// Number of subgroups.
    pub sub_group_count: Option<i32>,
}

impl PodRanks {
    /// Pods with their index in one label.
    #[must_use]
    pub fn by(label: &str) -> Self {
        Self { pod_index_label: Some(label.to_owned()), ..Self::default() }
    }

    /// Pods of a JobSet's replicated job with this number of Jobs.
    pub(super) fn of_job_set(replicas: i64) -> Self {
        Self {
            sub_group_index_label: Some(JOB_INDEX.to_owned()),
            sub_group_count: i32::try_from(replicas).ok(),
            ..Self::by(JOB_COMPLETION_INDEX)
        }
    }
}

/// The topology annotations of a pod set's template, and their path in the job.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TopologySource {
    /// Path of the template's metadata, for errors.
    pub path: Path,
    /// The template's annotations.
    pub annotations: BTreeMap<String, String>,
    /// Labels that number its pods.
    pub ranks: PodRanks,
    /// Appended to every error about the annotations.
    pub hint: &'static str,
}

impl TopologySource {
    /// For a pod set whose template has its pods' annotations.
    pub(super) fn of(pod_set: &PodSet, path: Path, ranks: PodRanks) -> Self {
        let annotations = meta::string_map(&pod_set.template.value(), "/metadata/annotations");
        Self { path, annotations, ranks, hint: "" }
    }

    /// For the pod template at these keys of an object.
    pub(super) fn at(object: &Value, keys: &[&str], ranks: PodRanks) -> Self {
        let pointer = keys.iter().fold(String::new(), |pointer, key| format!("{pointer}/{key}"));
        let path = keys.iter().fold(Path::root(), |path, key| path.child(key)).child("metadata");
        let annotations = meta::string_map(object, &format!("{pointer}/metadata/annotations"));
        Self { path, annotations, ranks, hint: "" }
    }

    /// The topology request of the pod set. `None` if it requests nothing.
    ///
    /// # Errors
    /// [`JobError::TopologyRequest`] if an annotation cannot be parsed.
    pub fn request(&self, gates: TopologyGates) -> Result<Option<PodSetTopologyRequest>, JobError> {
        request(&self.annotations, &self.ranks, gates)
            .map_err(|problem| JobError::TopologyRequest { problem })
    }

    pub(super) fn get(&self, key: &str) -> Option<&str> {
        self.annotations.get(key).map(String::as_str)
    }
}

/// Numbers the pods of a template from 1, because another pod of the job has index 0.
pub(super) fn number_from_one(template: &mut Value) {
    meta::set_annotation(template, names::POD_INDEX_OFFSET, "1");
}

fn request(
    annotations: &BTreeMap<String, String>,
    ranks: &PodRanks,
    gates: TopologyGates,
) -> Result<Option<PodSetTopologyRequest>, String> {
    let get = |key: &str| annotations.get(key).cloned();
    let mut request = PodSetTopologyRequest::default();
    let slice = get(names::POD_SET_SLICE_REQUIRED_TOPOLOGY).zip(get(names::POD_SET_SLICE_SIZE));
    let layers = get(names::POD_SET_SLICE_REQUIRED_TOPOLOGY_CONSTRAINTS);
    if let Some(level) = get(names::POD_SET_REQUIRED_TOPOLOGY) {
        request.required = Some(level);
    } else if let Some(level) = get(names::POD_SET_PREFERRED_TOPOLOGY) {
        request.preferred = Some(level);
    } else if let Some(text) = get(names::POD_SET_UNCONSTRAINED_TOPOLOGY) {
        request.unconstrained = Some(number::parse_bool(&text)?);
    } else if slice.is_none() && layers.is_none() && *ranks == PodRanks::default() {
        return Ok(None);
    }
    if let Some(text) = layers.filter(|_| gates.multi_layer) {
        request.podset_slice_required_topology_constraints = read_layers(&text)?;
    } else if let Some((level, size)) = slice {
        request.pod_set_slice_size = Some(number::int32(&size)?);
        request.pod_set_slice_required_topology = Some(level);
    }
    request.pod_index_label.clone_from(&ranks.pod_index_label);
    request.sub_group_index_label.clone_from(&ranks.sub_group_index_label);
    request.sub_group_count = ranks.sub_group_count;
    if request.required.is_some() || request.preferred.is_some() {
        request.pod_set_group_name = get(names::POD_SET_GROUP_NAME);
    }
    Ok(Some(request))
}

fn read_layers(text: &str) -> Result<Vec<PodsetSliceRequiredTopologyConstraint>, String> {
    let layers = layers(text).map_err(|error| {
        format!("failed to parse multi-layer topology constraints annotation: {error}")
    })?;
    match layers.len() {
        1..=MAX_LAYERS => Ok(layers),
        count => Err(format!("{LAYER_COUNT}: got {count}")),
    }
}

/// Error for a wrong number of slice layers.
pub(super) const LAYER_COUNT: &str = "topology constraints must contain between 1 and 3 entries";

/// Parses layers of slices like Go's decoder: missing fields are empty and unknown fields are
/// ignored.
pub(super) fn layers(
    text: &str,
) -> Result<Vec<PodsetSliceRequiredTopologyConstraint>, serde_json::Error> {
    #[derive(Deserialize, Default)]
    struct Layer {
        #[serde(default)]
        topology: Option<String>,
        #[serde(default)]
        size: Option<i32>,
    }
    let layers: Option<Vec<Option<Layer>>> = serde_json::from_str(text)?;
    let layer = |layer: Option<Layer>| {
        let layer = layer.unwrap_or_default();
        PodsetSliceRequiredTopologyConstraint {
            topology: layer.topology.unwrap_or_default(),
            size: layer.size.unwrap_or_default(),
        }
    };
    Ok(layers.unwrap_or_default().into_iter().map(layer).collect())
}
