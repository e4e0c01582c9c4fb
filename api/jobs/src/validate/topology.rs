//! The webhook's checks of topology annotations (Kueue's
//! `pkg/controller/jobframework/tas_validation.go`).

use std::collections::BTreeMap;

use serde_json::Value;

use crate::topology::{LAYER_COUNT, MAX_LAYERS, TopologyGates, TopologySource, layers};
use crate::{JobKind, KindProfile, SuspendMode, batch_job::BatchJob, elastic, number};
use switchyard_api::v1beta2::{PodSet, PodsetSliceRequiredTopologyConstraint};
use switchyard_syntax::{
    field::{FieldError, Path},
    labels::label_key_error,
    names,
};

/// One pod set, as far as the webhook knows it.
pub(super) struct AnnotatedPodSet {
    pub(super) source: TopologySource,
    /// Number of its pods, if that bounds the size of a slice.
    pub(super) count: Option<i32>,
}

/// Errors of the topology annotations of a job's pod sets. `elastic` is the feature gate
/// `ElasticJobsViaWorkloadSlices`.
#[must_use]
pub fn validate_topology(
    kind: &dyn JobKind,
    job: &Value,
    gates: TopologyGates,
    elastic: bool,
) -> Vec<FieldError> {
    if !gates.aware || kind.skips(job) {
        return Vec::new();
    }
    let pod_sets = annotated_pod_sets(kind, job);
    let mut errors = Vec::new();
    for pod_set in &pod_sets {
        errors.extend(one(pod_set, gates));
        if elastic && kind.id() == BatchJob.id() && elastic::is_marked(job) {
            errors.extend(of_elastic(&pod_set.source));
        }
    }
    errors.extend(groups(&pod_sets));
    let hint = pod_sets.first().map_or("", |pod_set| pod_set.source.hint);
    errors.iter_mut().for_each(|error| error.message.push_str(hint));
    errors
}

/// The pod sets of a job. Empty if they cannot be determined: the reconciler reports that error.
fn annotated_pod_sets(kind: &dyn JobKind, job: &Value) -> Vec<AnnotatedPodSet> {
    // Each pod of such an object is a job.
    let pod_sets = match (kind.suspend_mode(), kind.serving()) {
        (SuspendMode::Pods, None) => vec![PodSet::default()],
        _ => kind.pod_sets(job).unwrap_or_default(),
    };
    let annotated = |(index, pod_set): (usize, &PodSet)| AnnotatedPodSet {
        source: kind.topology_source(job, index, pod_set),
        count: bound(kind, pod_set.count),
    };
    pod_sets.iter().enumerate().map(annotated).collect()
}

/// The bound of a slice's size. Unknown for a pod, whose group size is not known here, and for a
/// Deployment. An object that is scaled to zero keeps its annotations, so it has no bound.
fn bound(kind: &dyn JobKind, count: i32) -> Option<i32> {
    match kind.suspend_mode() {
        SuspendMode::Field => Some(count),
        SuspendMode::Pods if kind.serving().is_some() => Some(count).filter(|count| *count > 0),
        SuspendMode::Pods | SuspendMode::Gate => None,
    }
}

/// Errors of one pod set.
pub(super) fn one(pod_set: &AnnotatedPodSet, gates: TopologyGates) -> Vec<FieldError> {
    let source = &pod_set.source;
    let path = source.path.child("annotations");
    let mut errors = Vec::new();
    level(source, &path, &mut errors);
    group_name(source, &path, &mut errors);
    unconstrained(source, &path, &mut errors);
    slice(source, &path, &mut errors);
    layered(source, &path, gates, &mut errors);
    offset(source, &path, &mut errors);
    if let Some(count) = pod_set.count.filter(|_| errors.is_empty()) {
        errors.extend(too_large(source, &path, count));
    }
    errors
}

const REQUIRED: &str = names::POD_SET_REQUIRED_TOPOLOGY;
const PREFERRED: &str = names::POD_SET_PREFERRED_TOPOLOGY;
const UNCONSTRAINED: &str = names::POD_SET_UNCONSTRAINED_TOPOLOGY;
const SLICE_REQUIRED: &str = names::POD_SET_SLICE_REQUIRED_TOPOLOGY;
const SLICE_SIZE: &str = names::POD_SET_SLICE_SIZE;
const LAYERS: &str = names::POD_SET_SLICE_REQUIRED_TOPOLOGY_CONSTRAINTS;
const GROUP: &str = names::POD_SET_GROUP_NAME;
const OFFSET: &str = names::POD_INDEX_OFFSET;

