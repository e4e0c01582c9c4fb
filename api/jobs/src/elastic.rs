//! Elastic jobs, which change their size while they run (Kueue's `ElasticJobsViaWorkloadSlices`,
//! KEP-77).
//!
//! A running elastic job has a chain of Workloads, its slices. If the job grows, a new slice
//! replaces the last one once it has quota. The job's pods bear a scheduling gate until a slice
//! that counts them is admitted. If the job shrinks, the counts of its Workload are lowered, and it
//! keeps its quota.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::{
    JobKind, equivalence::same_containers, meta, restore_template, workload_name_with_extra,
};
use switchyard_api::{
    slices,
    v1beta2::{PodSet, Workload},
};
use switchyard_syntax::names;

pub use switchyard_api::slices::{
    FEATURE_GATE, in_order, is_outdated, is_slice, mark_first, replacement_for, replaces,
    slice_name,
};

/// Whether the job's annotation marks it as elastic.
#[must_use]
pub fn is_marked(job: &Value) -> bool {
    meta::annotation(job, names::ELASTIC_JOB) == Some("true")
}

/// Whether the job should be elastic in this cluster: it is marked, and its kind can be elastic. A
/// job with a prebuilt Workload keeps the size of that Workload, unless a hub sent both. A job that
/// is handed to MultiKueue is elastic on its worker only.
#[must_use]
pub fn may_be_elastic(kind: &dyn JobKind, job: &Value) -> bool {
    let is_sent =
        || meta::label(job, names::MULTIKUEUE_ORIGIN).is_some_and(|origin| !origin.is_empty());
    is_marked(job)
        && !kind.elastic_templates(job).is_empty()
        && (meta::prebuilt_workload_name(job).is_empty() || is_sent())
        && kind.managed_by(job) != Some(names::MULTIKUEUE_CONTROLLER)
}

/// Whether a hub's job may change its size in its worker cluster. Its pods get their scheduling
/// gate there.
#[must_use]
pub fn is_elastic_elsewhere(kind: &dyn JobKind, job: &Value) -> bool {
    is_marked(job) && kind.resizes() && meta::prebuilt_workload_name(job).is_empty()
}

/// A JSON merge patch that resizes the copy to the size of `wanted`. `None` if the sizes are equal
/// or cannot be compared.
#[must_use]
pub fn resizing(kind: &dyn JobKind, wanted: &Value, there: &Value) -> Option<Value> {
    let size = |job: &Value| kind.pod_sets(job).ok();
    if !(kind.resizes() && is_marked(wanted) && is_marked(there)) {
        return None;
    }
    if compare(&size(wanted)?, &size(there)?) == Size::Incomparable {
        return None;
    }
    let sized_as = |other: &Value| {
        let mut sized = there.clone();
        if let Some(elastic) = kind.elastic() {
            elastic.apply_counts(&mut sized, other);
        }
        sized
    };
    let resized = sized_as(wanted);
    // Compare the fields, not the pod counts: a RayCluster can have equal counts with other hosts
    // per replica. The copy is normalized too, so that defaults written out are no difference.
    if resized == sized_as(there) {
        return None;
    }
    let changed = |(field, value): (&String, &Value)| {
        let before = there.get("spec").and_then(|spec| spec.get(field));
        (before != Some(value)).then(|| (field.clone(), value.clone()))
    };
    let changed: Map<String, Value> =
        resized.get("spec")?.as_object()?.iter().filter_map(changed).collect();
    Some(json!({ "spec": changed }))
}

/// Whether the job may change its size while it runs: [`may_be_elastic`], and its templates have
/// the scheduling gate. Without the gate, as in a job created while the webhook was down, new pods
/// would run whatever the quota.
#[must_use]
pub fn is_elastic(kind: &dyn JobKind, job: &Value) -> bool {
    may_be_elastic(kind, job)
        && kind.elastic_templates(job).iter().all(|template| has_gate(job, template))
}

pub(super) fn has_gate(job: &Value, template: &str) -> bool {
    let gates = job
        .pointer(template)
        .and_then(|it| it.pointer("/spec/schedulingGates"))
        .and_then(Value::as_array);
    gates
        .into_iter()
        .flatten()
        .any(|gate| meta::str_at(gate, "/name") == names::ELASTIC_JOB_SCHEDULING_GATE)
}

/// Adds the scheduling gate to the job's pod templates. Its pods bear it until their slice is
/// admitted.
pub fn gate_pods(kind: &dyn JobKind, job: &mut Value) {
    for template in kind.elastic_templates(job) {
        let Some(spec) =
            job.pointer_mut(&template).and_then(|template| meta::object_mut(template, &["spec"]))
        else {
            continue;
        };
        let gates = spec.entry("schedulingGates").or_insert_with(|| json!([]));
        if gates.is_null() {
            *gates = json!([]);
        }
        let gate = json!({"name": names::ELASTIC_JOB_SCHEDULING_GATE});
        if let Some(gates) = gates.as_array_mut().filter(|gates| !gates.contains(&gate)) {
            gates.push(gate);
        }
    }
}

