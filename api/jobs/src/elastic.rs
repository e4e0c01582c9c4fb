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
    JobKind, batch_job::BatchJob, equivalence::same_containers, meta, ray, restore_template,
    workload_name_with_extra,
};
use switchyard_api::v1beta2::{PodSet, ReclaimablePod, Workload};
use switchyard_syntax::{
    field::{FieldError, Path},
    names,
};

pub use switchyard_api::slices::{FEATURE_GATE, is_slice};

const WITH_PARTIAL: &str = "partial admission and elastic job cannot be used together";

/// Whether the job's annotation marks it as elastic.
#[must_use]
pub fn is_marked(job: &Value) -> bool {
    meta::annotation(job, names::ELASTIC_JOB) == Some("true")
}

/// Whether the job should be elastic in this cluster: it is marked, and its kind can be elastic. A
/// job with a prebuilt Workload has the size of that Workload, unless a hub sent both. A job that
/// is handed to MultiKueue is elastic on its worker.
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
        kind.take_size(&mut sized, other);
        sized
    };
    let resized = sized_as(wanted);
    // Equal pod counts may come from different hosts per worker. A copy that only writes its size
    // differently needs no change.
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
        && kind.elastic_templates(job).iter().all(|template| is_gated(job, template))
}

fn is_gated(job: &Value, template: &str) -> bool {
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

/// Whether the job's containers differ from the Workload's. Some kinds allow changes of the
/// templates while the job runs.
#[must_use]
pub fn runs_others(workload: &[PodSet], job: &[PodSet]) -> bool {
    let of_job = |before: &PodSet| job.iter().find(|now| now.name == before.name);
    let differs = |before: &PodSet| {
        of_job(before)
            .is_some_and(|now| !same_containers(&before.template.value(), &now.template.value()))
    };
    workload.iter().any(differs)
}

/// The Workload's pod sets with the job's counts. The templates stay, because those of a running
/// job include the admission's additions.
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
        annotations.insert(names::WORKLOAD_SLICE_REPLACEMENT_FOR.into(), key(replaced));
    }
}

/// Marks a named Workload as the first slice of a chain.
pub fn mark_first(workload: &mut Workload) {
    let name = workload.metadata.name.clone().unwrap_or_default();
    let annotations = workload.metadata.annotations.get_or_insert_default();
    annotations.insert(names::ELASTIC_JOB.into(), "true".into());
    annotations.insert(names::WORKLOAD_SLICE_NAME.into(), name);
}

/// Kueue's name of a slice for the job's generation. If a Workload of the job has that name,
/// another name.
fn free_name(kind: &dyn JobKind, job: &Value, known: &[Arc<Workload>]) -> String {
    let (id, generation) = (kind.id(), kind.size_generation(job));
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

/// Whether a count of reclaimable pods exceeds the pods of an elastic job. It is then from
/// before the job shrank and is ignored.
#[must_use]
pub fn is_outdated(workload: &Workload, pods: &ReclaimablePod) -> bool {
    let pod_set = workload.spec.pod_sets.iter().find(|pod_set| pod_set.name == pods.name);
    is_slice(workload) && pod_set.is_some_and(|pod_set| pods.count > pod_set.count)
}

/// The name of the chain, which is the name of its first slice. The pods bear it, too.
#[must_use]
pub fn slice_name(workload: &Workload) -> &str {
    annotation(workload, names::WORKLOAD_SLICE_NAME)
        .or(workload.metadata.name.as_deref())
        .unwrap_or_default()
}

/// The slice that this one replaces, as `namespace/name`.
#[must_use]
pub fn replacement_for(workload: &Workload) -> Option<&str> {
    annotation(workload, names::WORKLOAD_SLICE_REPLACEMENT_FOR)
}

/// Whether `new` replaces `old`.
#[must_use]
pub fn replaces(new: &Workload, old: &Workload) -> bool {
    replacement_for(new).is_some_and(|replaced| replaced == key(old))
}

/// The Workloads of one job in the order of creation. Creation times have whole seconds. Within a
/// second, a slice comes after the slice that it replaces.
#[must_use]
pub fn in_order(mut workloads: Vec<Arc<Workload>>) -> Vec<Arc<Workload>> {
    let all = workloads.clone();
    let before = |new: &Arc<Workload>| all.iter().find(|old| replaces(new, old));
    // Ends the walk if a user has linked the chain to a ring.
    let place = |workload: &Arc<Workload>| {
        std::iter::successors(before(workload), |it| before(it)).take(all.len()).count()
    };
    workloads.sort_by_cached_key(|it| {
        let made = it.metadata.creation_timestamp.as_ref().map(|time| time.0);
        (made, place(it), it.metadata.uid.clone())
    });
    workloads
}

fn annotation<'a>(workload: &'a Workload, name: &str) -> Option<&'a str> {
    workload.metadata.annotations.as_ref()?.get(name).map(String::as_str)
}

