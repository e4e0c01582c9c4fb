//! Effects of admission, eviction and the end on the job and its workload.

use super::*;

fn admitted() -> TestWorkload {
    job().workload().admitted()
}

#[test]
fn admitted_job_starts_in_one_write() {
    insta::assert_snapshot!(world(job()).workload(admitted()).told(), @r#"
    job {"spec":{"suspend":false,"template":{"metadata":{"annotations":{"kueue.x-k8s.io/workload":"job-train-1b29a"},"labels":{"kueue.x-k8s.io/cluster-queue-name":"cq","kueue.x-k8s.io/local-queue-name":"lq","kueue.x-k8s.io/podset":"main"}},"spec":{"nodeSelector":{"accelerator":"a100"}}}}}
    Normal Started: Admitted by clusterQueue cq
    "#);
}

#[test]
fn earlier_start_time_is_reset_first() {
    let job = job().with(json!({"status": {"startTime": "2026-11-21T09:00:00Z"}}));
    insta::assert_snapshot!(world(job).workload(admitted()).told(), @r#"job status {"startTime":null}"#);
}

#[test]
fn reserved_quota_alone_starts_nothing() {
    assert_eq!(world(job()).workload(job().workload().reserved()).told(), "");
}

#[test]
fn missing_flavor_delays_the_start() {
    let world = World { flavors: false, ..world(job()).workload(admitted()) };
    insta::assert_snapshot!(world.told(), @r#"retry: ResourceFlavor "gpu" not found; create it again, or let the workload be evicted"#);
}

#[test]
fn job_in_conflict_with_its_flavor_fails_to_start() {
    let own = || {
        job().with(
            json!({"spec": {"template": {"spec": {"nodeSelector": {"accelerator": "h100"}}}}}),
        )
    };
    let workload = own().workload().admitted();
    insta::assert_snapshot!(world(own()).workload(workload).told(), @r#"
    workload status {"conditions":["Finished=True/FailedToStart: invalid admission check PodSetUpdate: conflict for nodeSelector: conflict for key=accelerator, value1=h100, value2=a100"]}
    Normal FinishedWorkload: Workload 'ns/job-train-1b29a' is declared finished
    "#);
}

#[test]
fn running_job_without_admission_is_stopped() {
    let running = job().started(&admitted().0).running();
    insta::assert_snapshot!(world(running).workload(job().workload()).told(), @r#"
    job {"metadata":{"annotations":{"kueue.x-k8s.io/stopping":"true"}},"spec":{"suspend":true}}
    Normal Stopped: Not admitted by cluster queue
    "#);
    let plain = world(job().unsuspended()).workload(job().workload());
    insta::assert_snapshot!(plain.told(), @r#"
    job {"spec":{"suspend":true}}
    Normal Stopped: Not admitted by cluster queue
    "#);
}

#[test]
fn evicted_job_is_stopped_with_the_reason() {
    let running = job().started(&admitted().0).running();
    insta::assert_snapshot!(world(running).workload(admitted().evicted()).told(), @r#"
    job {"metadata":{"annotations":{"kueue.x-k8s.io/stopping":"true"}},"spec":{"suspend":true}}
    Normal Stopped: Preempted to accommodate another
    "#);
}

#[test]
fn evicted_job_keeps_quota_until_its_pods_are_gone() {
    let stopped = |active: i32| job().with(json!({"status": {"active": active}}));
    assert_eq!(world(stopped(1)).workload(admitted().evicted()).told(), "");
    insta::assert_snapshot!(world(stopped(0)).workload(admitted().evicted()).told(), @r#"workload status {"accumulatedPastExecutionTimeSeconds":60,"admission":null,"conditions":["QuotaReserved=False/PendingEvaluation: Preempted to accommodate another","Admitted=False/NoReservation: The workload has no reservation","Requeued=True/Preempted: Preempted to accommodate another"]}"#);
}

#[test]
fn ended_job_finishes_its_workload() {
    let running = || job().started(&admitted().0).running();
    insta::assert_snapshot!(world(running().condition("Complete")).workload(admitted()).told(), @r#"
    workload status {"conditions":["Finished=True/Succeeded: Complete!"]}
    Normal FinishedWorkload: Workload 'ns/job-train-1b29a' is declared finished
    "#);
    let failed = world(running().condition("Failed")).workload(admitted()).told();
    assert!(failed.contains("Finished=True/Failed: Failed!"), "{failed}");
}

#[test]
fn finished_job_is_unchanged() {
    let done = || job().started(&admitted().0).running().condition("Complete");
    assert_eq!(world(done()).workload(admitted().finished()).told(), "");
    assert_eq!(world(done()).told(), "", "also without a workload");
}

#[test]
fn job_above_its_charge_is_not_started() {
    let told = World { exceeded: Some("cpu"), ..world(job()) }.workload(admitted()).told();
    let want = "Evicted=True/RequestsChanged: The pods of pod set main ask for more cpu by now than quota was reserved for";
    assert!(told.contains(want) && !told.contains(r#""suspend":false"#), "{told}");
    let started = job().started(&admitted().0).running();
    let told = World { exceeded: Some("cpu"), ..world(started) }.workload(admitted()).told();
    assert!(!told.contains("Evicted"), "its pods are there: {told}");
}

#[test]
fn reclaimable_pods_release_quota() {
    let partly = |succeeded: i32| {
        job().started(&admitted().0).running().with(json!({"status": {"succeeded": succeeded}}))
    };
    insta::assert_snapshot!(world(partly(2)).workload(admitted()).told(), @r#"workload status {"reclaimablePods":[{"count":2,"name":"main"}]}"#);
    let off = World { reclaims: false, ..world(partly(2)) }.workload(admitted()).told();
    assert!(!off.contains("reclaimable"), "the gate is off: {off}");
    let known = || {
        admitted().status(|edit| {
            edit.status.reclaimable_pods =
                serde_json::from_value(json!([{"name": "main", "count": 2}])).unwrap()
        })
    };
    let again = world(partly(1)).workload(known()).told();
    insta::assert_snapshot!(again, @r#"workload status {"reclaimablePods":[{"count":1,"name":"main"}]}"#);
}

#[test]
fn pods_ready_is_written_after_a_delay() {
    let running = || job().started(&admitted().0).running();
    // Admitted, and seen ready, a minute ago.
    insta::assert_snapshot!(world(running()).workload(admitted()).told(), @r#"workload status {"conditions":["PodsReady=True/Started: All pods reached readiness and the workload is running"]}"#);
    assert_eq!(
        World { waits: false, ..world(running()) }.workload(admitted()).told(),
        "",
        "nobody waits for it"
    );
    let since = |admitted_for: i64, ready_for: u64| {
        let workload = admitted().edit(|workload| {
            for condition in &mut workload.status.as_mut().unwrap().conditions {
                condition.last_transition_time =
                    Time(now() - jiff::SignedDuration::from_secs(admitted_for));
            }
        });
        World { ready_for: Duration::from_secs(ready_for), ..world(running()) }
            .workload(workload)
            .told()
    };
    assert_eq!(since(0, 0), "again after 30s");
    assert_eq!(since(90, 10), "again after 20s");
    assert_eq!(since(140, 10), "again after 10s", "well before the time-out");
    assert!(since(150, 10).contains("PodsReady=True"));
    let awaited = |ready_for: u64| {
        let workload = admitted().status(Edit::await_pods);
        World { ready_for: Duration::from_secs(ready_for), ..world(running()) }.workload(workload)
    };
    assert_eq!(awaited(10).told(), "again after 20s", "it was said to wait for its start");
    let told = awaited(40).decide();
    let [Action::UpdateWorkloadStatus { status, .. }] = told.actions.as_slice() else {
        panic!("{:?}", told.actions)
    };
    let ready = conditions::find(&status.conditions, conditions::PODS_READY).unwrap();
    assert_eq!(
        ready.last_transition_time,
        Time(now() - jiff::SignedDuration::from_secs(40)),
        "when they were seen ready"
    );
    let lost = running().with(json!({"status": {"ready": 2}}));
    let ready = admitted().status(|edit| {
        edit.set(conditions::PODS_READY, true, "Started", "");
    });
    let told = world(lost).workload(ready).told();
    assert!(told.contains("PodsReady=False/WaitForRecovery"), "{told}");
}

#[test]
fn later_admission_waits_for_its_own_pods() {
    for (holds, reason) in [(true, "Started"), (false, "WaitForRecovery")] {
        let evicted = admitted().evicted().status(|edit| {
            edit.set(conditions::PODS_READY, holds, reason, "");
        });
        let told = world(job()).workload(evicted).told();
        assert!(told.contains("PodsReady=False/WaitForStart"), "{told}");
    }
}

#[test]
fn deleted_workload_is_released_once_its_job_stopped() {
    let running = job().started(&admitted().0).running();
    insta::assert_snapshot!(world(running).workload(admitted().deleting()).told(), @r#"
    job {"metadata":{"annotations":{"kueue.x-k8s.io/stopping":"true"}},"spec":{"suspend":true}}
    Normal Stopped: Workload is deleted
    "#);
    insta::assert_snapshot!(world(job()).workload(admitted().deleting()).told(), @r#"workload {"metadata":{"finalizers":[]}}"#);
    let done = job().running().condition("Complete");
    let done = world(done).workload(job().workload().finished().deleting()).told();
    assert_eq!(done, r#"workload {"metadata":{"finalizers":[]}}"#, "a finished job is not touched");
}

#[test]
fn foreground_deletion_does_not_wait_for_the_workload() {
    let deleting = json!({"metadata": {"deletionTimestamp": "2026-11-21T10:00:00Z"}, "status": {"active": null}});
    let told = world(job().running().with(deleting)).workload(admitted().deleting()).told();
    assert_eq!(told, r#"workload {"metadata":{"finalizers":[]}}"#);
}

#[test]
fn terminating_job_is_charged_until_its_pods_ended() {
    let deleting = |status: Value| {
        let job = job().running().with(json!({"status": {"active": null}}));
        job.with(
            json!({"metadata": {"deletionTimestamp": "2026-11-21T10:00:00Z"}, "status": status}),
        )
    };
    let told =
        |status: Value, workload: TestWorkload| world(deleting(status)).workload(workload).told();
    for status in [json!({"active": 1}), json!({"terminating": 1})] {
        assert_eq!(told(status.clone(), admitted()), "", "{status}");
        assert_eq!(told(status.clone(), admitted().deleting()), "", "{status}");
    }
    assert!(told(json!({"terminating": 0}), admitted()).contains("Finished=True"));
    assert!(told(json!({"terminating": 0}), admitted().deleting()).contains("finalizers"));
    let below = World { below_active: true, ..world(deleting(json!({}))) }.workload(admitted());
    assert_eq!(below.told(), "", "what it made runs");
}

#[test]
fn workload_of_a_deleted_job_is_finished_and_released() {
    let gone =
        |workload: TestWorkload| World { job: None, ..world(job()) }.workload(workload).told();
    insta::assert_snapshot!(gone(admitted()), @r#"workload status {"conditions":["Finished=True/OwnerNotFound: The workload's owner no longer exists"]}"#);
    assert_eq!(gone(admitted().finished()), r#"workload {"metadata":{"finalizers":[]}}"#);
    assert_eq!(gone(admitted().deleting()), "", "the life cycle of workloads lets it go");
    let deleting = job().with(json!({"metadata": {"deletionTimestamp": "2026-11-21T10:00:00Z"}}));
    let told = world(deleting).workload(admitted()).told();
    assert!(told.contains("OwnerNotFound"), "{told}");
}

#[test]
fn child_job_runs_with_its_owner() {
    let child = |ancestor, job| World { ancestor, managed: true, ..world(job) }.told();
    insta::assert_snapshot!(child(Ancestor::NotAdmitted, job().unsuspended()), @r#"
    job {"spec":{"suspend":true}}
    Normal Suspended: Kueue managed child job suspended
    "#);
    assert_eq!(child(Ancestor::Admitted, job().unsuspended()), "");
    assert_eq!(child(Ancestor::NotAdmitted, job()), "", "suspended already");
}

#[test]
fn job_below_unreadable_owner_keeps_its_workload_only() {
    let unread = |world: World| World { ancestor: Ancestor::Unread, ..world }.told();
    let unsaid = "retry: an owner of the job cannot be read";
    assert_eq!(unread(world(job())), unsaid, "no workload is made");
    assert_eq!(unread(world(job().running())), unsaid, "and nothing is suspended");
    assert_eq!(unread(World { managed: false, ..world(job().running()) }), unsaid);
    let elastic_keeps_running = [
        ("its start", world(job()).workload(admitted())),
        ("its end", world(job().running().condition("Complete")).workload(admitted())),
        ("its eviction", world(job().running()).workload(admitted().evicted())),
    ];
    for (sentence, world) in elastic_keeps_running {
        let told = world.told();
        assert_ne!(told, "", "{sentence}");
        assert_eq!(unread(world), told, "{sentence}");
    }
    assert_eq!(
        unread(world(
            job().with(json!({"metadata": {"deletionTimestamp": "2026-11-21T10:00:00Z"}}))
        )),
        ""
    );
}

#[test]
fn owners_are_read_only_where_they_matter() {
    let owner =
        json!({"apiVersion": "v1", "kind": "K", "name": "k", "uid": "u", "controller": true});
    let owned = || job().with(json!({"metadata": {"ownerReferences": [owner]}}));
    let goes = json!({"metadata": {"deletionTimestamp": "2026-11-21T10:00:00Z"}});
    for (sentence, job, queued, asks) in [
        ("none owns it", job().running(), true, false),
        ("it is queued", owned(), true, true),
        ("it is queued, and has ended", owned().running().condition("Complete"), true, true),
        ("it runs", owned().running(), false, true),
        ("it is held back already", owned(), false, false),
        ("it has ended", owned().running().condition("Complete"), false, false),
        ("it is being deleted", owned().running().with(goes), true, false),
    ] {
        assert_eq!(
            crate::reconcilers::job::asks_for_owners(&BatchJob, &job.0, queued),
            asks,
            "{sentence}"
        );
    }
}

#[test]
fn children_run_while_a_workload_is_admitted() {
    let lets_run = |workloads: Vec<TestWorkload>| {
        let workloads: Vec<Arc<Workload>> =
            workloads.into_iter().map(|workload| Arc::new(workload.0)).collect();
        crate::reconcilers::job::ancestor::lets_run(&BatchJob, &job().0, &workloads)
    };
    assert!(!lets_run(vec![]));
    assert!(!lets_run(vec![job().workload().reserved()]));
    assert!(lets_run(vec![admitted()]));
    assert!(!lets_run(vec![admitted().finished()]), "its quota is free");
    assert!(lets_run(vec![admitted().finished(), admitted().named("next")]));
}
