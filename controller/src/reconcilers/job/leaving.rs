//! A deleted job: its remaining pods, and the end of its workloads.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use serde_json::Value;
use switchyard_api::{conditions::reasons::finished, v1beta2::Workload};
use switchyard_jobs::{JobKind, meta};

use super::{
    action::{Action, Decision, Next},
    case::Case,
    edit,
    inputs::JobInputs,
};
use crate::{
    role::Role,
    workload::{
        LOST_CLUSTER_CHECK_INTERVAL, has_reservation, is_awaited_from_cluster, is_evicted,
        is_finished, is_group_workload, is_left_on_cluster, was_dispatched,
    },
};

/// Finishes the workloads of a deleted job, which releases their quota, and removes their
/// finalizer. `is_deleting`: the job still exists, because its foreground deletion waits for the
/// workloads. A copy on a connected cluster is charged until it has stopped there.
pub(super) fn owner_gone(inputs: &JobInputs<'_>, now: Timestamp, is_deleting: bool) -> Decision {
    let is_held =
        |it: &Workload| inputs.role == Role::Hub && is_awaited_from_cluster(it, inputs.awaited);
    let release = |workload: &Arc<Workload>| {
        if is_held(workload) {
            let live = workload.metadata.deletion_timestamp.is_none();
            return live.then(|| Action::DeleteWorkload(workload.clone()));
        }
        if workload.metadata.deletion_timestamp.is_some() {
            // The workload reconciler releases the others, which have one owner.
            let releases = is_deleting || is_group_workload(workload);
            return releases.then(|| edit::drop_finalizer(workload)).flatten();
        }
        if outlives_its_pods(workload) {
            return stopped(workload, inputs, now);
        }
        if !is_finished(workload) && !inputs.gates.leaves_orphans {
            return Some(edit::finish(
                workload,
                finished::OWNER_NOT_FOUND,
                "The workload's owner no longer exists",
                now,
            ));
        }
        edit::drop_finalizer(workload)
    };
    let actions = inputs.workloads.iter().filter_map(release).collect();
    let held = inputs.workloads.iter().any(|workload| is_held(workload));
    // The cluster may be lost in the meantime.
    Decision {
        actions,
        next: if held { Next::After(LOST_CLUSTER_CHECK_INTERVAL) } else { Next::OnChange },
    }
}

/// Removes the finalizer from the job and its members that keeps ended pods until their end is
/// recorded.
pub(super) fn release(kind: &dyn JobKind, job: &Value) -> Option<Action> {
    let mut wanted = job.clone();
    kind.release(&mut wanted).then(|| Action::UpdateJob(Box::new(wanted)))
}

/// Whether a group's workload stays without pods: another object owns it, or it was created before
/// its pods and has no owner yet.
fn outlives_its_pods(workload: &Workload) -> bool {
    let owners = workload.metadata.owner_references.as_deref().unwrap_or_default();
    is_group_workload(workload)
        && (owners.is_empty() || owners.iter().any(|owner| owner.kind != "Pod"))
}

/// Releases the quota of an evicted workload whose pods are all gone while their owner remains. The
/// dispatcher releases dispatched ones.
fn stopped(workload: &Arc<Workload>, inputs: &JobInputs<'_>, now: Timestamp) -> Option<Action> {
    let sent = inputs.role == Role::Hub && was_dispatched(workload);
    let held = is_evicted(workload) && has_reservation(workload) && !is_finished(workload) && !sent;
    held.then(|| edit::release_quota(workload, inputs.reasons, now))
}

impl Case<'_> {
    /// Whether the job's own controller may still clean up after a deleted job with its quota. A
    /// dispatched job is cleaned up on its worker, after its workload is finished here.
    pub(super) fn is_cleaned_up(&self) -> bool {
        let here = self.inputs.defers_end && !self.is_sent() && !self.is_handed_over();
        here && meta::is_held_by_others(self.job) && self.kind.has_cleanup(self.job)
    }

    /// How long pods of a job that is being deleted may run here, as far as its status tells.
    /// `None` if none run.
    pub(super) fn runs_while_deleted(&self) -> Option<Duration> {
        if self.is_sent() || self.is_handed_over() {
            return None;
        }
        if self.kind.counts_while_deleted() {
            return self.active_for();
        }
        (self.inputs.below_active)().then_some(Duration::MAX)
    }

    /// Whether it was dispatched and the dispatcher has not released it.
    pub(super) fn is_held_elsewhere(&self, workload: &Workload) -> bool {
        self.inputs.role == Role::Hub && is_left_on_cluster(workload)
    }

    /// Whether a copy remains on a cluster, or pods run with its quota.
    pub(super) fn is_in_use(&self, workload: &Workload) -> bool {
        let runs_here =
            || !self.is_handed_over() && has_reservation(workload) && self.active_for().is_some();
        self.is_held_elsewhere(workload) || runs_here()
    }
}
