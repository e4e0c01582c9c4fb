//! Rules of ClusterQueues (Kueue's `pkg/webhooks/clusterqueue_webhook.go`).

use std::collections::BTreeSet;

use super::{
    IMMUTABLE, ValidationGates,
    labels::{is_subdomain, label_selector},
    quota,
};
use crate::{
    field::{FieldError, Path},
    v1beta2::{
        BorrowWithinCohortPolicy, ClusterQueue, ClusterQueueSpec, ConcurrentAdmissionMigrationMode,
        FlavorFungibilityPolicy, QueueingStrategy, ReclaimWithinCohort,
    },
};

/// Errors of a new ClusterQueue.
#[must_use]
pub fn cluster_queue(queue: &ClusterQueue, gates: ValidationGates) -> Vec<FieldError> {
    let mut errors = spec(&queue.spec, gates);
    check_flavors(&queue.spec, None, &mut errors);
    errors
}

/// Errors of a changed ClusterQueue. Admission checks for unknown flavors are allowed if the old
/// object had them, unless a gate forbids that.
#[must_use]
pub fn cluster_queue_update(
    queue: &ClusterQueue,
    old: &ClusterQueue,
    gates: ValidationGates,
) -> Vec<FieldError> {
    let mut errors = spec(&queue.spec, gates);
    check_flavors(
        &queue.spec,
        (!gates.reject_invalid_on_flavors).then_some(&old.spec),
        &mut errors,
    );
    if queue.spec.concurrent_admission_policy != old.spec.concurrent_admission_policy {
        let value =
            serde_json::to_value(&queue.spec.concurrent_admission_policy).unwrap_or_default();
        errors.push(FieldError::invalid(
            &Path::new("spec").child("concurrentAdmissionPolicy"),
            value,
            IMMUTABLE,
        ));
    }
    errors
}

fn spec(spec: &ClusterQueueSpec, gates: ValidationGates) -> Vec<FieldError> {
    let path = Path::new("spec");
    let groups = path.child("resourceGroups");
    let mut errors = Vec::new();
    let has_above = spec.cohort_name.as_ref().is_some_and(|name| !name.is_empty());
    let place = quota::QuotaScope { above: "cohort", has_above, lends_own_only: true };
    quota::resource_groups(&spec.resource_groups, place, &groups, &mut errors);
    if let Some(selector) = &spec.namespace_selector {
        label_selector(selector, &path.child("namespaceSelector"), &mut errors);
    }
    cluster_affinity(spec, &path.child("clusterAffinity"), &mut errors);
    preemption(spec, &path, &mut errors);
    quota::fair_sharing(spec.fair_sharing.as_ref(), &path.child("fairSharing"), &mut errors);
    totals(spec, &groups, &mut errors);
    if gates.concurrent_admission {
        concurrent_admission(spec, &path, &mut errors);
    }
    errors
}

fn cluster_affinity(spec: &ClusterQueueSpec, path: &Path, errors: &mut Vec<FieldError>) {
    let Some(affinity) = &spec.cluster_affinity else { return };
    for (part, rule) in [
        ("required", &affinity.required),
        ("preferred", &affinity.preferred),
        ("excluded", &affinity.excluded),
    ] {
        let (Some(rule), path) = (rule, path.child(part)) else { continue };
        for (index, name) in rule.names.iter().enumerate().filter(|(_, name)| !is_subdomain(name)) {
            let detail = "must be the name of a MultiKueueCluster";
            errors.push(FieldError::invalid(&path.child("names").index(index), name, detail));
        }
        if let Some(selector) = &rule.selector {
            label_selector(selector, &path.child("selector"), errors);
        }
    }
}

fn preemption(spec: &ClusterQueueSpec, path: &Path, errors: &mut Vec<FieldError>) {
    let preemption = &spec.preemption;
    if preemption.reclaim_within_cohort == ReclaimWithinCohort::Never
        && preemption.borrow_within_cohort.policy != BorrowWithinCohortPolicy::Never
    {
        let value = serde_json::to_value(preemption).unwrap_or_default();
        let detail = "reclaimWithinCohort=Never and borrowWithinCohort.Policy!=Never";
        errors.push(FieldError::invalid(&path.child("preemption"), value, detail));
    }
    let fungibility = &spec.flavor_fungibility;
    let next = FlavorFungibilityPolicy::TryNextFlavor;
    if let Some(preference) = fungibility.preference
        && (fungibility.when_can_borrow != next || fungibility.when_can_preempt != next)
    {
        let name = format!("{preference:?}");
        let detail = format!(
            "preference {name:?} requires both whenCanBorrow and whenCanPreempt to be TryNextFlavor"
        );
        errors.push(FieldError::invalid(
            &path.child("flavorFungibility").child("preference"),
            name,
            detail,
        ));
    }
}

