//! A Workload's state and changes of its status.
//!
//! All writers of a Workload's status use [`Edit`], so that conditions, reasons and messages equal
//! Kueue's. `context::patch_status` writes the difference.

mod edit;

use std::time::Duration;

pub(crate) use edit::NOT_READY;
pub use edit::{Edit, Evicted, Eviction, ReasonDetail};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use switchyard_api::{
    conditions::{self, reasons},
    names,
    v1beta2::{Admission, Workload, WorkloadStatus},
    variants,
};
use switchyard_jobs::{JobKind, elastic, kind_of_owner};

use switchyard_platform::{clock::since, store::Key};

/// Shrinks lists to their length. Deserialized lists start with room for four elements, and there
/// are thousands of Workloads.
pub fn strip_unused_fields(workload: &mut Workload) {
    fn shrink<T>(list: &mut Vec<T>) {
        list.shrink_to_fit();
    }
    workload.metadata.owner_references.as_mut().map(shrink);
    workload.metadata.finalizers.as_mut().map(shrink);
    shrink(&mut workload.spec.pod_sets);
    let Some(status) = &mut workload.status else { return };
    shrink(&mut status.conditions);
    shrink(&mut status.admission_checks);
    shrink(&mut status.resource_requests);
    shrink(&mut status.reclaimable_pods);
    shrink(&mut status.nominated_cluster_names);
    if let Some(admission) = &mut status.admission {
        shrink(&mut admission.pod_set_assignments);
    }
}

/// Progress of a workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    Pending,
    QuotaReserved,
    Admitted,
    Finished,
}

/// Whether it is the workload of a pod group.
#[must_use]
pub fn is_group_workload(workload: &Workload) -> bool {
    let annotation =
        workload.metadata.annotations.as_ref().and_then(|all| all.get(names::IS_GROUP_WORKLOAD));
    annotation.is_some_and(|value| value == "true")
}

/// Whether a hub has ever committed it to a worker cluster.
#[must_use]
pub fn was_dispatched(workload: &Workload) -> bool {
    let dispatch = status(workload).and_then(|status| status.dispatch.as_ref());
    dispatch.is_some_and(|dispatch| dispatch.attempt > 0)
}

/// Whether a hub has committed it to a cluster, and the dispatcher has not released it. A copy may
/// remain there.
#[must_use]
pub fn is_left_on_cluster(workload: &Workload) -> bool {
    was_dispatched(workload) && has_reservation(workload) && !is_finished(workload)
}

/// Interval of checks whether the cluster of a deleted job is lost.
pub(crate) const LOST_CLUSTER_CHECK_INTERVAL: Duration = Duration::from_secs(10);

/// Whether [`is_left_on_cluster`] holds and its cluster is expected to report the end. A lost
/// cluster is not expected to, and pod groups are not reported. `awaited`: whether a cluster is
/// connected.
#[must_use]
pub fn is_awaited_from_cluster(workload: &Workload, awaited: impl Fn(&str) -> bool) -> bool {
    let sent_to = status(workload).and_then(|status| {
        let dispatch = status.dispatch.as_ref();
        status
            .cluster_name
            .as_deref()
            .or_else(|| dispatch.and_then(|dispatch| dispatch.cluster_name.as_deref()))
    });
    !is_group_workload(workload) && is_left_on_cluster(workload) && sent_to.is_some_and(awaited)
}

/// The owner of a pod group's workload that creates its pods, such as a StatefulSet.
#[must_use]
pub fn pod_group_owner(workload: &Workload) -> Option<(&'static dyn JobKind, &OwnerReference)> {
    let mut owners =
        workload.metadata.owner_references.iter().flatten().filter(|_| is_group_workload(workload));
    owners.find_map(|owner| {
        let kind = kind_of_owner(&owner.api_version, &owner.kind)?;
        kind.serving().map(|_| (kind, owner))
    })
}

#[must_use]
pub fn phase(workload: &Workload) -> Phase {
    if is_finished(workload) {
        Phase::Finished
    } else if is_admitted(workload) {
        Phase::Admitted
    } else if has_reservation(workload) {
        Phase::QuotaReserved
    } else {
        Phase::Pending
    }
}

/// Whether the condition is True.
#[must_use]
pub fn holds(workload: &Workload, condition: &str) -> bool {
    status(workload).is_some_and(|status| conditions::is_true(&status.conditions, condition))
}

/// Whether it is active and its deactivation was not requested.
#[must_use]
pub fn stays_active(workload: &Workload) -> bool {
    workload.spec.is_active() && !holds(workload, conditions::DEACTIVATION_TARGET)
}

/// Whether its job may run: admitted, and not evicted, finished, deactivated or deleted.
#[must_use]
pub fn runs(workload: &Workload) -> bool {
    workload.metadata.deletion_timestamp.is_none()
        && workload.spec.is_active()
        && is_admitted(workload)
        && !is_evicted(workload)
        && !is_finished(workload)
}

