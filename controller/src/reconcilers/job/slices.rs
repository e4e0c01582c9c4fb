//! The workload slices of an elastic job: one that holds its quota, and during growth a second one
//! that will replace it.
//!
//! The rules are those of Kueue's `pkg/workloadslicing`, with two differences. A growing job
//! continues with the slice that holds its quota (evicted, deleted, pods ready or reclaimed), and
//! the larger slice only waits. A job whose quota goes is stopped, even during growth.

use std::{sync::Arc, time::Duration};

use serde_json::Value;
use switchyard_api::{
    conditions::{
        FINISHED, QUOTA_RESERVED,
        reasons::{finished, termination_target},
    },
    v1beta2::{PodSet, ReclaimablePod, Workload},
};
use switchyard_jobs::{
    JobKind,
    elastic::{self, Size, compare, is_slice, replaces, resized},
    meta, owned_by,
};

use super::{
    action::{Action, Decision, Next},
    case::Case,
    create,
    edit::{self, PodsReady},
    ensure::{Ensured, keep_in_sync},
    inputs::Prebuilt,
};
use crate::workload::{condition, has_reservation, is_evicted, is_finished};
use switchyard_platform::clock::since;

/// How long the writer of a reservation may take to finish the replaced slice. Times in conditions
/// are whole seconds.
const REPLACEMENT_GRACE: Duration = Duration::from_secs(3);

/// The live slices of a job.
#[derive(Default)]
struct Chain {
    /// Holds the quota: the newest one with quota.
    holder: Option<Arc<Workload>>,
    /// Waits to replace `holder`.
    pending: Option<Arc<Workload>>,
    /// Waits without a `holder`.
    alone: Option<Arc<Workload>>,
    /// Slices to finish.
    rest: Vec<Arc<Workload>>,
}

impl Chain {
    /// `live` is in the order of creation.
    fn of(live: &[Arc<Workload>], case: &Case<'_>) -> Self {
        let superseded =
            |old: &Workload| live.iter().any(|new| holds(case, new) && replaces(new, old));
        let holder = live.iter().rev().find(|it| holds(case, it) && !superseded(it)).cloned();
        let waits = |it: &&Arc<Workload>| !holds(case, it) && !is_evicted(it);
        let (pending, alone) = match &holder {
            Some(holder) => {
                (live.iter().filter(waits).find(|it| replaces(it, holder)).cloned(), None)
            }
            None => (None, live.last().cloned()),
        };
        let kept = [&holder, &pending, &alone].into_iter().flatten().cloned().collect::<Vec<_>>();
        let rest = live
            .iter()
            .filter(|it| !kept.iter().any(|kept| Arc::ptr_eq(kept, it)))
            .cloned()
            .collect();
        Self { holder, pending, alone, rest }
    }
}

/// Whether the job's pods run with this slice's quota. For a dispatched job, a slice with quota
/// that was never committed to a cluster has not taken over yet.
fn holds(case: &Case<'_>, workload: &Workload) -> bool {
    has_reservation(workload) && (!case.is_sent() || case.was_sent(workload))
}

pub(super) enum Slices {
    /// Nothing is left to do.
    Ensured(Ensured),
    /// Ensure the one workload among these as for any other job.
    One(Vec<Arc<Workload>>),
}

