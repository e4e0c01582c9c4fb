//! Builds the Workload of a job.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::core::ObjectMeta;
use serde_json::Value;

use super::kind::Group;
use super::{
    BuildOptions, JobError, JobKind, Priority, TopologyGates, meta, owner_gvk, pod, workload_name,
};
use switchyard_api::v1beta2::{PodSet, Workload, WorkloadSpec};
use switchyard_syntax::{affinity, names};

/// The pod sets of a job for its Workload. If an environment variable occurs twice in a container,
/// the last value stays at the place of the first, because the Workload's list is keyed by name.
///
/// # Errors
/// Errors of [`JobKind::pod_sets`].
pub fn job_pod_sets(kind: &dyn JobKind, job: &Value) -> Result<Vec<PodSet>, JobError> {
    let mut pod_sets = kind.pod_sets(job)?;
    for pod_set in &mut pod_sets {
        for field in ["containers", "initContainers"] {
            let containers =
                pod_set.template.value_mut().get_mut("spec").and_then(|s| s.get_mut(field));
            for container in containers.and_then(Value::as_array_mut).into_iter().flatten() {
                if let Some(env) = container.get_mut("env").and_then(Value::as_array_mut) {
                    keep_last_of_each_name(env);
                }
            }
        }
    }
    Ok(pod_sets)
}

/// [`job_pod_sets`] with their topology requests.
///
/// # Errors
/// Errors of [`JobKind::pod_sets`], and [`JobError::TopologyRequest`].
pub fn pod_sets_with_topology(
    kind: &dyn JobKind,
    job: &Value,
    gates: TopologyGates,
) -> Result<Vec<PodSet>, JobError> {
    let mut pod_sets = job_pod_sets(kind, job)?;
    if gates.aware {
        for (index, pod_set) in pod_sets.iter_mut().enumerate() {
            pod_set.topology_request = kind.topology_source(job, index, pod_set).request(gates)?;
        }
    }
    Ok(pod_sets)
}

fn keep_last_of_each_name(env: &mut Vec<Value>) {
    let mut unique: Vec<Value> = Vec::with_capacity(env.len());
    let mut place: BTreeMap<String, usize> = BTreeMap::new();
    for variable in env.drain(..) {
        let name = meta::str_at(&variable, "/name").to_owned();
        match place.get(&name).and_then(|at| unique.get_mut(*at)) {
            Some(earlier) => *earlier = variable,
            None => {
                place.insert(name, unique.len());
                unique.push(variable);
            }
        }
    }
    *env = unique;
}

/// The Workload of a job: finalizer, label with the job's uid, controller reference, queue, pod
/// sets, priority and maximum execution time, as in Kueue's
/// `pkg/controller/jobframework/reconciler.go`. The Workload of a group has the group's name, and
/// all members own it.
#[must_use]
pub fn build_workload(
    kind: &dyn JobKind,
    job: &Value,
    pod_sets: Vec<PodSet>,
    priority: &Priority,
    options: BuildOptions<'_>,
) -> Workload {
    let id = kind.id();
    let mut labels: BTreeMap<String, String> = meta::string_map(job, "/metadata/labels");
    labels.retain(|key, _| options.label_keys_to_copy.contains(key));
    let mut annotations = meta::string_map(job, "/metadata/annotations");
    annotations.retain(|key, _| {
        let always = key.starts_with(names::PROVISIONING_REQUEST_PREFIX) || is_copied(key);
        always || options.annotation_keys_to_copy.contains(key)
    });
    let (name, owners) = if kind.is_composed(job) {
        annotations.insert(names::IS_GROUP_WORKLOAD.into(), "true".into());
        labels = pod::group_labels(job, options.label_keys_to_copy);
        annotations.extend(pod::group_annotations(job, options.annotation_keys_to_copy));
        (
            kind.group_of(job).unwrap_or_default().to_owned(),
            kind.members(job).iter().map(|it| owner_reference(kind, it)).collect(),
        )
    } else {
        labels.insert(names::JOB_UID.into(), meta::uid(job).to_owned());
        (
            workload_name(id.kind, id.group, meta::name(job), meta::uid(job)),
            vec![controller_reference(kind, job)],
        )
    };
    Workload {
        metadata: ObjectMeta {
            name: Some(name),
            namespace: Some(meta::namespace(job).to_owned()),
            labels: Some(labels).filter(|labels| !labels.is_empty()),
            annotations: Some(annotations).filter(|a| !a.is_empty()),
            finalizers: Some(vec![names::RESOURCE_IN_USE.into()]),
            owner_references: Some(owners),
            ..ObjectMeta::default()
        },
        spec: WorkloadSpec {
            queue_name: Some(meta::queue_name(job).to_owned()).filter(|q| !q.is_empty()),
            pod_sets,
            priority_class_ref: priority.class.clone(),
            priority: Some(priority.value),
            maximum_execution_time_seconds: meta::max_exec_time_seconds(job),
            ..WorkloadSpec::default()
        },
        status: None,
    }
}

/// The Workload of a serving group, made for the group's owner before the pods exist. It has the
/// group's name, and the owner's uid, kind and name. The owner is one of its owners.
#[must_use]
pub fn build_group_workload(
    kind: &dyn JobKind,
    object: &Value,
    group: &Group,
    pod_sets: Vec<PodSet>,
    priority: &Priority,
    options: BuildOptions<'_>,
) -> Workload {
    let mut workload = build_workload(kind, object, pod_sets, priority, options);
    workload.metadata.name = Some(group.name.clone());
    workload.metadata.owner_references = Some(vec![owner_reference(kind, object)]);
    let annotations = workload.metadata.annotations.get_or_insert_default();
    annotations.insert(names::IS_GROUP_WORKLOAD.into(), "true".into());
    annotations.extend(owner_annotations(kind, object));
    if let Some(index) = group.index {
        annotations.insert(names::COMPONENT_WORKLOAD_INDEX.into(), index.to_string());
    }
    workload
}

/// Annotations that name a Workload's job even after its owner references are gone.
#[must_use]
pub fn owner_annotations(kind: &dyn JobKind, object: &Value) -> [(String, String); 2] {
    [
        (names::JOB_OWNER_GVK.into(), owner_gvk(kind.id())),
        (names::JOB_OWNER_NAME.into(), meta::name(object).to_owned()),
    ]
}

/// An owner reference for a Workload with several owners.
#[must_use]
pub fn owner_reference(kind: &dyn JobKind, job: &Value) -> OwnerReference {
    OwnerReference {
        controller: None,
        block_owner_deletion: None,
        ..controller_reference(kind, job)
    }
}

/// Annotations that a Workload copies from its job, besides the cluster rules.
const COPIED: [&str; 3] = [names::ADMISSION_GATED_BY, names::ON_DISCONNECT, names::ON_STUCK];

fn is_copied(key: &str) -> bool {
    COPIED.contains(&key) || affinity::ANNOTATIONS.contains(&key)
}

/// An owner reference with `controller: true`.
#[must_use]
pub(crate) fn controller_reference(kind: &dyn JobKind, job: &Value) -> OwnerReference {
    OwnerReference {
        api_version: kind.id().api_version(),
        kind: kind.id().kind.to_owned(),
        name: meta::name(job).to_owned(),
        uid: meta::uid(job).to_owned(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}