#[must_use]
pub fn condition<'a>(
    workload: &'a Workload,
    type_: &str,
) -> Option<&'a k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition> {
    conditions::find(&status(workload)?.conditions, type_)
}

fn status(workload: &Workload) -> Option<&WorkloadStatus> {
    workload.status.as_ref()
}

#[must_use]
pub fn has_reservation(workload: &Workload) -> bool {
    holds(workload, conditions::QUOTA_RESERVED)
}

#[must_use]
pub fn is_admitted(workload: &Workload) -> bool {
    holds(workload, conditions::ADMITTED)
}

/// How long all its pods have been ready. `None` if they are not.
#[must_use]
pub fn ready_for(workload: &Workload, now: Timestamp) -> Option<Duration> {
    let ready = condition(workload, conditions::PODS_READY)
        .filter(|ready| ready.status == conditions::TRUE)?;
    Some(since(now, ready.last_transition_time.0))
}

/// Whether a Switchyard hub created it as the copy of its own Workload.
#[must_use]
pub fn is_copy(workload: &Workload) -> bool {
    workload.metadata.annotations.as_ref().is_some_and(|all| all.contains_key(names::WORKLOAD_UID))
}

/// Whether a hub created it, Switchyard's or Kueue's. The hub decides what it requests.
#[must_use]
pub fn is_sent(workload: &Workload) -> bool {
    let labels = workload.metadata.labels.as_ref();
    is_copy(workload) || labels.is_some_and(|labels| labels.contains_key(names::MULTIKUEUE_ORIGIN))
}

#[must_use]
pub fn is_finished(workload: &Workload) -> bool {
    holds(workload, conditions::FINISHED)
}

/// Whether it finished because another workload slice of its job replaced it.
#[must_use]
pub fn is_replaced(workload: &Workload) -> bool {
    let finished = condition(workload, conditions::FINISHED).filter(|it| it.status == "True");
    finished.is_some_and(|it| it.reason == reasons::finished::WORKLOAD_SLICE_REPLACED)
}

#[must_use]
pub fn is_evicted(workload: &Workload) -> bool {
    holds(workload, conditions::EVICTED)
}

/// Whether its reservation was withdrawn on purpose. It must not be queued.
#[must_use]
pub fn is_on_hold(workload: &Workload) -> bool {
    condition(workload, conditions::QUOTA_RESERVED).is_some_and(|condition| {
        condition.status == conditions::FALSE
            && condition.reason == reasons::quota_reserved::ON_HOLD
    })
}

/// The gates of the annotation `admission-gated-by`. `None` if there are none.
#[must_use]
pub fn admission_gates(workload: &Workload) -> Option<&str> {
    let gates = workload.metadata.annotations.as_ref()?.get(names::ADMISSION_GATED_BY)?;
    (!gates.is_empty()).then_some(gates.as_str())
}

/// Whether it may be queued: it lacks nothing but quota. `gated`: whether annotations gate
/// admission (Kueue's `AdmissionGatedBy`).
#[must_use]
pub fn is_admissible(workload: &Workload, gated: bool) -> bool {
    is_admissible_but_for_gates(workload) && !(gated && admission_gates(workload).is_some())
}

/// As [`is_admissible`] without gates.
#[must_use]
pub fn is_admissible_but_for_gates(workload: &Workload) -> bool {
    workload.spec.is_active()
        && !is_finished(workload)
        && !has_reservation(workload)
        && !is_on_hold(workload)
        && !holds(workload, conditions::WAITING_FOR_REPLACEMENT_PODS)
}

/// The admission of a workload with reserved quota.
///
/// An admission without a reservation is meaningless. Kueue releases quota with server-side apply,
/// which cannot remove fields that another manager wrote.
#[must_use]
pub fn admission(status: &WorkloadStatus) -> Option<&Admission> {
    status
        .admission
        .as_ref()
        .filter(|_| conditions::is_true(&status.conditions, conditions::QUOTA_RESERVED))
}

/// The ClusterQueue whose quota it holds.
#[must_use]
pub fn admitted_by(workload: &Workload) -> Option<&str> {
    admission(status(workload)?).map(|admission| admission.cluster_queue.as_str())
}

/// Its LocalQueue; empty if it has none.
#[must_use]
pub fn queue_name(workload: &Workload) -> &str {
    workload.spec.queue_name.as_deref().unwrap_or_default()
}

/// The chain of a workload that has a topology assignment.
pub(crate) fn topology_chain(workload: &Workload) -> Option<Key> {
    let admission = workload.status.as_ref()?.admission.as_ref()?;
    let placed = admission.pod_set_assignments.iter().any(|it| it.topology_assignment.is_some());
    let namespace = workload
        .metadata
        .namespace
        .as_deref()
        .filter(|_| placed && variants::parent_of(workload).is_none())?;
    Some(Key::new(namespace, elastic::slice_name(workload)))
}

