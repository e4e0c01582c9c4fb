//! Ensures one matching workload per job: a prebuilt or a created one.

use std::sync::Arc;

use switchyard_api::{
    conditions::reasons::{events, finished, termination_target},
    v1beta2::{PodSet, Workload},
};
use switchyard_jobs::{
    copy_of_another, elastic, is_copy_of_hub, is_equivalent, may_reclaim, meta, owned_by, same_copy,
};

use super::{
    action::{Action, Decision},
    case::{Case, key},
    create, edit,
    inputs::Prebuilt,
    slices::{self, Slices},
};
use crate::workload::{has_reservation, is_evicted, is_finished, pod_group_owner};

pub(super) enum Ensured {
    /// Continue with this workload, or without one.
    Workload(Option<Arc<Workload>>),
    /// Perform this first.
    Act(Decision),
}

/// Finds the workload of the job and deletes others.
pub(super) fn ensure(case: &Case<'_>) -> Ensured {
    match &case.inputs.prebuilt {
        Prebuilt::NotNamed => ensure_own(case),
        _ if case.is_elastic() && is_copy_of_hub(case.job) => ensure_copies(case),
        Prebuilt::Missing => Ensured::Workload(None),
        Prebuilt::Found(workload) => ensure_prebuilt(case, workload),
    }
}

/// A hub's copy of an elastic job: the hub creates the first workload and resizes the job. The
/// larger workloads are created here.
fn ensure_copies(case: &Case<'_>) -> Ensured {
    let pod_sets = match case.pod_sets() {
        Ok(pod_sets) => pod_sets,
        Err(decision) => return Ensured::Act(decision),
    };
    match slices::ensure(case, &pod_sets) {
        Slices::Ensured(ensured) => ensured,
        Slices::One(workloads) => match workloads.last() {
            Some(workload) => ensure_prebuilt(case, workload),
            None => Ensured::Workload(None),
        },
    }
}

fn ensure_prebuilt(case: &Case<'_>, workload: &Arc<Workload>) -> Ensured {
    let owners = workload.metadata.owner_references.as_deref().unwrap_or_default();
    if let Some(other) =
        owners.iter().find(|o| o.controller == Some(true) && o.uid != meta::uid(case.job))
    {
        tracing::warn!(
            workload = key(workload),
            kind = other.kind,
            owner = other.name,
            "the prebuilt workload belongs to another job"
        );
        return Ensured::Workload(None);
    }
    if copy_of_another(case.kind.id(), case.job, workload) {
        tracing::warn!(
            workload = key(workload),
            job = meta::name(case.job),
            "the prebuilt workload names another job"
        );
        return Ensured::Workload(None);
    }
    if !owned_by(workload, meta::uid(case.job)) && !same_copy(case.kind.id(), case.job, workload) {
        return Ensured::Act(Decision::act([edit::adopt(case.kind, case.job, workload)]));
    }
    if workload.metadata.deletion_timestamp.is_some() {
        return Ensured::Workload(Some(workload.clone()));
    }
    let pod_sets = match case.pod_sets() {
        Ok(pod_sets) => pod_sets,
        Err(decision) => return Ensured::Act(decision),
    };
    // Kueue's hub sends the larger workload before it resizes the job.
    let grows =
        case.is_elastic() && elastic::replacement_for(workload).is_some() && !is_finished(workload);
    if grows || matches(case, &pod_sets, workload) {
        if !grows && is_live(workload) && !is_evicted(workload) && needs_more(case, workload) {
            let message = "More pods of the job run than quota was reserved for: some had ended before, and run again";
            return Ensured::Act(case.requeue(workload, message.to_owned()));
        }
        return Ensured::Workload(Some(workload.clone()));
    }
    if is_finished(workload) {
        return Ensured::Workload(None);
    }
    let message = "The prebuilt workload is out of sync with its user job";
    Ensured::Act(case.declare_finished(workload, finished::OUT_OF_SYNC, message))
}

fn matches(case: &Case<'_>, pod_sets: &[PodSet], workload: &Arc<Workload>) -> bool {
    let infos = has_reservation(workload).then(|| case.infos(workload).ok()).flatten();
    let as_written = case.is_handed_over() || case.kind.is_suspended(case.job);
    is_equivalent(case.job, pod_sets, as_written, workload, infos.as_deref())
}

/// Whether more pods run, or will run, than the workload was admitted for: some had ended before
/// the admission and run again.
fn needs_more(case: &Case<'_>, workload: &Workload) -> bool {
    let Some(status) =
        workload.status.as_ref().filter(|_| has_reservation(workload) && case.inputs.reclaims)
    else {
        return false;
    };
    let reclaimable = case.reclaimable(workload);
    let count =
        |name: &str| reclaimable.iter().find(|pods| pods.name == name).map_or(0, |pods| pods.count);
    let whole = workload.spec.pod_sets.iter().filter(|pod_set| pod_set.min_count.is_none());
    !case.is_elastic()
        && whole
            .into_iter()
            .any(|pod_set| !may_reclaim(workload, status, &pod_set.name, count(&pod_set.name)))
}

