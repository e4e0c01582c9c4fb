//! Rules of Workloads, for creation and update (Kueue's `pkg/webhooks/workload_webhook.go`).

use std::collections::{BTreeMap, BTreeSet};

use kube::ResourceExt;
use serde_json::Value;

use super::{ValidationGates, annotations, labels, quota, resource_flavor::tolerations};
use crate::{
    affinity, conditions,
    field::{FieldError, Path},
    names, quantity,
    slices::is_slice,
    v1beta2::{OnDisconnect, OnStuckAnnotation, PodSet, PodSetTopologyRequest, Workload},
};

/// Errors of a Workload. `old` is the object before an update, `None` at creation.
#[must_use]
pub fn workload(
    workload: &Workload,
    old: Option<&Workload>,
    gates: ValidationGates,
) -> Vec<FieldError> {
    let mut errors = Vec::new();
    pod_sets(workload, &Path::new("spec").child("podSets"), gates, &mut errors);
    if let Some(status) = &workload.status {
        let path = Path::new("status");
        if conditions::is_true(&status.conditions, conditions::QUOTA_RESERVED) {
            admission(workload, old, &path.child("admission"), &mut errors);
        }
        reclaimable(workload, old, &path.child("reclaimablePods"), gates, &mut errors);
        pod_set_updates(workload, &path.child("admissionChecks"), &mut errors);
    }
    if gates.admission_gated_by {
        errors.extend(admission_gated_by(workload.annotations()));
    }
    // A bad annotation that was stored earlier must not block status writes, so only changes are
    // checked.
    let changed = |key: &str| {
        let of = |workload: &Workload| workload.annotations().get(key).cloned();
        old.is_none_or(|old| of(old) != of(workload))
    };
    if changed(names::ON_DISCONNECT) {
        errors.extend(on_disconnect(workload.annotations()));
    }
    if changed(names::ON_STUCK) {
        errors.extend(on_stuck(workload.annotations()));
    }
    if affinity::ANNOTATIONS.into_iter().any(&changed) {
        errors.extend(affinity::check(workload.annotations()));
    }
    if gates.priority_boost && changed(names::PRIORITY_BOOST) {
        errors.extend(priority_boost(workload.annotations()));
    }
    errors
}

fn priority_boost(annotations: &BTreeMap<String, String>) -> Option<FieldError> {
    let value = annotations.get(names::PRIORITY_BOOST)?;
    let detail = match value.as_str() {
        "" => "must be a valid signed integer; use \"0\" explicitly, empty string is not allowed",
        text if text.parse::<i32>().is_err() => "must be a valid signed integer",
        _ => return None,
    };
    let path = Path::new("metadata").child("annotations").key(names::PRIORITY_BOOST);
    Some(FieldError::invalid(&path, value, detail))
}

fn pod_sets(
    workload: &Workload,
    path: &Path,
    gates: ValidationGates,
    errors: &mut Vec<FieldError>,
) {
    for (index, pod_set) in workload.spec.pod_sets.iter().enumerate() {
        one_pod_set(pod_set, &path.index(index), gates, errors);
    }
    let variable =
        workload.spec.pod_sets.iter().filter(|pod_set| pod_set.min_count.is_some()).count();
    if variable > 1 {
        errors.push(FieldError::invalid(path, variable, "at most one podSet can use minCount"));
    }
    if variable > 0 && gates.elastic && is_slice(workload) {
        let detail = "partial admission and elastic job cannot be used together";
        errors.push(FieldError::invalid(path, variable, detail));
    }
}

fn one_pod_set(
    pod_set: &PodSet,
    path: &Path,
    gates: ValidationGates,
    errors: &mut Vec<FieldError>,
) {
    let template = path.child("template");
    let metadata = template.child("metadata");
    let value = pod_set.template.value();
    if gates.pod_set_metadata {
        labels::labels(texts(&value, "labels"), &metadata.child("labels"), errors);
        annotations(texts(&value, "annotations"), &metadata.child("annotations"), errors);
    }
    requests(&value, &template.child("spec"), gates, errors);
    if let Some(request) = pod_set.topology_request.as_ref().filter(|_| gates.slice_size) {
        slices(request, &path.child("topologyRequest"), errors);
    }
}

/// The string entries of the template's `metadata.labels` or `metadata.annotations`.
fn texts<'a>(template: &'a Value, field: &str) -> impl Iterator<Item = (&'a str, &'a str)> {
    let map = template
        .get("metadata")
        .and_then(|metadata| metadata.get(field))
        .and_then(Value::as_object);
    map.into_iter().flatten().filter_map(|(key, value)| Some((key.as_str(), value.as_str()?)))
}

