//! Decisions without Kueue's `UnadmittedWorkloadsObservability`.

use super::*;

fn plain() -> Rules {
    Rules { reasons: ReasonDetail::Basic, ..Rules::default() }
}

#[test]
fn reasons_have_no_detail() {
    let waits = || {
        workload("a").condition(
            "QuotaReserved",
            false,
            "Pending",
            "couldn't assign flavors to pod set main: x",
        )
    };
    let inadmissible =
        |message| workload("a").condition("QuotaReserved", false, "Inadmissible", message);
    let cases = vec![
        ("a new workload is left to the engine", workload("a"), open(), plain()),
        ("the engine's words stay", waits(), open(), plain()),
        ("without a local queue", workload("a"), WorkloadInputs::default(), plain()),
        (
            "the cluster queue is inactive",
            waits(),
            WorkloadInputs { cluster_queue_active: false, ..open() },
            plain(),
        ),
        ("the blocker is gone", inadmissible("LocalQueue lq is inactive"), open(), plain()),
        ("deactivated while it waits", waits().inactive(), open(), plain()),
        (
            "active again",
            workload("a").condition(
                "QuotaReserved",
                false,
                "Pending",
                "The workload is deactivated",
            ),
            open(),
            plain(),
        ),
        (
            "a check is waited for",
            workload("a").reserved("cq").check("ac", CheckState::Pending, ""),
            inputs(StopPolicy::None, StopPolicy::None, &["ac"]),
            plain(),
        ),
        (
            "hold takes a mere reservation",
            workload("a").reserved("cq").check("ac", CheckState::Pending, ""),
            inputs(StopPolicy::None, StopPolicy::Hold, &["ac"]),
            plain(),
        ),
    ];
    insta::assert_snapshot!(table(cases), @r#"
    # a new workload is left to the engine
    # the engine's words stay
    # without a local queue
    100s QuotaReserved=False Inadmissible: LocalQueue lq doesn't exist
    # the cluster queue is inactive
    5s QuotaReserved=False Inadmissible: ClusterQueue cq is inactive
    # the blocker is gone
    5s QuotaReserved=False Pending: Workload is pending evaluation in the scheduling queue
    # deactivated while it waits
    5s QuotaReserved=False Pending: couldn't assign flavors to pod set main: x
    100s Evicted=True Deactivated: The workload is deactivated
    evicted Deactivated "" x1
    # active again
    5s QuotaReserved=False Pending: Workload is pending evaluation in the scheduling queue
    # a check is waited for
    # hold takes a mere reservation
    100s QuotaReserved=False Inadmissible: ClusterQueue cq is inactive
    check ac Pending "" retries None
    "#);
}

#[test]
fn completed_eviction_has_plain_reason() {
    let evicted = |workload: Workload| {
        workload.condition_at(100, "Evicted", true, "AdmissionCheck", "At least one")
    };
    let ended = |workload: Workload| {
        let mut edit = Edit::new(&workload, ReasonDetail::Basic, at(110));
        assert!(edit.complete_eviction());
        fixtures::conditions(&edit.status)
    };
    insta::assert_snapshot!(ended(evicted(workload("a").reserved("cq").admitted())), @r"
    110s QuotaReserved=False Pending: At least one
    110s Admitted=False NoReservation: The workload has no reservation
    100s Evicted=True AdmissionCheck: At least one
    110s Requeued=False AdmissionCheck: At least one
    ");
    let checked = workload("a").reserved("cq").admitted().check("ac", CheckState::Pending, "");
    insta::assert_snapshot!(ended(evicted(checked)), @r"
    110s QuotaReserved=False Pending: At least one
    110s Admitted=False NoReservationUnsatisfiedChecks: The workload has no reservation and not all checks ready
    100s Evicted=True AdmissionCheck: At least one
    110s Requeued=False AdmissionCheck: At least one
    ");
    insta::assert_snapshot!(ended(evicted(workload("a").reserved("cq"))), @r"
    110s QuotaReserved=False Pending: At least one
    100s Evicted=True AdmissionCheck: At least one
    110s Requeued=False AdmissionCheck: At least one
    ");
}

#[test]
fn hubs_copy_has_detailed_reasons() {
    let copy = workload("a").edit(|workload| {
        workload.metadata.annotations =
            Some([(names::WORKLOAD_UID.to_owned(), "hub-a".to_owned())].into());
    });
    let cases = vec![("without a local queue", copy, WorkloadInputs::default(), plain())];
    insta::assert_snapshot!(table(cases), @r"
    # without a local queue
    100s QuotaReserved=False Misconfigured: LocalQueue lq doesn't exist
    100s Admitted=False NoReservation: The workload has no reservation
    ");
}
