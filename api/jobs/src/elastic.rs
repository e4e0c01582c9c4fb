//! Jobs that change their size while they run: Kueue's `ElasticJobsViaWorkloadSlices` (KEP-77).
//!
//! A job that is marked so has, once it runs, a chain of workloads: what it grows to is a new one, a slice, that replaces the
//! one before it once it has quota. Its pods bear a scheduling gate until a slice that counts them is admitted. When the job
//! shrinks, its workload keeps its quota with lower counts.

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

/// Whether a job's annotation says that it is elastic.
#[must_use]
pub fn is_marked(job: &Value) -> bool {
    meta::annotation(job, names::ELASTIC_JOB) == Some("true")
}

/// Whether a job is to be elastic here: it is marked so and of a kind for which that is possible. One whose workload somebody
/// else has made is of that one's size, unless a hub has.
#[must_use]
pub fn may_be_elastic(kind: &dyn JobKind, job: &Value) -> bool {
    let is_sent =
        || meta::label(job, names::MULTIKUEUE_ORIGIN).is_some_and(|origin| !origin.is_empty());
    is_marked(job)
        && !kind.elastic_templates(job).is_empty()
        && (meta::prebuilt_workload_name(job).is_empty() || is_sent())
        && kind.managed_by(job) != Some(names::MULTIKUEUE_CONTROLLER)
}

/// Whether a job that a hub sends to another cluster may change its size while it runs there. Its pods get their scheduling
/// gate on that cluster.
#[must_use]
pub fn is_elastic_elsewhere(kind: &dyn JobKind, job: &Value) -> bool {
    is_marked(job) && kind.resizes() && meta::prebuilt_workload_name(job).is_empty()
}

/// A JSON merge patch that gives the job that is there the size of another, if it is of another size.
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
    // As many pods may be of other hosts. What only writes its own size in another way has it already.
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

/// Whether a job may change its size while it runs: [`may_be_elastic`], and its pods come gated. Those of one that was made
/// while no webhook put the gate into it would run as soon as it grows, whatever the quota.
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

/// Puts the scheduling gate into the job's pod templates, from which its pods have it until their slice is admitted.
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

/// Takes that gate out again: the pods of a job that starts without being elastic would wait for ever.
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

/// Whether the pods that a job makes now say that they are of the chain of this workload.
#[must_use]
pub fn makes_pods_of(kind: &dyn JobKind, job: &Value, workload: &Workload) -> bool {
    let chain =
        |template: &String| meta::annotation(job.pointer(template)?, names::WORKLOAD_SLICE_NAME);
    let templates = kind.elastic_templates(job);
    !templates.is_empty()
        && templates.iter().all(|template| chain(template) == Some(slice_name(workload)))
}

/// How the size of a job compares to that of a workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Size {
    /// It is the same.
    Same,
    /// Some pod sets have fewer pods, none has more.
    Smaller,
    /// Some pod set has more pods.
    Larger,
    /// They have not the same pod sets.
    Incomparable,
}

/// How the size of a job, as its pod sets have it, compares to that of a workload.
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

/// Whether pods of the job would run other containers than the workload's do, which the templates of some kinds let them while
/// the job runs.
#[must_use]
pub fn runs_others(workload: &[PodSet], job: &[PodSet]) -> bool {
    let of_job = |before: &PodSet| job.iter().find(|now| now.name == before.name);
    let differs = |before: &PodSet| {
        of_job(before)
            .is_some_and(|now| !same_containers(&before.template.value(), &now.template.value()))
    };
    workload.iter().any(differs)
}

/// A workload's pod sets with the counts of the job's. The templates stay: a running job's bear what admission put there.
#[must_use]
pub fn resized(workload: &[PodSet], job: &[PodSet]) -> Vec<PodSet> {
    let resized = |before: &PodSet| {
        let count =
            job.iter().find(|now| now.name == before.name).map_or(before.count, |now| now.count);
        PodSet { count, ..before.clone() }
    };
    workload.iter().map(resized).collect()
}

/// The pod sets of what a job grows to: [`resized`], and where the containers have changed since, which the templates of some
/// kinds may while they run, they are the job's.
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

