//! Builds the workload's status from a decision. Pure.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::{api::resource::Quantity, apis::meta::v1::Time};
use switchyard_api::{
    SmallMap,
    conditions::{self, reasons},
    names,
    v1beta2::{
        self, CheckState, DelayedTopologyRequestState, DispatchStatus, OtherFlavor, PodSetRequest,
        Workload,
    },
};
use switchyard_scheduler::{self as engine, Amount, Name, PodSetRequests, Reason};

use super::Preemptor;
use crate::engine::convert::topology;
use crate::workload::{Edit, Evicted, Eviction};

/// The engine's admission in the API's form. `by_prefix` groups hosts with a common name prefix
/// (Kueue's `TASAssignmentsEncodingByHostnamePrefix`).
#[must_use]
pub fn admission(admission: &engine::Admission, by_prefix: bool) -> v1beta2::Admission {
    let assignments = admission.pod_sets.iter().map(|pod_set| v1beta2::PodSetAssignment {
        name: pod_set.name.to_string(),
        flavors: pod_set
            .flavors
            .iter()
            .map(|(resource, flavor)| (resource.to_string(), flavor.to_string()))
            .collect(),
        resource_usage: quantities(&pod_set.usage),
        count: Some(pod_set.count),
        topology_assignment: pod_set
            .topology
            .as_ref()
            .map(|topology| topology::assignment_to_api(topology, by_prefix)),
        delayed_topology_request: pod_set.delayed.map(topology::delayed_to_api),
    });
    v1beta2::Admission {
        cluster_queue: admission.cluster_queue.to_string(),
        pod_set_assignments: assignments.collect(),
    }
}

fn quantities(amounts: &BTreeMap<Name, Amount>) -> SmallMap<Quantity> {
    amounts
        .iter()
        .map(|(resource, amount)| (resource.to_string(), Quantity(amount.quantity(resource))))
        .collect()
}

/// The status with reserved quota and, if no check is pending, admission: one write.
#[must_use]
pub fn reservation_status(
    mut edit: Edit,
    admission: v1beta2::Admission,
    checks: &[String],
) -> Edit {
    let checks = checks.iter().cloned().collect();
    edit.sync_checks(&checks, &checks);
    edit.reserve(admission);
    edit.sync_admitted();
    edit
}

/// A decision of the dispatcher.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dispatch {
    /// The MultiKueue check that becomes Ready.
    pub check: String,
    pub cluster: String,
    /// Number of the attempt. It is written before the cluster gets the assignment.
    pub attempt: i64,
    /// Set if the workload adopts a running copy: the uid by which clusters know that copy.
    pub adopts: Option<String>,
    /// Flavors on the cluster that differ from the charge.
    pub other_flavors: Vec<OtherFlavor>,
}

/// The status with quota, cluster, attempt, the MultiKueue check Ready and, if no other check is
/// pending, admission: one write.
#[must_use]
pub fn dispatched_status(
    mut edit: Edit,
    mut admission: v1beta2::Admission,
    checks: &[String],
    dispatch: &Dispatch,
    now: Timestamp,
) -> Edit {
    // The worker cluster has placed its pods.
    for assignment in &mut admission.pod_set_assignments {
        if assignment.delayed_topology_request.is_some() {
            assignment.delayed_topology_request = Some(DelayedTopologyRequestState::Ready);
        }
    }
    let required = checks.iter().chain(std::iter::once(&dispatch.check)).cloned().collect();
    edit.sync_checks(&required, &required);
    let at = Time(switchyard_platform::clock::whole_seconds(now));
    for check in
        edit.status.admission_checks.iter_mut().filter(|check| check.name == dispatch.check)
    {
        if check.state != CheckState::Ready {
            check.last_transition_time = at.clone();
        }
        check.state = CheckState::Ready;
        check.message = format!("The workload was admitted on \"{}\"", dispatch.cluster);
    }
    edit.status.cluster_name = Some(dispatch.cluster.clone());
    edit.status.nominated_cluster_names.clear();
    let before = edit.status.dispatch.take().unwrap_or_default();
    let workload_uid = dispatch.adopts.clone().or(before.workload_uid);
    edit.status.dispatch = Some(DispatchStatus {
        attempt: dispatch.attempt,
        workload_uid,
        cluster_name: Some(dispatch.cluster.clone()),
        history: before.history,
        stuck_moves: before.stuck_moves,
        other_flavors: dispatch.other_flavors.clone(),
    });
    edit.reserve(admission);
    edit.sync_admitted();
    edit
}

