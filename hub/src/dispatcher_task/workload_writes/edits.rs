//! Builds the Workload status that each write leaves behind.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time as ApiTime;
use switchyard_api::conditions::reasons::quota_reserved;
use switchyard_api::conditions::truncated_message;
use switchyard_api::v1beta2::{Admission, AdmissionCheckState, CheckState, PastAttempt, Workload};
use switchyard_controller::Context;
use switchyard_controller::engine::admission::{Dispatch, dispatched_status, reservation_status};
use switchyard_controller::stores::dispatching::is_dispatching;
use switchyard_controller::workload::{self as state, Edit};
use switchyard_dispatcher::{RetriedAttempt, STUCK, TIMED_OUT, WorkloadWrite};
use switchyard_platform::clock::whole_seconds;

use super::super::troubles::resolve_trouble;
use super::{EndNote, PendingWrite, WritePlan};

impl PendingWrite {
    /// Builds the status after the write.
    pub(super) fn edit(&self, ctx: &Context, current: &Workload) -> WritePlan {
        let now = ctx.clock.now();
        match &*self.what {
            WorkloadWrite::Commit { cluster, attempt, adopts, .. } => {
                let theirs = adopts.as_ref().filter(|theirs| **theirs != self.uid);
                let adopts = theirs.map(|theirs| theirs.to_string());
                self.with_admission(ctx, current, |admission, checks, check| {
                    let dispatch = Dispatch {
                        check,
                        cluster: cluster.to_string(),
                        attempt: signed(*attempt),
                        adopts,
                        other_flavors: self.other_flavors.clone(),
                    };
                    dispatched_status(
                        ctx.edit_of_quota(current),
                        admission,
                        &checks,
                        &dispatch,
                        now,
                    )
                })
            }
            WorkloadWrite::Rename { cluster, attempt, .. } => {
                self.with_admission(ctx, current, |admission, checks, check| {
                    let (cluster, attempt) = (cluster.to_string(), signed(*attempt));
                    let known = current.status.as_ref().and_then(|status| status.dispatch.as_ref());
                    let other_flavors =
                        known.map(|dispatch| dispatch.other_flavors.clone()).unwrap_or_default();
                    let dispatch = Dispatch {
                        check: check.clone(),
                        cluster,
                        attempt,
                        adopts: None,
                        other_flavors,
                    };
                    let mut edit = dispatched_status(
                        ctx.edit_of_quota(current),
                        admission,
                        &checks,
                        &dispatch,
                        now,
                    );
                    set_check_message(&mut edit, &check, &self.renamed_note(current));
                    edit
                })
            }
            WorkloadWrite::Record { message, nominated } => {
                self.with_admission(ctx, current, |admission, mut checks, check| {
                    checks.push(check.clone());
                    let mut edit =
                        reservation_status(ctx.edit_of_quota(current), admission, &checks);
                    if let Some(message) = message {
                        set_check_message(&mut edit, &check, message);
                    }
                    if let Some(nominated) = nominated {
                        edit.status.nominated_cluster_names =
                            nominated.iter().map(ToString::to_string).collect();
                    }
                    edit
                })
            }
            WorkloadWrite::Retry { message, retried } => {
                let mut edit = ctx.edit(current);
                if retried.as_ref().is_some_and(|retried| retried.reason == TIMED_OUT) {
                    edit.execution_time_exceeded();
                } else {
                    set_check_retry(ctx, &mut edit, message, now);
                }
                if let Some(retried) = retried {
                    record_past_attempt(&mut edit, retried, now);
                }
                resolve_trouble(&mut edit);
                WritePlan::Write(Box::new(edit))
            }
            WorkloadWrite::Release => {
                let mut edit = ctx.edit(current);
                let deleting = current.metadata.deletion_timestamp.is_some();
                let released = edit.release_quota()
                    || deleting
                        && edit.unreserve(
                            quota_reserved::PENDING_EVALUATION,
                            "The workload is deleted",
                        );
                resolve_trouble(&mut edit);
                if released { WritePlan::Write(Box::new(edit)) } else { WritePlan::AlreadyApplied }
            }
            WorkloadWrite::Finish { .. } => {
                let Some(EndNote { reason, message }) = &self.end else {
                    return WritePlan::Obsolete("nobody says how it ended");
                };
                let mut edit = ctx.edit(current);
                edit.finish(reason, truncated_message(message.clone()));
                resolve_trouble(&mut edit);
                WritePlan::Write(Box::new(edit))
            }
        }
    }

