//! What the worker's admission says of a Workload, as one state and its reasons.
//!
//! Kueue writes few reasons (`Pending`, `Inadmissible`) and a message; with `UnadmittedWorkloadsObservability` it writes a
//! reason each, and so does our own controller for the copies of a hub. Both are read.

use switchyard_proto::v1::{Reason, State};

use super::model::{Condition, RemoteWorkload};

/// Reason of `WAITING` while the worker's admission has said nothing.
pub(super) const UNSEEN: &str = "PendingEvaluation";

/// Reason of `Finished=True` of a Workload in whose place another one of its job was given quota.
pub(super) const REPLACED: &str = "WorkloadSliceReplaced";

/// Reason of `Evicted=True`, and of `QuotaReserved=False`, of a Workload whose `spec.active` is false, or was.
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

/// Parts of Kueue's `Pending` messages that no freed quota mends.
const NEVER_MESSAGES: &[&str] = &[
    "> maximum capacity",
    "untolerated taint",
    "doesn't match node affinity",
    "not found",
    "unavailable in ClusterQueue",
    "is inactive",
    "is stopped",
    "doesn't exist",
];

/// Parts of Kueue's `Pending` messages that freed quota does mend.
const LATER_MESSAGES: &[&str] = &["insufficient unused quota", "Pending the preemption of"];

/// The state and reasons by the Workload alone; a job's own end goes before it.
pub(super) fn verdict(workload: &RemoteWorkload) -> (State, Vec<Reason>) {
    if let Some(finished) = true_one(workload.finished.as_ref()) {
        return finish(finished);
    }
    if was_deactivated(workload) {
        // A fence has stopped it, and it may go on: the attempt stays where it is.
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

/// Whether only its having been inactive is what still keeps it from running: conditions follow `spec.active` late.
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

/// Kueue's `Finished` reasons: some do not mean that the job ended.
fn finish(finished: &Condition) -> (State, Vec<Reason>) {
    let state = match finished.reason.as_str() {
        // The worker's Workload no longer stands for the job: the attempt is void, the job is not done.
        "OutOfSync" | "OwnerNotFound" | REPLACED => State::Evicted,
        "Failed" | "FailedToStart" | "JobFailed" => State::Failed,
        _ => State::Succeeded,
    };
    (state, vec![reason(&finished.reason, &finished.message)])
}

fn checks(workload: &RemoteWorkload) -> Vec<Reason> {
    let text = |check: &super::model::UnreadyCheck| match check.message.as_str() {
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
        // An older Kueue says Inadmissible of a full queue, too.
        return !(pending.reason == "Inadmissible" && may_fit_later(&pending.message));
    }
    // Reasons of their own need no reading of the message.
    matches!(pending.reason.as_str(), "Pending" | "Waiting") && never_message(&pending.message)
}

/// Whether one pod set can never get its flavors. Pod sets are joined by "; ", a pod set's reasons by ", ".
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
