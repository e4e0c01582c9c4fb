//! Workloads without quota: backoff, restarts, gates, and blockers of admission.

use std::time::Duration;

use jiff::Timestamp;
use switchyard_api::{
    conditions::{self, reasons},
    v1beta2::{StopPolicy, Workload},
};
use switchyard_scheduler::NO_QUEUE;

use super::{Notification, WorkloadPlan};
use crate::{
    reconcilers::workload::{Rules, WorkloadInputs},
    workload::{self, Edit},
};
use switchyard_platform::clock::since;

/// `requeueState.requeueAt` and the `Requeued` condition of an active workload.
pub(super) fn back_off(
    plan: &mut WorkloadPlan,
    edit: &mut Edit,
    subject: &Workload,
    now: Timestamp,
) {
    if let Some(at) = edit.retry_time().filter(|at| *at > now) {
        edit.requeue_at(at, false);
    }
    let requeue_at = edit
        .status
        .requeue_state
        .as_ref()
        .and_then(|state| state.requeue_at.as_ref())
        .map(|at| at.0);
    if let Some(at) = requeue_at.filter(|at| *at > now) {
        plan.again(since(at, now));
        return;
    }
    if workload::has_reservation(subject) && workload::is_evicted(subject) {
        // Its quota is not released yet.
        return;
    }
    let requeued = conditions::find(&edit.status.conditions, conditions::REQUEUED).cloned();
    let refused = requeued.filter(|condition| condition.status == conditions::FALSE);
    if requeue_at.is_some()
        && !workload::has_reservation(subject)
        && let Some(state) = &mut edit.status.requeue_state
    {
        state.requeue_at = None;
    }
    let Some(refused) = refused else { return };
    match refused.reason.as_str() {
        reasons::evicted::PODS_READY_TIMEOUT | reasons::evicted::ADMISSION_CHECK => {
            edit.requeued(
                true,
                reasons::requeued::BACKOFF_FINISHED,
                "The workload backoff was finished",
            );
        }
        // Kueue compares with the bare reason, so `DeactivatedDueTo...` would never be requeued.
        reason if reason.starts_with(reasons::evicted::DEACTIVATED) => {
            edit.requeued(true, reasons::requeued::REACTIVATED, "The workload was reactivated");
        }
        _ => (),
    }
}

/// A queue that was stopped and restarted requeues the workloads that it evicted.
pub(super) fn restarts(edit: &mut Edit, subject: &Workload, inputs: &WorkloadInputs) {
    let Some(requeued) = workload::condition(subject, conditions::REQUEUED) else { return };
    if requeued.status != conditions::FALSE {
        return;
    }
    let local_runs =
        inputs.local_queue.as_ref().is_some_and(|queue| queue.spec.stop_policy == StopPolicy::None);
    let cluster_runs = inputs
        .cluster_queue
        .as_ref()
        .is_some_and(|queue| queue.spec.stop_policy == StopPolicy::None);
    if requeued.reason == reasons::evicted::LOCAL_QUEUE_STOPPED && local_runs {
        let message = "The LocalQueue was restarted after being stopped";
        edit.requeued(true, reasons::requeued::LOCAL_QUEUE_RESTARTED, message);
    }
    if requeued.reason == reasons::evicted::CLUSTER_QUEUE_STOPPED && cluster_runs {
        let message = "The ClusterQueue was restarted after being stopped";
        edit.requeued(true, reasons::requeued::CLUSTER_QUEUE_RESTARTED, message);
    }
}

/// Prefix of the condition's message for the annotation. A closed preemption gate has the same
/// reason.
const GATED: &str = "Admission is gated by: ";

/// The annotation `admission-gated-by`.
pub(super) fn gates(
    plan: &mut WorkloadPlan,
    edit: &mut Edit,
    subject: &Workload,
    inputs: &WorkloadInputs,
    rules: &Rules,
) {
    if workload::has_reservation(subject) {
        return;
    }
    let known = workload::condition(subject, conditions::QUOTA_RESERVED).is_some_and(|condition| {
        condition.reason == reasons::quota_reserved::ADMISSION_GATED
            && condition.message.starts_with(GATED)
    });
    match (closed_gates(subject, rules), known) {
        // A problem of its queue is reported first.
        (Some(_), false) if blocker(subject, inputs).is_some() => (),
        (Some(gates), true) => {
            edit.unreserve(reasons::quota_reserved::ADMISSION_GATED, format!("{GATED}{gates}"));
        }
        (Some(gates), false) => {
            edit.unreserve(reasons::quota_reserved::ADMISSION_GATED, format!("{GATED}{gates}"));
            let note = format!("Workload admission is gated by: {gates}");
            plan.notifications.push(Notification::Event {
                warning: false,
                reason: reasons::events::ADMISSION_GATED,
                note,
            });
        }
        (None, true) => {
            let message = "AdmissionGatedBy cleared, waiting for quota reservation";
            edit.unreserve(reasons::quota_reserved::PENDING_EVALUATION, message);
            let note = "Admission gate cleared, workload is now admissible".to_owned();
            plan.notifications.push(Notification::Event {
                warning: false,
                reason: reasons::events::ADMISSION_GATE_CLEARED,
                note,
            });
        }
        _ => (),
    }
}

