//! Decides what to do about a workload. Pure.
//!
//! Steps are in Kueue's order (`pkg/controller/core/workload_controller.go`). Kueue writes and
//! reconciles again between steps; here everything that is known goes into one write.

mod checks;
mod pending;
mod reserved;

use std::time::Duration;

use jiff::Timestamp;
use switchyard_api::{
    conditions::{self, reasons},
    names,
    v1beta2::{Workload, WorkloadStatus},
    variants,
};

use super::{Rules, WorkloadInputs};
use crate::workload::{
    self, Edit, Evicted, Eviction, LOST_CLUSTER_CHECK_INTERVAL, Phase, ReasonDetail,
};
use switchyard_platform::clock::since;

/// The steps to perform, in this order. The default is none.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct WorkloadPlan {
    /// Write this status, if it differs.
    pub status: Option<WorkloadStatus>,
    /// Set `spec.active` to false.
    pub deactivate: bool,
    /// Remove Switchyard's finalizer.
    pub release: bool,
    /// Delete the workload.
    pub delete: bool,
    /// Publish these after the status is written.
    pub notifications: Vec<Notification>,
    /// Reconcile again after this delay at the latest.
    pub again: Option<Duration>,
}

/// An event or a metric of a written status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Notification {
    Event {
        /// A Warning instead of a Normal event.
        warning: bool,
        reason: &'static str,
        note: String,
    },
    /// The workload was evicted.
    Evicted {
        /// The ClusterQueue whose quota it holds.
        cluster_queue: String,
        evicted: Evicted,
    },
    /// The last check became Ready.
    Admitted {
        cluster_queue: String,
        /// Time since it was queued.
        waited: Duration,
        /// Time since the reservation.
        reserved_for: Duration,
    },
}

impl WorkloadPlan {
    /// Whether it only changes the reason why a pending workload waits, and only its user reads
    /// that. A hub reads those of copies, and concurrent admission those of variants.
    pub(super) fn only_explains(&self, subject: &Workload) -> bool {
        let Some(status) = &self.status else { return false };
        let rest = |status: &WorkloadStatus| {
            let mut rest = status.clone();
            rest.conditions.retain(|condition| {
                ![conditions::QUOTA_RESERVED, conditions::ADMITTED]
                    .contains(&condition.type_.as_str())
            });
            rest
        };
        let is_read = workload::is_sent(subject) || variants::parent_of(subject).is_some();
        workload::phase(subject) == Phase::Pending
            && !is_read
            && !(self.deactivate || self.release || self.delete)
            && self.notifications.is_empty()
            && rest(status) == subject.status.as_ref().map(rest).unwrap_or_default()
    }

    fn again(&mut self, after: Duration) {
        self.again = Some(self.again.map_or(after, |known| known.min(after)));
    }

    fn evict(&mut self, subject: &Workload, edit: &mut Edit, eviction: Eviction) {
        let evicted = edit.evict(eviction);
        // An eviction without quota is only marked.
        if let Some(cluster_queue) = workload::admitted_by(subject) {
            self.notifications
                .push(Notification::Evicted { cluster_queue: cluster_queue.to_owned(), evicted });
        }
    }
}

/// Decides about one workload in its state at `now`.
#[must_use]
pub(crate) fn decide(
    subject: &Workload,
    inputs: &WorkloadInputs,
    rules: &Rules,
    now: Timestamp,
) -> WorkloadPlan {
    if let Some(plan) = end_of_life(subject, inputs, rules, now) {
        return plan;
    }
    if workload::is_finished(subject) {
        return retention(subject, rules, now);
    }
    let mut plan = WorkloadPlan::default();
    let mut edit = Edit::new(subject, rules.reasons, now);
    if subject.spec.is_active() {
        if workload::holds(subject, conditions::DEACTIVATION_TARGET) {
            plan.deactivate = true;
            return plan;
        }
        pending::back_off(&mut plan, &mut edit, subject, now);
    } else {
        deactivated(&mut plan, &mut edit, subject);
    }
    pending::restarts(&mut edit, subject, inputs);
    pending::gates(&mut plan, &mut edit, subject, inputs, rules);
    if !inputs.parent {
        checks::sync(&mut edit, inputs);
    }
    if rules.lists_preemption_gates {
        edit.sync_preemption_gates(&subject.spec.preemption_gates);
    }
    match workload::phase(subject) {
        Phase::Pending => {
            match pending::queue_grace_left(subject, inputs, now) {
                Some(wait) => plan.again(wait),
                None => pending::blockers(&mut edit, subject, inputs, rules),
            }
            edit.sync_admitted();
        }
        Phase::QuotaReserved => checks::admit(&mut plan, &mut edit, subject, now),
        Phase::Admitted | Phase::Finished => (),
    }
    // A check may reject it during an eviction or later. Then nothing else would requeue it.
    let rejected =
        subject.spec.is_active() && !inputs.parent && checks::rejected(&mut plan, &mut edit);
    let goes = rejected && !workload::is_evicted(subject);
    if workload::has_reservation(subject) && subject.spec.is_active() && !goes {
        reserved::decide(&mut plan, &mut edit, subject, inputs, rules, now);
    }
    if subject.status.as_ref() != Some(&edit.status) && edit.status != WorkloadStatus::default() {
        plan.status = Some(edit.status);
    }
    plan
}