/// Keeps the slices of an elastic job in sync with it.
pub(super) fn ensure(case: &Case<'_>, pod_sets: &[PodSet]) -> Slices {
    let act = |actions: Vec<Action>| Slices::Ensured(Ensured::Act(Decision::act(actions)));
    let (over, live): (Vec<_>, Vec<_>) =
        elastic::in_order(known(case)).into_iter().partition(|it| is_finished(it));
    let to_go = over.iter().filter(|it| it.metadata.deletion_timestamp.is_some());
    let let_go: Vec<Action> = to_go.filter_map(edit::drop_finalizer).collect();
    if !let_go.is_empty() {
        return act(let_go);
    }
    if live.is_empty() {
        return without_any(case, &over);
    }
    if let Some(decision) = live.iter().find_map(|it| marked(case, it)) {
        return Slices::Ensured(Ensured::Act(decision));
    }
    let chain = Chain::of(&live, case);
    if let Some(left) = chain.rest.iter().filter_map(|it| just_replaced(it, &live, case)).max() {
        let wait = Decision { actions: Vec::new(), next: Next::After(left) };
        return Slices::Ensured(Ensured::Act(wait));
    }
    if !chain.rest.is_empty() {
        return act(chain.rest.iter().filter_map(|it| end(case, it, &live)).collect());
    }
    if let Some(alone) = chain.alone {
        return match case.kind.finished(case.job) {
            Some(_) => Slices::Ensured(Ensured::Workload(Some(alone))),
            None => Slices::One(vec![alone]),
        };
    }
    let Some(holder) = chain.holder else { return Slices::One(Vec::new()) };
    let growing = grown(case, pod_sets, &holder);
    if is_other(case, pod_sets, &holder) || growing && restarts_from_zero(case, &holder) {
        return match chain.pending {
            Some(pending) => act(end(case, &pending, &live).into_iter().collect()),
            None => Slices::One(vec![holder]),
        };
    }
    match chain.pending {
        Some(pending) if !growing => act(end(case, &pending, &live).into_iter().collect()),
        Some(pending) => Slices::Ensured(grows_to(case, &holder, &pending, pod_sets)),
        None if growing => Slices::Ensured(Ensured::Act(grow(case, &holder, pod_sets))),
        None => keeps(case, holder, pod_sets),
    }
}

/// The slices of the job: owned ones, and a prebuilt one from a hub.
fn known(case: &Case<'_>) -> Vec<Arc<Workload>> {
    let owned = case.inputs.workloads.iter().filter(|it| owned_by(it, meta::uid(case.job)));
    let mut known: Vec<Arc<Workload>> = owned.cloned().collect();
    if let Prebuilt::Found(named) = &case.inputs.prebuilt
        && known.iter().all(|it| it.metadata.uid != named.metadata.uid)
    {
        known.push(named.clone());
    }
    known
}

/// Creates the larger slice. The collector of a remote copy does not look for earlier slices; they
/// are deleted with the job.
fn grow(case: &Case<'_>, holder: &Arc<Workload>, pod_sets: &[PodSet]) -> Decision {
    if owned_by(holder, meta::uid(case.job)) {
        return create::slice(case, holder, pod_sets);
    }
    Decision::act([edit::adopt(case.kind, case.job, holder)])
}

/// All slices are finished, or there are none.
fn without_any(case: &Case<'_>, over: &[Arc<Workload>]) -> Slices {
    // A replaced slice says nothing about the job's end.
    let last = over.iter().rev().find(|it| ended_with_its_job(it)).cloned();
    if case.kind.finished(case.job).is_some() {
        return Slices::Ensured(Ensured::Workload(last));
    }
    let replaced = over.last().filter(|_| last.is_none() && runs(case));
    let message = "Missing Workload; restoring pod templates according to the last one";
    match replaced
        .and_then(|it| case.stop(Some(it), termination_target::NO_MATCHING_WORKLOAD, message))
    {
        Some(stop) => Slices::Ensured(Ensured::Act(stop)),
        None => Slices::One(last.into_iter().collect()),
    }
}

/// Marks a slice as one of an elastic job, if another replica created it unmarked while this one
/// gated the pods. A job that such a slice started has no pod that can run, because no pod names
/// its chain.
fn marked(case: &Case<'_>, workload: &Arc<Workload>) -> Option<Decision> {
    let goes = workload.metadata.deletion_timestamp.is_some() || is_evicted(workload);
    if is_slice(workload) || goes || case.kind.finished(case.job).is_some() {
        return None;
    }
    if case.kind.is_suspended(case.job) {
        return Some(Decision::act([Action::edit(workload, elastic::mark_first)]));
    }
    let message =
        "The Workload does not say that the job is elastic, so its pods would wait for ever";
    case.stop(Some(workload), termination_target::NO_MATCHING_WORKLOAD, message)
}

