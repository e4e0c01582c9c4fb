//! The workload of a pod group, and which pods belong to the group. Replaced and excess pods are
//! released.

use std::{collections::BTreeSet, sync::Arc};

use serde_json::{Value, json};
use switchyard_api::{
    conditions::{
        self,
        reasons::{events, finished, termination_target, waiting_for_replacement_pods as waiting},
    },
    v1beta2::Workload,
};
use switchyard_jobs::{JobKind, meta, owner_reference, pod};

use super::{
    action::{Action, Decision},
    case::{Case, key},
    create,
    ensure::{Ensured, delete_others, is_live, keep_in_sync},
    inputs::Prebuilt,
    leaving::release,
};
use crate::workload::{
    condition, has_reservation, is_copy, is_evicted, is_finished, is_group_workload, was_dispatched,
};

/// Finishes the workload if a pod that is about to start requests more than its quota: its role
/// names a pod set that was made for other pods.
pub(super) fn overdrawn(case: &Case<'_>, workload: &Arc<Workload>) -> Option<Decision> {
    let mut seen = BTreeSet::new();
    let waiting = case
        .kind
        .members(case.job)
        .iter()
        .filter(|pod| case.kind.is_composed(case.job) && pod::is_gated(pod));
    let exceeded = waiting.into_iter().find_map(|member| {
        let (role, shape) = (pod::role(member), pod::shape_hash(member));
        let at = workload.spec.pod_sets.iter().position(|pod_set| pod_set.name == role)?;
        let mut tried = Workload::clone(workload);
        let pod_set = tried.spec.pod_sets.get_mut(at)?;
        if pod::shape_hash(&pod_set.template.value()) == shape || !seen.insert((role, shape)) {
            return None;
        }
        *pod_set.template.value_mut() = json!({ "spec": member.get("spec") });
        (case.inputs.exceeded)(&tried).map(|(resource, _)| (meta::name(member), resource))
    });
    let (member, resource) = exceeded?;
    let message = format!("Pod {member:?} asks for more {resource} than quota was reserved for");
    Some(case.declare_finished(workload, finished::OUT_OF_SYNC, &message))
}

/// Handles workloads of single pods that their user later added to a group. A running pod keeps
/// running with its own workload's quota; otherwise the group's workload would request the same
/// twice. Kueue leaves them until the pod is gone.
pub(super) fn leftover_workloads(
    kind: &dyn JobKind,
    member: &Value,
    workloads: &[Arc<Workload>],
) -> Decision {
    let open: Vec<&Arc<Workload>> =
        workloads.iter().filter(|workload| !is_finished(workload)).collect();
    let runs_here = !kind.is_suspended(member) && kind.finished(member).is_none();
    if runs_here || open.iter().any(|workload| was_dispatched(workload)) {
        return Decision::wait();
    }
    delete_others(&open, |_| false)
}

/// Decides about a pod group.
pub(super) fn decide(case: &Case<'_>) -> Decision {
    let named = !meta::prebuilt_workload_name(case.job).is_empty();
    match &case.inputs.prebuilt {
        Prebuilt::Found(workload) if named => with_prebuilt(case, workload),
        Prebuilt::Found(workload) if !is_group_workload(workload) => {
            with_foreign_workload(case, workload)
        }
        Prebuilt::Found(workload) => with_workload(case, workload),
        Prebuilt::Missing | Prebuilt::NotNamed if named => without_prebuilt(case),
        Prebuilt::Missing | Prebuilt::NotNamed => without_workload(case),
    }
}

fn without_prebuilt(case: &Case<'_>) -> Decision {
    if case.kind.finished(case.job).is_some() {
        return Decision::act(release(case.kind, case.job));
    }
    let stop = case.stop(None, termination_target::NO_MATCHING_WORKLOAD, "missing workload");
    // Without a workload, nothing waits for the pods that are being deleted.
    stop.unwrap_or_else(|| Decision::act(release_pods(case, deleting_pods(case))))
}

/// The pods that are being deleted.
fn deleting_pods(case: &Case<'_>) -> Vec<Value> {
    case.kind.members(case.job).iter().filter(|pod| meta::is_deleting(pod)).cloned().collect()
}