/// Creation time, or the epoch if it is missing.
#[must_use]
pub fn created(workload: &Workload) -> Timestamp {
    workload.metadata.creation_timestamp.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0)
}

/// Time by which workloads of equal priority are ordered: the creation, or the eviction that moves
/// it to the back of the queue. If priorities do not order heads, a reclaimed workload must come
/// after its preemptor.
#[must_use]
pub fn queue_time(workload: &Workload, by_eviction: bool, by_priority: bool) -> Timestamp {
    let holding =
        |type_| condition(workload, type_).filter(|condition| condition.status == conditions::TRUE);
    let evicted = holding(conditions::EVICTED).filter(|evicted| match evicted.reason.as_str() {
        reasons::evicted::PODS_READY_TIMEOUT => by_eviction,
        reasons::evicted::ADMISSION_CHECK => true,
        _ => false,
    });
    if let Some(evicted) = evicted {
        return evicted.last_transition_time.0;
    }
    let reclaimed = holding(conditions::PREEMPTED).filter(|preempted| {
        !by_priority && preempted.reason == reasons::preempted::IN_COHORT_RECLAIM_WHILE_BORROWING
    });
    let Some(preempted) = reclaimed else { return created(workload) };
    let at = preempted.last_transition_time.0;
    // After the preemptor, whose time may be equal.
    at.checked_add(SignedDuration::from_millis(1)).unwrap_or(at)
}

/// Since when it waits for quota: its creation, or the last requeuing.
#[must_use]
pub fn queued_since(workload: &Workload) -> Timestamp {
    condition(workload, conditions::REQUEUED)
        .map_or_else(|| created(workload), |condition| condition.last_transition_time.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{self, WorkloadExt};

    #[rstest::rstest]
    #[case::new_workload(fixtures::workload("a"), Phase::Pending)]
    #[case::reserved(fixtures::workload("a").reserved("cq"), Phase::QuotaReserved)]
    #[case::admitted(fixtures::workload("a").reserved("cq").admitted(), Phase::Admitted)]
    #[case::finished(fixtures::workload("a").reserved("cq").admitted().condition("Finished", true, "Succeeded", ""), Phase::Finished)]
    fn phase_is_derived_from_conditions(#[case] workload: Workload, #[case] expected: Phase) {
        assert_eq!(phase(&workload), expected);
    }

    #[test]
    fn reclaimed_workload_comes_after_its_preemptor() {
        let preempted = |reason: &str| {
            fixtures::workload("a").created(100).condition_at(150, "Preempted", true, reason, "")
        };
        let reclaimed = preempted("InCohortReclaimWhileBorrowing");
        assert_eq!(queue_time(&reclaimed, true, true).as_millisecond(), 100_000);
        assert_eq!(queue_time(&reclaimed, true, false).as_millisecond(), 150_001);
        assert_eq!(
            queue_time(&preempted("InCohortReclamation"), true, false).as_millisecond(),
            100_000
        );
    }

    #[rstest::rstest]
    #[case::never_evicted(None, 100)]
    #[case::preempted(Some("Preempted"), 100)]
    #[case::evicted_by_check(Some("AdmissionCheck"), 150)]
    #[case::evicted_by_pods_ready_timeout(Some("PodsReadyTimeout"), 150)]
    fn queue_time_after_eviction(#[case] reason: Option<&str>, #[case] expected: i64) {
        let mut workload = fixtures::workload("a").created(100);
        if let Some(reason) = reason {
            workload = workload.condition_at(150, "Evicted", true, reason, "");
        }
        assert_eq!(queue_time(&workload, true, true).as_second(), expected);
    }

    #[test]
    fn admission_without_reservation_is_no_quota() {
        let reserved = fixtures::workload("a").reserved("cq");
        assert_eq!(admitted_by(&reserved), Some("cq"));
        let given_back = reserved.condition("QuotaReserved", false, "Pending", "");
        assert!(given_back.status.as_ref().is_some_and(|status| status.admission.is_some()));
        assert_eq!(admitted_by(&given_back), None);
    }

    #[test]
    fn held_and_gated_workloads_are_not_admissible() {
        let by =
            |gates| fixtures::workload("a").annotation("kueue.x-k8s.io/admission-gated-by", gates);
        assert!(is_admissible(&fixtures::workload("a"), true));
        assert!(!is_admissible(&fixtures::workload("a").inactive(), true));
        assert!(!is_admissible(
            &fixtures::workload("a").condition("QuotaReserved", false, "OnHold", ""),
            true
        ));
        assert!(!is_admissible(&by("x.io/y"), true));
        assert!(is_admissible(&by("x.io/y"), false), "the gate is off");
        assert!(is_admissible(&by(""), true));
    }
}