/// Whether the job runs and has grown beyond the slice that holds its quota.
fn grown(case: &Case<'_>, pod_sets: &[PodSet], holder: &Workload) -> bool {
    runs(case)
        && holder.metadata.deletion_timestamp.is_none()
        && !is_evicted(holder)
        && compare(pod_sets, &holder.spec.pod_sets) == Size::Larger
}

/// Whether a growing job is requeued instead: it has no pods to lose, and its template names a
/// flavor that was chosen when it requested nothing. A hub's copy grows as the hub says.
fn restarts_from_zero(case: &Case<'_>, holder: &Workload) -> bool {
    holder.spec.pod_sets.iter().all(|pod_set| pod_set.count == 0)
        && !case.is_sent()
        && matches!(case.inputs.prebuilt, Prebuilt::NotNamed)
}

/// Whether a dispatched job differs from what was dispatched by more than its size.
fn is_other(case: &Case<'_>, pod_sets: &[PodSet], holder: &Workload) -> bool {
    case.is_sent()
        && runs(case)
        && holder.metadata.deletion_timestamp.is_none()
        && !is_evicted(holder)
        && elastic::has_other_containers(&holder.spec.pod_sets, pod_sets)
}

fn runs(case: &Case<'_>) -> bool {
    !case.kind.is_suspended(case.job) && case.kind.finished(case.job).is_none()
}

/// Keeps the larger slice's counts in sync with the job while it waits.
fn grows_to(
    case: &Case<'_>,
    holder: &Arc<Workload>,
    pending: &Arc<Workload>,
    pod_sets: &[PodSet],
) -> Ensured {
    if pending.metadata.deletion_timestamp.is_some() {
        // Deleted by a user, so it is created again.
        return Ensured::Act(Decision::act(edit::drop_finalizer(pending)));
    }
    let wanted = elastic::grown(&holder.spec.pod_sets, pod_sets);
    let size = compare(&wanted, &pending.spec.pod_sets);
    if size == Size::Larger && has_reservation(pending) {
        // It waits for other resources and must now request more quota.
        return Ensured::Act(Decision::act(end(case, pending, &[])));
    }
    if size != Size::Same {
        let resize = Action::edit(pending, |workload| workload.spec.pod_sets = wanted);
        return Ensured::Act(Decision::act([resize]));
    }
    // Pods without a completion left need no quota. The slice must not wait or preempt for them.
    if let Some(reclaim) = case.reclaim(pending, case.kind.reclaimable(case.job)) {
        return Ensured::Act(Decision::act([reclaim]));
    }
    match keep_in_sync(case, pending, pod_sets) {
        Ensured::Workload(_) => keep_in_sync(case, holder, pod_sets),
        act @ Ensured::Act(_) => act,
    }
}

/// A job that does not grow keeps its slice, with lower counts if it has shrunk.
fn keeps(case: &Case<'_>, holder: Arc<Workload>, pod_sets: &[PodSet]) -> Slices {
    let ends = case.kind.finished(case.job).is_some();
    if ends || holder.metadata.deletion_timestamp.is_some() || is_evicted(&holder) {
        // It must release its quota first, at any size.
        return Slices::Ensured(Ensured::Workload(Some(holder)));
    }
    Slices::Ensured(match compare(pod_sets, &holder.spec.pod_sets) {
        // A job that is about to start keeps its quota too.
        Size::Smaller => {
            let wanted = resized(&holder.spec.pod_sets, pod_sets);
            Ensured::Act(Decision::act([Action::edit(&holder, |workload| {
                workload.spec.pod_sets = wanted
            })]))
        }
        Size::Same if runs(case) => keep_in_sync(case, &holder, pod_sets),
        Size::Same | Size::Larger | Size::Incomparable => return Slices::One(vec![holder]),
    })
}

