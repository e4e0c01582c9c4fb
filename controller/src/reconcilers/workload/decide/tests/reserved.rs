//! Admission checks, and evictions.

use super::*;

#[test]
fn admission_checks_admit_retry_or_reject() {
    let cases =
        vec![
            (
                "checks of all flavors appear before the reservation",
                workload("a"),
                inputs(StopPolicy::None, StopPolicy::None, &["b", "a"]),
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
                inputs(StopPolicy::None, StopPolicy::None, &["ac"]),
                Rules::default(),
            ),
            (
                "a check wants a retry",
                workload("a").reserved("cq").check("ac", CheckState::Retry, "busy").check(
                    "b",
                    CheckState::Ready,
                    "",
                ),
                inputs(StopPolicy::None, StopPolicy::None, &["ac", "b"]),
                Rules::default(),
            ),
            (
                "a check wants a retry later",
                workload("a")
                    .reserved("cq")
                    .check("ac", CheckState::Retry, "busy")
                    .status(|status| status.admission_checks[0].requeue_after_seconds = Some(300)),
                inputs(StopPolicy::None, StopPolicy::None, &["ac"]),
                Rules::default(),
            ),
            (
                "a check rejects",
                workload("a").reserved("cq").check("ac", CheckState::Rejected, "never"),
                inputs(StopPolicy::None, StopPolicy::None, &["ac"]),
                Rules::default(),
            ),
            (
                "a check rejects it while it is being evicted",
                workload("a")
                    .reserved("cq")
                    .condition_at(20, conditions::EVICTED, true, "Preempted", "gone")
                    .check("ac", CheckState::Rejected, "never"),
                inputs(StopPolicy::None, StopPolicy::None, &["ac"]),
                Rules::default(),
            ),
            (
                "a check rejects it after it was evicted",
                workload("a")
                    .condition_at(20, conditions::EVICTED, true, "Preempted", "gone")
                    .check("ac", CheckState::Rejected, "never"),
                inputs(StopPolicy::None, StopPolicy::None, &["ac"]),
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
    # a check rejects it while it is being evicted
    10s QuotaReserved=True QuotaReserved: Quota reserved in ClusterQueue cq
    20s Evicted=True Preempted: gone
    100s Admitted=False UnsatisfiedAdmissionChecks: The workload has not all checks ready
    100s DeactivationTarget=True AdmissionCheck: AdmissionCheck in Rejected state: "ac" (never)
    check ac Rejected "never" retries None
    keeps its admission
    event Warning AdmissionCheckRejected: Deactivated due to AdmissionCheck in Rejected state: "ac" (never)
    # a check rejects it after it was evicted
    20s Evicted=True Preempted: gone
    100s DeactivationTarget=True AdmissionCheck: AdmissionCheck in Rejected state: "ac" (never)
    check ac Rejected "never" retries None
    event Warning AdmissionCheckRejected: Deactivated due to AdmissionCheck in Rejected state: "ac" (never)
    "#);
}

/// A check for one flavor applies to the workloads with that flavor.
#[test]
fn check_of_one_flavor_applies_to_its_workloads() {
    let with_quota = |flavor: &str| {
        let flavors = [("cpu".to_owned(), flavor.to_owned())].into();
        workload("a").reserved("cq").status(|status| {
            status.admission.as_mut().unwrap().pod_set_assignments[0].flavors = flavors;
        })
    };
    let states = |subject: Workload, on: &[&str]| {
        let mut inputs = inputs(StopPolicy::None, StopPolicy::None, &["every", "some"]);
        let mut queue = fixtures::cluster_queue(StopPolicy::None, &["every", "some"]);
        queue.spec.admission_checks_strategy.as_mut().unwrap().admission_checks[1].on_flavors =
            on.iter().map(|flavor| (*flavor).to_owned()).collect();
        inputs.cluster_queue = Some(Arc::new(queue));
        let status = decide(&subject, &inputs, &Rules::default(), at(100)).status.unwrap();
        status.admission_checks.into_iter().map(|check| check.name).collect::<Vec<_>>().join(" ")
    };
    for (sentence, subject, on, expected) in [
        ("before the flavor is known", workload("a"), ["gpu"].as_slice(), "every"),
        (
            "for each of the queue's flavors, before one is known",
            workload("a"),
            &["default", "gpu"],
            "every some",
        ),
        ("with the flavor", with_quota("gpu"), &["gpu"], "every some"),
        ("with another flavor", with_quota("default"), &["gpu"], "every"),
        (
            "moved to another flavor",
            with_quota("default").check("some", CheckState::Ready, ""),
            &["gpu"],
            "every",
        ),
    ] {
        assert_eq!(states(subject, on), expected, "{sentence}");
    }
}

#[test]
fn timeouts_evict_or_deactivate() {
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
    100s PodsReady=False WaitForStart: Not all pods are ready or succeeded
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

/// `waitForPodsReady` of a hub.
#[test]
fn dispatched_workload_is_evicted_when_its_pods_are_not_ready() {
    let sent = || {
        workload("a").reserved("cq").admitted().status(|status| {
            status.cluster_name = Some("west".into());
            status.dispatch = Some(DispatchStatus { attempt: 2, ..DispatchStatus::default() });
        })
    };
    let on = |readiness| WorkloadInputs { readiness, ..open() };
    let plan = decide(&sent(), &on(Readiness::Shown), &patient(None), at(100));
    let status = plan.status.unwrap();
    assert_eq!(status.cluster_name, None);
    let past: Vec<_> = status.dispatch.iter().flat_map(|dispatch| &dispatch.history).collect();
    assert_eq!(past.len(), 1);
    let PastAttempt { attempt, cluster_name, reason, .. } = past[0];
    assert_eq!((*attempt, &**cluster_name, &**reason), (2, "west", "PodsReadyTimeout"));
    assert_eq!(status.requeue_state.and_then(|state| state.count), Some(1));

    let left = Duration::from_secs(7);
    let stale = decide(&sent(), &on(Readiness::Stale(left)), &patient(None), at(100));
    assert_eq!((stale.status, stale.again), (None, Some(left)));
    let unknown = decide(&sent(), &on(Readiness::Unknown), &patient(None), at(100));
    assert_eq!((unknown.status, unknown.again), (None, None));
    let ready = sent().condition("PodsReady", true, "Started", "");
    assert_eq!(
        decide(&ready, &on(Readiness::Shown), &patient(None), at(100)),
        WorkloadPlan::default()
    );
}

#[test]
fn dispatching_check_is_written_with_the_reservation() {
    let mut inputs = inputs(StopPolicy::None, StopPolicy::None, &["mk"]);
    inputs.dispatching_checks.insert("mk".into());
    assert_eq!(
        decide(&workload("a"), &inputs, &Rules::default(), at(100)),
        WorkloadPlan::default()
    );
    let evicted = workload("a").check("mk", CheckState::Pending, "");
    assert_eq!(
        decide(&evicted, &inputs, &Rules::default(), at(100)),
        WorkloadPlan::default(),
        "one that is there stays"
    );
}

#[test]
fn eviction_ends_when_the_job_has_no_pods() {
    let mut evicted = workload("a").reserved("cq").admitted();
    let stopped = decide(
        &evicted,
        &inputs(StopPolicy::None, StopPolicy::HoldAndDrain, &[]),
        &Rules::default(),
        at(100),
    );
    evicted.status = stopped.status;
    let mut edit = Edit::new(&evicted, ReasonDetail::Full, at(110));
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
    assert!(!Edit::new(&evicted, ReasonDetail::Full, at(120)).complete_eviction());
}