/// A prebuilt workload, whose creator also handles the pods.
fn with_prebuilt(case: &Case<'_>, workload: &Arc<Workload>) -> Decision {
    let owners = workload.metadata.owner_references.as_deref().unwrap_or_default();
    if owners.iter().any(|owner| owner.controller == Some(true)) {
        tracing::warn!(
            workload = key(workload),
            group = meta::name(case.job),
            "the prebuilt workload belongs to another job"
        );
        return without_prebuilt(case);
    }
    if workload.metadata.deletion_timestamp.is_some() {
        return case.reconcile(Some(workload));
    }
    if let Some(actions) = make_owners(case, case.kind.members(case.job).iter(), workload) {
        return Decision::act(actions);
    }
    // The workload's creator waits until its pods are gone, and no replacement is expected here.
    if let Some(action) = release_pods(case, deleting_pods(case)).filter(|_| is_copy(workload)) {
        return Decision::act([action]);
    }
    let pod_sets = match case.pod_sets() {
        Ok(pod_sets) => pod_sets,
        Err(decision) => return decision,
    };
    if !pod::is_in_sync(case.job, &pod_sets, workload, is_finished(workload)) {
        let message = "The prebuilt workload is out of sync with its user job";
        return case.declare_finished(workload, finished::OUT_OF_SYNC, message);
    }
    case.reconcile(Some(workload))
}

/// The name belongs to another job's workload.
fn with_foreign_workload(case: &Case<'_>, workload: &Workload) -> Decision {
    let note = format!(
        "A Workload named {:?} already exists but is not a pod group workload; this pod group cannot be admitted",
        workload.metadata.name.as_deref().unwrap_or_default()
    );
    let gone = release_pods(case, pod::inactive(case.job));
    Decision::act(gone.into_iter().chain([Action::warning(events::WORKLOAD_NAME_CONFLICT, note)]))
}

fn without_workload(case: &Case<'_>) -> Decision {
    // Pods that are all being deleted start nothing any more.
    let are_all_deleting = deleting_pods(case).len() == case.kind.members(case.job).len();
    if are_all_deleting || case.kind.finished(case.job).is_some() {
        return Decision::act(release(case.kind, case.job));
    }
    if !case.kind.is_suspended(case.job) {
        let message = "Missing Workload; unable to restore pod templates";
        let stopping = case.stop(None, termination_target::NO_MATCHING_WORKLOAD, message);
        if let Some(decision) = stopping {
            return decision;
        }
    }
    if case.kind.is_active(case.job) {
        return Decision::wait();
    }
    let sorted = match sort_new(case) {
        Ok(sorted) => sorted,
        Err(decision) => return decision,
    };
    let kept = Case { job: &sorted.group, ..*case };
    let mut decision = create::create(&kept);
    decision.actions.splice(0..0, release_excess(case, &sorted));
    decision
}

/// The pods of a group without a workload, or why there is none yet. Earlier failed pods are
/// released.
fn sort_new(case: &Case<'_>) -> Result<pod::SortedPods, Decision> {
    pod::sort_new(case.job, case.inputs.copied).map_err(|problem| {
        let gone = release_pods(case, pod::inactive(case.job));
        Decision::act(
            gone.into_iter().chain([Action::warning(events::ERR_WORKLOAD_COMPOSE, problem)]),
        )
    })
}

fn with_workload(case: &Case<'_>, workload: &Arc<Workload>) -> Decision {
    if workload.metadata.deletion_timestamp.is_some() {
        return case.reconcile(Some(workload));
    }
    let sorted = pod::sort(case.job, workload, case.now);
    let same_time =
        workload.spec.maximum_execution_time_seconds == meta::max_exec_time_seconds(case.job);
    if !same_time
        || sorted.group.is_null()
        || !pod::fits(&sorted.group, workload, is_finished(workload))
    {
        return mismatch(case, workload);
    }
    let kept = Case { job: &sorted.group, ..*case };
    // Waiting pods own it too. Otherwise it would be deleted with the last of the others.
    let pods = case.kind.members(&sorted.group).iter().chain(&sorted.waiting);
    let owned = make_owners(case, pods, workload).into_iter().flatten();
    let actions: Vec<Action> = owned.chain(release_excess(case, &sorted)).collect();
    if !actions.is_empty() {
        return Decision::act(actions);
    }
    match keep_in_sync(&kept, workload, &workload.spec.pod_sets) {
        Ensured::Act(decision) => return decision,
        Ensured::Workload(_) => {}
    }
    match replacement(case, workload, sorted.absent).filter(|_| is_live(workload)) {
        Some(action) => Decision::act([action]),
        // The group ends with all its members, whatever their shape.
        None if is_finished(workload) => case.reconcile(Some(workload)),
        None => kept.reconcile(Some(workload)),
    }
}