fn ensure_own(case: &Case<'_>) -> Ensured {
    let pod_sets = match case.pod_sets() {
        Ok(pod_sets) => pod_sets,
        Err(decision) => return Ensured::Act(decision),
    };
    if !case.is_elastic() {
        return ensure_one(case, &case.inputs.workloads, pod_sets);
    }
    match slices::ensure(case, &pod_sets) {
        Slices::Ensured(ensured) => ensured,
        Slices::One(workloads) => ensure_one(case, &workloads, pod_sets),
    }
}

fn ensure_one(case: &Case<'_>, workloads: &[Arc<Workload>], pod_sets: Vec<PodSet>) -> Ensured {
    let owned = |workload: &Arc<Workload>| owned_by(workload, meta::uid(case.job));
    let fits = |workload: &Arc<Workload>| {
        matches(case, &pod_sets, workload)
            && case.has_topology_of(workload, &pod_sets)
            && !needs_more(case, workload)
    };
    let found = workloads.iter().position(|workload| owned(workload) && fits(workload));
    let mut others: Vec<&Arc<Workload>> = workloads
        .iter()
        .enumerate()
        .filter(|(at, _)| Some(*at) != found)
        .map(|(_, workload)| workload)
        .collect();
    let found = found.and_then(|at| workloads.get(at));
    let suspended = case.kind.is_suspended(case.job);

    let update = match others.first() {
        Some(first)
            if found.is_none() && suspended && !has_reservation(first) && is_live(first) =>
        {
            Some(others.remove(0))
        }
        _ => None,
    };
    if found.is_none() && !suspended && case.kind.finished(case.job).is_none() {
        // Templates can only be restored if it is certain which workload has them.
        let (workload, message) = match others.as_slice() {
            [one] => (
                Some(*one),
                "No matching Workload; restoring pod templates according to existent Workload",
            ),
            _ => (None, "Missing Workload; unable to restore pod templates"),
        };
        if let Some(decision) =
            case.stop(workload, termination_target::NO_MATCHING_WORKLOAD, message)
        {
            // A dispatched job stops on its worker after its Workload is deleted, and then shows
            // that here.
            let keeps_running = case.is_handed_over() && decision == Decision::wait();
            return Ensured::Act(if keeps_running { delete_live(&others) } else { decision });
        }
    }
    if !others.is_empty() {
        return Ensured::Act(delete_others(&others, |it| case.is_in_use(it)));
    }
    if let Some(workload) = update {
        return Ensured::Act(create::update_to_match(case, workload, pod_sets));
    }
    match found {
        Some(workload) => keep_in_sync(case, workload, &pod_sets),
        None => Ensured::Workload(None),
    }
}

pub(super) fn is_live(workload: &Workload) -> bool {
    workload.metadata.deletion_timestamp.is_none() && !is_finished(workload)
}

/// Deletes workloads, and removes the finalizer from deleted ones whose quota nothing uses.
pub(super) fn delete_others(
    others: &[&Arc<Workload>],
    is_in_use: impl Fn(&Workload) -> bool,
) -> Decision {
    let mut decision = delete_live(others);
    let deleting = others.iter().filter(|it| it.metadata.deletion_timestamp.is_some());
    let free = deleting.filter(|it| !is_in_use(it));
    decision.actions.extend(free.filter_map(|it| edit::drop_finalizer(it)));
    decision
}

/// Deletes the workloads that are not being deleted yet.
fn delete_live(others: &[&Arc<Workload>]) -> Decision {
    let live = others.iter().filter(|workload| workload.metadata.deletion_timestamp.is_none());
    let delete = |workload: &&Arc<Workload>| {
        let note = format!("Deleted not matching Workload: {}", key(workload));
        [
            Action::DeleteWorkload((*workload).clone()),
            Action::normal(events::DELETED_WORKLOAD, note),
        ]
    };
    Decision::act(live.flat_map(delete))
}

/// Keeps gates, cluster affinity rules and priority class in sync with the job. The hub sets them
/// on its copies.
pub(super) fn keep_in_sync(
    case: &Case<'_>,
    workload: &Arc<Workload>,
    pod_sets: &[PodSet],
) -> Ensured {
    let is_own = matches!(case.inputs.prebuilt, Prebuilt::NotNamed);
    if is_own && is_live(workload) {
        // A pod group owner has the rules; the pods need not.
        let rules = || {
            edit::cluster_rules(case.job, workload).filter(|_| pod_group_owner(workload).is_none())
        };
        let edits = edit::admission_gates(case.job, workload).or_else(rules);
        if let Some(actions) = edits {
            return Ensured::Act(Decision::act(actions));
        }
        if let Some(decision) = create::priority_change(case, workload, pod_sets) {
            return Ensured::Act(decision);
        }
    }
    Ensured::Workload(Some(workload.clone()))
}
