//! Rules of updates of Workloads.

use std::collections::{BTreeMap, BTreeSet};

use kube::ResourceExt;

use super::{
    IMMUTABLE, ValidationGates,
    workload::{gated_by_path, workload},
};
use crate::{
    conditions,
    equality::same_value,
    field::{FieldError, Path},
    names,
    reclaimable::may_reclaim,
    v1beta2::{Admission, CheckState, PodSet, Workload, WorkloadStatus},
};

/// Errors of a changed Workload.
///
/// Departure from Kueue: `clusterName` may be set without a nomination if the same update records
/// an attempt, which only Switchyard's dispatcher does.
#[must_use]
pub fn workload_update(new: &Workload, old: &Workload, gates: ValidationGates) -> Vec<FieldError> {
    let (empty, path) = (WorkloadStatus::default(), Path::new("status"));
    let (now, before) =
        (new.status.as_ref().unwrap_or(&empty), old.status.as_ref().unwrap_or(&empty));
    let holds = |status: &WorkloadStatus| {
        conditions::is_true(&status.conditions, conditions::QUOTA_RESERVED)
    };

    let mut errors = workload(new, Some(old), gates);
    if holds(before) {
        pod_sets(
            &new.spec.pod_sets,
            &old.spec.pod_sets,
            &Path::new("spec").child("podSets"),
            gates,
            &mut errors,
        );
    }
    if holds(before) && holds(now) {
        reclaimable(new, now, before, &path.child("reclaimablePods"), &mut errors);
    }
    if let (Some(now), Some(before)) = (&now.admission, &before.admission) {
        admission(now, before, &path.child("admission"), gates, &mut errors);
    }
    ready_checks(now, before, &path.child("admissionChecks"), &mut errors);
    cluster_name(new, now, before, &path.child("clusterName"), gates, &mut errors);
    if gates.admission_gated_by {
        errors.extend(admission_gated_by_update(new.annotations(), old.annotations()));
    }
    errors
}

/// Pod sets are immutable while quota is reserved, except that elastic jobs may shrink.
fn pod_sets(
    new: &[PodSet],
    old: &[PodSet],
    path: &Path,
    gates: ValidationGates,
    errors: &mut Vec<FieldError>,
) {
    if new.len() != old.len() {
        let value = serde_json::to_value(new).unwrap_or_default();
        errors.push(FieldError::invalid(path, value, IMMUTABLE));
        return;
    }
    for (index, (new, old)) in new.iter().zip(old).enumerate() {
        if !may_become(old, new, gates) {
            let value = serde_json::to_value(new).unwrap_or_default();
            errors.push(FieldError::invalid(&path.child(&index.to_string()), value, IMMUTABLE));
        }
    }
}

/// Whether only the count differs and is not higher. Typed clients write an equal template
/// differently: without empty fields and with canonical quantities.
fn may_become(old: &PodSet, new: &PodSet, gates: ValidationGates) -> bool {
    let (count, template) = (old.count, &old.template);
    (new.count == count || gates.elastic && new.count < count)
        && PodSet { count, template: template.clone(), ..new.clone() } == *old
        && (new.template == *template || same_value(&new.template.value(), &template.value()))
}

/// While quota is held, the pods still needed must not exceed the admitted pods.
fn reclaimable(
    new: &Workload,
    now: &WorkloadStatus,
    before: &WorkloadStatus,
    path: &Path,
    errors: &mut Vec<FieldError>,
) {
    let counts: BTreeMap<&str, i32> =
        now.reclaimable_pods.iter().map(|p| (p.name.as_str(), p.count)).collect();
    for old in &before.reclaimable_pods {
        let name = old.name.as_str();
        let count = counts.get(name);
        match count {
            _ if may_reclaim(new, now, name, count.copied().unwrap_or(0)) => {}
            None => errors.push(FieldError::required(&path.key(name), "cannot be removed")),
            Some(count) if *count < old.count => {
                let detail = format!(
                    "cannot be less than {}: more pods would be needed than were admitted",
                    old.count
                );
                errors.push(FieldError::invalid(&path.key(name).child("count"), *count, detail));
            }
            Some(_) => {}
        }
    }
}

/// An admission is immutable except for its topology assignments.
fn admission(
    new: &Admission,
    old: &Admission,
    path: &Path,
    gates: ValidationGates,
    errors: &mut Vec<FieldError>,
) {
    let mut expected = old.clone();
    if gates.topology && expected.pod_set_assignments.len() == new.pod_set_assignments.len() {
        for (expected, new) in expected.pod_set_assignments.iter_mut().zip(&new.pod_set_assignments)
        {
            expected.topology_assignment.clone_from(&new.topology_assignment);
            expected.delayed_topology_request = new.delayed_topology_request;
        }
    }
    if expected != *new {
        errors.push(FieldError::invalid(
            path,
            serde_json::to_value(new).unwrap_or_default(),
            IMMUTABLE,
        ));
    }
}

/// The pod set updates of a check are immutable while it is ready.
fn ready_checks(
    now: &WorkloadStatus,
    before: &WorkloadStatus,
    path: &Path,
    errors: &mut Vec<FieldError>,
) {
    for (index, old) in before.admission_checks.iter().enumerate() {
        let Some(new) = now.admission_checks.iter().find(|check| check.name == old.name) else {
            continue;
        };
        let ready = old.state == CheckState::Ready && new.state == CheckState::Ready;
        if ready && new.pod_set_updates != old.pod_set_updates {
            let value = serde_json::to_value(&new.pod_set_updates).unwrap_or_default();
            errors.push(FieldError::invalid(
                &path.index(index).child("podSetUpdates"),
                value,
                IMMUTABLE,
            ));
        }
    }
}

/// `clusterName` must be one of the nominated clusters.
fn cluster_name(
    new: &Workload,
    now: &WorkloadStatus,
    before: &WorkloadStatus,
    path: &Path,
    gates: ValidationGates,
    errors: &mut Vec<FieldError>,
) {
    let (Some(name), None) = (&now.cluster_name, &before.cluster_name) else { return };
    let replaces =
        gates.elastic && new.annotations().contains_key(names::WORKLOAD_SLICE_REPLACEMENT_FOR);
    let records_attempt = now.dispatch.is_some() && now.dispatch != before.dispatch;
    if !replaces && !records_attempt && !before.nominated_cluster_names.contains(name) {
        let detail = "when setting clusterName it must be one of the nominatedClusterNames";
        errors.push(FieldError::invalid(path, name, detail));
    }
}

/// Admission gates may be removed but not added.
#[must_use]
pub fn admission_gated_by_update(
    new: &BTreeMap<String, String>,
    old: &BTreeMap<String, String>,
) -> Vec<FieldError> {
    let gates = |annotations: &BTreeMap<String, String>| -> BTreeSet<String> {
        let text =
            annotations.get(names::ADMISSION_GATED_BY).map(String::as_str).unwrap_or_default();
        text.split(',').map(str::trim).filter(|gate| !gate.is_empty()).map(str::to_owned).collect()
    };
    let (now, before) = (gates(new), gates(old));
    if before.is_empty() && !now.is_empty() {
        return vec![FieldError::forbidden(
            &gated_by_path(),
            "cannot add admission gate after creation",
        )];
    }
    if !now.is_subset(&before) {
        return vec![FieldError::forbidden(
            &gated_by_path(),
            "can only remove gates, not add new ones",
        )];
    }
    Vec::new()
}
