//! Workloads with quota: everything that may evict them.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use switchyard_api::{
    conditions::{self, reasons},
    v1beta2::{CheckState, PastAttempt, StopPolicy, Workload},
};

use super::{Notification, WorkloadPlan, checks, pending};
use crate::{
    reconcilers::workload::{PodsReadyRules, Readiness, Rules, WorkloadInputs},
    workload::{self, Edit, Eviction, NOT_READY},
};
use switchyard_platform::clock::{exponential_backoff, since, whole_seconds};

pub(super) fn decide(
    plan: &mut WorkloadPlan,
    edit: &mut Edit,
    subject: &Workload,
    inputs: &WorkloadInputs,
    rules: &Rules,
    now: Timestamp,
) {
    let evicted = workload::is_evicted(subject);
    if !evicted && !inputs.parent && retried(plan, edit, subject) {
        return;
    }
    let admitted = conditions::is_true(&edit.status.conditions, conditions::ADMITTED);
    if admitted && !evicted && drained(plan, edit, subject, inputs) {
        return;
    }
    if !admitted && let Some((reason, message)) = lost_queue(subject, inputs) {
        edit.unreserve(reason, message);
        // Kueue does this in a second write.
        pending::blockers(edit, subject, inputs, rules);
        return;
    }
    if inputs.variant {
        return;
    }
    if let Some(rules) = rules.pods_ready.as_ref().filter(|_| !evicted)
        && inputs.readiness != Readiness::Unknown
        && pods_ready(plan, edit, subject, inputs, rules, now)
    {
        return;
    }
    execution_time(plan, edit, subject, now);
}

/// Evicts a workload with a check in Retry state. Returns whether one is.
fn retried(plan: &mut WorkloadPlan, edit: &mut Edit, subject: &Workload) -> bool {
    let retry = checks::in_state(&edit.status, CheckState::Retry);
    if retry.is_empty() {
        return false;
    }
    let message = format!("Evicted due to {}", checks::message(&retry, CheckState::Retry));
    plan.evict(
        subject,
        edit,
        Eviction { reason: reasons::evicted::ADMISSION_CHECK, cause: String::new(), message },
    );
    true
}

fn drained(
    plan: &mut WorkloadPlan,
    edit: &mut Edit,
    subject: &Workload,
    inputs: &WorkloadInputs,
) -> bool {
    let local = inputs
        .local_queue
        .as_ref()
        .is_some_and(|queue| queue.spec.stop_policy == StopPolicy::HoldAndDrain);
    let cluster = inputs
        .cluster_queue
        .as_ref()
        .is_some_and(|queue| queue.spec.stop_policy == StopPolicy::HoldAndDrain);
    let (reason, message) = match (local, cluster) {
        (true, _) => (reasons::evicted::LOCAL_QUEUE_STOPPED, "The LocalQueue is stopped"),
        (false, true) => (reasons::evicted::CLUSTER_QUEUE_STOPPED, "The ClusterQueue is stopped"),
        (false, false) => return false,
    };
    plan.evict(
        subject,
        edit,
        Eviction { reason, cause: String::new(), message: message.to_owned() },
    );
    true
}

/// A reservation without admission does not outlive its queues.
fn lost_queue(subject: &Workload, inputs: &WorkloadInputs) -> Option<(&'static str, String)> {
    use reasons::quota_reserved::{MISCONFIGURED, SUSPENDED};
    let name = workload::queue_name(subject);
    let live =
        inputs.local_queue.as_ref().filter(|queue| queue.metadata.deletion_timestamp.is_none());
    let Some(local_queue) = live else {
        return Some((MISCONFIGURED, format!("LocalQueue {name} is terminating or missing")));
    };
    if local_queue.spec.stop_policy != StopPolicy::None {
        return Some((SUSPENDED, format!("LocalQueue {name} is stopped")));
    }
    let name = inputs.cluster_queue_name.as_deref().unwrap_or_default();
    let live =
        inputs.cluster_queue.as_ref().filter(|queue| queue.metadata.deletion_timestamp.is_none());
    let Some(cluster_queue) = live else {
        return Some((MISCONFIGURED, format!("ClusterQueue {name} is terminating or missing")));
    };
    (cluster_queue.spec.stop_policy != StopPolicy::None)
        .then(|| (SUSPENDED, format!("ClusterQueue {name} is stopped")))
}

