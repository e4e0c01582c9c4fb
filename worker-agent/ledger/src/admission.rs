//! Reads the worker's admission from a Workload: one state and its reasons.
//!
//! Kueue writes few reasons (`Pending`, `Inadmissible`) and a message. Kueue with its feature gate
//! `UnadmittedWorkloadsObservability`, and Switchyard's controller for the hub's copies, write a
//! specific reason. This module reads both.

use switchyard_proto::v1::{Reason, State};

use crate::objects::{Condition, RemoteWorkload, UnreadyCheck};

/// Reason of `WAITING` before the worker's admission has considered the Workload.
pub(crate) const UNSEEN: &str = "PendingEvaluation";

/// Reason of `Finished=True` when another Workload of the same job replaced this one.
pub(crate) const REPLACED: &str = "WorkloadSliceReplaced";

/// Reason of `Evicted=True` and `QuotaReserved=False` when `spec.active` is or was false.
const DEACTIVATED: &str = "Deactivated";

/// Reasons of `QuotaReserved=False` with which a workload can never be admitted as things are.
const NEVER: &[&str] = &[
    "ExceedsMaxQuota",
    "NoMatchingFlavor",
    "Misconfigured",
    "Inadmissible",
    "Suspended",
    "OnHold",
    DEACTIVATED,
];

/// Parts of Kueue's `Pending` messages whose cause remains when quota becomes free.
const NEVER_MESSAGES: &[&str] = &[
    "> maximum capacity",
    "untolerated taint",
    "doesn't match node affinity",
    "not found",
    "unavailable in ClusterQueue",
    "is inactive",
    "is stopped",
    "doesn't exist",
    "does not contain the requested level",
    "does not support TopologyAwareScheduling",
    "supports only TopologyAwareScheduling",
];

/// Parts of Kueue's `Pending` messages whose cause goes when quota becomes free.
const LATER_MESSAGES: &[&str] = &[
    "insufficient unused quota",
    "Pending the preemption of",
    "doesn't allow to fit",
    "allows to fit only",
];

/// The state and reasons that the Workload shows. A job's own end takes precedence over them.
pub(crate) fn admission_state(workload: &RemoteWorkload) -> (State, Vec<Reason>) {
    if let Some(finished) = true_one(workload.finished.as_ref()) {
        return finish(finished);
    }
    if was_deactivated(workload) {
        // A fence stopped it, and it may continue. The attempt stays on this cluster.
        return (
            State::Waiting,
            vec![reason(UNSEEN, "it is active again, and the worker has not considered it yet")],
        );
    }
    if let Some(evicted) = true_one(workload.evicted.as_ref()) {
        return (State::Evicted, vec![reason(&evicted.reason, &evicted.message)]);
    }
    if true_one(workload.admitted.as_ref()).is_some() {
        return (State::Reserved, Vec::new());
    }
    match &workload.quota_reserved {
        Some(reserved) if reserved.is_true => (State::Waiting, checks(workload)),
        _ if !workload.active => (
            State::Unfit,
            vec![reason(
                DEACTIVATED,
                "the Workload was deactivated on the worker: spec.active is false",
            )],
        ),
        Some(pending) => {
            let state = if never(pending) { State::Unfit } else { State::Waiting };
            (state, vec![reason(&pending.reason, &pending.message)])
        }
        None => (State::Waiting, vec![reason(UNSEEN, "the worker has not considered it yet")]),
    }
}

/// Whether only a past `spec.active: false` keeps it from running. Conditions follow `spec.active`
/// with a delay.
fn was_deactivated(workload: &RemoteWorkload) -> bool {
    let deactivated = |condition: &Condition| condition.reason == DEACTIVATED;
    let evicted = true_one(workload.evicted.as_ref());
    let pending = workload.quota_reserved.as_ref().filter(|it| !it.is_true);
    workload.active
        && match evicted {
            Some(evicted) => deactivated(evicted),
            None => pending.is_some_and(deactivated),
        }
}

/// The state by Kueue's reason of `Finished`. Some reasons do not mean that the job ended.
fn finish(finished: &Condition) -> (State, Vec<Reason>) {
    let state = match finished.reason.as_str() {
        // The worker's Workload no longer stands for the job: the attempt is void, the job is not
        // done.
        "OutOfSync" | "OwnerNotFound" | REPLACED => State::Evicted,
        "Failed" | "FailedToStart" | "JobFailed" => State::Failed,
        _ => State::Succeeded,
    };
    (state, vec![reason(&finished.reason, &finished.message)])
}

fn checks(workload: &RemoteWorkload) -> Vec<Reason> {
    let text = |check: &UnreadyCheck| match check.message.as_str() {
        "" => format!("admission check {} is {}", check.name, check.state),
        message => format!("admission check {} is {}: {message}", check.name, check.state),
    };
    workload
        .unready_checks
        .iter()
        .map(|check| reason("UnsatisfiedAdmissionChecks", &text(check)))
        .collect()
}

fn never(pending: &Condition) -> bool {
    if NEVER.contains(&pending.reason.as_str()) {
        // Older versions of Kueue also use `Inadmissible` for a full queue.
        return !(pending.reason == "Inadmissible" && may_fit_later(&pending.message));
    }
    // Any other specific reason decides without its message.
    matches!(pending.reason.as_str(), "Pending" | "Waiting") && never_message(&pending.message)
}

/// Whether one pod set can never get its flavors. Kueue joins pod sets by "; ", and the causes of
/// one pod set by ", ".
fn never_message(message: &str) -> bool {
    message
        .split("; ")
        .any(|part| !may_fit_later(part) && NEVER_MESSAGES.iter().any(|text| part.contains(text)))
}

fn may_fit_later(message: &str) -> bool {
    LATER_MESSAGES.iter().any(|text| message.contains(text))
}

fn true_one(condition: Option<&Condition>) -> Option<&Condition> {
    condition.filter(|condition| condition.is_true)
}

fn reason(code: &str, message: &str) -> Reason {
    Reason { code: code.to_owned(), message: message.to_owned() }
}