/// The closed gates, if gates count.
fn closed_gates<'a>(subject: &'a Workload, rules: &Rules) -> Option<&'a str> {
    workload::admission_gates(subject).filter(|_| !rules.ignores_admission_gates)
}

/// A queue that is missing or inactive is reported only once the workload is this old. Queue and job
/// are often created together, and the watches of their kinds are not ordered: the workload may be
/// seen first. Creation times have whole seconds, so the delay is one to two seconds.
const QUEUE_GRACE: Duration = Duration::from_secs(2);

/// Time until the queue of a new workload is reported as missing or inactive. `None` if that is due,
/// if its queue is there, or if the workload is a copy, whose hub waits for the report.
pub(super) fn queue_grace_left(
    subject: &Workload,
    inputs: &WorkloadInputs,
    now: Timestamp,
) -> Option<Duration> {
    let is_new = workload::condition(subject, conditions::QUOTA_RESERVED).is_none();
    let may_run =
        |policy: Option<StopPolicy>| policy.is_none_or(|policy| policy == StopPolicy::None);
    let may_follow = subject.spec.is_active()
        && !workload::is_sent(subject)
        && !workload::queue_name(subject).is_empty()
        && may_run(inputs.local_queue.as_ref().map(|queue| queue.spec.stop_policy))
        && may_run(inputs.cluster_queue.as_ref().map(|queue| queue.spec.stop_policy))
        && !inputs.cluster_queue_active;
    let created = workload::created(subject);
    let left = QUEUE_GRACE.saturating_sub(since(now, created));
    // A creation in the future is one by another clock.
    (is_new && may_follow && created <= now && !left.is_zero()).then_some(left)
}

/// Sets `QuotaReserved` to what keeps the engine from considering a pending workload.
pub(super) fn blockers(
    edit: &mut Edit,
    subject: &Workload,
    inputs: &WorkloadInputs,
    rules: &Rules,
) {
    // Without detailed reasons, a deactivated workload keeps its last reason.
    let keeps_reason = edit.has_basic_reasons() && !subject.spec.is_active();
    if workload::is_on_hold(subject) || keeps_reason {
        return;
    }
    if let Some((reason, message)) = blocker(subject, inputs) {
        edit.unreserve(reason, message);
        return;
    }
    let is_unset = conditions::find(&edit.status.conditions, conditions::QUOTA_RESERVED).is_none();
    // The engine's reasons stay until it considers the workload again. The reasons that this module
    // sets end with their cause.
    let is_own = conditions::find(&edit.status.conditions, conditions::QUOTA_RESERVED).is_some_and(
        |condition| {
            condition.status == conditions::FALSE
                && is_blocker(&condition.reason, &condition.message)
        },
    );
    if (is_own || is_unset && rules.explicit) && closed_gates(subject, rules).is_none() {
        edit.unreserve(
            reasons::quota_reserved::PENDING_EVALUATION,
            reasons::quota_reserved::TO_BE_EVALUATED,
        );
    }
}

/// Message of a deactivated workload.
const INACTIVE: &str = "The workload is deactivated";

fn blocker(subject: &Workload, inputs: &WorkloadInputs) -> Option<(&'static str, String)> {
    use reasons::quota_reserved::{DEACTIVATED, MISCONFIGURED, SUSPENDED};
    if !subject.spec.is_active() {
        return Some((DEACTIVATED, INACTIVE.to_owned()));
    }
    let name = workload::queue_name(subject);
    let Some(local_queue) = &inputs.local_queue else {
        if name.is_empty() {
            return Some((MISCONFIGURED, NO_QUEUE.to_owned()));
        }
        return Some((MISCONFIGURED, format!("LocalQueue {name} doesn't exist")));
    };
    if local_queue.metadata.deletion_timestamp.is_some() {
        return Some((MISCONFIGURED, format!("LocalQueue {name} is terminating or missing")));
    }
    if local_queue.spec.stop_policy != StopPolicy::None {
        return Some((SUSPENDED, format!("LocalQueue {name} is inactive")));
    }
    let cluster_queue = inputs.cluster_queue_name.as_deref().unwrap_or_default();
    if inputs.cluster_queue.is_none() {
        return Some((MISCONFIGURED, format!("ClusterQueue {cluster_queue} doesn't exist")));
    }
    (!inputs.cluster_queue_active)
        .then(|| (SUSPENDED, format!("ClusterQueue {cluster_queue} is inactive")))
}

fn is_blocker(reason: &str, message: &str) -> bool {
    use reasons::quota_reserved::{DEACTIVATED, INADMISSIBLE, MISCONFIGURED, PENDING, SUSPENDED};
    let about_queue = message.starts_with("LocalQueue ") || message.starts_with("ClusterQueue ");
    match reason {
        DEACTIVATED => true,
        PENDING => message == INACTIVE,
        MISCONFIGURED | SUSPENDED | INADMISSIBLE => about_queue,
        _ => false,
    }
}