/// Removes the scheduling gate from the templates. Pods of a job that starts without being elastic
/// would wait for ever.
pub fn ungate_pods(kind: &dyn JobKind, job: &mut Value) {
    for template in kind.elastic_templates(job) {
        let spec = job
            .pointer_mut(&template)
            .and_then(|template| template.get_mut("spec")?.as_object_mut());
        let Some(spec) = spec else { continue };
        let Some(gates) = spec.get_mut("schedulingGates").and_then(Value::as_array_mut) else {
            continue;
        };
        gates.retain(|gate| meta::str_at(gate, "/name") != names::ELASTIC_JOB_SCHEDULING_GATE);
        if gates.is_empty() {
            spec.remove("schedulingGates");
        }
    }
}

/// Whether the job's templates name the chain of this Workload.
#[must_use]
pub fn makes_pods_of(kind: &dyn JobKind, job: &Value, workload: &Workload) -> bool {
    let chain =
        |template: &String| meta::annotation(job.pointer(template)?, names::WORKLOAD_SLICE_NAME);
    let templates = kind.elastic_templates(job);
    !templates.is_empty()
        && templates.iter().all(|template| chain(template) == Some(slice_name(workload)))
}

/// Size of a job relative to its Workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Size {
    /// Equal counts.
    Same,
    /// Some pod sets have fewer pods, and none has more.
    Smaller,
    /// Some pod set has more pods.
    Larger,
    /// Different pod sets.
    Incomparable,
}

/// Compares the pod sets of a job with those of its Workload.
#[must_use]
pub fn compare(job: &[PodSet], workload: &[PodSet]) -> Size {
    if job.len() != workload.len() {
        return Size::Incomparable;
    }
    let mut size = Size::Same;
    for before in workload {
        let Some(now) = job.iter().find(|now| now.name == before.name) else {
            return Size::Incomparable;
        };
        size = match now.count.cmp(&before.count) {
            std::cmp::Ordering::Greater => Size::Larger,
            std::cmp::Ordering::Less if size == Size::Same => Size::Smaller,
            _ => size,
        };
    }
    size
}

/// Whether a pod set of the job has other containers than in the Workload. Users may
/// change the templates of a running job of some kinds.
#[must_use]
pub fn has_other_containers(workload: &[PodSet], job: &[PodSet]) -> bool {
    let of_job = |before: &PodSet| job.iter().find(|now| now.name == before.name);
    let differs = |before: &PodSet| {
        of_job(before)
            .is_some_and(|now| !same_containers(&before.template.value(), &now.template.value()))
    };
    workload.iter().any(differs)
}

/// The Workload's pod sets with the job's counts. The templates are the Workload's, because a
/// running job's include the additions of admission.
#[must_use]
pub fn resized(workload: &[PodSet], job: &[PodSet]) -> Vec<PodSet> {
    let resized = |before: &PodSet| {
        let count =
            job.iter().find(|now| now.name == before.name).map_or(before.count, |now| now.count);
        PodSet { count, ..before.clone() }
    };
    workload.iter().map(resized).collect()
}

/// The pod sets of the next slice of a growing job: [`resized`], with the job's own templates where
/// the containers have changed.
#[must_use]
pub fn grown(workload: &[PodSet], job: &[PodSet]) -> Vec<PodSet> {
    let mut grown = resized(workload, job);
    for pod_set in &mut grown {
        let Some(now) = job.iter().find(|now| now.name == pod_set.name) else { continue };
        let (before, mut template) = (pod_set.template.value(), (*now.template.value()).clone());
        if !same_containers(&before, &template) {
            restore_template(&mut template, &before, &[]);
            pod_set.template = template.into();
        }
    }
    grown
}

/// Turns a new Workload into a slice of an elastic job.
///
/// Marks it, names it after the job's generation, and records the first slice of its chain and the
/// slice that it replaces. `known` are the job's existing Workloads, which may include a finished
/// slice of the same generation.
pub fn mark_slice(
    kind: &dyn JobKind,
    job: &Value,
    workload: &mut Workload,
    replaced: Option<&Workload>,
    known: &[Arc<Workload>],
) {
    workload.metadata.name = Some(free_name(kind, job, known));
    mark_first(workload);
    if let Some(replaced) = replaced {
        let annotations = workload.metadata.annotations.get_or_insert_default();
        annotations.insert(names::WORKLOAD_SLICE_NAME.into(), slice_name(replaced).to_owned());
        annotations.insert(names::WORKLOAD_SLICE_REPLACEMENT_FOR.into(), slices::key(replaced));
    }
}

/// Kueue's name of a slice for the job's generation. If a Workload of the job has that name,
/// another name.
fn free_name(kind: &dyn JobKind, job: &Value, known: &[Arc<Workload>]) -> String {
    let generation = kind.elastic().map(|elastic| elastic.size_generation(job));
    let (id, generation) =
        (kind.id(), generation.unwrap_or_else(|| meta::generation(job).to_string()));
    let name = |extra: &str| {
        workload_name_with_extra(id.kind, id.group, meta::name(job), meta::uid(job), extra)
    };
    let first = name(&generation);
    let taken =
        |name: &String| known.iter().any(|workload| workload.metadata.name.as_ref() == Some(name));
    let others = (1..=2 * known.len()).map(|n| name(&format!("{generation}-{n}")));
    // There are more candidates than Workloads, so one is free.
    std::iter::once(first.clone()).chain(others).find(|name| !taken(name)).unwrap_or(first)
}