/// Whether Switchyard's finalizer is set.
fn held(subject: &Workload) -> bool {
    subject
        .metadata
        .finalizers
        .iter()
        .flatten()
        .any(|finalizer| finalizer == names::RESOURCE_IN_USE)
}

/// Ends workloads without an owner that had one, and workloads that are being deleted.
fn end_of_life(
    subject: &Workload,
    inputs: &WorkloadInputs,
    rules: &Rules,
    now: Timestamp,
) -> Option<WorkloadPlan> {
    let deleting = subject.metadata.deletion_timestamp.is_some();
    let owned = subject.metadata.owner_references.as_ref().is_some_and(|owners| !owners.is_empty());
    let had_owner = subject
        .metadata
        .labels
        .as_ref()
        .is_some_and(|labels| labels.get(names::JOB_UID).is_some_and(|uid| !uid.is_empty()));
    let held = held(subject);
    let without_owner = inputs.owner_gone || (!owned && deleting);
    if without_owner && inputs.held_by_cluster {
        // The dispatcher releases its quota once no copy remains. The cluster may be lost in the
        // meantime.
        return Some(WorkloadPlan {
            again: Some(LOST_CLUSTER_CHECK_INTERVAL),
            ..WorkloadPlan::default()
        });
    }
    if without_owner {
        return Some(WorkloadPlan { release: held, ..WorkloadPlan::default() });
    }
    if owned || !had_owner || rules.leaves_orphans {
        return None;
    }
    if inputs.held_by_cluster {
        // As for a job that is deleted with its Workload: the copy is stopped, and charged until then.
        return Some(WorkloadPlan { delete: true, ..WorkloadPlan::default() });
    }
    let mut plan = WorkloadPlan { release: held, ..WorkloadPlan::default() };
    if !workload::is_finished(subject) {
        let mut edit = Edit::new(subject, ReasonDetail::default(), now);
        edit.finish(reasons::finished::OWNER_NOT_FOUND, "The workload's owner no longer exists");
        plan.status = Some(edit.status);
    }
    // After both, only the retention of finished workloads remains.
    (plan != WorkloadPlan::default()).then_some(plan)
}

/// Retention of finished workloads. The hub collects its own copies, however long it is away: some
/// report their end by the Workload alone.
fn retention(subject: &Workload, rules: &Rules, now: Timestamp) -> WorkloadPlan {
    let mut plan = WorkloadPlan::default();
    if workload::is_copy(subject) {
        return plan;
    }
    if subject.metadata.deletion_timestamp.is_some() {
        // A finished workload needs no quota, and nothing may watch its job's kind any more.
        plan.release = held(subject);
        return plan;
    }
    let finished = workload::condition(subject, conditions::FINISHED);
    let (Some(keep), Some(finished)) = (rules.keep_finished, finished) else { return plan };
    let kept = since(now, finished.last_transition_time.0);
    if kept < keep {
        plan.again(keep.saturating_sub(kept));
        return plan;
    }
    plan.release = held(subject);
    plan.delete = true;
    let note = "Deleted finished workload due to elapsed retention".to_owned();
    plan.notifications.push(Notification::Event {
        warning: false,
        reason: reasons::events::DELETED,
        note,
    });
    plan
}

fn deactivated(plan: &mut WorkloadPlan, edit: &mut Edit, subject: &Workload) {
    edit.status.requeue_state = None;
    let target = workload::condition(subject, conditions::DEACTIVATION_TARGET).cloned();
    conditions::remove(&mut edit.status.conditions, conditions::DEACTIVATION_TARGET);
    if workload::is_evicted(subject) {
        if target.is_some() {
            // Otherwise the old cause would deactivate it again once its user activates it.
            edit.reset_checks();
        }
        return;
    }
    let (cause, message) = target
        .map_or((String::new(), "The workload is deactivated".to_owned()), |target| {
            (target.reason, format!("The workload is deactivated due to {}", target.message))
        });
    plan.evict(subject, edit, Eviction { reason: reasons::evicted::DEACTIVATED, cause, message });
}

#[cfg(test)]
mod tests;
