use serde_json::{Value, json};

use super::*;

const START: &str = "2026-11-21T10:00:00Z";

fn local() -> TestJob {
    job().with(json!({"spec": {"managedBy": "kueue.x-k8s.io/multikueue"}}))
}

fn remote(status: Value) -> TestJob {
    job()
        .running()
        .status(json!({"startTime": START}))
        .status(status)
        .condition("Suspended", "False")
}

/// Applies the mirrored status and checks the API server's rules for status updates.
fn mirrored(local: TestJob, remote: TestJob) -> Option<Value> {
    let (local, remote) = (local.build(), remote.build());
    let status = merged_status(&local, &remote)?;
    let new = TestJob(local.clone())
        .with(json!({"status": null}))
        .with(json!({ "status": status }))
        .build();
    let is = |job: &Value, type_: &str| super::super::status::is_true(job, type_);
    let count = |job: &Value, field: &str| job["status"][field].as_i64().unwrap_or(0);
    let finished = is(&new, "Complete") || is(&new, "Failed");
    assert!(
        count(&new, "failed") >= count(&local, "failed")
            && count(&new, "succeeded") >= count(&local, "succeeded")
    );
    assert!(count(&new, "ready") <= count(&new, "active"));
    assert!(!is(&new, "Complete") || is(&new, "SuccessCriteriaMet"));
    assert!(!is(&new, "Failed") || is(&new, "FailureTarget"));
    assert_eq!(is(&new, "Complete"), new["status"]["completionTime"].is_string());
    if finished {
        assert!(new["status"]["startTime"].is_string());
        assert_eq!(count(&new, "active") + count(&new, "terminating"), 0);
    }
    assert!(new["status"]["uncountedTerminatedPods"].is_null());
    Some(status)
}

#[test]
fn running_copy_is_mirrored() {
    let status =
        json!({"active": 2, "ready": 1, "uncountedTerminatedPods": {"succeeded": ["remote-pod"]}});
    let got = mirrored(local(), remote(status)).unwrap();
    assert_eq!(
        (got["active"].clone(), got["ready"].clone(), got["startTime"].clone()),
        (json!(2), json!(1), json!(START))
    );
}

#[test]
fn nothing_is_written_when_it_shows_already() {
    let copy = remote(json!({"active": 1}));
    let shown = mirrored(local(), remote(json!({"active": 1}))).unwrap();
    assert_eq!(mirrored(local().status(shown), copy), None);
}

#[test]
fn suspended_copy_leaves_the_hubs_job_editable() {
    let waiting = job().status(json!({"startTime": START})).condition("Suspended", "True");
    let got = mirrored(local(), waiting).unwrap();
    assert!(got.get("startTime").is_none());
}

#[test]
fn counters_of_an_earlier_attempt_do_not_shrink() {
    let before = local().status(json!({"failed": 3, "succeeded": 2}));
    let got = mirrored(before, remote(json!({"failed": 1, "succeeded": 4}))).unwrap();
    assert_eq!((got["failed"].clone(), got["succeeded"].clone()), (json!(3), json!(4)));
}

#[test]
fn conditions_that_cannot_be_taken_back_wait_for_the_end() {
    let failing = remote(json!({"active": 1})).condition("FailureTarget", "True");
    let got = mirrored(local(), failing).unwrap();
    assert_eq!(got["conditions"].as_array().unwrap().len(), 1, "only Suspended=False");
    let failed =
        remote(json!({"failed": 1})).condition("FailureTarget", "True").condition("Failed", "True");
    let got = mirrored(local(), failed).unwrap();
    assert_eq!(got["conditions"].as_array().unwrap().len(), 3);
}

#[test]
fn ready_is_never_more_than_active() {
    let got = mirrored(local(), remote(json!({"active": 1, "ready": 2}))).unwrap();
    assert_eq!(got["ready"], json!(1));
}

#[test]
fn finished_status_of_an_older_worker_is_completed() {
    let done = remote(
        json!({"succeeded": 1, "active": 1, "ready": 1, "terminating": 1, "startTime": null}),
    )
    .condition("Complete", "True");
    let got = mirrored(local(), done).unwrap();
    assert_eq!(got["completionTime"], json!("2026-11-21T10:05:00Z"));
    let failed = remote(json!({"failed": 1, "completionTime": START})).condition("Failed", "True");
    assert!(mirrored(local(), failed).is_some());
}

#[test]
fn finished_job_never_changes() {
    let done = local().status(json!({"startTime": START})).condition("Complete", "True");
    assert_eq!(mirrored(done, remote(json!({"active": 1}))), None);
}

#[test]
fn start_time_of_an_unsuspended_job_stays() {
    let running = local().running().status(json!({"startTime": "2026-11-21T09:00:00Z"}));
    let got = mirrored(running, remote(json!({"active": 1}))).unwrap();
    assert_eq!(got["startTime"], json!("2026-11-21T09:00:00Z"));
}

#[test]
fn job_without_its_copy_can_be_queued_again() {
    let now: jiff::Timestamp = "2026-11-21T11:00:00.5Z".parse().unwrap();
    let shown = local()
        .status(json!({"active": 1, "ready": 1, "failed": 1, "startTime": START}))
        .condition("Suspended", "False");
    let shown = shown.build();
    let got = reset_status(&shown, now).unwrap();
    insta::assert_json_snapshot!(got, @r#"
    {
      "conditions": [
        {
          "lastProbeTime": "2026-11-21T11:00:00Z",
          "lastTransitionTime": "2026-11-21T11:00:00Z",
          "message": "Job suspended",
          "reason": "JobSuspended",
          "status": "True",
          "type": "Suspended"
        }
      ],
      "failed": 1
    }
    "#);
    let reset = TestJob(shown).with(json!({"status": null})).status(got).build();
    assert_eq!(reset_status(&reset, now), None, "once");
    assert_eq!(reset_status(&job().build(), now), None, "nothing to reset");
    assert_eq!(reset_status(&local().condition("Failed", "True").build(), now), None, "finished");
}

#[rstest::rstest]
#[case::that_is_new(local(), json!(["Suspended"]))]
#[case::that_ran_before(local().status(json!({"failed": 2})).condition("Suspended", "False"), json!(["Suspended"]))]
#[case::that_says_so(local().condition("Suspended", "True"), json!(null))]
#[case::that_is_not_suspended(local().running(), json!(null))]
#[case::whose_copy_is_not_gone(local().status(json!({"active": 1})), json!(null))]
#[case::that_has_started(local().status(json!({"startTime": START})), json!(null))]
fn waiting_job_is_shown_as_suspended(#[case] job: TestJob, #[case] conditions: Value) {
    let status = super::super::mirror::waiting_status(&job.build(), START.parse().unwrap());
    let types = status.as_ref().map(|status| {
        let all = status["conditions"].as_array().unwrap().iter();
        all.filter(|it| it["status"] == "True").map(|it| it["type"].clone()).collect::<Value>()
    });
    assert_eq!(types.unwrap_or_default(), conditions);
}