/// How long the writer of the replacing reservation may still finish this slice with the right
/// message.
fn just_replaced(old: &Workload, live: &[Arc<Workload>], case: &Case<'_>) -> Option<Duration> {
    let by = live.iter().find(|new| holds(case, new) && replaces(new, old))?;
    let reserved = condition(by, QUOTA_RESERVED)?.last_transition_time.0;
    REPLACEMENT_GRACE.checked_sub(since(case.now, reserved)).filter(|left| !left.is_zero())
}

/// Finishes a slice that is not its job's any more.
fn end(case: &Case<'_>, workload: &Arc<Workload>, live: &[Arc<Workload>]) -> Option<Action> {
    if workload.metadata.deletion_timestamp.is_some() {
        return edit::drop_finalizer(workload);
    }
    let replaced = live.iter().any(|new| replaces(new, workload));
    let (reason, message) = match replaced {
        true => (finished::WORKLOAD_SLICE_REPLACED, "Replaced to accommodate a new workload slice"),
        false => (finished::OUT_OF_SYNC, "The workload slice is out of sync with its parent job"),
    };
    Some(edit::finish(workload, reason, message, case.now))
}

fn ended_with_its_job(workload: &Arc<Workload>) -> bool {
    let reason = condition(workload, FINISHED).map(|finished| finished.reason.as_str());
    !matches!(reason, Some(finished::WORKLOAD_SLICE_REPLACED | finished::OUT_OF_SYNC))
}

/// The `PodsReady` change. `pod_sets` are those of an elastic job. For a growing job, the pods of
/// its current slice count; later ones need not be ready.
pub(super) fn pods_ready(
    case: &Case<'_>,
    workload: &Arc<Workload>,
    pod_sets: Option<&[PodSet]>,
) -> PodsReady {
    let Some(delay) = &case.inputs.pods_ready else { return PodsReady::UpToDate };
    let (kind, job, counted) = (case.kind, case.job, &workload.spec.pod_sets);
    let is_of_its_size = pod_sets.is_none_or(|pod_sets| compare(pod_sets, counted) == Size::Same);
    let ready =
        if is_of_its_size { kind.pods_ready(job) } else { kind.pods_ready_of(job, counted) };
    edit::pods_ready(workload, ready, delay, case.now)
}

/// Whether a larger slice has quota and waits for its checks: earlier pods run on, and new ones are
/// gated. A job that was stopped meanwhile has no such pods.
pub(super) fn keeps_running(case: &Case<'_>, workload: &Workload) -> bool {
    case.is_elastic() && elastic_keeps_running(case.kind, case.job, workload)
}

/// As [`keeps_running`] for a job that is known to be elastic.
pub(super) fn elastic_keeps_running(kind: &dyn JobKind, job: &Value, workload: &Workload) -> bool {
    has_reservation(workload)
        && elastic::replacement_for(workload).is_some()
        && elastic::makes_pods_of(kind, job, workload)
}

/// For a job that was resized, the counted pods that are no longer needed.
pub(super) fn reclaimable(
    workload: &Workload,
    pod_sets: &[PodSet],
    of_job: Vec<ReclaimablePod>,
) -> Vec<ReclaimablePod> {
    let of_workload = |mut pods: ReclaimablePod| {
        let count =
            |sets: &[PodSet]| sets.iter().find(|set| set.name == pods.name).map(|set| set.count);
        if let (Some(now), Some(counted)) = (count(pod_sets), count(&workload.spec.pod_sets)) {
            pods.count = counted.saturating_sub(now.saturating_sub(pods.count));
        }
        (pods.count > 0).then_some(pods)
    };
    of_job.into_iter().filter_map(of_workload).collect()
}
