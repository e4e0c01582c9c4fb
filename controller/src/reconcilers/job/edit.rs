//! Edits of workloads. Each returns the action that writes it.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{OwnerReference, Time};
use serde_json::Value;
use switchyard_api::{
    affinity,
    conditions::{
        self,
        reasons::{pods_ready, quota_reserved},
    },
    names,
    v1beta2::{AdmissionCheckState, CheckState, ReclaimablePod, Workload},
};
use switchyard_jobs::{JobKind, may_reclaim, meta};

use super::{action::Action, inputs::PodsReadyDelay};
use crate::workload::{Edit, NOT_READY, ReasonDetail, condition, has_reservation, is_admitted};
use switchyard_platform::clock::{since, whole_seconds};

/// Message of a workload that was on hold.
pub(super) const OFF_HOLD: &str = "Workload no longer on hold; waiting for quota reservation";

pub(super) fn finish(
    workload: &Arc<Workload>,
    reason: &str,
    message: &str,
    now: Timestamp,
) -> Action {
    Action::edit_status(workload, now, |edit| {
        edit.finish(reason, message);
    })
}

/// Releases the quota of an evicted workload whose job has stopped.
pub(super) fn release_quota(
    workload: &Arc<Workload>,
    reasons: ReasonDetail,
    now: Timestamp,
) -> Action {
    Action::edit_quota(workload, reasons, now, |edit| {
        edit.release_quota();
    })
}

/// Message of a workload whose job is on hold.
pub(super) const ON_HOLD: &str = "Job is on hold";

/// Releases the quota of a workload while its job is on hold.
pub(super) fn put_on_hold(
    workload: &Arc<Workload>,
    message: &str,
    reasons: ReasonDetail,
    now: Timestamp,
) -> Action {
    Action::edit_quota(workload, reasons, now, |edit| {
        edit.unreserve(quota_reserved::ON_HOLD, conditions::truncated_message(message.to_owned()));
    })
}

/// Requeues a workload that was on hold.
pub(super) fn take_off_hold(
    workload: &Arc<Workload>,
    reasons: ReasonDetail,
    now: Timestamp,
) -> Action {
    Action::edit_quota(workload, reasons, now, |edit| {
        edit.unreserve(quota_reserved::PENDING_EVALUATION, OFF_HOLD);
    })
}

/// Removes Switchyard's finalizer.
pub(super) fn drop_finalizer(workload: &Arc<Workload>) -> Option<Action> {
    let ours = |finalizer: &String| finalizer == names::RESOURCE_IN_USE;
    workload.metadata.finalizers.iter().flatten().any(ours).then(|| {
        Action::edit(workload, |workload| {
            if let Some(finalizers) = &mut workload.metadata.finalizers {
                finalizers.retain(|finalizer| !ours(finalizer));
            }
        })
    })
}

/// Makes the job the controller of a prebuilt workload.
pub(super) fn adopt(kind: &dyn JobKind, job: &Value, workload: &Arc<Workload>) -> Action {
    Action::edit(workload, |workload| {
        workload.metadata.owner_references.get_or_insert_default().push(OwnerReference {
            api_version: kind.id().api_version(),
            kind: kind.id().kind.into(),
            name: meta::name(job).into(),
            uid: meta::uid(job).into(),
            controller: Some(true),
            block_owner_deletion: Some(true),
        });
        workload
            .metadata
            .labels
            .get_or_insert_default()
            .insert(names::JOB_UID.into(), meta::uid(job).into());
    })
}

/// Moves the workload to another LocalQueue. The field is immutable while quota is reserved.
pub(super) fn queue_name(workload: &Arc<Workload>, queue: &str) -> Option<Action> {
    if crate::workload::queue_name(workload) == queue || has_reservation(workload) {
        return None;
    }
    Some(Action::edit(workload, |workload| {
        workload.spec.queue_name = Some(queue.to_owned()).filter(|q| !q.is_empty())
    }))
}

/// Copies the job's admission gates to its workload.
pub(super) fn admission_gates(job: &Value, workload: &Arc<Workload>) -> Option<[Action; 2]> {
    let gates = meta::annotation(job, names::ADMISSION_GATED_BY).unwrap_or_default();
    if crate::workload::admission_gates(workload).unwrap_or_default() == gates {
        return None;
    }
    let update = Action::edit(workload, |workload| {
        let annotations = workload.metadata.annotations.get_or_insert_default();
        if gates.is_empty() {
            annotations.remove(names::ADMISSION_GATED_BY);
        } else {
            annotations.insert(names::ADMISSION_GATED_BY.into(), gates.into());
        }
    });
    let note = format!("Updated workload AdmissionGatedBy to {gates:?}");
    Some([update, Action::normal(conditions::reasons::events::UPDATED_WORKLOAD, note)])
}

