//! Changes of a Workload's status. Pure: an [`Edit`] changes a copy, and the caller writes it.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use switchyard_api::{
    conditions::{self, reasons},
    v1beta2::{
        Admission, AdmissionCheckState, CheckState, DelayedTopologyRequestState, PreemptionGate,
        PreemptionGatePosition, PreemptionGateState, RequeueState, SchedulingStats, Workload,
        WorkloadSchedulingStatsEviction, WorkloadStatus,
    },
};
use switchyard_config::Configuration;

/// Message of a `PodsReady` condition that is False.
pub(crate) const NOT_READY: &str = "Not all pods are ready or succeeded";

/// How detailed the reasons of `QuotaReserved` and `Admitted` are. Kueue's gate
/// `UnadmittedWorkloadsObservability` decides.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ReasonDetail {
    /// `WaitingForQuota`, `Misconfigured` and so on. `Admitted` is set from the beginning.
    #[default]
    Full,
    /// `Pending`, `Inadmissible` and `Waiting`. `Admitted` is missing until it first becomes True.
    Basic,
}

impl ReasonDetail {
    #[must_use]
    pub fn of(config: &Configuration) -> Self {
        if config.enabled("UnadmittedWorkloadsObservability") { Self::Full } else { Self::Basic }
    }

    /// The `QuotaReserved` reason for a detailed one.
    fn unreserved(self, reason: &str) -> &str {
        use reasons::quota_reserved::{
            ADMISSION_GATED, INADMISSIBLE, MISCONFIGURED, ON_HOLD, PENDING, SUSPENDED, WAITING,
            WAITING_FOR_PODS_READY,
        };
        match (self, reason) {
            (Self::Full, _)
            | (Self::Basic, ADMISSION_GATED | INADMISSIBLE | ON_HOLD | PENDING | WAITING) => reason,
            (Self::Basic, MISCONFIGURED | SUSPENDED) => INADMISSIBLE,
            (Self::Basic, WAITING_FOR_PODS_READY) => WAITING,
            (Self::Basic, _) => PENDING,
        }
    }

