//! Jobs on a hub that run on a worker cluster.

use super::*;

fn hub(job: TestJob) -> World {
    World { role: Role::Hub, check: Some("mk"), ..world(job) }
}

fn dispatched() -> TestJob {
    job().with(json!({"spec": {"managedBy": "kueue.x-k8s.io/multikueue"}}))
}

fn admitted_elsewhere() -> TestWorkload {
    job().workload().admitted().status(|edit| edit.status.cluster_name = Some("worker1".into()))
}

#[test]
fn dispatched_job_is_unsuspended_with_original_templates() {
    let told = hub(dispatched()).workload(admitted_elsewhere()).told();
    insta::assert_snapshot!(told, @r#"job {"spec":{"suspend":false}}"#);
}

#[test]
fn partial_admission_keeps_original_counts() {
    let asked = || {
        dispatched().with(json!({
            "metadata": {"annotations": {"kueue.x-k8s.io/job-min-parallelism": "1"}},
            "spec": {"parallelism": 4, "suspend": false},
        }))
    };
    let fewer = asked().workload().admitted().status(|edit| {
        edit.status.cluster_name = Some("worker1".into());
        edit.status.admission.as_mut().unwrap().pod_set_assignments[0].count = Some(2);
    });
    assert_eq!(hub(asked()).workload(fewer).told(), "");
}

#[test]
fn partial_admission_reclaims_only_charged_pods() {
    let told = |succeeded: i32| {
        let asked = dispatched().with(json!({
            "metadata": {"annotations": {"kueue.x-k8s.io/job-min-parallelism": "1"}},
            "spec": {"parallelism": 6, "completions": 6, "suspend": false},
            "status": {"active": (6 - succeeded).min(2), "succeeded": succeeded},
        }));
        let fewer = asked.workload().admitted().status(|edit| {
            edit.status.cluster_name = Some("worker1".into());
            edit.status.admission.as_mut().unwrap().pod_set_assignments[0].count = Some(2);
        });
        hub(asked).workload(fewer).told()
    };
    assert_eq!(told(3), "", "two of them run, and one comes after them");
    // It requested six pods and needs one more. It is charged for two, so one is free.
    assert!(told(5).contains(r#""reclaimablePods":[{"count":5,"name":"main"}]"#), "{}", told(5));
}

#[test]
fn later_attempt_reclaims_nothing_early() {
    let done = json!({"spec": {"suspend": false}, "status": {"active": 1, "succeeded": 4}});
    let told = |attempt: i64| {
        let sent = admitted_elsewhere()
            .status(|edit| edit.status.dispatch.get_or_insert_default().attempt = attempt);
        hub(dispatched().with(done.clone())).workload(sent).told()
    };
    assert!(told(1).contains("reclaimablePods"), "{}", told(1));
    assert!(
        !told(2).contains("reclaimablePods"),
        "what had succeeded runs again there: {}",
        told(2)
    );
}

#[test]
fn evicted_job_is_suspended_again() {
    let running = dispatched().with(json!({"spec": {"suspend": false}}));
    assert!(
        hub(running)
            .workload(admitted_elsewhere().evicted())
            .told()
            .contains(r#"{"spec":{"suspend":true}}"#)
    );
}

#[test]
fn deleted_workload_resets_the_status_and_requeues() {
    let active = json!({"active": 1, "ready": 1, "startTime": "2026-01-01T00:00:00Z"});
    let stopped = dispatched().with(json!({"spec": {"suspend": true}, "status": active}));
    let told = hub(stopped).told();
    assert!(told.starts_with("job status ") && told.contains(r#""active":"#), "{told}");
    let running = dispatched().with(json!({"spec": {"suspend": false}, "status": active}));
    assert!(!hub(running).told().contains("job status"), "it is stopped first");
    assert!(hub(dispatched()).told().contains("CreatedWorkload"));
}

#[test]
fn job_of_a_local_queue_runs_on_the_hub() {
    let world = World { check: None, ..hub(job()) }.workload(job().workload().admitted());
    assert!(world.told().contains("Started"));
}

#[test]
fn job_without_managed_by_is_rejected_with_the_reason() {
    let world = hub(job()).workload(job().workload());
    let told = world.told().replace(&now().to_string(), "NOW");
    insta::assert_snapshot!(told, @r#"
    workload status {"admissionChecks":[{"lastTransitionTime":"NOW","message":"The owner is not managed by Kueue: Expecting spec.managedBy to be \"kueue.x-k8s.io/multikueue\" not \"\"","name":"mk","state":"Rejected"}]}
    Warning NotDispatchable: The owner is not managed by Kueue: Expecting spec.managedBy to be "kueue.x-k8s.io/multikueue" not ""; the field cannot be changed: delete the Job and create it again while the webhook answers, or set the field yourself
    "#);
}

#[test]
fn undispatchable_job_never_starts_and_gets_one_event() {
    let Some(Action::UpdateWorkloadStatus { status, .. }) =
        hub(job()).workload(job().workload()).decide().actions.into_iter().next()
    else {
        panic!("no rejection");
    };
    let rejected = job().workload().admitted().edit(|workload| {
        workload.status.as_mut().unwrap().admission_checks = status.admission_checks;
    });
    assert_eq!(hub(job()).workload(rejected).told(), "");
}

#[test]
fn mirror_finishes_the_workload_first() {
    let done = |seconds: i64| {
        let ended = now() - jiff::SignedDuration::from_secs(seconds);
        dispatched().with(json!({"status": {"conditions": [
            {"type": "Complete", "status": "True", "message": "ok", "lastTransitionTime": ended.to_string()},
        ]}}))
    };
    assert_eq!(hub(done(2)).workload(admitted_elsewhere()).told(), "again after 8s");
    assert!(
        hub(done(10)).workload(admitted_elsewhere()).told().contains("Finished=True/Succeeded")
    );
}

#[test]
fn evicted_job_keeps_quota_until_its_copy_stopped() {
    let shown = |active: i32| dispatched().with(json!({"status": {"active": active}}));
    assert_eq!(hub(shown(1)).workload(admitted_elsewhere().evicted()).told(), "");
    assert!(
        hub(shown(0))
            .workload(admitted_elsewhere().evicted())
            .told()
            .contains("QuotaReserved=False")
    );
}

/// Shown as running, as its copy is.
fn running_elsewhere() -> TestJob {
    let status = json!({"active": 3, "startTime": "2026-01-01T00:00:00Z"});
    dispatched().with(json!({"spec": {"suspend": false, "parallelism": 3}, "status": status}))
}

fn sent() -> TestWorkload {
    admitted_elsewhere().status(|edit| edit.status.dispatch.get_or_insert_default().attempt = 1)
}

#[test]
fn resized_job_is_withdrawn_and_requeued() {
    let resized = || running_elsewhere().with(json!({"spec": {"parallelism": 2}}));
    let stop = hub(resized()).workload(sent()).told();
    assert!(stop.contains(r#""suspend":true"#), "{stop}");
    let stopping = || {
        let stopping = json!({"annotations": {"kueue.x-k8s.io/stopping": "true"}});
        resized().with(json!({"metadata": stopping, "spec": {"suspend": true}}))
    };
    let told = hub(stopping()).workload(sent()).told();
    assert!(told.contains("Deleted not matching Workload"), "its copy runs until then: {told}");
    assert_eq!(hub(stopping()).workload(sent().deleting()).told(), "", "its copy is being stopped");
    let stopped = || {
        resized()
            .with(json!({"spec": {"suspend": true}, "status": {"active": null, "startTime": null}}))
    };
    assert_eq!(
        hub(stopped()).workload(sent().deleting()).told(),
        "",
        "something is left of its copy"
    );
    let released = sent().deleting().status(|edit| _ = edit.unreserve("Pending", "deleted"));
    assert!(hub(stopped()).workload(released).told().contains("finalizers"), "nothing is left");
}

#[test]
fn deleted_job_is_charged_until_its_copy_is_gone() {
    let gone = |workload: TestWorkload, connected: bool| {
        World { job: None, awaited: connected, ..hub(dispatched()) }.workload(workload).told()
    };
    let kept = gone(sent(), true);
    assert!(kept.contains("delete") && kept.ends_with("again after 10s"), "{kept}");
    assert_eq!(gone(sent().deleting(), true), "again after 10s", "its copy is being stopped");
    assert!(
        gone(sent(), false).contains("OwnerNotFound"),
        "nobody knows when its cluster comes back"
    );
    let released = || sent().status(|edit| _ = edit.unreserve("Pending", "deleted"));
    assert!(gone(released(), true).contains("OwnerNotFound"));
    let evicted = |cluster: Option<&str>| {
        let told = sent().evicted();
        told.status(|edit| {
            edit.status.cluster_name = None;
            edit.status.dispatch.get_or_insert_default().cluster_name = cluster.map(str::to_owned);
        })
    };
    assert!(
        gone(evicted(Some("worker1")), true).ends_with("again after 10s"),
        "an eviction does not end its pods"
    );
    assert!(gone(evicted(Some("worker1")), false).contains("OwnerNotFound"));
    assert!(gone(evicted(None), true).contains("OwnerNotFound"), "nobody knows where it was");
    let here = || job().workload().admitted();
    assert!(gone(here(), true).contains("OwnerNotFound"), "it was not sent");
}

#[test]
fn long_pending_job_is_shown_as_suspended() {
    let waits = |seconds: i64| {
        let made = Time(now() - jiff::SignedDuration::from_secs(seconds));
        job().workload().edit(|workload| workload.metadata.creation_timestamp = Some(made))
    };
    let told = |seconds| hub(dispatched()).workload(waits(seconds)).told();
    assert_eq!(told(4), "again after 1s", "it may start at once");
    assert!(told(5).contains(r#""type":"Suspended""#), "{}", told(5));
    let shown = json!([{"type": "Suspended", "status": "True"}]);
    let shown = dispatched().with(json!({"status": {"conditions": shown}}));
    assert_eq!(hub(shown).workload(waits(60)).told(), "", "once");
    assert_eq!(world(dispatched()).workload(waits(60)).told(), "", "not on one cluster");
}