fn key(workload: &Workload) -> String {
    let part = |part: &Option<String>| part.clone().unwrap_or_default();
    format!("{}/{}", part(&workload.metadata.namespace), part(&workload.metadata.name))
}

/// Errors of a job's elastic annotation, with the feature gate on. `old` is the job before an
/// update.
#[must_use]
pub fn validate(kind: &dyn JobKind, old: Option<&Value>, job: &Value) -> Vec<FieldError> {
    let path = &meta::annotation_path(names::ELASTIC_JOB);
    if let Some(old) = old {
        let (before, now) = (is_marked(old), is_marked(job));
        let changed = (before != now)
            .then(|| FieldError::invalid(path, Value::from(now), "field is immutable"));
        return changed.into_iter().chain(gates_lost(kind, old, job)).collect();
    }
    let id = kind.id();
    if !is_marked(job) || kind.skips(job) {
        return Vec::new();
    }
    if kind.elastic_templates(job).is_empty() {
        let gvk = format!("{}, Kind={}", id.api_version(), id.kind);
        return vec![FieldError::forbidden(
            path,
            &format!("elastic job is not supported for {gvk:?}"),
        )];
    }
    if id == BatchJob.id() { with_partial_admission(job).into_iter().collect() } else { Vec::new() }
}

/// The error of a Job that is both elastic and partially admitted.
fn with_partial_admission(job: &Value) -> Option<FieldError> {
    let text = meta::annotation(job, names::JOB_MIN_PARALLELISM)?;
    Some(FieldError::invalid(
        &meta::annotation_path(names::JOB_MIN_PARALLELISM),
        text,
        WITH_PARTIAL,
    ))
}

/// Errors of lost scheduling gates. The templates of a RayCluster may change while it runs, and
/// without the gate its new pods would run whatever the quota.
fn gates_lost(kind: &dyn JobKind, old: &Value, job: &Value) -> Vec<FieldError> {
    if kind.id() != ray::RAY_CLUSTER.id() || !is_elastic(kind, old) || !may_be_elastic(kind, job) {
        return Vec::new();
    }
    let gate = names::ELASTIC_JOB_SCHEDULING_GATE;
    let detail = format!("an elastic job must have the ElasticJobSchedulingGate: {gate:?}");
    let lost = |template: &String| {
        let gates =
            job.pointer(template).and_then(|it| it.pointer("/spec/schedulingGates")).cloned();
        let path = path_of(template).child("spec").child("schedulingGates");
        FieldError::invalid(&path, gates.unwrap_or_default(), &detail)
    };
    kind.elastic_templates(job)
        .iter()
        .filter(|template| !is_gated(job, template))
        .map(lost)
        .collect()
}

/// The error of a job with an autoscaler that is not elastic: what the autoscaler adds has to wait
/// for quota. `enabled` is the feature gate of elastic jobs.
#[must_use]
pub fn validate_autoscaling(kind: &dyn JobKind, job: &Value, enabled: bool) -> Option<FieldError> {
    let path = kind.autoscales(job).filter(|_| !(enabled && may_be_elastic(kind, job)))?;
    if is_marked(job) && enabled {
        let detail = format!(
            "in-tree autoscaling is not supported for a MultiKueue-managed elastic {}",
            kind.id().kind
        );
        return Some(FieldError::forbidden(&path, &detail));
    }
    // Kueue has one message for RayClusters and one for kinds that contain the spec of one.
    let how = format!(
        "enable the {FEATURE_GATE} feature gate and set the {:?}: \"true\" annotation",
        names::ELASTIC_JOB
    );
    let detail = match kind.id() == ray::RAY_CLUSTER.id() {
        true => {
            format!("a kueue-managed RayCluster can use autoscaling only as an elastic job: {how}")
        }
        false => format!(
            "a kueue managed job should only use autoscaling when workload slicing is enabled: {how}"
        ),
    };
    Some(FieldError::invalid(&path, Value::from(true), detail))
}

/// Converts a JSON pointer to a field path.
fn path_of(pointer: &str) -> Path {
    pointer.split('/').skip(1).fold(Path::root(), |path, part| match part.parse() {
        Ok(index) => path.index(index),
        Err(_) => path.child(part),
    })
}