    /// The same for a reason that the engine found when it considered the workload. Without detail
    /// it is always `Pending`.
    fn considered(self, reason: &str) -> &str {
        use reasons::quota_reserved::{PENDING, WAITING_FOR_PODS_READY};
        match self {
            Self::Basic if reason != WAITING_FOR_PODS_READY => PENDING,
            Self::Full | Self::Basic => self.unreserved(reason),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Eviction {
    /// Reason of the `Evicted` condition, without the cause.
    pub reason: &'static str,
    /// Underlying cause of a deactivation; may be empty.
    pub cause: String,
    /// Message of the condition and the event.
    pub message: String,
}

/// A performed eviction, for events and metrics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Evicted {
    pub eviction: Eviction,
    /// Reason of the event.
    pub event: String,
    /// Whether it is the workload's first eviction with this reason and cause.
    pub first: bool,
}

/// A Workload's status while it is changed.
#[derive(Debug, Clone, PartialEq)]
pub struct Edit {
    /// The status to write.
    pub status: WorkloadStatus,
    generation: Option<i64>,
    reasons: ReasonDetail,
    now: Timestamp,
}

impl Edit {
    /// Starts with the workload's status. Changed conditions get the time `now`. A hub's copies
    /// always get detailed reasons, because the hub reads them.
    #[must_use]
    pub fn new(workload: &Workload, reasons: ReasonDetail, now: Timestamp) -> Self {
        let reasons = if super::is_copy(workload) { ReasonDetail::Full } else { reasons };
        Self {
            status: workload.status.clone().unwrap_or_default(),
            generation: workload.metadata.generation,
            reasons,
            now: switchyard_platform::clock::whole_seconds(now),
        }
    }

    /// Sets a condition. Returns whether it changed.
    pub fn set(
        &mut self,
        type_: &str,
        holds: bool,
        reason: &str,
        message: impl Into<String>,
    ) -> bool {
        let condition = conditions::new(type_, holds, reason, message, self.generation);
        conditions::set(&mut self.status.conditions, condition, self.now)
    }

    /// Whether reasons have no detail.
    pub(crate) fn has_basic_reasons(&self) -> bool {
        self.reasons == ReasonDetail::Basic
    }

    fn is_true(&self, type_: &str) -> bool {
        conditions::is_true(&self.status.conditions, type_)
    }

    /// Sets `PodsReady` to False, unless the condition exists.
    pub fn await_pods(&mut self) {
        if conditions::find(&self.status.conditions, conditions::PODS_READY).is_none() {
            self.set(conditions::PODS_READY, false, reasons::pods_ready::WAIT_FOR_START, NOT_READY);
        }
    }

    /// Sets `QuotaReserved` to True and resets the conditions of earlier evictions.
    pub fn reserve(&mut self, admission: Admission) {
        let reason = reasons::quota_reserved::QUOTA_RESERVED;
        let message = format!("Quota reserved in ClusterQueue {}", admission.cluster_queue);
        self.status.admission = Some(admission);
        // From now on `admission` has the same usage.
        self.status.resource_requests.clear();
        self.set(conditions::QUOTA_RESERVED, true, reason, message);
        for type_ in
            [conditions::EVICTED, conditions::PREEMPTED, conditions::BLOCKED_ON_PREEMPTION_GATES]
        {
            if let Some(previous) = conditions::find(&self.status.conditions, type_)
                .filter(|c| c.status == conditions::TRUE)
            {
                let message = format!("Previously: {}", previous.message);
                self.set(type_, false, reason, message);
            }
        }
    }

    /// Sets why the engine gave the workload no quota.
    pub fn set_unreserved_reason(&mut self, reason: &str, message: impl Into<String>) -> bool {
        self.unreserve(self.reasons.considered(reason), message)
    }

    /// Sets why the workload has no quota, and removes quota that it had. Returns whether anything
    /// changed.
    pub fn unreserve(&mut self, reason: &str, message: impl Into<String>) -> bool {
        let reason = self.reasons.unreserved(reason);
        let mut changed = self.set(conditions::QUOTA_RESERVED, false, reason, message);
        changed |= self.status.admission.take().is_some();
        changed | self.sync_admitted()
    }

    /// Derives `Admitted` from quota and checks. Returns whether it changed.
    pub fn sync_admitted(&mut self) -> bool {
        let known = |type_| conditions::find(&self.status.conditions, type_).is_some();
        if !known(conditions::QUOTA_RESERVED) && !known(conditions::ADMITTED) {
            return false;
        }
        let (holds, reason, message) = self.admitted();
        let was_admitted = self.is_true(conditions::ADMITTED);
        if self.has_basic_reasons() && holds == was_admitted {
            return false;
        }
        if was_admitted && !holds {
            self.accumulate_execution_time();
        }
        self.set(conditions::ADMITTED, holds, reason, message)
    }

    fn admitted(&self) -> (bool, &'static str, &'static str) {
        let ready =
            self.status.admission_checks.iter().all(|check| check.state == CheckState::Ready);
        let plain = self.has_basic_reasons();
        if !self.is_true(conditions::QUOTA_RESERVED) {
            if plain && !ready {
                let reason = reasons::admitted::NO_RESERVATION_UNSATISFIED_CHECKS;
                return (false, reason, "The workload has no reservation and not all checks ready");
            }
            (false, reasons::admitted::NO_RESERVATION, "The workload has no reservation")
        } else if !ready {
            use reasons::admitted::{UNSATISFIED_ADMISSION_CHECKS, UNSATISFIED_CHECKS};
            let reason = if plain { UNSATISFIED_CHECKS } else { UNSATISFIED_ADMISSION_CHECKS };
            (false, reason, "The workload has not all checks ready")
        } else if self.topology_pending() {
            let reason = reasons::admitted::PENDING_DELAYED_TOPOLOGY_REQUESTS;
            (false, reason, "There are pending delayed topology requests")
        } else {
            (true, reasons::admitted::ADMITTED, "The workload is admitted")
        }
    }

    fn topology_pending(&self) -> bool {
        self.status.admission.iter().flat_map(|admission| &admission.pod_set_assignments).any(
            |assignment| {
                assignment.topology_assignment.is_none()
                    && assignment.delayed_topology_request
                        == Some(DelayedTopologyRequestState::Pending)
            },
        )
    }

    fn accumulate_execution_time(&mut self) {
        let Some(admitted) = conditions::find(&self.status.conditions, conditions::ADMITTED) else {
            return;
        };
        let ran = self.now.duration_since(admitted.last_transition_time.0).as_secs();
        let ran = i32::try_from(ran).unwrap_or(i32::MAX).max(0);
        let past = self.status.accumulated_past_execution_time_seconds.unwrap_or(0);
        self.status.accumulated_past_execution_time_seconds = Some(past.saturating_add(ran));
    }

    /// Keeps only the states of checks that `apply`, and adds a Pending state for each that is
    /// `needed`. Returns whether anything changed.
    pub fn sync_checks(&mut self, apply: &BTreeSet<String>, needed: &BTreeSet<String>) -> bool {
        let checks = &mut self.status.admission_checks;
        let before = checks.len();
        checks.retain(|check| apply.contains(&check.name));
        let mut changed = checks.len() != before;
        for name in needed {
            if !checks.iter().any(|check| check.name == *name) {
                checks.push(pending(name, Time(self.now)));
                changed = true;
            }
        }
        if changed {
            checks.sort_by(|a, b| a.name.cmp(&b.name));
        }
        changed
    }

    /// Keeps one state for each preemption gate of the spec. New gates are closed.
    pub fn sync_preemption_gates(&mut self, gates: &[PreemptionGate]) {
        let states = &mut self.status.preemption_gates;
        states.retain(|state| gates.iter().any(|gate| gate.name == state.name));
        for gate in gates {
            if !states.iter().any(|state| state.name == gate.name) {
                let position = PreemptionGatePosition::Closed;
                let name = gate.name.clone();
                states.push(PreemptionGateState {
                    name,
                    position,
                    last_transition_time: Time(self.now),
                });
            }
        }
    }

    /// Sets `Evicted`, which tells the job reconciler to stop the job.
    pub fn evict(&mut self, eviction: Eviction) -> Evicted {
        let deactivated =
            eviction.reason == reasons::evicted::DEACTIVATED && !eviction.cause.is_empty();
        let reason = if deactivated {
            reasons::evicted::deactivated_due_to(&eviction.cause)
        } else {
            eviction.reason.to_owned()
        };
        self.set(conditions::EVICTED, true, &reason, eviction.message.clone());
        self.status.cluster_name = None;
        self.status.nominated_cluster_names.clear();
        self.reset_checks();
        self.status.unhealthy_nodes.clear();
        if self.is_true(conditions::BLOCKED_ON_PREEMPTION_GATES) {
            self.set(
                conditions::BLOCKED_ON_PREEMPTION_GATES,
                false,
                &reason,
                eviction.message.clone(),
            );
        }
        for gate in &mut self.status.preemption_gates {
            gate.position = PreemptionGatePosition::Closed;
            gate.last_transition_time = Time(self.now);
        }
        let first = self.count_eviction(&eviction);
        let mut event = reasons::events::evicted_due_to(eviction.reason);
        if deactivated {
            event = format!("{event}DueTo{}", eviction.cause);
        }
        Evicted { eviction, event, first }
    }

    /// Resets all admission checks to Pending.
    pub(crate) fn reset_checks(&mut self) {
        for check in &mut self.status.admission_checks {
            if check.state == CheckState::Pending {
                continue;
            }
            let retries = (check.state == CheckState::Retry)
                .then(|| check.retry_count.unwrap_or(0).saturating_add(1));
            *check = AdmissionCheckState {
                message: format!(
                    "Reset to Pending after eviction. Previously: {}",
                    check.state.as_str()
                ),
                requeue_after_seconds: check.requeue_after_seconds,
                retry_count: retries,
                ..pending(&check.name, Time(self.now))
            };
        }
    }

    fn count_eviction(&mut self, eviction: &Eviction) -> bool {
        let evictions = &mut self
            .status
            .scheduling_stats
            .get_or_insert_with(SchedulingStats::default)
            .evictions;
        let same = |known: &&mut WorkloadSchedulingStatsEviction| {
            known.reason == eviction.reason && known.underlying_cause == eviction.cause
        };
        if let Some(known) = evictions.iter_mut().find(same) {
            known.count = known.count.saturating_add(1);
            return known.count == 1;
        }
        let (reason, underlying_cause) = (eviction.reason.to_owned(), eviction.cause.clone());
        evictions.push(WorkloadSchedulingStatsEviction { reason, underlying_cause, count: 1 });
        true
    }

    /// Completes an eviction once the job has no pods: releases quota, and sets `Requeued`. Without
    /// an eviction or quota it does nothing. Returns whether anything changed.
    pub fn complete_eviction(&mut self) -> bool {
        if !self.is_true(conditions::QUOTA_RESERVED) || !self.is_true(conditions::EVICTED) {
            return false;
        }
        let Some(evicted) = conditions::find(&self.status.conditions, conditions::EVICTED).cloned()
        else {
            return false;
        };
        use reasons::evicted::{
            CONCURRENT_ADMISSION, FLAVOR_MIGRATION, NODE_FAILURES, PREEMPTED, REQUESTS_CHANGED,
            VARIANT_EVICTED,
        };
        // In Kueue, a variant that gave way to one on a better flavor is never requeued.
        let of_variants = [FLAVOR_MIGRATION, VARIANT_EVICTED, CONCURRENT_ADMISSION];
        let at_once = [PREEMPTED, NODE_FAILURES, REQUESTS_CHANGED]
            .iter()
            .chain(&of_variants)
            .any(|reason| *reason == evicted.reason);
        self.requeued(at_once, &evicted.reason, evicted.message.clone());
        self.unreserve(reasons::quota_reserved::PENDING_EVALUATION, evicted.message)
    }

    /// As [`Self::complete_eviction`]. It also ends `PodsReady` and the recovery timeout.
    pub fn release_quota(&mut self) -> bool {
        let released = self.complete_eviction();
        let ready = conditions::find(&self.status.conditions, conditions::PODS_READY);
        if released
            && ready.is_some_and(|ready| ready.reason != reasons::pods_ready::WAIT_FOR_START)
        {
            self.set(conditions::PODS_READY, false, reasons::pods_ready::WAIT_FOR_START, NOT_READY);
        }
        released
    }

    /// Sets `Requeued`.
    pub fn requeued(&mut self, may: bool, reason: &str, message: impl Into<String>) -> bool {
        self.set(conditions::REQUEUED, may, reason, message)
    }

    /// Requests the deactivation of the workload (`spec.active: false`).
    pub fn deactivation_target(&mut self, reason: &str, message: impl Into<String>) -> bool {
        self.set(conditions::DEACTIVATION_TARGET, true, reason, message)
    }

    /// Requests deactivation because `maximumExecutionTimeSeconds` has passed.
    pub fn execution_time_exceeded(&mut self) {
        let reason = reasons::deactivation_target::MAXIMUM_EXECUTION_TIME_EXCEEDED;
        self.deactivation_target(reason, "exceeding the maximum execution time");
        self.status.accumulated_past_execution_time_seconds = None;
    }

    /// Sets `Finished`.
    pub fn finish(&mut self, reason: &str, message: impl Into<String>) -> bool {
        self.set(conditions::FINISHED, true, reason, message)
    }

    /// Delays requeuing until `at`, unless it is delayed longer already.
    pub fn requeue_at(&mut self, at: Timestamp, count: bool) {
        let state = self.status.requeue_state.get_or_insert_with(RequeueState::default);
        if state.requeue_at.as_ref().is_none_or(|current| current.0 < at) {
            state.requeue_at = Some(Time(switchyard_platform::clock::whole_seconds(at)));
        }
        if count {
            state.count = Some(state.count.unwrap_or(0).saturating_add(1));
        }
    }

    /// The latest retry time of all checks in Retry state. `None` if no check sets one.
    #[must_use]
    pub fn retry_time(&self) -> Option<Timestamp> {
        let retries =
            self.status.admission_checks.iter().filter(|check| check.state == CheckState::Retry);
        retries
            .filter_map(|check| {
                let after = SignedDuration::from_secs(i64::from(check.requeue_after_seconds?));
                check.last_transition_time.0.checked_add(after).ok()
            })
            .max()
    }
}

fn pending(name: &str, at: Time) -> AdmissionCheckState {
    AdmissionCheckState {
        name: name.to_owned(),
        state: CheckState::Pending,
        last_transition_time: at,
        message: String::new(),
        requeue_after_seconds: None,
        retry_count: None,
        pod_set_updates: Vec::new(),
    }
}