fn level(source: &TopologySource, path: &Path, errors: &mut Vec<FieldError>) {
    let given = [REQUIRED, PREFERRED, UNCONSTRAINED].iter().filter(|key| source.get(key).is_some());
    if given.count() > 1 {
        let detail = format!(
            "must not contain more than one topology annotation: [{REQUIRED:?}, {PREFERRED:?}, {UNCONSTRAINED:?}]"
        );
        errors.push(FieldError::invalid_without_value(path, &detail));
    }
    for key in [REQUIRED, PREFERRED, SLICE_REQUIRED] {
        errors.extend(source.get(key).and_then(|level| label(&path.key(key), level)));
    }
}

fn label(path: &Path, level: &str) -> Option<FieldError> {
    label_key_error(level).map(|detail| FieldError::invalid(path, level, detail))
}

fn group_name(source: &TopologySource, path: &Path, errors: &mut Vec<FieldError>) {
    let Some(name) = source.get(GROUP) else { return };
    let path = path.key(GROUP);
    // As Go parses an unsigned number: without a sign.
    if name.bytes().all(|byte| byte.is_ascii_digit()) && name.parse::<u64>().is_ok() {
        errors.push(FieldError::invalid(&path, name, "must not be a number"));
    }
    for key in [SLICE_SIZE, SLICE_REQUIRED].into_iter().filter(|key| source.get(key).is_some()) {
        errors.push(FieldError::forbidden(&path, &with(key)));
    }
    if source.get(PREFERRED).is_none() && source.get(REQUIRED).is_none() {
        let detail =
            format!("may not be set when neither '{PREFERRED}' nor '{REQUIRED}' is specified");
        errors.push(FieldError::forbidden(&path, &detail));
    }
}

fn with(key: &str) -> String {
    format!("may not be set when '{key}' is specified")
}

fn unconstrained(source: &TopologySource, path: &Path, errors: &mut Vec<FieldError>) {
    if let Some(text) = source.get(UNCONSTRAINED).filter(|text| number::parse_bool(text).is_err()) {
        errors.push(FieldError::invalid(&path.key(UNCONSTRAINED), text, "must be a boolean value"));
    }
}

fn slice(source: &TopologySource, path: &Path, errors: &mut Vec<FieldError>) {
    let path = path.key(SLICE_SIZE);
    let (level, size) = (source.get(SLICE_REQUIRED), source.get(SLICE_SIZE));
    if let Some(text) = size {
        match number::int32(text) {
            Err(_) => errors.push(FieldError::invalid(&path, text, "must be a numeric value")),
            Ok(..1) => {
                errors.push(FieldError::invalid(&path, text, "must be greater than or equal to 1"))
            }
            Ok(_) => {}
        }
    }
    match (level, size) {
        (Some(_), None) => {
            errors.push(FieldError::required(
                &path,
                &format!("must be set when '{SLICE_REQUIRED}' is specified"),
            ));
        }
        (None, Some(_)) => {
            let detail = format!("may not be set when '{SLICE_REQUIRED}' is not specified");
            errors.push(FieldError::forbidden(&path, &detail));
        }
        _ => {}
    }
}

/// Errors of `pod-index-offset`, which must not be set in a pod set group. Kueue has this check
/// since 0.19.5.
fn offset(source: &TopologySource, path: &Path, errors: &mut Vec<FieldError>) {
    let Some(text) = source.get(OFFSET) else { return };
    let path = path.key(OFFSET);
    if text.parse::<u32>().is_err() {
        errors.push(FieldError::invalid(&path, text, "must be a whole number of at least 0"));
    }
    if source.get(GROUP).is_some() {
        errors.push(FieldError::forbidden(&path, &with(GROUP)));
    }
}

/// Errors of slice layers. The scheduler checks that levels go from coarse to fine, because only
/// then the Topology is known.
fn layered(
    source: &TopologySource,
    path: &Path,
    gates: TopologyGates,
    errors: &mut Vec<FieldError>,
) {
    let Some(text) = source.get(LAYERS) else { return };
    let at = path.key(LAYERS);
    if !gates.multi_layer {
        let detail =
            "the TASMultiLayerTopology feature gate must be enabled to use this annotation";
        errors.push(FieldError::forbidden(&at, detail));
        return;
    }
    for key in [SLICE_REQUIRED, SLICE_SIZE].into_iter().filter(|key| source.get(key).is_some()) {
        errors.push(FieldError::forbidden(&at, &with(key)));
    }
    if source.get(GROUP).is_some() {
        errors.push(FieldError::forbidden(&path.key(GROUP), &with(LAYERS)));
    }
    match layers(text) {
        Err(error) => {
            errors.push(FieldError::invalid(
                &at,
                text,
                format!("must be a valid JSON array: {error}"),
            ));
        }
        Ok(layers) if !(1..=MAX_LAYERS).contains(&layers.len()) => {
            errors.push(FieldError::invalid(&at, text, LAYER_COUNT));
        }
        Ok(layers) => each_layer(&layers, &at, errors),
    }
}