/// Replaces a workload that was made for other pods.
fn mismatch(case: &Case<'_>, workload: &Arc<Workload>) -> Decision {
    if case.kind.is_suspended(case.job) {
        if has_reservation(workload) || !is_live(workload) {
            return delete_others(&[workload], |it| case.is_held_elsewhere(it));
        }
        let sorted = match sort_new(case) {
            Ok(sorted) => sorted,
            Err(decision) => return decision,
        };
        let kept = Case { job: &sorted.group, ..*case };
        let mut decision = match kept.pod_sets() {
            Ok(pod_sets) => create::update_to_match(&kept, workload, pod_sets),
            Err(decision) => return decision,
        };
        // Later the pods are matched by the workload's roles, which may differ.
        decision.actions.splice(0..0, release_excess(case, &sorted));
        return decision;
    }
    let message = "No matching Workload; restoring pod templates according to existent Workload";
    let stop = || case.stop(Some(workload), termination_target::NO_MATCHING_WORKLOAD, message);
    let running = case.kind.finished(case.job).is_none();
    running
        .then(stop)
        .flatten()
        .unwrap_or_else(|| delete_others(&[workload], |it| case.is_held_elsewhere(it)))
}

/// Releases pods that no longer belong to the group, and deletes excess pods.
fn release_excess(case: &Case<'_>, sorted: &pod::SortedPods) -> Vec<Action> {
    let gone: Vec<_> = sorted.excess.iter().chain(&sorted.replaced).cloned().collect();
    let mut actions: Vec<Action> = release_pods(case, gone).into_iter().collect();
    let excess: Vec<_> =
        sorted.excess.iter().filter(|pod| !meta::is_deleting(pod)).cloned().collect();
    if !excess.is_empty() {
        actions.push(Action::Terminate { members: excess.clone(), why: None });
        let note = "Excess pod deleted".to_owned();
        actions.push(Action::MemberEvents {
            members: excess,
            reason: events::EXCESS_POD_DELETED,
            note,
        });
    }
    actions
}

fn release_pods(case: &Case<'_>, pods: Vec<Value>) -> Option<Action> {
    release(case.kind, &case.kind.compose(pods))
}

/// Makes all pods owners of the workload, so that it is deleted with the last of them.
fn make_owners<'a>(
    case: &Case<'_>,
    pods: impl Iterator<Item = &'a Value>,
    workload: &Arc<Workload>,
) -> Option<[Action; 2]> {
    let owners = workload.metadata.owner_references.as_deref().unwrap_or_default();
    let missing: Vec<_> =
        pods.filter(|pod| !owners.iter().any(|owner| owner.uid == meta::uid(pod))).collect();
    if missing.is_empty() {
        return None;
    }
    let note = format!("Added {} owner reference(s)", missing.len());
    let owned = Action::edit(workload, |workload| {
        let owners = workload.metadata.owner_references.get_or_insert_default();
        owners.extend(missing.into_iter().map(|pod| owner_reference(case.kind, pod)));
    });
    let reason = events::OWNER_REFERENCES_ADDED;
    Some([owned, Action::WorkloadEvent { workload: workload.clone(), reason, note }])
}

/// Sets whether pods of the group are missing (`WaitingForReplacementPods`).
fn replacement(case: &Case<'_>, workload: &Arc<Workload>, absent: i32) -> Option<Action> {
    let said = condition(workload, conditions::WAITING_FOR_REPLACEMENT_PODS);
    let waits = said.is_some_and(|it| it.status == conditions::TRUE);
    let (holds, reason, message) = if absent > 0 {
        let evicted = condition(workload, conditions::EVICTED).filter(|_| is_evicted(workload));
        match evicted {
            Some(evicted) => (true, evicted.reason.as_str(), evicted.message.as_str()),
            None if waits => return None,
            None => (true, waiting::PODS_FAILED, "Some Failed pods need replacement"),
        }
    } else if said.is_some() {
        (false, waiting::PODS_READY, "No pods need replacement")
    } else {
        return None;
    };
    if said.is_some_and(|it| {
        waits == holds && (!holds || it.reason == reason && it.message == message)
    }) {
        return None;
    }
    let (reason, message) = (reason.to_owned(), message.to_owned());
    Some(Action::edit_status(workload, case.now, |edit| {
        edit.set(conditions::WAITING_FOR_REPLACEMENT_PODS, holds, &reason, message);
    }))
}
