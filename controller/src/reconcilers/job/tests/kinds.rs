//! Differences of other kinds from Job.

use switchyard_api::v1beta2::DispatchStatus;
use switchyard_jobs::kind_for;

use super::*;

/// An object of a kind in queue `lq`, suspended, and its workload.
fn object(group: &str, kind: &str, spec: Value) -> (&'static dyn JobKind, TestJob, TestWorkload) {
    let kind = kind_for(group, kind).unwrap();
    let mut job = json!({
        "apiVersion": kind.id().api_version(), "kind": kind.id().kind,
        "metadata": {
            "name": "train", "namespace": "ns", "uid": "job-uid", "labels": {"kueue.x-k8s.io/queue-name": "lq"},
        },
        "spec": spec,
    });
    kind.suspend(&mut job);
    let pod_sets = job_pod_sets(kind, &job).unwrap_or_default();
    let workload =
        build_workload(kind, &job, pod_sets, &Priority::default(), BuildOptions::default());
    (kind, TestJob(job), TestWorkload(workload))
}

fn job_set() -> (&'static dyn JobKind, TestJob, TestWorkload) {
    let template = json!({"spec": {"containers": [{"name": "c", "image": "i"}]}});
    let group = |name: &str| json!({"name": name, "template": {"spec": {"template": template}}});
    object("jobset.x-k8s.io", "JobSet", json!({"replicatedJobs": [group("a"), group("b")]}))
}

#[test]
fn job_set_gets_a_workload_with_all_its_groups() {
    let (kind, job, _) = job_set();
    let decision = World { kind, ..world(job) }.decide();
    let [Action::CreateWorkload(workload), Action::Event { .. }] = decision.actions.as_slice()
    else {
        panic!("{:?}", decision.actions)
    };
    let names: Vec<&str> =
        workload.spec.pod_sets.iter().map(|pod_set| pod_set.name.as_str()).collect();
    assert_eq!(names, ["a", "b"]);
}

#[test]
fn admitted_job_set_starts_with_its_flavors_in_one_write() {
    let (kind, job, workload) = job_set();
    let decision = World { kind, ..world(job) }.workload(workload.admitted()).decide();
    let [Action::UpdateJob(job), Action::Event { reason, .. }] = decision.actions.as_slice() else {
        panic!("{:?}", decision.actions)
    };
    assert_eq!((&job["spec"]["suspend"], *reason), (&json!(false), "Started"));
    for group in 0..2 {
        let template = format!(
            "/spec/replicatedJobs/{group}/template/spec/template/spec/nodeSelector/accelerator"
        );
        assert_eq!(job.pointer(&template), Some(&json!("a100")));
    }
}

#[test]
fn evicted_job_set_keeps_quota_until_its_pods_are_gone() {
    let (kind, job, workload) = job_set();
    let statuses = |active: i32| json!({"status": {"replicatedJobsStatus": [{"name": "a", "active": active}]}});
    let evicted = || TestWorkload(workload.0.clone()).admitted().evicted();
    let stopping =
        World { kind, ..world(TestJob(job.0.clone()).with(statuses(1))) }.workload(evicted());
    assert_eq!(stopping.told(), "");
    let ending =
        World { kind, below_active: true, ..world(TestJob(job.0.clone()).with(statuses(0))) };
    assert_eq!(ending.workload(evicted()).told(), "", "pods of its Jobs are being deleted");
    let stopped = World { kind, ..world(job.with(statuses(0))) }.workload(evicted());
    assert!(stopped.told().contains("QuotaReserved"), "{}", stopped.told());
}