/// Errors of requests and limits, of all containers and of the pod itself.
fn requests(template: &Value, path: &Path, gates: ValidationGates, errors: &mut Vec<FieldError>) {
    let Some(spec) = template.get("spec").filter(|spec| spec.is_object()) else { return };
    for list in ["initContainers", "containers"] {
        for (index, container) in
            spec.get(list).and_then(Value::as_array).into_iter().flatten().enumerate()
        {
            let path = path.child(list).index(index).child("resources");
            resources(container.get("resources"), &path, gates, errors);
        }
    }
    resources(spec.get("resources"), &path.child("resources"), gates, errors);
}

fn resources(
    resources: Option<&Value>,
    path: &Path,
    gates: ValidationGates,
    errors: &mut Vec<FieldError>,
) {
    for list in ["requests", "limits"] {
        let amounts =
            resources.and_then(|resources| resources.get(list)).and_then(Value::as_object);
        for (name, amount) in amounts.into_iter().flatten() {
            let path = path.child(list).key(name);
            if name == "pods" {
                errors.push(FieldError::invalid(
                    &path,
                    "pods",
                    "the key is reserved for internal kueue use",
                ));
            }
            let text = amount.as_str().map_or_else(|| amount.to_string(), str::to_owned);
            match quantity::parse(&text) {
                Ok(exact) if gates.non_negative && exact.sign() < 0 => {
                    errors.push(FieldError::invalid(&path, exact.to_string(), super::NOT_NEGATIVE));
                }
                Ok(_) => {}
                Err(error) => errors.push(FieldError::invalid(&path, text, error)),
            }
        }
    }
}

fn slices(request: &PodSetTopologyRequest, path: &Path, errors: &mut Vec<FieldError>) {
    let size = path.child("podSetSliceSize");
    match (&request.pod_set_slice_required_topology, request.pod_set_slice_size) {
        (Some(_), None) => {
            errors.push(FieldError::required(
                &size,
                "must be set when podSetSliceRequiredTopology is specified",
            ));
        }
        (Some(_), Some(number)) if number <= 0 => {
            errors.push(FieldError::invalid(&size, number, "must be greater than 0"));
        }
        (None, Some(_)) => {
            let detail = "may not be set when podSetSliceRequiredTopology is not specified";
            errors.push(FieldError::forbidden(&size, detail));
        }
        _ => {}
    }
    for (index, layer) in request.podset_slice_required_topology_constraints.iter().enumerate() {
        if layer.size <= 0 {
            let path =
                path.child("podsetSliceRequiredTopologyConstraints").index(index).child("size");
            errors.push(FieldError::invalid(&path, layer.size, "must be greater than 0"));
        }
    }
}

/// Warnings about a valid Workload.
#[must_use]
pub fn workload_warnings(workload: &Workload) -> Vec<String> {
    let path = Path::new("spec").child("podSets");
    let warning = |(index, pod_set): (usize, &PodSet)| {
        let count =
            pod_set.topology_request.as_ref()?.sub_group_count.filter(|count| *count < 0)?;
        let path = path.index(index).child("topologyRequest").child("subGroupCount");
        Some(format!(
            "{path}: negative value {count} is deprecated and will be rejected in a future release"
        ))
    };
    workload.spec.pod_sets.iter().enumerate().filter_map(warning).collect()
}

/// Whether the Workload has the condition QuotaReserved without a recorded admission.
fn holds_unrecorded_quota(workload: &Workload) -> bool {
    workload.status.as_ref().is_some_and(|status| {
        status.admission.is_none()
            && conditions::is_true(&status.conditions, conditions::QUOTA_RESERVED)
    })
}

fn admission(
    workload: &Workload,
    old: Option<&Workload>,
    path: &Path,
    errors: &mut Vec<FieldError>,
) {
    let Some(admission) = workload.status.as_ref().and_then(|status| status.admission.as_ref())
    else {
        // A stored object with this error is accepted, so that it can be repaired.
        if !old.is_some_and(holds_unrecorded_quota) {
            errors.push(FieldError::required(
                path,
                "must be set while the QuotaReserved condition is true",
            ));
        }
        return;
    };
    let known: BTreeSet<&str> =
        workload.spec.pod_sets.iter().map(|pod_set| pod_set.name.as_str()).collect();
    for (index, assignment) in admission.pod_set_assignments.iter().enumerate() {
        let path = path.child("podSetAssignments").index(index);
        if !known.contains(assignment.name.as_str()) {
            errors.push(FieldError::not_found(&path.child("name"), &assignment.name));
        }
        let count = i64::from(assignment.count.unwrap_or(0));
        for (resource, usage) in &assignment.resource_usage {
            let path = path.child("resourceUsage").key(resource);
            let exact = quota::amount(usage, &path, errors);
            if count > 0 && exact.amount(resource) % count != 0 {
                let detail = format!("is not a multiple of {count}");
                errors.push(FieldError::invalid(&path, exact.to_string(), detail));
            }
        }
    }
}