/// Evicts a workload whose pods are not ready in time. Returns whether it did.
fn pods_ready(
    plan: &mut WorkloadPlan,
    edit: &mut Edit,
    subject: &Workload,
    inputs: &WorkloadInputs,
    rules: &PodsReadyRules,
    now: Timestamp,
) -> bool {
    let Some((cause, begun, timeout)) = not_ready(subject, rules) else { return false };
    let waited = since(now, begun);
    if waited < timeout {
        plan.again(timeout.saturating_sub(waited));
        return false;
    }
    if let Readiness::Stale(left) = inputs.readiness {
        // Its pods may be ready by now.
        plan.again(left);
        return false;
    }
    let count = edit
        .status
        .requeue_state
        .as_ref()
        .and_then(|state| state.count)
        .unwrap_or(0)
        .saturating_add(1);
    if rules.limit.is_some_and(|limit| count > limit) {
        let message = "exceeding the maximum number of re-queuing retries";
        edit.deactivation_target(reasons::deactivation_target::REQUEUING_LIMIT_EXCEEDED, message);
        return true;
    }
    let wait = exponential_backoff(rules.base, rules.max, count);
    let at =
        now.checked_add(jiff::SignedDuration::try_from(wait).unwrap_or_default()).unwrap_or(now);
    edit.requeue_at(at, true);
    if cause == reasons::pods_ready::WAIT_FOR_START {
        // The admitting write may not have set it. With the eviction it costs no write.
        edit.set(conditions::PODS_READY, false, cause, NOT_READY);
    }
    // The dispatcher ranks this cluster behind the others.
    if let (Some(cluster_name), Some(dispatch)) =
        (edit.status.cluster_name.clone(), &mut edit.status.dispatch)
    {
        dispatch.remember(PastAttempt {
            attempt: dispatch.attempt,
            cluster_name,
            reason: reasons::evicted::PODS_READY_TIMEOUT.to_owned(),
            at: Time(whole_seconds(now)),
        });
    }
    let key = switchyard_platform::store::Key::of(subject);
    let eviction = Eviction {
        reason: reasons::evicted::PODS_READY_TIMEOUT,
        cause: cause.to_owned(),
        message: format!("Exceeded the PodsReady timeout {key}"),
    };
    plan.evict(subject, edit, eviction);
    true
}

/// Why an admitted workload counts as not ready, since when, and the allowed time.
fn not_ready(
    subject: &Workload,
    rules: &PodsReadyRules,
) -> Option<(&'static str, Timestamp, Duration)> {
    let admitted = workload::condition(subject, conditions::ADMITTED)
        .filter(|c| c.status == conditions::TRUE)?;
    let ready = workload::condition(subject, conditions::PODS_READY);
    match ready {
        Some(condition) if condition.status == conditions::TRUE => None,
        Some(condition) if condition.reason == reasons::pods_ready::WAIT_FOR_RECOVERY => Some((
            reasons::pods_ready::WAIT_FOR_RECOVERY,
            condition.last_transition_time.0,
            rules.recovery_timeout?,
        )),
        _ => Some((
            reasons::pods_ready::WAIT_FOR_START,
            admitted.last_transition_time.0,
            rules.timeout,
        )),
    }
}

fn execution_time(plan: &mut WorkloadPlan, edit: &mut Edit, subject: &Workload, now: Timestamp) {
    let admitted =
        workload::condition(subject, conditions::ADMITTED).filter(|c| c.status == conditions::TRUE);
    let (Some(admitted), Some(limit)) = (admitted, subject.spec.maximum_execution_time_seconds)
    else {
        return;
    };
    let seconds = |n: i32| Duration::from_secs(u64::try_from(n).unwrap_or(0));
    let past = edit.status.accumulated_past_execution_time_seconds.unwrap_or(0);
    let used = seconds(past) + since(now, admitted.last_transition_time.0);
    if used < seconds(limit) {
        plan.again(seconds(limit).saturating_sub(used));
        return;
    }
    edit.execution_time_exceeded();
    let note = format!("The maximum execution time ({limit}s) exceeded");
    plan.notifications.push(Notification::Event {
        warning: true,
        reason: reasons::deactivation_target::MAXIMUM_EXECUTION_TIME_EXCEEDED,
        note,
    });
}
