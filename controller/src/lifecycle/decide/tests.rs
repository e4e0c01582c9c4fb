use std::sync::Arc;

use switchyard_api::v1beta2::{CheckState, RequeueState, StopPolicy};

use super::*;
use crate::{
    fixtures::{self, WorkloadExt, at, workload},
    lifecycle::PodsReadyRules,
};

fn facts(local: StopPolicy, cluster: StopPolicy, checks: &[&str]) -> Facts {
    Facts {
        local_queue: Some(Arc::new(fixtures::local_queue(local))),
        cluster_queue_name: Some("cq".into()),
        cluster_queue: Some(Arc::new(fixtures::cluster_queue(cluster, checks))),
        cluster_queue_active: cluster == StopPolicy::None,
        dispatching_checks: Default::default(),
        owner_gone: false,
    }
}

fn open() -> Facts {
    facts(StopPolicy::None, StopPolicy::None, &[])
}

/// What is done about a workload at second 100, one line each.
fn told(subject: &Workload, facts: &Facts, rules: &Rules) -> String {
    let plan = decide(subject, facts, rules, at(100));
    let mut lines = Vec::new();
    if let Some(status) = &plan.status {
        lines.push(fixtures::conditions(status));
        for check in &status.admission_checks {
            lines.push(format!(
                "check {} {} {:?} retries {:?}",
                check.name,
                check.state.as_str(),
                check.message,
                check.retry_count
            ));
        }
        for eviction in status.scheduling_stats.iter().flat_map(|stats| &stats.evictions) {
            lines.push(format!("evicted {} {:?} x{}", eviction.reason, eviction.underlying_cause, eviction.count));
        }
        if let Some(state) = &status.requeue_state {
            let at = state.requeue_at.as_ref().map(|at| at.0.as_second());
            lines.push(format!("requeue count {:?} at {at:?}", state.count));
        }
        if status.admission.is_some() {
            lines.push("keeps its admission".into());
        }
        if let Some(seconds) = status.accumulated_past_execution_time_seconds {
            lines.push(format!("ran {seconds}s before"));
        }
    }
    for (what, done) in [("deactivate", plan.deactivate), ("release", plan.release), ("delete", plan.delete)] {
        if done {
            lines.push(what.into());
        }
    }
    for told in &plan.told {
        lines.push(match told {
            Told::Event { warning, reason, note } => {
                format!("event {} {reason}: {note}", if *warning { "Warning" } else { "Normal" })
            }
            Told::Evicted { cluster_queue, evicted } => {
                format!("event {} from {cluster_queue}, first {}", evicted.event, evicted.first)
            }
            Told::Admitted { cluster_queue, waited, reserved_for } => {
                format!("admitted by {cluster_queue} after {waited:?}, {reserved_for:?} since reservation")
            }
        });
    }
    if let Some(again) = plan.again {
        lines.push(format!("again in {again:?}"));
    }
    lines.join("\n")
}

/// Deciding again about the outcome must find nothing to do.
fn settled(subject: &Workload, facts: &Facts, rules: &Rules) {
    let plan = decide(subject, facts, rules, at(100));
    let mut next = subject.clone();
    if let Some(status) = plan.status {
        next.status = Some(status);
    }
    if !plan.deactivate && !plan.release {
        let again = decide(&next, facts, rules, at(100));
        assert_eq!(again.status, None, "a second look writes again");
    }
}

