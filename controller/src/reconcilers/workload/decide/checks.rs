//! Admission checks: which apply, and their effects.

use std::collections::BTreeSet;

use jiff::Timestamp;
use switchyard_api::{
    conditions::{self, reasons, truncated_event},
    v1beta2::{AdmissionCheckState, CheckState, ClusterQueue, Workload, WorkloadStatus},
};

use super::{Notification, WorkloadPlan};
use crate::{
    reconcilers::workload::WorkloadInputs,
    workload::{self, Edit},
};
use switchyard_platform::clock::since;

/// Keeps a state for each check that applies. States of the hub's own MultiKueue checks are written
/// with the reservation. This saves a write per workload, and no other controller needs them.
pub(super) fn sync(edit: &mut Edit, inputs: &WorkloadInputs) {
    if let Some(queue) = &inputs.cluster_queue {
        let apply = required(queue, &edit.status);
        let mut needed = apply.clone();
        if workload::admission(&edit.status).is_none() {
            needed.retain(|check| !inputs.dispatching_checks.contains(check));
        }
        edit.sync_checks(&apply, &needed);
    }
}

/// The checks that apply: with quota, those of the assigned flavors; before, those of every flavor
/// of the queue.
fn required(queue: &ClusterQueue, status: &WorkloadStatus) -> BTreeSet<String> {
    let groups = queue.spec.resource_groups.iter();
    let all: BTreeSet<&str> =
        groups.flat_map(|group| &group.flavors).map(|flavor| flavor.name.as_str()).collect();
    let assigned: Option<BTreeSet<&str>> = workload::admission(status).map(|admission| {
        admission
            .pod_set_assignments
            .iter()
            .flat_map(|pod_set| pod_set.flavors.values())
            .map(String::as_str)
            .collect()
    });
    let rules = queue.spec.admission_checks().iter();
    rules
        .filter(|rule| {
            let on = |flavor: &str| {
                if rule.on_flavors.is_empty() {
                    all.contains(flavor)
                } else {
                    rule.on_flavors.iter().any(|on| on == flavor)
                }
            };
            match &assigned {
                Some(assigned) => assigned.iter().any(|flavor| on(flavor)),
                None => all.iter().all(|flavor| on(flavor)),
            }
        })
        .map(|rule| rule.name.clone())
        .collect()
}

/// Admits a workload with quota once its last check is Ready.
pub(super) fn admit(plan: &mut WorkloadPlan, edit: &mut Edit, subject: &Workload, now: Timestamp) {
    edit.sync_admitted();
    if !conditions::is_true(&edit.status.conditions, conditions::ADMITTED) {
        return;
    }
    let Some(cluster_queue) = workload::admitted_by(subject) else { return };
    let reserved = workload::condition(subject, conditions::QUOTA_RESERVED);
    plan.notifications.push(Notification::Admitted {
        cluster_queue: cluster_queue.to_owned(),
        waited: since(now, workload::queued_since(subject)),
        reserved_for: reserved
            .map_or(std::time::Duration::ZERO, |c| since(now, c.last_transition_time.0)),
    });
}

/// Requests the deactivation of a workload that a check rejects, with or without quota. Returns
/// whether one does.
pub(super) fn rejected(plan: &mut WorkloadPlan, edit: &mut Edit) -> bool {
    let rejected = in_state(&edit.status, CheckState::Rejected);
    if rejected.is_empty() {
        return false;
    }
    let message = message(&rejected, CheckState::Rejected);
    let note = truncated_event(format!("Deactivated due to {message}"));
    edit.deactivation_target(reasons::deactivation_target::ADMISSION_CHECK, message);
    plan.notifications.push(Notification::Event {
        warning: true,
        reason: reasons::events::ADMISSION_CHECK_REJECTED,
        note,
    });
    true
}

/// The checks in a state, for messages.
pub(super) fn in_state(status: &WorkloadStatus, state: CheckState) -> Vec<&AdmissionCheckState> {
    let mut checks: Vec<_> =
        status.admission_checks.iter().filter(|check| check.state == state).collect();
    checks.sort_by(|a, b| a.name.cmp(&b.name));
    checks
}

/// `AdmissionChecks in Retry state: "a" (why); "b"`, as Kueue writes it.
pub(super) fn message(checks: &[&AdmissionCheckState], state: CheckState) -> String {
    let noun = if checks.len() > 1 { "AdmissionChecks" } else { "AdmissionCheck" };
    let parts: Vec<String> = checks
        .iter()
        .map(|check| match check.message.as_str() {
            "" => format!("{:?}", check.name),
            message => format!("{:?} ({message})", check.name),
        })
        .collect();
    format!("{noun} in {} state: {}", state.as_str(), parts.join("; "))
}
