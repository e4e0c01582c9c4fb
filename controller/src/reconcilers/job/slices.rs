//! The workloads of an elastic job: one that holds its quota, and while it grows a second one that is to replace it.
//!
//! Kueue's `workloadslicing` is the rule. Other than there, a growing job's life goes on with the workload that holds its
//! quota (evicted, deleted, its pods ready or reclaimed), and what it grows to only waits; and a job whose quota goes is
//! stopped, even if it was growing.

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
    ensure::{Ensured, keep_in_step},
    facts::Prebuilt,
};
use crate::workload::{condition, has_reservation, is_evicted, is_finished};
use switchyard_platform::clock::since;

/// How long it is left to the writer of a reservation to finish what it replaces. Times in conditions are whole seconds.
const REPLACEMENT_GRACE: Duration = Duration::from_secs(3);

/// The live workloads of a job.
#[derive(Default)]
struct Chain {
    /// Has its quota: the newest one, where one has been given quota in the place of the other.
    holder: Option<Arc<Workload>>,
    /// Is to replace that one, and waits.
    pending: Option<Arc<Workload>>,
    /// Waits, with nobody to replace.
    alone: Option<Arc<Workload>>,
    /// Those that are to end.
    rest: Vec<Arc<Workload>>,
}

impl Chain {
    /// `live` in the order in which they were made.
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

/// Whether the pods of the job run by the quota of this workload. Of a job that a hub sends to other clusters, one that has
/// quota and was never sent anywhere has not taken over from the one before it.
fn holds(case: &Case<'_>, workload: &Workload) -> bool {
    let was_sent = || {
        workload
            .status
            .as_ref()
            .and_then(|status| status.dispatch.as_ref())
            .is_some_and(|it| it.attempt > 0)
    };
    has_reservation(workload) && (!case.is_sent() || was_sent())
}

/// What is left to do as for any other job.
pub(super) enum Slices {
    /// Nothing: this is it.
    Ensured(Ensured),
    /// Find the one workload of the job, among these.
    One(Vec<Arc<Workload>>),
}

/// Brings the workloads of an elastic job in step with it.
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
    if is_other(case, pod_sets, &holder) || growing && begins_anew(case, &holder) {
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

/// The workloads of the job: those that it owns, and the one that it names, which a hub has made.
fn known(case: &Case<'_>) -> Vec<Arc<Workload>> {
    let owned = case.facts.workloads.iter().filter(|it| owned_by(it, meta::uid(case.job)));
    let mut known: Vec<Arc<Workload>> = owned.cloned().collect();
    if let Prebuilt::Found(named) = &case.facts.prebuilt
        && known.iter().all(|it| it.metadata.uid != named.metadata.uid)
    {
        known.push(named.clone());
    }
    known
}

/// Makes what the job grows to. Whoever collects a copy that it was sent does not look for those of before: they go with the
/// job.
fn grow(case: &Case<'_>, holder: &Arc<Workload>, pod_sets: &[PodSet]) -> Decision {
    if owned_by(holder, meta::uid(case.job)) {
        return create::slice(case, holder, pod_sets);
    }
    Decision::act([edit::adopt(case.kind, case.job, holder)])
}

/// All workloads of the job are over, or there are none.
fn without_any(case: &Case<'_>, over: &[Arc<Workload>]) -> Slices {
    // That one was replaced by another says nothing of the job's end.
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

/// What makes a workload say that its job is elastic, if it does not: another replica made it while ours gated the pods.
/// A job that was started by such a one has no pod that could run, as none says of which chain it is.
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

/// Whether the job runs and has become larger than the workload that holds its quota, which it keeps.
fn grown(case: &Case<'_>, pod_sets: &[PodSet], holder: &Workload) -> bool {
    runs(case)
        && holder.metadata.deletion_timestamp.is_none()
        && !is_evicted(holder)
        && compare(pod_sets, &holder.spec.pod_sets) == Size::Larger
}

/// Whether a job that grows is queued anew instead: it has no pods, so that nothing is lost, and its template names the
/// flavor that was chosen when it asked for nothing. What a hub sends grows as the hub says.
fn begins_anew(case: &Case<'_>, holder: &Workload) -> bool {
    holder.spec.pod_sets.iter().all(|pod_set| pod_set.count == 0)
        && !case.is_sent()
        && matches!(case.facts.prebuilt, Prebuilt::NotNamed)
}

/// Whether a job that runs on another cluster is not the one that was sent there: of what has changed only its size follows.
fn is_other(case: &Case<'_>, pod_sets: &[PodSet], holder: &Workload) -> bool {
    case.is_sent()
        && runs(case)
        && holder.metadata.deletion_timestamp.is_none()
        && !is_evicted(holder)
        && elastic::runs_others(&holder.spec.pod_sets, pod_sets)
}

fn runs(case: &Case<'_>) -> bool {
    !case.kind.is_suspended(case.job) && case.kind.finished(case.job).is_none()
}

/// What a growing job grows to has its counts, as long as it waits.
fn grows_to(
    case: &Case<'_>,
    holder: &Arc<Workload>,
    pending: &Arc<Workload>,
    pod_sets: &[PodSet],
) -> Ensured {
    if pending.metadata.deletion_timestamp.is_some() {
        // Somebody deleted it: it is made anew.
        return Ensured::Act(Decision::act(edit::drop_finalizer(pending)));
    }
    let wanted = elastic::grown(&holder.spec.pod_sets, pod_sets);
    let size = compare(&wanted, &pending.spec.pod_sets);
    if size == Size::Larger && has_reservation(pending) {
        // It waits for what else it needs, and is to ask for more quota.
        return Ensured::Act(Decision::act(end(case, pending, &[])));
    }
    if size != Size::Same {
        let resize = Action::edit(pending, |workload| workload.spec.pod_sets = wanted);
        return Ensured::Act(Decision::act([resize]));
    }
    // Pods that no completion is left for need no quota: it must neither wait nor preempt others for them.
    if let Some(reclaim) = case.reclaim(pending, case.kind.reclaimable(case.job)) {
        return Ensured::Act(Decision::act([reclaim]));
    }
    match keep_in_step(case, pending, pod_sets) {
        Ensured::Workload(_) => keep_in_step(case, holder, pod_sets),
        act @ Ensured::Act(_) => act,
    }
}

/// A job that does not grow keeps its workload, with lower counts if it has shrunk.
fn keeps(case: &Case<'_>, holder: Arc<Workload>, pod_sets: &[PodSet]) -> Slices {
    let ends = case.kind.finished(case.job).is_some();
    if ends || holder.metadata.deletion_timestamp.is_some() || is_evicted(&holder) {
        // Whatever the job's size: it gives its quota up first.
        return Slices::Ensured(Ensured::Workload(Some(holder)));
    }
    Slices::Ensured(match compare(pod_sets, &holder.spec.pod_sets) {
        // Also of a job that is about to start: it keeps its quota.
        Size::Smaller => {
            let wanted = resized(&holder.spec.pod_sets, pod_sets);
            Ensured::Act(Decision::act([Action::edit(&holder, |workload| {
                workload.spec.pod_sets = wanted
            })]))
        }
        Size::Same if runs(case) => keep_in_step(case, &holder, pod_sets),
        Size::Same | Size::Larger | Size::Incomparable => return Slices::One(vec![holder]),
    })
}

/// How long whoever gave another its quota still has to declare this one replaced, and to say by which.
fn just_replaced(old: &Workload, live: &[Arc<Workload>], case: &Case<'_>) -> Option<Duration> {
    let by = live.iter().find(|new| holds(case, new) && replaces(new, old))?;
    let reserved = condition(by, QUOTA_RESERVED)?.last_transition_time.0;
    REPLACEMENT_GRACE.checked_sub(since(case.now, reserved)).filter(|left| !left.is_zero())
}

/// Ends a workload that is not its job's any more.
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

/// What there is to say about the pods of a job; `pod_sets` are those of an elastic one. Of the pods of a growing job as
/// many count as the workload does: that others are not ready yet is not said.
pub(super) fn pods_ready(
    case: &Case<'_>,
    workload: &Arc<Workload>,
    pod_sets: Option<&[PodSet]>,
) -> PodsReady {
    let Some(delay) = &case.facts.pods_ready else { return PodsReady::Said };
    let (kind, job, counted) = (case.kind, case.job, &workload.spec.pod_sets);
    let is_of_its_size = pod_sets.is_none_or(|pod_sets| compare(pod_sets, counted) == Size::Same);
    let ready =
        if is_of_its_size { kind.pods_ready(job) } else { kind.pods_ready_of(job, counted) };
    edit::pods_ready(workload, ready, delay, case.now)
}

/// Whether what a job grew to has quota and waits for its checks: the pods of before run on, the new ones are gated. A job
/// that was stopped meanwhile has no such pods.
pub(super) fn runs_on(case: &Case<'_>, workload: &Workload) -> bool {
    case.is_elastic() && goes_on(case.kind, case.job, workload)
}

/// The same of a job that is known to be elastic.
pub(super) fn goes_on(kind: &dyn JobKind, job: &Value, workload: &Workload) -> bool {
    has_reservation(workload)
        && elastic::replacement_for(workload).is_some()
        && elastic::makes_pods_of(kind, job, workload)
}

/// Of a job that has become larger (or smaller) than its workload, the pods that the workload counts and that are not
/// needed any more.
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