/// Makes a new workload of an elastic job one: it says so, has a name of its own for each generation of the job, and names
/// the first of its chain and the one that it replaces. `known` are the workloads that the job has: a slice of the same
/// generation may be among them that somebody ended.
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

/// Makes a workload that has its name the first of a chain.
pub fn mark_first(workload: &mut Workload) {
    let name = workload.metadata.name.clone().unwrap_or_default();
    let annotations = workload.metadata.annotations.get_or_insert_default();
    annotations.insert(names::ELASTIC_JOB.into(), "true".into());
    annotations.insert(names::WORKLOAD_SLICE_NAME.into(), name);
}

/// Kueue's name of a slice, which is of the job's generation; and where the job has one of that name, another.
fn free_name(kind: &dyn JobKind, job: &Value, known: &[Arc<Workload>]) -> String {
    let (id, generation) = (kind.id(), kind.size_generation(job));
    let name = |extra: &str| {
        workload_name_with_extra(id.kind, id.group, meta::name(job), meta::uid(job), extra)
    };
    let first = name(&generation);
    let taken =
        |name: &String| known.iter().any(|workload| workload.metadata.name.as_ref() == Some(name));
    let others = (1..=2 * known.len()).map(|n| name(&format!("{generation}-{n}")));
    // Of more names than there are workloads one is free.
    std::iter::once(first.clone()).chain(others).find(|name| !taken(name)).unwrap_or(first)
}

/// Whether more pods of an elastic job are said to be reclaimable than there are: that was said before it shrank, and says
/// nothing.
#[must_use]
pub fn is_outdated(workload: &Workload, pods: &ReclaimablePod) -> bool {
    let pod_set = workload.spec.pod_sets.iter().find(|pod_set| pod_set.name == pods.name);
    is_slice(workload) && pod_set.is_some_and(|pod_set| pods.count > pod_set.count)
}

/// The name that the workloads of a chain have in common, and their pods: that of the first of them.
#[must_use]
pub fn slice_name(workload: &Workload) -> &str {
    annotation(workload, names::WORKLOAD_SLICE_NAME)
        .or(workload.metadata.name.as_deref())
        .unwrap_or_default()
}

/// The workload that this one replaces, as `namespace/name`.
#[must_use]
pub fn replacement_for(workload: &Workload) -> Option<&str> {
    annotation(workload, names::WORKLOAD_SLICE_REPLACEMENT_FOR)
}

/// Whether one workload says that it replaces the other.
#[must_use]
pub fn replaces(new: &Workload, old: &Workload) -> bool {
    replacement_for(new).is_some_and(|replaced| replaced == key(old))
}

/// The workloads of one job in the order in which they were made. Times are whole seconds: of one second, what replaces another
/// was made after it.
#[must_use]
pub fn in_order(mut workloads: Vec<Arc<Workload>>) -> Vec<Arc<Workload>> {
    let all = workloads.clone();
    let before = |new: &Arc<Workload>| all.iter().find(|old| replaces(new, old));
    // No chain is longer than there are workloads, unless somebody has closed it to a ring.
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

/// What is wrong with a job's being elastic, where the feature gate is on. `old` is what it was before a change.
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

/// Only a Job could have fewer pods than it asks for as well.
fn with_partial_admission(job: &Value) -> Option<FieldError> {
    let text = meta::annotation(job, names::JOB_MIN_PARALLELISM)?;
    Some(FieldError::invalid(
        &meta::annotation_path(names::JOB_MIN_PARALLELISM),
        text,
        WITH_PARTIAL,
    ))
}

/// The templates of a RayCluster may change while it runs. One that comes without the gate would have its pods run whatever
/// the quota.
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

/// What is wrong with a job whose own controller changes its size: whatever it adds has to wait for quota. `enabled` tells
/// that the feature gate is on.
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
    // Kueue says it of a RayCluster in one way, and of what holds the spec of one in another.
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

/// A JSON pointer as the path of a field.
fn path_of(pointer: &str) -> Path {
    pointer.split('/').skip(1).fold(Path::root(), |path, part| match part.parse() {
        Ok(index) => path.index(index),
        Err(_) => path.child(part),
    })
}