fn totals(spec: &ClusterQueueSpec, path: &Path, errors: &mut Vec<FieldError>) {
    let groups = &spec.resource_groups;
    let flavors: usize = groups.iter().map(|group| group.flavors.len()).sum();
    let resources: usize = groups.iter().map(|group| group.covered_resources.len()).sum();
    for (what, total) in [("flavors", flavors), ("covered resources", resources)] {
        if total > 256 {
            let detail = format!(
                "total number of {what} across all resourceGroups must be ≤ 256, got {total}"
            );
            errors.push(FieldError::invalid(path, total, detail));
        }
    }
    for (index, group) in groups.iter().enumerate() {
        let total: usize = group.flavors.iter().map(|flavor| flavor.resources.len()).sum();
        if total > 512 {
            let detail = format!(
                "number of flavor-resource combinations in a resourceGroup must be ≤ 512, got {total}"
            );
            errors.push(FieldError::invalid(&path.index(index), total, detail));
        }
    }
}

fn concurrent_admission(spec: &ClusterQueueSpec, path: &Path, errors: &mut Vec<FieldError>) {
    let Some(policy) = &spec.concurrent_admission_policy else { return };
    let groups = path.child("resourceGroups");
    match spec.resource_groups.as_slice() {
        [only] if only.flavors.len() > 32 => errors.push(FieldError::invalid(
            &groups.index(0).child("flavors"),
            only.flavors.len(),
            "cannot have more than 32 resource flavors in the ResourceGroup when ConcurrentAdmissionPolicy is defined",
        )),
        [_] => {}
        all => errors.push(FieldError::invalid(
            &groups,
            all.len(),
            "must have exactly one ResourceGroup when ConcurrentAdmissionPolicy is defined",
        )),
    }
    if let Some(constraints) = &policy.migration.constraints {
        let path = path.child("concurrentAdmissionPolicy").child("migration").child("constraints");
        let mode = policy.migration.mode;
        if mode != ConcurrentAdmissionMigrationMode::TryPreferredFlavors {
            let detail = format!(
                "may only be set when migration.mode is \"TryPreferredFlavors\" (got \"{mode:?}\")"
            );
            errors.push(FieldError::forbidden(&path, &detail));
        } else if let Some(flavor) = &constraints.last_acceptable_flavor_name {
            let known: Vec<&str> = flavors(spec).into_iter().collect();
            if !known.contains(&flavor.as_str()) {
                let detail = format!(
                    "must be one of the flavors defined in the ClusterQueue: [{}]",
                    known.join(" ")
                );
                errors.push(FieldError::invalid(
                    &path.child("lastAcceptableFlavorName"),
                    flavor,
                    detail,
                ));
            }
        }
    }
    if spec.queueing_strategy == QueueingStrategy::StrictFIFO {
        let detail =
            "StrictFIFO queueing strategy cannot be used when ConcurrentAdmissionPolicy is defined";
        errors.push(FieldError::invalid(&path.child("queueingStrategy"), "StrictFIFO", detail));
    }
}

fn flavors(spec: &ClusterQueueSpec) -> BTreeSet<&str> {
    spec.resource_groups
        .iter()
        .flat_map(|group| &group.flavors)
        .map(|flavor| flavor.name.as_str())
        .collect()
}

/// The flavors that the check of this name applied to.
fn on_flavors<'a>(spec: &'a ClusterQueueSpec, check: &str) -> Option<BTreeSet<&'a str>> {
    let rule = spec.admission_checks().iter().find(|rule| rule.name == check)?;
    Some(rule.on_flavors.iter().map(String::as_str).collect())
}

/// Admission checks may only name flavors of the queue.
fn check_flavors(
    spec: &ClusterQueueSpec,
    old: Option<&ClusterQueueSpec>,
    errors: &mut Vec<FieldError>,
) {
    let known = flavors(spec);
    let old = old.filter(|old| flavors(old) == known);
    let path = Path::new("spec").child("admissionChecksStrategy").child("admissionChecks");
    for (index, rule) in spec.admission_checks().iter().enumerate() {
        let now: BTreeSet<&str> = rule.on_flavors.iter().map(String::as_str).collect();
        if old.and_then(|old| on_flavors(old, &rule.name)).is_some_and(|before| before == now) {
            continue;
        }
        for (item, flavor) in rule.on_flavors.iter().enumerate() {
            if !known.contains(flavor.as_str()) {
                let supported: Vec<&str> = known.iter().copied().collect();
                let path = path.index(index).child("onFlavors").index(item);
                errors.push(FieldError::not_supported(&path, flavor, &supported));
            }
        }
    }
}
