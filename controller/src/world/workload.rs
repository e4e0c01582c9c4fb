//! Workloads.

use switchyard_api::{
    conditions,
    quantity::amount_of,
    v1beta2 as api,
};
use switchyard_scheduler::{self as engine, Amount, Name, WorkloadKey};

use super::{RequestRules, selector};
use crate::{
    clock::engine_time,
    workload::{self as state},
};

/// What orders workloads of equal priority.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ordering {
    /// Whether a PodsReady timeout sends a workload to the back of the queue.
    pub(crate) by_eviction: bool,
}

/// The workload as the engine knows it.
pub(super) fn workload(workload: &api::Workload, rules: &RequestRules, ordering: Ordering) -> engine::Workload {
    let status = workload.status.as_ref();
    let text = |value: Option<&String>| Name::from(value.map_or("", String::as_str));
    let key = WorkloadKey { namespace: text(workload.metadata.namespace.as_ref()), name: text(workload.metadata.name.as_ref()) };
    let reserved = state::condition(workload, conditions::QUOTA_RESERVED).filter(|c| c.status == conditions::TRUE);
    let requeued = state::condition(workload, conditions::REQUEUED).map(|c| c.status == conditions::TRUE);
    let requeue_at = status.and_then(|status| status.requeue_state.as_ref()?.requeue_at.as_ref());
    engine::Workload {
        uid: text(workload.metadata.uid.as_ref()),
        queue_name: state::queue_name(workload).to_owned(),
        priority: workload.spec.priority.unwrap_or(0),
        created: engine_time(state::created(workload)),
        queue_time: engine_time(state::queue_time(workload, ordering.by_eviction)),
        active: workload.spec.is_active(),
        held: held(workload),
        finished: state::is_finished(workload),
        pod_sets: workload.spec.pod_sets.iter().map(|pod_set| self::pod_set(pod_set, rules)).collect(),
        reservation: reserved.and_then(|_| status?.admission.as_ref()).map(admission),
        reserved_at: reserved.map(|condition| engine_time(condition.last_transition_time.0)),
        admitted: state::is_admitted(workload),
        evicted: state::is_evicted(workload),
        requeue_at: requeue_at.map(|at| engine_time(at.0)),
        requeued,
        reclaimable: status
            .iter()
            .flat_map(|status| &status.reclaimable_pods)
            .map(|pods| (Name::from(pods.name.as_str()), pods.count))
            .collect(),
        checks: status.iter().flat_map(|status| &status.admission_checks).map(check).collect(),
        gates_closed: gates_closed(workload),
        deleting: workload.metadata.deletion_timestamp.is_some(),
        key,
    }
}

/// On hold, gated, or waiting for pods of its group: known, but not to be queued.
fn held(workload: &api::Workload) -> bool {
    state::is_on_hold(workload)
        || state::admission_gates(workload).is_some()
        || state::holds(workload, conditions::WAITING_FOR_REPLACEMENT_PODS)
}

fn gates_closed(workload: &api::Workload) -> bool {
    let positions = workload.status.iter().flat_map(|status| &status.preemption_gates);
    let open: Vec<&str> = positions
        .filter(|gate| gate.position == api::PreemptionGatePosition::Open)
        .map(|gate| gate.name.as_str())
        .collect();
    workload.spec.preemption_gates.iter().any(|gate| !open.contains(&gate.name.as_str()))
}

fn check(check: &api::AdmissionCheckState) -> engine::CheckState {
    engine::CheckState {
        name: Name::from(check.name.as_str()),
        state: match check.state {
            api::CheckState::Pending => engine::CheckPhase::Pending,
            api::CheckState::Ready => engine::CheckPhase::Ready,
            api::CheckState::Retry => engine::CheckPhase::Retry,
            api::CheckState::Rejected => engine::CheckPhase::Rejected,
        },
    }
}

fn admission(admission: &api::Admission) -> engine::Admission {
    let name = |text: &String| Name::from(text.as_str());
    let pod_set = |assignment: &api::PodSetAssignment| engine::PodSetAssignment {
        name: name(&assignment.name),
        flavors: assignment.flavors.iter().map(|(resource, flavor)| (name(resource), name(flavor))).collect(),
        usage: assignment
            .resource_usage
            .iter()
            .map(|(resource, quantity)| (name(resource), Amount::new(amount_of(resource, quantity))))
            .collect(),
        count: assignment.count.unwrap_or(0),
    };
    engine::Admission {
        cluster_queue: name(&admission.cluster_queue),
        pod_sets: admission.pod_set_assignments.iter().map(pod_set).collect(),
    }
}

fn pod_set(pod_set: &api::PodSet, rules: &RequestRules) -> engine::PodSet {
    let base = engine::PodSet {
        min_count: pod_set.min_count,
        ..engine::PodSet::new(pod_set.name.as_str(), pod_set.count)
    };
    let template = match pod_set.template.parse() {
        Ok(template) => template,
        // It is stored, so it must be shown as what it is: a workload that cannot run.
        Err(error) => return engine::PodSet { problem: Some(format!("invalid pod template: {error}")), ..base },
    };
    let (requests, problem) = rules.requests(&pod_set.template, &template);
    let spec = template.spec.unwrap_or_default();
    engine::PodSet {
        requests,
        node_selector: super::labels(spec.node_selector.as_ref()),
        affinity: selector::affinity(spec.affinity.as_ref()),
        tolerations: spec.tolerations.iter().flatten().map(selector::toleration).collect(),
        problem,
        ..base
    }
}