/// Copies the job's cluster affinity rules to its workload.
pub(super) fn cluster_rules(job: &Value, workload: &Arc<Workload>) -> Option<[Action; 2]> {
    let has = |key: &str| {
        workload.metadata.annotations.as_ref().and_then(|all| all.get(key)).map(String::as_str)
    };
    let changed = |key: &&str| has(key) != meta::annotation(job, key);
    let changed: Vec<&str> = affinity::ANNOTATIONS.into_iter().filter(changed).collect();
    if changed.is_empty() {
        return None;
    }
    let update = Action::edit(workload, |workload| {
        let annotations = workload.metadata.annotations.get_or_insert_default();
        for key in &changed {
            match meta::annotation(job, key) {
                Some(text) => annotations.insert((*key).to_owned(), text.to_owned()),
                None => annotations.remove(*key),
            };
        }
    });
    let note = format!("Updated workload {}", changed.join(", "));
    Some([update, Action::normal(conditions::reasons::events::UPDATED_WORKLOAD, note)])
}

/// Records pods whose quota is no longer needed, at most the count of each pod set.
pub(super) fn reclaimable_pods(
    workload: &Arc<Workload>,
    mut pods: Vec<ReclaimablePod>,
    now: Timestamp,
) -> Option<Action> {
    for pod in &mut pods {
        if let Some(pod_set) =
            workload.spec.pod_sets.iter().find(|pod_set| pod_set.name == pod.name)
        {
            pod.count = pod.count.min(pod_set.count);
        }
    }
    let current = workload
        .status
        .as_ref()
        .map(|status| status.reclaimable_pods.as_slice())
        .unwrap_or_default();
    if current == pods {
        return None;
    }
    let status = workload.status.as_ref();
    let exceeds = |was: &ReclaimablePod| {
        let now = pods.iter().find(|pod| pod.name == was.name).map_or(0, |pod| pod.count);
        now < was.count && !status.is_some_and(|it| may_reclaim(workload, it, &was.name, now))
    };
    if has_reservation(workload) && current.iter().any(exceeds) {
        return None;
    }
    Some(Action::edit_status(workload, now, |edit| edit.status.reclaimable_pods = pods))
}

/// A change of the `PodsReady` condition.
pub(super) enum PodsReady {
    /// The condition is up to date.
    UpToDate,
    Say(Action),
    /// It becomes True after this delay.
    Later(Duration),
}

/// Updates `PodsReady`. False is first written together with quota, so it needs no write of its
/// own; until then its absence means the same. True is first written `delay` after the pods became
/// ready.
pub(super) fn pods_ready(
    workload: &Arc<Workload>,
    ready: bool,
    delay: &PodsReadyDelay,
    now: Timestamp,
) -> PodsReady {
    let found = condition(workload, conditions::PODS_READY);
    let was = found.map(|condition| condition.reason.as_str());
    let was_ready = found.is_some_and(|condition| condition.status == conditions::TRUE);
    let (holds, reason, message) = if !is_admitted(workload) {
        (false, pods_ready::WAIT_FOR_START, NOT_READY)
    } else if ready {
        let again = matches!(was, Some(pods_ready::WAIT_FOR_RECOVERY | pods_ready::RECOVERED));
        let reason = if again { pods_ready::RECOVERED } else { pods_ready::STARTED };
        (true, reason, "All pods reached readiness and the workload is running")
    } else if was_ready || was == Some(pods_ready::WAIT_FOR_RECOVERY) {
        (false, pods_ready::WAIT_FOR_RECOVERY, "At least one pod has failed, waiting for recovery")
    } else {
        (false, pods_ready::WAIT_FOR_START, NOT_READY)
    };
    if was_ready == holds && (was == Some(reason) || was.is_none()) {
        return PodsReady::UpToDate;
    }
    let admitted = condition(workload, conditions::ADMITTED)
        .map_or(now, |condition| condition.last_transition_time.0);
    let wait = delay.wait(since(now, admitted));
    if holds && matches!(was, None | Some(pods_ready::WAIT_FOR_START)) && !wait.is_zero() {
        return PodsReady::Later(wait);
    }
    // The transition time is when the pods were seen ready, not when that is written.
    let seen = now
        .checked_sub(jiff::SignedDuration::try_from(delay.ready_for).unwrap_or_default())
        .unwrap_or(now);
    let at = if holds { seen.max(admitted).min(now) } else { now };
    PodsReady::Say(Action::edit_status(workload, at, |edit| {
        edit.set(conditions::PODS_READY, holds, reason, message);
    }))
}

/// Rejects an admission check. `None` if it is rejected already.
pub(super) fn reject_check(
    workload: &Arc<Workload>,
    check: &str,
    message: &str,
    now: Timestamp,
) -> Option<Action> {
    let checks = workload
        .status
        .as_ref()
        .map(|status| status.admission_checks.as_slice())
        .unwrap_or_default();
    let said = |c: &AdmissionCheckState| {
        c.name == check && c.state == CheckState::Rejected && c.message == message
    };
    if checks.iter().any(said) {
        return None;
    }
    let state = AdmissionCheckState {
        name: check.to_owned(),
        state: CheckState::Rejected,
        last_transition_time: Time(whole_seconds(now)),
        message: message.to_owned(),
        requeue_after_seconds: None,
        retry_count: None,
        pod_set_updates: Vec::new(),
    };
    Some(Action::edit_status(workload, now, |edit: &mut Edit| {
        let checks = &mut edit.status.admission_checks;
        match checks.iter_mut().find(|present| present.name == check) {
            Some(present) => *present = state,
            None => checks.push(state),
        }
    }))
}
