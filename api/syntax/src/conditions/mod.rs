//! Status conditions: types and reasons as Kueue writes them, and how to read and change a list of
//! conditions.
//!
//! Types and reasons are an interface: dashboards, `kubectl wait` and other controllers match them.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

pub mod messages;
pub mod reasons;

/// Workload: it holds quota in a ClusterQueue.
pub const QUOTA_RESERVED: &str = "QuotaReserved";
/// Workload: it holds quota and all its admission checks are ready.
pub const ADMITTED: &str = "Admitted";
/// Workload: its pods are ready or have succeeded.
pub const PODS_READY: &str = "PodsReady";
/// Workload: it has to release its quota.
pub const EVICTED: &str = "Evicted";
/// Workload: it was evicted for another workload.
pub const PREEMPTED: &str = "Preempted";
/// Workload: it may be queued again after an eviction.
pub const REQUEUED: &str = "Requeued";
/// Workload: it is about to be deactivated.
pub const DEACTIVATION_TARGET: &str = "DeactivationTarget";
/// Workload: its job has ended.
pub const FINISHED: &str = "Finished";
/// Workload: it needs preemption, and a gate forbids that.
pub const BLOCKED_ON_PREEMPTION_GATES: &str = "BlockedOnPreemptionGates";
/// Workload: pods of its group are missing.
pub const WAITING_FOR_REPLACEMENT_PODS: &str = "WaitingForReplacementPods";
/// Workload: its job has a problem on its worker cluster. Specific to Switchyard.
pub const WORKER_TROUBLE: &str = "WorkerTrouble";
/// ClusterQueue, LocalQueue, AdmissionCheck, MultiKueueCluster: it works.
pub const ACTIVE: &str = "Active";
/// MultiKueueCluster: so many workloads were lost at once that evictions wait for an administrator.
/// Specific to Switchyard.
pub const EVICTIONS_STOPPED: &str = "EvictionsStopped";
/// MultiKueueCluster: a ClusterQueue asks for `Fence`, which the cluster cannot do without an
/// agent. Specific to Switchyard.
pub const FENCE_UNAVAILABLE: &str = "FenceUnavailable";
/// MultiKueueCluster: it has copies of this hub that the hub does not know. Specific to Switchyard.
pub const ORPHANS_FOUND: &str = "OrphansFound";
/// MultiKueueCluster: objects with the hub's marks count as its copies without a proof. Specific to
/// Switchyard.
pub const COPIES_UNPROVED: &str = "CopiesUnproved";
/// MultiKueueCluster: the agent's clock was a minute or more from the hub's when its session began.
/// Specific to Switchyard.
pub const CLOCK_SKEWED: &str = "ClockSkewed";
/// ClusterQueue: its quota follows the sum of the worker clusters' quotas.
pub const MULTIKUEUE_MANAGER_QUOTA_AUTOMATION: &str = "MultiKueueManagerQuotaAutomation";

/// Status of a condition that holds.
pub const TRUE: &str = "True";
/// Status of a condition that does not hold.
pub const FALSE: &str = "False";
/// Status of a condition that cannot be determined.
pub const UNKNOWN: &str = "Unknown";

/// Most bytes of a condition's message (API limit).
pub const MAX_MESSAGE_BYTES: usize = 32 * 1024;
/// Most bytes of an event's note (API limit).
pub const MAX_EVENT_BYTES: usize = 1024;

/// A condition without a transition time, which [`set`] fills in.
pub fn new(
    type_: &str,
    holds: bool,
    reason: impl Into<String>,
    message: impl Into<String>,
    generation: Option<i64>,
) -> Condition {
    Condition {
        type_: type_.to_owned(),
        status: if holds { TRUE } else { FALSE }.to_owned(),
        reason: reason.into(),
        message: message.into(),
        observed_generation: generation,
        last_transition_time: Time(Timestamp::UNIX_EPOCH),
    }
}

/// The condition of this type.
#[must_use]
pub fn find<'a>(conditions: &'a [Condition], type_: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| condition.type_ == type_)
}

/// Whether a condition of this type exists and is true.
#[must_use]
pub fn is_true(conditions: &[Condition], type_: &str) -> bool {
    find(conditions, type_).is_some_and(|condition| condition.status == TRUE)
}

/// Whether a condition of this type exists and is false.
#[must_use]
pub fn is_false(conditions: &[Condition], type_: &str) -> bool {
    find(conditions, type_).is_some_and(|condition| condition.status == FALSE)
}

/// Sets a condition in the list. Returns true if the list changed.
///
/// `lastTransitionTime` becomes `now` only if the status changes. The time in `condition` is
/// ignored. The message is cut to [`MAX_MESSAGE_BYTES`].
pub fn set(conditions: &mut Vec<Condition>, mut condition: Condition, now: Timestamp) -> bool {
    condition.message = truncated(condition.message, MAX_MESSAGE_BYTES);
    condition.last_transition_time = Time(now);
    let Some(present) = conditions.iter_mut().find(|present| present.type_ == condition.type_)
    else {
        conditions.push(condition);
        return true;
    };
    if present.status == condition.status {
        condition.last_transition_time = present.last_transition_time.clone();
    }
    if *present == condition {
        return false;
    }
    *present = condition;
    true
}

/// Removes the condition of this type. Returns true if it existed.
pub fn remove(conditions: &mut Vec<Condition>, type_: &str) -> bool {
    let before = conditions.len();
    conditions.retain(|condition| condition.type_ != type_);
    conditions.len() != before
}

/// Cuts a condition's message to [`MAX_MESSAGE_BYTES`].
#[must_use]
pub fn truncated_message(message: String) -> String {
    truncated(message, MAX_MESSAGE_BYTES)
}

/// Cuts an event's note to [`MAX_EVENT_BYTES`].
#[must_use]
pub fn truncated_event(note: String) -> String {
    truncated(note, MAX_EVENT_BYTES)
}

/// At most `max` bytes of `text`. A cut text ends in ` ...`, as Kueue's do.
fn truncated(mut text: String, max: usize) -> String {
    const SUFFIX: &str = " ...";
    if text.len() > max {
        let mut cut = max - SUFFIX.len();
        while !text.is_char_boundary(cut) {
            cut -= 1;
        }
        text.truncate(cut);
        text.push_str(SUFFIX);
    }
    text
}

#[cfg(test)]
mod tests;
