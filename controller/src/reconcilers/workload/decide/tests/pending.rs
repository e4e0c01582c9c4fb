//! Inactive queues, deactivation, gates and backoff.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use switchyard_api::v1beta2::{PreemptionGate, PreemptionGatePosition, PreemptionGateState};

use super::*;

#[test]
fn unaffected_workload_is_unchanged() {
    let cases = vec![
        ("a new workload is left to the engine", workload("a"), open(), Rules::default()),
        (
            "an admitted workload is left alone",
            workload("a").reserved("cq").admitted(),
            open(),
            Rules::default(),
        ),
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
fn missing_queue_of_a_new_workload_is_reported_later() {
    let created = |second: i64| {
        workload("a").edit(|workload| workload.metadata.creation_timestamp = Some(Time(at(second))))
    };
    let missing = WorkloadInputs::default;
    let rules = Rules::default;
    let cases = vec![
        ("its queue may follow", created(99), missing(), rules()),
        ("its queue does not follow", created(98), missing(), rules()),
        (
            "its cluster queue may become active",
            created(99),
            WorkloadInputs { cluster_queue_active: false, ..open() },
            rules(),
        ),
        (
            "a stopped queue is reported at once",
            created(100),
            inputs(StopPolicy::None, StopPolicy::Hold, &[]),
            rules(),
        ),
        (
            "a queue that was there is reported at once",
            created(99).condition("QuotaReserved", false, "Pending", "x"),
            missing(),
            rules(),
        ),
    ];
    insta::assert_snapshot!(table(cases), @r"
    # its queue may follow
    again in 1s
    # its queue does not follow
    100s QuotaReserved=False Misconfigured: LocalQueue lq doesn't exist
    100s Admitted=False NoReservation: The workload has no reservation
    # its cluster queue may become active
    again in 1s
    # a stopped queue is reported at once
    100s QuotaReserved=False Suspended: ClusterQueue cq is inactive
    100s Admitted=False NoReservation: The workload has no reservation
    # a queue that was there is reported at once
    5s QuotaReserved=False Misconfigured: LocalQueue lq doesn't exist
    100s Admitted=False NoReservation: The workload has no reservation
    ");
}

#[test]
fn inactive_queue_blocks_the_workload() {
    let cases = vec![
        ("without a local queue", workload("a"), WorkloadInputs::default(), Rules::default()),
        (
            "the local queue is stopped",
            workload("a"),
            inputs(StopPolicy::Hold, StopPolicy::None, &[]),
            Rules::default(),
        ),
        (
            "the cluster queue is missing",
            workload("a"),
            WorkloadInputs { cluster_queue: None, ..open() },
            Rules::default(),
        ),
        (
            "the cluster queue is inactive",
            workload("a"),
            WorkloadInputs { cluster_queue_active: false, ..open() },
            Rules::default(),
        ),
        (
            "the blocker is gone",
            workload("a").condition(
                "QuotaReserved",
                false,
                "Suspended",
                "LocalQueue lq is inactive",
            ),
            open(),
            Rules::default(),
        ),
        (
            "hold takes a mere reservation",
            workload("a").reserved("cq").check("ac", CheckState::Pending, ""),
            inputs(StopPolicy::None, StopPolicy::Hold, &["ac"]),
            Rules::default(),
        ),
        (
            "hold leaves what is admitted",
            workload("a").reserved("cq").admitted(),
            inputs(StopPolicy::Hold, StopPolicy::Hold, &[]),
            Rules::default(),
        ),
        (
            "hold and drain of the cluster queue evicts",
            workload("a").reserved("cq").admitted(),
            inputs(StopPolicy::None, StopPolicy::HoldAndDrain, &[]),
            Rules::default(),
        ),
        (
            "hold and drain of the local queue evicts",
            workload("a").reserved("cq").admitted(),
            inputs(StopPolicy::HoldAndDrain, StopPolicy::None, &[]),
            Rules::default(),
        ),
        (
            "a restarted cluster queue takes it back",
            workload("a").condition(
                "Requeued",
                false,
                "ClusterQueueStopped",
                "The ClusterQueue is stopped",
            ),
            open(),
            Rules::default(),
        ),
        (
            "a restarted local queue takes it back",
            workload("a").condition(
                "Requeued",
                false,
                "LocalQueueStopped",
                "The LocalQueue is stopped",
            ),
            open(),
            Rules::default(),
        ),
        (
            "a missing local queue takes a mere reservation",
            workload("a").reserved("cq").check("ac", CheckState::Pending, ""),
            WorkloadInputs {
                local_queue: None,
                ..inputs(StopPolicy::None, StopPolicy::None, &["ac"])
            },
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

/// With Kueue's `MultiKueueOrchestratedPreemption`. Without the gate the status stays as it is.
#[test]
fn preemption_gates_are_listed_as_closed() {
    let subject = |gates: &[&str], known: &[(&str, PreemptionGatePosition)]| {
        let known = known.iter().map(|(name, position)| PreemptionGateState {
            name: (*name).to_owned(),
            position: *position,
            last_transition_time: Time(at(1)),
        });
        let gates = gates.iter().map(|name| PreemptionGate { name: (*name).to_owned() }).collect();
        workload("a")
            .edit(|workload| workload.spec.preemption_gates = gates)
            .status(|status| status.preemption_gates = known.collect())
    };
    let rules = Rules { lists_preemption_gates: true, ..Rules::default() };
    for (sentence, subject, rules, expected) in [
        ("new ones", subject(&["a", "b"], &[]), &rules, Some("a Closed 100, b Closed 100")),
        ("one that is open", subject(&["a"], &[("a", PreemptionGatePosition::Open)]), &rules, None),
        (
            "one more, one fewer",
            subject(&["b"], &[("a", PreemptionGatePosition::Open)]),
            &rules,
            Some("b Closed 100"),
        ),
        ("where they do not hold", subject(&["a"], &[]), &Rules::default(), None),
    ] {
        settled(&subject, &open(), rules);
        let states = decide(&subject, &open(), rules, at(100)).status.map(|status| {
            let states = status.preemption_gates.iter();
            let said = |it: &PreemptionGateState| {
                format!("{} {:?} {}", it.name, it.position, it.last_transition_time.0.as_second())
            };
            states.map(said).collect::<Vec<_>>().join(", ")
        });
        assert_eq!(states.as_deref(), expected, "{sentence}");
    }
}

#[test]
fn deactivated_workload_is_blocked() {
    let cases = vec![
        ("deactivated while pending", workload("a").inactive(), open(), Rules::default()),
        (
            "deactivated while running",
            workload("a").reserved("cq").admitted().inactive(),
            open(),
            Rules::default(),
        ),
        (
            "a deactivation target deactivates",
            workload("a").reserved("cq").admitted().condition(
                "DeactivationTarget",
                true,
                "AdmissionCheck",
                "no",
            ),
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
            workload("a")
                .condition("Evicted", true, "Deactivated", "The workload is deactivated")
                .condition("Requeued", false, "Deactivated", "The workload is deactivated"),
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
fn gates_are_ignored_without_the_feature_gate() {
    let gated = workload("a").annotation(names::ADMISSION_GATED_BY, "x.io/y");
    let off = Rules { ignores_admission_gates: true, ..Rules::default() };
    assert!(outcome(&gated, &open(), &Rules::default()).contains("AdmissionGated"));
    assert_eq!(outcome(&gated, &open(), &off), outcome(&workload("a"), &open(), &off));
    let known =
        gated.condition("QuotaReserved", false, "AdmissionGated", "Admission is gated by: x.io/y");
    assert!(outcome(&known, &open(), &off).contains("AdmissionGateCleared"));
}

#[test]
fn new_workload_gets_conditions_with_explicit_status() {
    let explicit = Rules { explicit: true, ..Rules::default() };
    insta::assert_snapshot!(outcome(&workload("a"), &open(), &explicit), @r"
    100s QuotaReserved=False PendingEvaluation: Workload is pending evaluation in the scheduling queue
    100s Admitted=False NoReservation: The workload has no reservation
    ");
    let stopped = inputs(StopPolicy::Hold, StopPolicy::None, &[]);
    assert!(
        outcome(&workload("a"), &stopped, &explicit).contains("QuotaReserved=False Suspended"),
        "what is wrong goes first"
    );
}

#[test]
fn gated_workload_is_blocked() {
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
        (
            "another gate holds it now",
            workload("a")
                .annotation("kueue.x-k8s.io/admission-gated-by", "example.com/other")
                .condition(
                    "QuotaReserved",
                    false,
                    "AdmissionGated",
                    "Admission is gated by: example.com/wait",
                )
                .condition("Admitted", false, "NoReservation", "The workload has no reservation"),
            open(),
            Rules::default(),
        ),
        (
            "what is wrong with the queue is outcome before the gate",
            workload("a").annotation("kueue.x-k8s.io/admission-gated-by", "example.com/wait"),
            inputs(StopPolicy::Hold, StopPolicy::None, &[]),
            Rules::default(),
        ),
        (
            "a closed preemption gate is the engines",
            workload("a")
                .condition(
                    "QuotaReserved",
                    false,
                    "AdmissionGated",
                    "Workload requires preemption, but it's gated",
                )
                .condition("Admitted", false, "NoReservation", "The workload has no reservation"),
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
    # another gate holds it now
    5s QuotaReserved=False AdmissionGated: Admission is gated by: example.com/other
    5s Admitted=False NoReservation: The workload has no reservation
    # what is wrong with the queue is outcome before the gate
    100s QuotaReserved=False Suspended: LocalQueue lq is inactive
    100s Admitted=False NoReservation: The workload has no reservation
    # a closed preemption gate is the engines
    ");
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
fn requeuing_waits_for_the_backoff() {
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

/// Once it is activated and queued again, the old cause does not deactivate it.
#[test]
fn deactivated_during_eviction_resets_its_cause() {
    let evicted = workload("a")
        .reserved("cq")
        .condition("Evicted", true, "Preempted", "for another")
        .condition("DeactivationTarget", true, "AdmissionCheck", "no")
        .check("ac", CheckState::Rejected, "never");
    let inputs = inputs(StopPolicy::None, StopPolicy::None, &["ac"]);
    let plan = decide(&evicted.clone().inactive(), &inputs, &Rules::default(), at(100));
    let status = plan.status.unwrap();
    assert!(conditions::find(&status.conditions, "DeactivationTarget").is_none());
    assert_eq!(status.admission_checks[0].state, CheckState::Pending);
    let again = evicted.status(|it| *it = status);
    assert!(!decide(&again, &inputs, &Rules::default(), at(101)).deactivate);
}

#[test]
fn explanation_is_told_from_a_change_that_matters() {
    let only_explains = |subject: &Workload, inputs: WorkloadInputs| {
        decide(subject, &inputs, &Rules::default(), at(100)).only_explains(subject)
    };
    let waits = || workload("a").condition("QuotaReserved", false, "Pending", "x");
    let gone = || WorkloadInputs { cluster_queue_active: false, ..open() };
    assert!(only_explains(&waits(), gone()), "its queue is inactive");
    let copy = waits().annotation(names::WORKLOAD_UID, "u");
    assert!(!only_explains(&copy, gone()), "its hub reads it");
    let backed_off = waits().condition("Requeued", false, "AdmissionCheck", "x");
    assert!(!only_explains(&backed_off, gone()), "its backoff has ended too");
    let quota = workload("a").reserved("cq").check("ac", CheckState::Pending, "");
    assert!(!only_explains(&quota, gone()), "it has quota");
    assert!(!only_explains(&waits().inactive(), open()), "it is deactivated");
}