fn reclaimable(
    workload: &Workload,
    old: Option<&Workload>,
    path: &Path,
    gates: ValidationGates,
    errors: &mut Vec<FieldError>,
) {
    let reclaimable = |workload: &Workload| {
        workload.status.as_ref().map(|status| status.reclaimable_pods.clone()).unwrap_or_default()
    };
    let counts: BTreeMap<&str, i32> = workload
        .spec
        .pod_sets
        .iter()
        .map(|pod_set| (pod_set.name.as_str(), pod_set.count))
        .collect();
    // A count from before an elastic job shrank is accepted until the controller corrects it.
    let before =
        old.filter(|_| gates.elastic && is_slice(workload)).map(reclaimable).unwrap_or_default();
    for pods in reclaimable(workload) {
        let path = path.key(&pods.name);
        match counts.get(pods.name.as_str()) {
            None => {
                let known: Vec<&str> = counts.keys().copied().collect();
                errors.push(FieldError::not_supported(&path.child("name"), &pods.name, &known));
            }
            Some(count) if pods.count > *count && !before.contains(&pods) => {
                let detail = format!("should be less or equal to {count}");
                errors.push(FieldError::invalid(&path.child("count"), pods.count, detail));
            }
            Some(_) => {}
        }
    }
}

fn pod_set_updates(workload: &Workload, path: &Path, errors: &mut Vec<FieldError>) {
    let known: Vec<&str> =
        workload.spec.pod_sets.iter().map(|pod_set| pod_set.name.as_str()).collect();
    let checks = workload.status.iter().flat_map(|status| &status.admission_checks);
    for (index, check) in checks.enumerate() {
        for (item, update) in check.pod_set_updates.iter().enumerate() {
            let path = path.index(index).child("podSetUpdates").index(item);
            if !known.contains(&update.name.as_str()) {
                errors.push(FieldError::not_supported(&path.child("name"), &update.name, &known));
            }
            tolerations(&update.tolerations, &path.child("tolerations"), errors);
            annotations(strs(&update.annotations), &path.child("annotations"), errors);
            labels::labels(strs(&update.node_selector), &path.child("nodeSelector"), errors);
            labels::labels(strs(&update.labels), &path.child("labels"), errors);
        }
    }
}

fn strs(map: &BTreeMap<String, String>) -> impl Iterator<Item = (&str, &str)> {
    map.iter().map(|(key, value)| (key.as_str(), value.as_str()))
}

/// The path of the annotation [`names::ADMISSION_GATED_BY`].
pub(super) fn gated_by_path() -> Path {
    Path::new("metadata").child("annotations").key(names::ADMISSION_GATED_BY)
}

/// Errors of the annotation `admission-gated-by`: a list of distinct names like `example.com/gate`.
#[must_use]
pub fn admission_gated_by(annotations: &BTreeMap<String, String>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let Some(text) = annotations.get(names::ADMISSION_GATED_BY).filter(|text| !text.is_empty())
    else {
        return errors;
    };
    let path = gated_by_path();
    let mut seen = BTreeSet::new();
    for gate in text.split(',').map(str::trim) {
        if gate.is_empty() {
            errors.push(FieldError::invalid(&path, text, "cannot contain empty gate names"));
        } else if !seen.insert(gate) {
            errors.push(FieldError::invalid(&path, text, format!("duplicate gate name: {gate}")));
        } else {
            domain_prefixed(gate, &path, &mut errors);
        }
    }
    errors
}

/// The error of the annotation `on-disconnect`, if its value is not a policy.
#[must_use]
pub fn on_disconnect(annotations: &BTreeMap<String, String>) -> Option<FieldError> {
    let text = annotations.get(names::ON_DISCONNECT)?;
    let error = text.parse::<OnDisconnect>().err()?;
    let path = Path::new("metadata").child("annotations").key(names::ON_DISCONNECT);
    Some(FieldError::invalid(&path, text, error.to_string()))
}

/// The error of the annotation `on-stuck`, if its value is not a policy.
#[must_use]
pub fn on_stuck(annotations: &BTreeMap<String, String>) -> Option<FieldError> {
    let text = annotations.get(names::ON_STUCK)?;
    let error = text.parse::<OnStuckAnnotation>().err()?;
    let path = Path::new("metadata").child("annotations").key(names::ON_STUCK);
    Some(FieldError::invalid(&path, text, error.to_string()))
}

/// Errors of a name that must look like `example.com/gate`, as `managedBy` of a Job.
fn domain_prefixed(gate: &str, path: &Path, errors: &mut Vec<FieldError>) {
    match gate.split_once('/') {
        Some((domain, rest)) if !domain.is_empty() && !rest.is_empty() => {
            if !super::is_subdomain(domain) {
                errors.push(FieldError::invalid(path, domain, super::SUBDOMAIN_MESSAGE));
            }
        }
        _ => {
            let detail = "must be a domain-prefixed path (such as \"acme.io/foo\")";
            errors.push(FieldError::invalid(path, gate, detail));
        }
    }
    if gate.len() > 63 {
        errors.push(FieldError::new(path, "Too long: may not be more than 63 bytes"));
    }
}