/// The status with the reason for waiting and the requests.
#[must_use]
pub fn pending_status(mut edit: Edit, reason: &Reason, requests: &[PodSetRequests]) -> Edit {
    edit.set_unreserved_reason(reason.condition_reason(), reason.message());
    if *reason == Reason::PreemptionGated {
        let gated = reasons::blocked_on_preemption_gates::PREEMPTION_GATED;
        edit.set(conditions::BLOCKED_ON_PREEMPTION_GATES, true, gated, reason.message());
    }
    let requests = requests.iter().map(|(name, amounts)| PodSetRequest {
        name: name.to_string(),
        resources: quantities(amounts),
    });
    edit.status.resource_requests = requests.collect();
    edit
}

/// Kueue's message about a preemption. `paths` are the preemptor's and the preemptee's.
#[must_use]
pub fn preemption_message(reason: &str, preemptor: &Preemptor, paths: [&str; 2]) -> String {
    let known = |text: &str| if text.is_empty() { "UNKNOWN".to_owned() } else { text.to_owned() };
    let cause = match reason {
        reasons::preempted::IN_CLUSTER_QUEUE => "prioritization in the ClusterQueue",
        reasons::preempted::IN_COHORT_RECLAMATION => "reclamation within the cohort",
        reasons::preempted::IN_COHORT_FAIR_SHARING => "Fair Sharing within the cohort",
        reasons::preempted::IN_COHORT_RECLAIM_WHILE_BORROWING => {
            "reclamation within the cohort while borrowing"
        }
        _ => "UNKNOWN",
    };
    format!(
        "Preempted to accommodate a workload (UID: {}, JobUID: {}) due to {cause}; preemptor path: {}; preemptee path: {}",
        known(&preemptor.uid),
        known(&preemptor.job_uid),
        known(paths[0]),
        known(paths[1]),
    )
}

/// Kueue's note about both workloads' priorities: for each the effective one and that of its spec.
#[must_use]
pub fn preemption_priorities(preemptor: (i32, i32), preemptee: (i32, i32)) -> String {
    let priority = |(effective, base): (i32, i32)| {
        format!("{effective} (base: {base}, boost: {})", i64::from(effective) - i64::from(base))
    };
    format!(
        "; preemptor effective priority: {}; preemptee effective priority: {}",
        priority(preemptor),
        priority(preemptee)
    )
}

/// The status of a workload that another one preempts.
#[must_use]
pub fn preempted_status(mut edit: Edit, reason: &str, message: &str) -> (Edit, Evicted) {
    edit.set(conditions::PREEMPTED, true, reason, message);
    let eviction = Eviction {
        reason: reasons::evicted::PREEMPTED,
        cause: String::new(),
        message: message.to_owned(),
    };
    let evicted = edit.evict(eviction);
    (edit, evicted)
}

/// The status of a variant that another one on a better flavor replaces.
#[must_use]
pub(super) fn migrated_status(mut edit: Edit, to_uid: &str) -> (Edit, Evicted) {
    let message = format!(
        "Evicted to accommodate a workload (UID: {to_uid}) due to migration to more favorable resource flavor"
    );
    let evicted = edit.evict(Eviction {
        reason: reasons::evicted::FLAVOR_MIGRATION,
        cause: String::new(),
        message,
    });
    (edit, evicted)
}

/// Kueue's message for a workload slice that `new` replaces.
#[must_use]
pub(super) fn replaced_message(new: &Workload) -> String {
    let uid = new.metadata.uid.as_deref().unwrap_or_default();
    let job_uid = new.metadata.labels.as_ref().and_then(|labels| labels.get(names::JOB_UID));
    let job_uid = job_uid.map(String::as_str).unwrap_or_default();
    format!(
        "Replaced to accommodate a workload (UID: {uid}, JobUID: {job_uid}) due to workload slice aggregation"
    )
}

/// The status of a workload slice that was replaced.
#[must_use]
pub(super) fn replaced_status(mut edit: Edit, message: &str) -> Edit {
    edit.finish(reasons::finished::WORKLOAD_SLICE_REPLACED, message);
    edit
}

#[cfg(test)]
mod tests;