fn each_layer(
    layers: &[PodsetSliceRequiredTopologyConstraint],
    path: &Path,
    errors: &mut Vec<FieldError>,
) {
    for (index, layer) in layers.iter().enumerate() {
        let path = path.index(index);
        errors.extend(label(&path.child("topology"), &layer.topology));
        if layer.size < 1 {
            errors.push(FieldError::invalid(
                &path.child("size"),
                layer.size,
                "must be greater than or equal to 1",
            ));
        }
    }
    for (index, layer) in layers.iter().enumerate() {
        let before = layers.iter().take(index).position(|before| before.topology == layer.topology);
        if let Some(before) = before {
            let value = format!("{} (also at index {before})", layer.topology);
            errors.push(FieldError::duplicate(&path.index(index).child("topology"), value));
        }
    }
    for (index, (outer, inner)) in layers.iter().zip(layers.iter().skip(1)).enumerate() {
        if inner.size > 0 && outer.size % inner.size != 0 {
            let detail = format!("must evenly divide the parent layer size {}", outer.size);
            errors.push(FieldError::invalid(
                &path.index(index + 1).child("size"),
                inner.size,
                detail,
            ));
        }
    }
}

/// A slice must not have more pods than the pod set.
fn too_large(source: &TopologySource, path: &Path, count: i32) -> Vec<FieldError> {
    let detail = format!("must not be greater than pod set count {count}");
    let size =
        source.get(SLICE_SIZE).filter(|text| number::int32(text).is_ok_and(|size| size > count));
    let size = size.map(|text| FieldError::invalid(&path.key(SLICE_SIZE), text, &detail));
    let outer = source.get(LAYERS).and_then(|text| Some(layers(text).ok()?.first()?.size));
    let outer = outer.filter(|size| *size > count);
    let outer = outer.map(|size| FieldError::invalid(&path.key(LAYERS), size, &detail));
    size.into_iter().chain(outer).collect()
}

/// The pods of an elastic Job may run anywhere, so a topology request is an error.
fn of_elastic(source: &TopologySource) -> Option<FieldError> {
    let (key, asks) = [(REQUIRED, "required"), (PREFERRED, "preferred")]
        .into_iter()
        .find(|(key, _)| source.get(key).is_some())?;
    let detail = format!("{asks} topology is not supported with elastic jobs");
    Some(FieldError::forbidden(&source.path.child("annotations").key(key), &detail))
}

/// Errors of pod set groups. A group must have two pod sets, one of them with one pod, and both
/// must request the same level.
pub(super) fn groups(pod_sets: &[AnnotatedPodSet]) -> Vec<FieldError> {
    let mut groups: BTreeMap<&str, Vec<&AnnotatedPodSet>> = BTreeMap::new();
    for pod_set in pod_sets {
        // A group name without a level is an error of the pod set itself.
        let asks =
            pod_set.source.get(REQUIRED).is_some() || pod_set.source.get(PREFERRED).is_some();
        if let Some(name) = pod_set.source.get(GROUP).filter(|_| asks) {
            groups.entry(name).or_default().push(pod_set);
        }
    }
    let errors = |(name, members): (&str, Vec<&AnnotatedPodSet>)| match members.as_slice() {
        [a, b] => pair(name, a, b),
        members => {
            let count = members.len();
            let detail =
                format!("can only define groups of exactly 2 pod sets, got: {count} pod set(s)");
            members
                .iter()
                .map(|pod_set| FieldError::invalid(&name_of(pod_set), name, &detail))
                .collect()
        }
    };
    groups.into_iter().flat_map(errors).collect()
}

fn name_of(pod_set: &AnnotatedPodSet) -> Path {
    pod_set.source.path.child("annotations").key(GROUP)
}

fn pair(name: &str, a: &AnnotatedPodSet, b: &AnnotatedPodSet) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if let (Some(of_a), Some(of_b)) = (a.count, b.count)
        && of_a != 1
        && of_b != 1
    {
        let detail = format!(
            "can only define groups where at least one pod set has only 1 replica, got: {of_a} replica(s) and {of_b} replica(s) in the group"
        );
        errors.extend([a, b].map(|pod_set| FieldError::invalid(&name_of(pod_set), name, &detail)));
    }
    // A required level overrides a preferred one.
    let wants = |pod_set: &AnnotatedPodSet| {
        let required = pod_set.source.get(REQUIRED).map(str::to_owned);
        let preferred =
            pod_set.source.get(PREFERRED).filter(|_| required.is_none()).map(str::to_owned);
        (required, preferred)
    };
    if wants(a) != wants(b) {
        let [of_a, of_b] = [a, b].map(|pod_set| pod_set.source.path.child("annotations"));
        let detail = |other: &Path| {
            format!(
                "must specify '{REQUIRED}' or '{PREFERRED}' topology consistent with '{other}' in group '{name}'"
            )
        };
        errors.push(FieldError::invalid_without_value(&of_a, &detail(&of_b)));
        errors.push(FieldError::invalid_without_value(&of_b, &detail(&of_a)));
    }
    errors
}