#[test]
fn restarting_job_set_reclaims_no_pods() {
    let template =
        json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}}});
    let group = json!({"name": "a", "replicas": 3, "template": template});
    let (kind, job, workload) =
        object("jobset.x-k8s.io", "JobSet", json!({"replicatedJobs": [group]}));
    // Two of its three Jobs had succeeded.
    let admitted_for = |count: i32| {
        let workload = TestWorkload(workload.0.clone()).admitted().status(|edit| {
            edit.status.reclaimable_pods =
                serde_json::from_value(json!([{"name": "a", "count": 2}])).unwrap();
            edit.status.admission.as_mut().unwrap().pod_set_assignments[0].count = Some(count);
        });
        let flavor = gpu();
        let infos = pod_set_infos(&workload.0, |_| Some(&flavor)).unwrap();
        let mut running = job.0.clone();
        kind.run(&mut running, &infos).unwrap();
        let restarted = json!({"status": {"replicatedJobsStatus": [{"name": "a", "active": 3}]}});
        (World { kind, ..world(TestJob(running).with(restarted)) }, workload)
    };
    let told = |count: i32| {
        let (world, workload) = admitted_for(count);
        world.workload(workload).told()
    };
    assert_eq!(told(3), r#"workload status {"reclaimablePods":null}"#);
    let stopped = told(1);
    assert!(
        stopped.contains("No matching Workload"),
        "one pod was admitted, and three run: {stopped}"
    );

    let (world, workload) = admitted_for(1);
    let prebuilt = World { prebuilt: Prebuilt::Found(Arc::new(workload.0)), ..world }.told();
    assert!(
        prebuilt.contains("Evicted=True/RequestsChanged"),
        "a prebuilt one is queued anew: {prebuilt}"
    );
}

#[test]
fn job_set_without_a_template_gets_an_event() {
    let (kind, job, _) = object("jobset.x-k8s.io", "JobSet", json!({"replicatedJobs": []}));
    let told = World { kind, ..world(job) }.told();
    assert_eq!(
        told,
        "Warning ErrWorkloadCompose: spec: has no pod template; JobSet needs at least one"
    );
}

#[test]
fn ray_job_on_an_existing_cluster_is_ignored() {
    let (kind, job, _) =
        object("ray.io", "RayJob", json!({"clusterSelector": {"ray.io/cluster": "c"}}));
    assert_eq!(World { kind, ..world(job) }.told(), "");
}