/// A sentence, the workload, what else is known, and the rules.
type Case = (&'static str, Workload, Facts, Rules);

fn table(cases: Vec<Case>) -> String {
    let mut lines = String::new();
    for (sentence, subject, facts, rules) in cases {
        settled(&subject, &facts, &rules);
        lines.push_str(&format!("# {sentence}\n"));
        for line in told(&subject, &facts, &rules).lines() {
            lines.push_str(&format!("{line}\n"));
        }
    }
    lines
}

#[test]
fn leaves_alone() {
    let cases = vec![
        ("a new workload is left to the engine", workload("a"), open(), Rules::default()),
        ("an admitted workload is left alone", workload("a").reserved("cq").admitted(), open(), Rules::default()),
        (
            "the engines reasons stay",
            workload("a").condition(
                "QuotaReserved",
                false,
                "WaitingForQuota",
                "couldn't assign flavors to pod set main: x",
            ),
            open(),
            Rules::default(),
        ),
    ];
    insta::assert_snapshot!(table(cases), @r"
    # a new workload is left to the engine
    # an admitted workload is left alone
    # the engines reasons stay
    5s QuotaReserved=False WaitingForQuota: couldn't assign flavors to pod set main: x
    100s Admitted=False NoReservation: The workload has no reservation
    ");
}

#[test]
fn queues() {
    let cases = vec![
        ("without a local queue", workload("a"), Facts::default(), Rules::default()),
        ("the local queue is stopped", workload("a"), facts(StopPolicy::Hold, StopPolicy::None, &[]), Rules::default()),
        ("the cluster queue is missing", workload("a"), Facts { cluster_queue: None, ..open() }, Rules::default()),
        (
            "the cluster queue is inactive",
            workload("a"),
            Facts { cluster_queue_active: false, ..open() },
            Rules::default(),
        ),
        (
            "the blocker is gone",
            workload("a").condition("QuotaReserved", false, "Suspended", "LocalQueue lq is inactive"),
            open(),
            Rules::default(),
        ),
        (
            "hold takes a mere reservation",
            workload("a").reserved("cq").check("ac", CheckState::Pending, ""),
            facts(StopPolicy::None, StopPolicy::Hold, &["ac"]),
            Rules::default(),
        ),
        (
            "hold leaves what is admitted",
            workload("a").reserved("cq").admitted(),
            facts(StopPolicy::Hold, StopPolicy::Hold, &[]),
            Rules::default(),
        ),
        (
            "hold and drain of the cluster queue evicts",
            workload("a").reserved("cq").admitted(),
            facts(StopPolicy::None, StopPolicy::HoldAndDrain, &[]),
            Rules::default(),
        ),
        (
            "hold and drain of the local queue evicts",
            workload("a").reserved("cq").admitted(),
            facts(StopPolicy::HoldAndDrain, StopPolicy::None, &[]),
            Rules::default(),
        ),
        (
            "a restarted cluster queue takes it back",
            workload("a").condition("Requeued", false, "ClusterQueueStopped", "The ClusterQueue is stopped"),
            open(),
            Rules::default(),
        ),
        (
            "a restarted local queue takes it back",
            workload("a").condition("Requeued", false, "LocalQueueStopped", "The LocalQueue is stopped"),
            open(),
            Rules::default(),
        ),
        (
            "a missing local queue takes a mere reservation",
            workload("a").reserved("cq").check("ac", CheckState::Pending, ""),
            Facts { local_queue: None, ..facts(StopPolicy::None, StopPolicy::None, &["ac"]) },
            Rules::default(),
        ),
    ];
    insta::assert_snapshot!(table(cases), @r#"
    # without a local queue
    100s QuotaReserved=False Misconfigured: LocalQueue lq doesn't exist
    100s Admitted=False NoReservation: The workload has no reservation
    # the local queue is stopped
    100s QuotaReserved=False Suspended: LocalQueue lq is inactive
    100s Admitted=False NoReservation: The workload has no reservation
    # the cluster queue is missing
    100s QuotaReserved=False Misconfigured: ClusterQueue cq doesn't exist
    100s Admitted=False NoReservation: The workload has no reservation
    # the cluster queue is inactive
    100s QuotaReserved=False Suspended: ClusterQueue cq is inactive
    100s Admitted=False NoReservation: The workload has no reservation
    # the blocker is gone
    5s QuotaReserved=False PendingEvaluation: Workload is pending evaluation in the scheduling queue
    100s Admitted=False NoReservation: The workload has no reservation
    # hold takes a mere reservation
    100s QuotaReserved=False Suspended: ClusterQueue cq is inactive
    100s Admitted=False NoReservation: The workload has no reservation
    check ac Pending "" retries None
    # hold leaves what is admitted
    # hold and drain of the cluster queue evicts
    10s QuotaReserved=True QuotaReserved: Quota reserved in ClusterQueue cq
    12s Admitted=True Admitted: The workload is admitted
    100s Evicted=True ClusterQueueStopped: The ClusterQueue is stopped
    evicted ClusterQueueStopped "" x1
    keeps its admission
    event EvictedDueToClusterQueueStopped from cq, first true
    # hold and drain of the local queue evicts
    10s QuotaReserved=True QuotaReserved: Quota reserved in ClusterQueue cq
    12s Admitted=True Admitted: The workload is admitted
    100s Evicted=True LocalQueueStopped: The LocalQueue is stopped
    evicted LocalQueueStopped "" x1
    keeps its admission
    event EvictedDueToLocalQueueStopped from cq, first true
    # a restarted cluster queue takes it back
    100s Requeued=True ClusterQueueRestarted: The ClusterQueue was restarted after being stopped
    # a restarted local queue takes it back
    100s Requeued=True LocalQueueRestarted: The LocalQueue was restarted after being stopped
    # a missing local queue takes a mere reservation
    100s QuotaReserved=False Misconfigured: LocalQueue lq doesn't exist
    100s Admitted=False NoReservation: The workload has no reservation
    check ac Pending "" retries None
    "#);
}

#[test]
fn deactivation() {
    let cases = vec![
        ("deactivated while pending", workload("a").inactive(), open(), Rules::default()),
        ("deactivated while running", workload("a").reserved("cq").admitted().inactive(), open(), Rules::default()),
        (
            "a deactivation target deactivates",
            workload("a").reserved("cq").admitted().condition("DeactivationTarget", true, "AdmissionCheck", "no"),
            open(),
            Rules::default(),
        ),
        (
            "deactivated for a cause",
            workload("a").reserved("cq").admitted().inactive().condition(
                "DeactivationTarget",
                true,
                "MaximumExecutionTimeExceeded",
                "exceeding the maximum execution time",
            ),
            open(),
            Rules::default(),
        ),
        (
            "reactivated",
            workload("a").condition("Evicted", true, "Deactivated", "The workload is deactivated").condition(
                "Requeued",
                false,
                "Deactivated",
                "The workload is deactivated",
            ),
            open(),
            Rules::default(),
        ),
    ];
    insta::assert_snapshot!(table(cases), @r#"
    # deactivated while pending
    100s Evicted=True Deactivated: The workload is deactivated
    100s QuotaReserved=False Deactivated: The workload is deactivated
    100s Admitted=False NoReservation: The workload has no reservation
    evicted Deactivated "" x1
    # deactivated while running
    10s QuotaReserved=True QuotaReserved: Quota reserved in ClusterQueue cq
    12s Admitted=True Admitted: The workload is admitted
    100s Evicted=True Deactivated: The workload is deactivated
    evicted Deactivated "" x1
    keeps its admission
    event EvictedDueToDeactivated from cq, first true
    # a deactivation target deactivates
    deactivate
    # deactivated for a cause
    10s QuotaReserved=True QuotaReserved: Quota reserved in ClusterQueue cq
    12s Admitted=True Admitted: The workload is admitted
    100s Evicted=True DeactivatedDueToMaximumExecutionTimeExceeded: The workload is deactivated due to exceeding the maximum execution time
    evicted Deactivated "MaximumExecutionTimeExceeded" x1
    keeps its admission
    event EvictedDueToDeactivatedDueToMaximumExecutionTimeExceeded from cq, first true
    # reactivated
    5s Evicted=True Deactivated: The workload is deactivated
    100s Requeued=True Reactivated: The workload was reactivated
    "#);
}

#[test]
fn gates() {
    let cases = vec![
        (
            "gated",
            workload("a").annotation("kueue.x-k8s.io/admission-gated-by", "example.com/wait"),
            open(),
            Rules::default(),
        ),
        (
            "the gate opens",
            workload("a").condition(
                "QuotaReserved",
                false,
                "AdmissionGated",
                "Admission is gated by: example.com/wait",
            ),
            open(),
            Rules::default(),
        ),
    ];
    insta::assert_snapshot!(table(cases), @r"
    # gated
    100s QuotaReserved=False AdmissionGated: Admission is gated by: example.com/wait
    100s Admitted=False NoReservation: The workload has no reservation
    event Normal AdmissionGated: Workload admission is gated by: example.com/wait
    # the gate opens
    5s QuotaReserved=False PendingEvaluation: AdmissionGatedBy cleared, waiting for quota reservation
    100s Admitted=False NoReservation: The workload has no reservation
    event Normal AdmissionGateCleared: Admission gate cleared, workload is now admissible
    ");
}

#[test]
fn admission_checks() {
    let cases = vec![
        (
            "checks of all flavors appear before the reservation",
            workload("a"),
            facts(StopPolicy::None, StopPolicy::None, &["b", "a"]),
            Rules::default(),
        ),
        (
            "a check that was removed from the queue goes",
            workload("a").check("old", CheckState::Pending, ""),
            open(),
            Rules::default(),
        ),
        (
            "the last check admits",
            workload("a").reserved("cq").check("ac", CheckState::Ready, "ok"),
            facts(StopPolicy::None, StopPolicy::None, &["ac"]),
            Rules::default(),
        ),
        (
            "a check wants a retry",
            workload("a").reserved("cq").check("ac", CheckState::Retry, "busy").check("b", CheckState::Ready, ""),
            facts(StopPolicy::None, StopPolicy::None, &["ac", "b"]),
            Rules::default(),
        ),
        (
            "a check wants a retry later",
            workload("a")
                .reserved("cq")
                .check("ac", CheckState::Retry, "busy")
                .status(|status| status.admission_checks[0].requeue_after_seconds = Some(300)),
            facts(StopPolicy::None, StopPolicy::None, &["ac"]),
            Rules::default(),
        ),
        (
            "a check rejects",
            workload("a").reserved("cq").check("ac", CheckState::Rejected, "never"),
            facts(StopPolicy::None, StopPolicy::None, &["ac"]),
            Rules::default(),
        ),
    ];
    insta::assert_snapshot!(table(cases), @r#"
    # checks of all flavors appear before the reservation

    check a Pending "" retries None
    check b Pending "" retries None
    # a check that was removed from the queue goes
    # the last check admits
    10s QuotaReserved=True QuotaReserved: Quota reserved in ClusterQueue cq
    100s Admitted=True Admitted: The workload is admitted
    check ac Ready "ok" retries None
    keeps its admission
    admitted by cq after 100s, 90s since reservation
    # a check wants a retry
    10s QuotaReserved=True QuotaReserved: Quota reserved in ClusterQueue cq
    100s Admitted=False UnsatisfiedAdmissionChecks: The workload has not all checks ready
    100s Evicted=True AdmissionCheck: Evicted due to AdmissionCheck in Retry state: "ac" (busy)
    check ac Pending "Reset to Pending after eviction. Previously: Retry" retries Some(1)
    check b Pending "Reset to Pending after eviction. Previously: Ready" retries None
    evicted AdmissionCheck "" x1
    keeps its admission
    event EvictedDueToAdmissionCheck from cq, first true
    # a check wants a retry later
    10s QuotaReserved=True QuotaReserved: Quota reserved in ClusterQueue cq
    100s Admitted=False UnsatisfiedAdmissionChecks: The workload has not all checks ready
    100s Evicted=True AdmissionCheck: Evicted due to AdmissionCheck in Retry state: "ac" (busy)
    check ac Pending "Reset to Pending after eviction. Previously: Retry" retries Some(1)
    evicted AdmissionCheck "" x1
    requeue count None at Some(315)
    keeps its admission
    event EvictedDueToAdmissionCheck from cq, first true
    again in 215s
    # a check rejects
    10s QuotaReserved=True QuotaReserved: Quota reserved in ClusterQueue cq
    100s Admitted=False UnsatisfiedAdmissionChecks: The workload has not all checks ready
    100s DeactivationTarget=True AdmissionCheck: AdmissionCheck in Rejected state: "ac" (never)
    check ac Rejected "never" retries None
    keeps its admission
    event Warning AdmissionCheckRejected: Deactivated due to AdmissionCheck in Rejected state: "ac" (never)
    "#);
}

fn waiting(requeue_at: i64) -> Workload {
    workload("a")
        .condition("Evicted", true, "AdmissionCheck", "busy")
        .condition("Requeued", false, "AdmissionCheck", "busy")
        .condition("QuotaReserved", false, "PendingEvaluation", "busy")
        .condition("Admitted", false, "NoReservation", "The workload has no reservation")
        .status(|status| {
            let at = k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(at(requeue_at));
            status.requeue_state = Some(RequeueState { count: Some(1), requeue_at: Some(at) });
        })
}

#[test]
fn back_off() {
    let cases = vec![
        ("the back off lasts", waiting(130), open(), Rules::default()),
        ("the back off is over", waiting(90), open(), Rules::default()),
    ];
    insta::assert_snapshot!(table(cases), @r"
    # the back off lasts
    again in 30s
    # the back off is over
    5s Evicted=True AdmissionCheck: busy
    100s Requeued=True BackoffFinished: The workload backoff was finished
    5s QuotaReserved=False PendingEvaluation: busy
    5s Admitted=False NoReservation: The workload has no reservation
    requeue count Some(1) at None
    ");
}

fn patient(limit: Option<i32>) -> Rules {
    let pods_ready = PodsReadyRules {
        timeout: Duration::from_secs(60),
        recovery_timeout: None,
        limit,
        base: Duration::from_secs(60),
        max: Duration::from_secs(3600),
    };
    Rules { keep_finished: Some(Duration::from_secs(60)), pods_ready: Some(pods_ready) }
}

#[test]
fn times() {
    let cases = vec![
        ("not ready in time", workload("a").reserved("cq").admitted(), open(), patient(None)),
        (
            "not ready too often",
            workload("a").reserved("cq").admitted().status(|status| {
                status.requeue_state = Some(RequeueState { count: Some(3), requeue_at: None });
            }),
            open(),
            patient(Some(3)),
        ),
        (
            "ready",
            workload("a").reserved("cq").admitted().condition("PodsReady", true, "Started", ""),
            open(),
            patient(None),
        ),
        (
            "admitted for too long",
            workload("a")
                .reserved("cq")
                .admitted()
                .edit(|workload| workload.spec.maximum_execution_time_seconds = Some(88)),
            open(),
            Rules::default(),
        ),
        (
            "admitted for a while",
            workload("a")
                .reserved("cq")
                .admitted()
                .edit(|workload| workload.spec.maximum_execution_time_seconds = Some(100))
                .status(|status| status.accumulated_past_execution_time_seconds = Some(5)),
            open(),
            Rules::default(),
        ),
    ];
    insta::assert_snapshot!(table(cases), @r#"
    # not ready in time
    10s QuotaReserved=True QuotaReserved: Quota reserved in ClusterQueue cq
    12s Admitted=True Admitted: The workload is admitted
    100s Evicted=True PodsReadyTimeout: Exceeded the PodsReady timeout ns/a
    evicted PodsReadyTimeout "WaitForStart" x1
    requeue count Some(1) at Some(160)
    keeps its admission
    event EvictedDueToPodsReadyTimeout from cq, first true
    # not ready too often
    10s QuotaReserved=True QuotaReserved: Quota reserved in ClusterQueue cq
    12s Admitted=True Admitted: The workload is admitted
    100s DeactivationTarget=True RequeuingLimitExceeded: exceeding the maximum number of re-queuing retries
    requeue count Some(3) at None
    keeps its admission
    # ready
    # admitted for too long
    10s QuotaReserved=True QuotaReserved: Quota reserved in ClusterQueue cq
    12s Admitted=True Admitted: The workload is admitted
    100s DeactivationTarget=True MaximumExecutionTimeExceeded: exceeding the maximum execution time
    keeps its admission
    event Warning MaximumExecutionTimeExceeded: The maximum execution time (88s) exceeded
    # admitted for a while
    again in 7s
    "#);
}

#[test]
fn the_end() {
    let cases = vec![
        (
            "finished workloads are kept for a while",
            workload("a").condition_at(80, "Finished", true, "Succeeded", "done"),
            open(),
            patient(None),
        ),
        (
            "finished workloads are deleted in the end",
            workload("a").condition_at(30, "Finished", true, "Succeeded", "done"),
            open(),
            patient(None),
        ),
        (
            "deleted without an owner",
            workload("a").deleting().edit(|workload| workload.metadata.owner_references = None),
            open(),
            Rules::default(),
        ),
        (
            "deleted with an owner is the job reconcilers",
            workload("a").reserved("cq").admitted().deleting(),
            open(),
            Rules::default(),
        ),
        (
            "deleted after its owner",
            workload("a").reserved("cq").admitted().deleting(),
            Facts { owner_gone: true, ..open() },
            Rules::default(),
        ),
        (
            "its owner let it go",
            workload("a").reserved("cq").admitted().edit(|workload| {
                workload.metadata.owner_references = None;
                workload.metadata.labels = Some([("kueue.x-k8s.io/job-uid".to_owned(), "job-a".to_owned())].into());
            }),
            open(),
            Rules::default(),
        ),
    ];
    insta::assert_snapshot!(table(cases), @r"
    # finished workloads are kept for a while
    again in 40s
    # finished workloads are deleted in the end
    release
    delete
    event Normal Deleted: Deleted finished workload due to elapsed retention
    # deleted without an owner
    release
    # deleted with an owner is the job reconcilers
    # deleted after its owner
    release
    # its owner let it go
    10s QuotaReserved=True QuotaReserved: Quota reserved in ClusterQueue cq
    12s Admitted=True Admitted: The workload is admitted
    100s Finished=True OwnerNotFound: The workload's owner no longer exists
    keeps its admission
    release
    ");
}

#[test]
fn a_check_that_we_dispatch_by_is_written_with_the_reservation() {
    let mut facts = facts(StopPolicy::None, StopPolicy::None, &["mk"]);
    facts.dispatching_checks.insert("mk".into());
    assert_eq!(decide(&workload("a"), &facts, &Rules::default(), at(100)), Plan::default());
    let evicted = workload("a").check("mk", CheckState::Pending, "");
    assert_eq!(decide(&evicted, &facts, &Rules::default(), at(100)), Plan::default(), "one that is there stays");
}

#[test]
fn an_eviction_ends_when_the_job_has_no_pods() {
    let mut evicted = workload("a").reserved("cq").admitted();
    let stopped = decide(&evicted, &facts(StopPolicy::None, StopPolicy::HoldAndDrain, &[]), &Rules::default(), at(100));
    evicted.status = stopped.status;
    let mut edit = Edit::new(&evicted, at(110));
    assert!(edit.complete_eviction());
    insta::assert_snapshot!(fixtures::rendered(&edit.status), @r#"
    110s QuotaReserved=False PendingEvaluation: The ClusterQueue is stopped
    110s Admitted=False NoReservation: The workload has no reservation
    100s Evicted=True ClusterQueueStopped: The ClusterQueue is stopped
    110s Requeued=False ClusterQueueStopped: The ClusterQueue is stopped
    {
      "accumulatedPastExecutionTimeSeconds": 98,
      "schedulingStats": {
        "evictions": [
          {
            "reason": "ClusterQueueStopped",
            "underlyingCause": "",
            "count": 1
          }
        ]
      }
    }
    "#);
    evicted.status = Some(edit.status);
    assert!(!Edit::new(&evicted, at(120)).complete_eviction());
}

mod laws {
    use proptest::prelude::*;

    use super::*;

    fn subjects() -> impl Strategy<Value = Workload> {
        let condition = (0_usize..9, any::<bool>(), 0_usize..8, 0_i64..200);
        let check = (0_usize..3, 0_usize..4);
        (
            proptest::collection::vec(condition, 0..7),
            proptest::collection::vec(check, 0..3),
            any::<bool>(),
            any::<bool>(),
        )
            .prop_map(|(conditions, checks, active, admission)| {
                const TYPES: [&str; 9] = [
                    "QuotaReserved",
                    "Admitted",
                    "Evicted",
                    "Requeued",
                    "Preempted",
                    "PodsReady",
                    "DeactivationTarget",
                    "Finished",
                    "BlockedOnPreemptionGates",
                ];
                const REASONS: [&str; 8] = [
                    "QuotaReserved",
                    "Deactivated",
                    "AdmissionCheck",
                    "ClusterQueueStopped",
                    "WaitForRecovery",
                    "AdmissionGated",
                    "Misconfigured",
                    "OnHold",
                ];
                const STATES: [CheckState; 4] =
                    [CheckState::Pending, CheckState::Ready, CheckState::Retry, CheckState::Rejected];
                let mut subject = workload("a");
                if admission {
                    subject = subject.reserved("cq");
                }
                for (type_, holds, reason, second) in conditions {
                    subject = subject.condition_at(second, TYPES[type_], holds, REASONS[reason], "why");
                }
                for (name, state) in checks {
                    let name = ["a", "b", "c"][name];
                    let known = subject.status.iter().flat_map(|s| &s.admission_checks).any(|check| check.name == name);
                    if !known {
                        subject = subject.check(name, STATES[state], "said");
                    }
                }
                if active { subject } else { subject.inactive() }
            })
    }

    proptest! {
        /// However a workload looks, a few looks bring it to rest: no loop of writes.
        #[test]
        fn every_workload_comes_to_rest(subject in subjects(), drain in any::<bool>(), checks in any::<bool>()) {
            let policy = if drain { StopPolicy::HoldAndDrain } else { StopPolicy::None };
            let facts = facts(StopPolicy::None, policy, if checks { &["a", "b"] } else { &[] });
            let rules = Rules::default();
            let mut subject = subject;
            for look in 0.. {
                prop_assert!(look < 8, "still writing after 8 looks: {:?}", subject.status);
                let plan = decide(&subject, &facts, &rules, at(300));
                if plan.status.is_none() && !plan.deactivate {
                    break;
                }
                if let Some(status) = plan.status {
                    subject.status = Some(status);
                }
                if plan.deactivate {
                    subject.spec.active = Some(false);
                }
            }
        }

        /// Admission is there exactly as long as quota is reserved.
        #[test]
        fn admission_and_reservation_go_together(subject in subjects()) {
            let consistent = workload::has_reservation(&subject) == workload::admitted_by(&subject).is_some();
            let plan = decide(&subject, &facts(StopPolicy::None, StopPolicy::Hold, &[]), &Rules::default(), at(300));
            if let (true, Some(status)) = (consistent, plan.status) {
                let next = Workload { status: Some(status), ..subject };
                prop_assert_eq!(workload::has_reservation(&next), workload::admitted_by(&next).is_some());
            }
        }
    }
}
