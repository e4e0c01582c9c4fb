//! What is to be done about a workload. Pure.
//!
//! The order of the questions is Kueue's (`pkg/controller/core/workload_controller.go`), but where Kueue writes and comes
//! again, all that can be known now goes into one write.

mod checks;
mod pending;
mod reserved;

use std::time::Duration;

use jiff::Timestamp;
use switchyard_api::{
    conditions::{self, reasons},
    names,
    v1beta2::{Workload, WorkloadStatus},
};

use super::{Facts, Rules};
use crate::workload::{self, Edit, Evicted, Eviction, LOOK_AT_CLUSTER, Phase, ReasonDetail};
use switchyard_platform::clock::since;

/// What is to be done. The default is nothing.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Plan {
    /// Write this status, if it differs.
    pub status: Option<WorkloadStatus>,
    /// Then set `spec.active` to false.
    pub deactivate: bool,
    /// Then take our finalizer off.
    pub release: bool,
    /// Then delete it.
    pub delete: bool,
    /// What to tell once the status is written.
    pub told: Vec<Told>,
    /// Look again after this long at the latest.
    pub again: Option<Duration>,
}

/// What users and metrics hear of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Told {
    /// An event: Warning or Normal, reason, note.
    Event {
        /// Whether something went wrong.
        warning: bool,
        /// Its reason.
        reason: &'static str,
        /// Its note.
        note: String,
    },
    /// It was evicted from this ClusterQueue.
    Evicted {
        /// Where it had quota.
        cluster_queue: String,
        /// The eviction.
        evicted: Evicted,
    },
    /// Its last check became Ready this long after the reservation.
    Admitted {
        /// By which ClusterQueue.
        cluster_queue: String,
        /// Since it was queued.
        waited: Duration,
        /// Since quota was reserved.
        reserved_for: Duration,
    },
}

impl Plan {
    fn again(&mut self, after: Duration) {
        self.again = Some(self.again.map_or(after, |known| known.min(after)));
    }

    fn evict(&mut self, subject: &Workload, edit: &mut Edit, eviction: Eviction) {
        let evicted = edit.evict(eviction);
        // Only what had quota gives it up; others are merely marked.
        if let Some(cluster_queue) = workload::admitted_by(subject) {
            self.told.push(Told::Evicted { cluster_queue: cluster_queue.to_owned(), evicted });
        }
    }
}

/// Decides about one workload as it stands at `now`.
#[must_use]
pub fn decide(subject: &Workload, facts: &Facts, rules: &Rules, now: Timestamp) -> Plan {
    if let Some(plan) = end_of_life(subject, facts, rules, now) {
        return plan;
    }
    if workload::is_finished(subject) {
        return retention(subject, rules, now);
    }
    let mut plan = Plan::default();
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
    pending::restarts(&mut edit, subject, facts);
    pending::gates(&mut plan, &mut edit, subject, facts, rules);
    if !facts.parent {
        checks::sync(&mut edit, facts);
    }
    if rules.lists_preemption_gates {
        edit.sync_preemption_gates(&subject.spec.preemption_gates);
    }
    match workload::phase(subject) {
        Phase::Pending => {
            pending::blockers(&mut edit, subject, facts, rules);
            edit.sync_admitted();
        }
        Phase::QuotaReserved => checks::admit(&mut plan, &mut edit, subject, now),
        Phase::Admitted | Phase::Finished => (),
    }
    // A check may reject it while it is being evicted, or later: nothing would queue it again.
    let rejected =
        subject.spec.is_active() && !facts.parent && checks::rejected(&mut plan, &mut edit);
    let goes = rejected && !workload::is_evicted(subject);
    if workload::has_reservation(subject) && subject.spec.is_active() && !goes {
        reserved::reconcile(&mut plan, &mut edit, subject, facts, rules, now);
    }
    if subject.status.as_ref() != Some(&edit.status) && edit.status != WorkloadStatus::default() {
        plan.status = Some(edit.status);
    }
    plan
}

/// Whether our finalizer keeps it.
fn held(subject: &Workload) -> bool {
    subject
        .metadata
        .finalizers
        .iter()
        .flatten()
        .any(|finalizer| finalizer == names::RESOURCE_IN_USE)
}

/// Workloads without an owner that had one, or that are being deleted, end here.
fn end_of_life(subject: &Workload, facts: &Facts, rules: &Rules, now: Timestamp) -> Option<Plan> {
    let deleting = subject.metadata.deletion_timestamp.is_some();
    let owned = subject.metadata.owner_references.as_ref().is_some_and(|owners| !owners.is_empty());
    let had_owner = subject
        .metadata
        .labels
        .as_ref()
        .is_some_and(|labels| labels.get(names::JOB_UID).is_some_and(|uid| !uid.is_empty()));
    let held = held(subject);
    if facts.owner_gone && facts.held_by_cluster {
        // The dispatcher gives its quota back once nothing is left there; the cluster may be lost meanwhile.
        return Some(Plan { again: Some(LOOK_AT_CLUSTER), ..Plan::default() });
    }
    if facts.owner_gone || (!owned && deleting) {
        return Some(Plan { release: held, ..Plan::default() });
    }
    if owned || !had_owner || rules.leaves_orphans {
        return None;
    }
    let mut plan = Plan { release: held, ..Plan::default() };
    if !workload::is_finished(subject) {
        let mut edit = Edit::new(subject, ReasonDetail::default(), now);
        edit.finish(reasons::finished::OWNER_NOT_FOUND, "The workload's owner no longer exists");
        plan.status = Some(edit.status);
    }
    // Once both are done, only the retention of finished workloads is left.
    (plan != Plan::default()).then_some(plan)
}

/// A hub's copies are for the hub to collect, however long it is away: some say by their Workload alone how they ended.
fn retention(subject: &Workload, rules: &Rules, now: Timestamp) -> Plan {
    let mut plan = Plan::default();
    if workload::is_copy(subject) {
        return plan;
    }
    if subject.metadata.deletion_timestamp.is_some() {
        // Whoever it belongs to: nothing is left that it could use, and its job may be of a kind that nobody watches any more.
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
    plan.told.push(Told::Event { warning: false, reason: "Deleted", note });
    plan
}

fn deactivated(plan: &mut Plan, edit: &mut Edit, subject: &Workload) {
    edit.status.requeue_state = None;
    let target = workload::condition(subject, conditions::DEACTIVATION_TARGET).cloned();
    conditions::remove(&mut edit.status.conditions, conditions::DEACTIVATION_TARGET);
    if workload::is_evicted(subject) {
        if target.is_some() {
            // What it was deactivated for would deactivate it again once its user makes it active.
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