    /// The note about the new name. Until the old name was removed, the status held it twice.
    pub(super) fn renamed_note(&self, current: &Workload) -> String {
        let WorkloadWrite::Rename { from, cluster, .. } = &*self.what else { return String::new() };
        let dispatch = current.status.as_ref().and_then(|status| status.dispatch.as_ref());
        let known = from
            .as_deref()
            .or_else(|| dispatch.and_then(|dispatch| dispatch.cluster_name.as_deref()));
        let from = known.unwrap_or_default();
        format!(
            "The workload goes on on \"{cluster}\", which leads to the same cluster as \"{from}\" did: MultiKueueCluster \
             \"{from}\" is deleted"
        )
    }

    /// Builds an edit from the admission in the API, or else the one in memory.
    fn with_admission(
        &self,
        ctx: &Context,
        current: &Workload,
        build: impl FnOnce(Admission, Vec<String>, String) -> Edit,
    ) -> WritePlan {
        let status = current.status.clone().unwrap_or_default();
        let listed = |names: &[AdmissionCheckState]| {
            names.iter().map(|check| check.name.clone()).collect::<Vec<_>>()
        };
        let mut checks = listed(&status.admission_checks);
        let (admission, check) = match (&self.reservation, status.admission) {
            (_, Some(admission)) if state::has_reservation(current) => {
                let Some(check) =
                    checks.iter().find(|check| is_dispatching(&ctx.stores, check)).cloned()
                else {
                    return WritePlan::Obsolete("it has no MultiKueue check");
                };
                (admission, check)
            }
            (Some(reservation), _) => {
                if reservation.workload.metadata.generation != current.metadata.generation {
                    return WritePlan::Obsolete("its spec has changed");
                }
                (reservation.admission.clone(), reservation.check.clone())
            }
            (None, _) => return WritePlan::Obsolete("its reservation is gone"),
        };
        checks.retain(|name| *name != check);
        WritePlan::Write(Box::new(build(admission, checks, check)))
    }
}

/// Sets the MultiKueue check to `Retry`.
fn set_check_retry(ctx: &Context, edit: &mut Edit, message: &str, now: Timestamp) {
    let checks = &mut edit.status.admission_checks;
    if let Some(check) = checks.iter_mut().find(|it| is_dispatching(&ctx.stores, &it.name)) {
        check.state = CheckState::Retry;
        check.message = truncated_message(message.to_owned());
        check.last_transition_time = ApiTime(whole_seconds(now));
        check.requeue_after_seconds = None;
    }
}

fn record_past_attempt(edit: &mut Edit, retried: &RetriedAttempt, now: Timestamp) {
    let dispatch = edit.status.dispatch.get_or_insert_default();
    if retried.reason == STUCK {
        dispatch.stuck_moves = dispatch.stuck_moves.saturating_add(1);
    }
    dispatch.remember(PastAttempt {
        attempt: signed(retried.attempt),
        cluster_name: retried.cluster.to_string(),
        reason: retried.reason.to_owned(),
        at: ApiTime(whole_seconds(now)),
    });
}

fn set_check_message(edit: &mut Edit, check: &str, message: &str) {
    for known in edit.status.admission_checks.iter_mut().filter(|known| known.name == check) {
        known.message = truncated_message(message.to_owned());
    }
}

fn signed(attempt: u64) -> i64 {
    i64::try_from(attempt).unwrap_or(i64::MAX)
}
