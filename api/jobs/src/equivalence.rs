//! Whether a Workload still matches its job (Kueue's `EquivalentToWorkload` in
//! `pkg/controller/jobframework/reconciler.go`).

use k8s_openapi::api::core::v1::Container;
use serde_json::Value;

use super::{PodSetInfo, meta, running_pod_sets};
use switchyard_api::v1beta2::{PodSet, Workload};
use switchyard_syntax::{conditions, equality::same_value};

/// True if the job controls the Workload, by uid.
#[must_use]
pub fn owned_by(workload: &Workload, job_uid: &str) -> bool {
    let owners = workload.metadata.owner_references.iter().flatten();
    owners.into_iter().any(|o| o.controller == Some(true) && o.uid == job_uid)
}

/// True if the Workload matches the job: equal maximum execution time and equal pod sets. The pod
/// sets are compared as the user wrote them or, with reserved quota, as they look while running.
/// [`owned_by`] and [`super::same_copy`] tell whether the Workload belongs to the job.
///
/// `job_pod_sets` come from [`super::job_pod_sets`]. `infos` are those of the Workload's admission,
/// or `None` if they are absent or unavailable.
///
/// Templates are compared by what affects requests: containers, init containers, pod resources,
/// resource claims and RuntimeClass. Until admission, which adds placement, tolerations are
/// compared, too, and for a suspended job also node selector and affinity. Quantities compare as
/// numbers. Unknown fields of containers are ignored, because clusters of other versions add their
/// own defaults.
#[must_use]
pub fn is_equivalent(
    job: &Value,
    job_pod_sets: &[PodSet],
    suspended: bool,
    workload: &Workload,
    infos: Option<&[PodSetInfo]>,
) -> bool {
    if workload.spec.maximum_execution_time_seconds != meta::max_exec_time_seconds(job) {
        return false;
    }
    let conditions = workload.status.as_ref().map(|s| s.conditions.as_slice()).unwrap_or_default();
    let admitted = conditions::is_true(conditions, conditions::ADMITTED);
    // A running job has the selectors of its admission, even if its Workload is not admitted any
    // more. The caller handles that case.
    let places = PlacementFields { tolerations: !admitted, selectors: !admitted && suspended };
    if let Some(running) = infos.and_then(|infos| running_pod_sets(workload, infos)) {
        // A suspended job that is about to start, or was just stopped, has its own templates.
        return same_pod_sets(job_pod_sets, &running, places)
            || suspended && same_pod_sets(job_pod_sets, &workload.spec.pod_sets, places);
    }
    same_pod_sets(job_pod_sets, &workload.spec.pod_sets, places)
}

fn same_pod_sets(a: &[PodSet], b: &[PodSet], places: PlacementFields) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same_pod_set(a, b, places))
}

fn same_pod_set(a: &PodSet, b: &PodSet, places: PlacementFields) -> bool {
    if a.count != b.count || a.min_count != b.min_count {
        return false;
    }
    let (a, b) = (a.template.value(), b.template.value());
    let same = |field: &str| same_value(in_spec(&a, field), in_spec(&b, field));
    (!places.tolerations || same("tolerations"))
        && (!places.selectors || SELECTORS.into_iter().all(same))
        && AMOUNTS.into_iter().all(same)
        && same_containers(&a, &b)
}

/// Fields of a pod's spec that affect requests, beside its containers.
const AMOUNTS: [&str; 3] = ["resources", "resourceClaims", "runtimeClassName"];

/// Fields of a pod's spec that affect placement, beside its tolerations.
const SELECTORS: [&str; 2] = ["nodeSelector", "affinity"];

/// The placement fields that are compared.
#[derive(Clone, Copy)]
struct PlacementFields {
    tolerations: bool,
    selectors: bool,
}

/// Whether two pod templates have equal containers and init containers.
pub(super) fn same_containers(a: &Value, b: &Value) -> bool {
    ["initContainers", "containers"].into_iter().all(|field| {
        let (a, b) = (in_spec(a, field), in_spec(b, field));
        same_value(a, b) || same_value(&known_fields(a), &known_fields(b))
    })
}

fn in_spec<'a>(template: &'a Value, field: &str) -> &'a Value {
    template.get("spec").and_then(|spec| spec.get(field)).unwrap_or(&Value::Null)
}

/// The containers with only the fields that this build's types have.
fn known_fields(containers: &Value) -> Value {
    serde_json::from_value::<Vec<Container>>(containers.clone())
        .ok()
        .and_then(|typed| serde_json::to_value(typed).ok())
        .unwrap_or_else(|| containers.clone())
}