#[test]
fn invalid_ray_job_releases_quota_until_it_is_corrected() {
    let template = json!({"spec": {"containers": [{"name": "c", "image": "i"}]}});
    let cluster = json!({"headGroupSpec": {"template": template}});
    let (kind, job, workload) = object("ray.io", "RayJob", json!({"rayClusterSpec": cluster}));
    let invalid = job
        .with(json!({"spec": {"suspend": false}}))
        .with(json!({"status": {"jobDeploymentStatus": "ValidationFailed"}}));
    let world = |workload| World { kind, ..world(TestJob(invalid.0.clone())) }.workload(workload);
    let waiting = TestWorkload(workload.0.clone());
    assert_eq!(world(waiting).told(), "", "it has none");
    let held = TestWorkload(workload.0.clone()).admitted();
    let told = world(held).told();
    assert!(told.contains("QuotaReserved=False/OnHold: Job is on hold"), "{told}");
    assert!(!told.contains("job {"), "{told}");

    // After that it is requeued, and only then stopped until it is admitted.
    let on_hold = || {
        TestWorkload(workload.0.clone()).admitted().status(|edit| {
            edit.unreserve("OnHold", "Job is on hold");
        })
    };
    assert_eq!(world(on_hold()).told(), "", "it stays on hold");
    let mended =
        TestJob(invalid.0.clone()).with(json!({"status": {"jobDeploymentStatus": "Initializing"}}));
    let mended_with =
        |workload| World { kind, ..super::world(TestJob(mended.0.clone())) }.workload(workload);
    let told = mended_with(on_hold()).told();
    let want = "QuotaReserved=False/PendingEvaluation: Workload no longer on hold; waiting for quota reservation";
    assert!(told.contains(want) && !told.contains("job {"), "{told}");
    let queued = on_hold().status(|edit| {
        edit.unreserve(
            "PendingEvaluation",
            "Workload no longer on hold; waiting for quota reservation",
        );
    });
    let told = mended_with(queued).told();
    assert!(
        told.contains(r#""suspend":true}}"#) && told.contains("Not admitted by cluster queue"),
        "{told}"
    );
}

#[test]
fn ray_job_invalid_on_its_cluster_is_withdrawn() {
    let template = json!({"spec": {"containers": [{"name": "c", "image": "i"}]}});
    let spec = json!({"rayClusterSpec": {"headGroupSpec": {"template": template}}});
    let (kind, job, workload) = object("ray.io", "RayJob", spec);
    let status = json!({"jobDeploymentStatus": "ValidationFailed", "message": "backoffLimit must be positive"});
    let invalid = json!({"spec": {"suspend": false}, "status": status});
    let marks = json!({"switchyard.dev/workload-uid": "u", "switchyard.dev/attempt": "1"});
    let metadata = json!({
        "labels": {"switchyard.dev/hub-id": "hub"}, "annotations": marks, "ownerReferences": null,
    });
    let copy = || {
        let mut copy =
            serde_json::to_value(&TestWorkload(workload.0.clone()).admitted().0).unwrap();
        apply_merge(&mut copy, &json!({ "metadata": metadata }));
        let named = json!({"kueue.x-k8s.io/job-owner-gvk": "ray.io/v1, Kind=RayJob", "kueue.x-k8s.io/job-owner-name": "train"});
        apply_merge(&mut copy, &json!({"metadata": {"annotations": named}}));
        serde_json::from_value::<Workload>(copy).unwrap()
    };
    let prebuilt = json!({"metadata": {"labels": {"kueue.x-k8s.io/prebuilt-workload-name": "w"}}});
    let sent = TestJob(job.0.clone())
        .with(json!({ "metadata": metadata }))
        .with(prebuilt)
        .with(invalid.clone());
    let there = World {
        kind,
        prebuilt: Prebuilt::Found(Arc::new(copy())),
        role: Role::Worker,
        ..world(sent)
    };
    assert!(
        there.told().contains("OnHold: Job is on hold: backoffLimit must be positive"),
        "{}",
        there.told()
    );

    // The hub shows the copy's status, evicts it, and stops showing it as running.
    let shown = TestJob(job.0)
        .with(json!({"spec": {"managedBy": "kueue.x-k8s.io/multikueue"}}))
        .with(invalid);
    let sent = TestWorkload(workload.0.clone()).admitted().evicted().status(|edit| {
        edit.status.dispatch = Some(DispatchStatus { attempt: 1, ..DispatchStatus::default() });
    });
    let hub = World { kind, role: Role::Hub, check: Some("mk"), ..world(shown) }.workload(sent);
    assert!(hub.told().contains(r#""suspend":true"#), "{}", hub.told());
}

#[test]
fn deleted_ray_service_keeps_quota_for_its_clean_up() {
    let template = json!({"spec": {"containers": [{"name": "c", "image": "i"}]}});
    let cluster = json!({"headGroupSpec": {"template": template}, "gcsFaultToleranceOptions": {"redisAddress": "r"}});
    for (group, kind, spec) in [
        ("ray.io", "RayService", json!({"rayClusterConfig": cluster})),
        ("ray.io", "RayCluster", cluster),
    ] {
        let (kind, job, workload) = object(group, kind, spec);
        let going = |finalizers: Value, changes: Value| {
            let gone = json!({"metadata": {"deletionTimestamp": "2026-11-21T09:59:00Z", "finalizers": finalizers}});
            let job = TestJob(job.0.clone()).with(gone).with(changes);
            World { kind, ..world(job) }.workload(TestWorkload(workload.0.clone()).admitted())
        };
        let held = || json!(["ray.io/gcs-ft-redis-cleanup-finalizer", "foregroundDeletion"]);
        assert_eq!(going(held(), json!({})).told(), "");
        let ends = |world: World| {
            assert!(world.told().contains("Finished=True/OwnerNotFound"), "{}", world.told())
        };
        ends(World { defers_end: false, ..going(held(), json!({})) });
        // It waits for its workload, among others.
        ends(going(json!(["foregroundDeletion"]), json!({})));
        // The agent, which waits to see it go, takes no part in the clean-up.
        ends(going(json!(["switchyard.dev/terminal-state"]), json!({})));
        // The clean-up happens on the worker.
        ends(World { role: Role::Hub, check: Some("mk"), ..going(held(), json!({})) });
        let local = World { role: Role::Hub, ..going(held(), json!({})) };
        assert_eq!(local.told(), "");
        let plain = json!({"gcsFaultToleranceOptions": null});
        ends(going(
            held(),
            json!({"spec": {"gcsFaultToleranceOptions": null, "rayClusterConfig": plain}}),
        ));
    }
}

#[test]
fn kind_without_managed_by_stays_suspended_on_the_hub() {
    let spec = json!({"driver": {}, "executor": {"instances": 1}});
    let (kind, job, workload) = object("sparkoperator.k8s.io", "SparkApplication", spec);
    let hub = World { kind, role: Role::Hub, check: Some("mk"), ..world(TestJob(job.0.clone())) };
    assert_eq!(hub.workload(TestWorkload(workload.0.clone()).admitted()).told(), "");

    // Nor does it start here when its queue stops dispatching while it runs on a worker.
    let mut sent = workload.admitted();
    let dispatch = Some(DispatchStatus { attempt: 1, ..DispatchStatus::default() });
    sent.0.status.get_or_insert_default().dispatch = dispatch;
    assert_eq!(World { kind, role: Role::Hub, ..world(job) }.workload(sent).told(), "");
}

fn train_job() -> (&'static dyn JobKind, TestJob, TestWorkload) {
    let spec = json!({"runtimeRef": {"kind": "ClusterTrainingRuntime", "name": "torch"}, "trainer": {"numNodes": 2}});
    object("trainer.kubeflow.org", "TrainJob", spec)
}

#[test]
fn train_job_without_runtime_gets_an_event() {
    let (kind, job, _) = train_job();
    let told = World { kind, ..world(job) }.told();
    let want = "Warning ErrWorkloadCompose: spec.runtimeRef: ClusterTrainingRuntime \"torch\" not found; create it";
    assert_eq!(told, want);
}

#[test]
fn train_job_is_stopped_by_two_writes() {
    let (kind, mut job, _) = train_job();
    let template = json!({"spec": {"containers": [{"name": "node", "image": "i"}]}});
    let labels = json!({"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"});
    let node = json!({"name": "node", "template": {"metadata": {"labels": labels}, "spec": {"template": template}}});
    kind.attach(
        &mut job.0,
        &json!({"spec": {"mlPolicy": {}, "template": {"spec": {"replicatedJobs": [node]}}}}),
    );
    let pod_sets = job_pod_sets(kind, &job.0).unwrap();
    let workload =
        build_workload(kind, &job.0, pod_sets, &Priority::default(), BuildOptions::default());
    let (admitted, evicted) =
        (TestWorkload(workload.clone()).admitted(), TestWorkload(workload).admitted().evicted());

    let starting = World { kind, ..world(TestJob(job.0.clone())) }.workload(admitted);
    let [Action::UpdateJob(started), Action::Event { reason: "Started", .. }] =
        &starting.decide().actions[..]
    else {
        panic!("{}", starting.told())
    };
    let stopping = World { kind, ..world(TestJob(*started.clone())) }
        .workload(TestWorkload(evicted.0.clone()));
    let [Action::UpdateJob(suspended), Action::Event { reason: "Stopped", .. }] =
        &stopping.decide().actions[..]
    else {
        panic!("{}", stopping.told())
    };
    assert!(
        suspended.pointer("/spec/runtimePatches/0").is_some(),
        "its patch may not be changed yet"
    );
    let restoring = World { kind, ..world(TestJob(*suspended.clone())) }
        .workload(TestWorkload(evicted.0.clone()));
    assert_eq!(restoring.told(), "job {\"spec\":{\"runtimePatches\":null}}");
    let restored = World { kind, ..world(job) }.workload(evicted);
    assert!(restored.told().contains("QuotaReserved=False"), "{}", restored.told());
}
