//! Which workload belongs to the job.

use rstest::rstest;

use super::*;

#[test]
fn unmanaged_job_is_ignored() {
    let world = World { managed: false, ..world(job().unsuspended()) };
    assert_eq!(world.told(), "");
}

#[test]
fn queued_job_gets_its_workload() {
    insta::assert_snapshot!(world(job()).told(), @r"
    create job-train-1b29a
    Normal CreatedWorkload: Created Workload: ns/job-train-1b29a
    ");
}

#[test]
fn job_with_pods_waits_for_their_end_first() {
    let job = job().with(json!({"status": {"active": 1}}));
    assert_eq!(world(job).told(), "");
}

#[test]
fn unsuspended_job_is_suspended_first() {
    insta::assert_snapshot!(world(job().unsuspended()).told(), @r#"
    job {"spec":{"suspend":true}}
    Normal Stopped: Missing Workload; unable to restore pod templates
    "#);
}

#[test]
fn started_job_is_marked_until_its_pods_are_gone() {
    insta::assert_snapshot!(world(job().running()).told(), @r#"
    job {"metadata":{"annotations":{"kueue.x-k8s.io/stopping":"true"}},"spec":{"suspend":true}}
    Normal Stopped: Missing Workload; unable to restore pod templates
    "#);
}

#[test]
fn missing_priority_class_gets_an_event() {
    let job = job().label("kueue.x-k8s.io/priority-class", "none");
    insta::assert_snapshot!(world(job).told(), @r#"
    Warning WorkloadPriorityClassNotFound: WorkloadPriorityClass "none" not found
    retry: WorkloadPriorityClass "none" not found
    "#);
}

#[test]
fn job_without_a_template_gets_an_event() {
    let job = job().with(json!({"spec": {"template": null}}));
    insta::assert_snapshot!(world(job).told(), @"Warning ErrWorkloadCompose: spec.template.spec: is missing; a Job needs a pod template");
}

#[test]
fn changed_job_updates_its_queued_workload() {
    let workload = job().workload().edit(|workload| workload.spec.active = Some(false));
    let world = world(job().with(json!({"spec": {"parallelism": 2}}))).workload(workload);
    insta::assert_snapshot!(world.told(), @r#"
    workload {"spec":{"podSets":[{"count":2,"name":"main","template":{"metadata":{"labels":{"app":"train"}},"spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":"1"}}}]}}}]}}
    Normal UpdatedWorkload: Updated not matching Workload for suspended job: ns/job-train-1b29a
    "#);
}

#[test]
fn changed_job_with_quota_gets_another_workload() {
    let world = world(job().with(json!({"spec": {"parallelism": 2}})))
        .workload(job().workload().reserved());
    insta::assert_snapshot!(world.told(), @r"
    delete job-train-1b29a
    Normal DeletedWorkload: Deleted not matching Workload: ns/job-train-1b29a
    ");
}

#[test]
fn changed_running_job_is_stopped_with_old_templates() {
    let workload = job().workload().admitted();
    let changed = job().started(&workload.0).running().with(json!({"spec": {"parallelism": 2}}));
    let world = world(changed).workload(workload);
    insta::assert_snapshot!(world.told(), @r#"
    job {"metadata":{"annotations":{"kueue.x-k8s.io/stopping":"true"}},"spec":{"suspend":true}}
    Normal Stopped: No matching Workload; restoring pod templates according to existent Workload
    "#);
}

#[test]
fn second_matching_workload_is_deleted() {
    let world =
        world(job()).workload(job().workload().named("a")).workload(job().workload().named("b"));
    insta::assert_snapshot!(world.told(), @r"
    delete b
    Normal DeletedWorkload: Deleted not matching Workload: ns/b
    ");
}

#[test]
fn workload_of_an_earlier_job_is_deleted() {
    let earlier = job().with(json!({"metadata": {"uid": "earlier"}})).workload().finished();
    insta::assert_snapshot!(world(job()).workload(earlier).told(), @r"
    delete job-train-fa417
    Normal DeletedWorkload: Deleted not matching Workload: ns/job-train-fa417
    ");
}

#[test]
fn changed_priority_class_updates_the_workload() {
    let classed = |name: &str| job().label("kueue.x-k8s.io/priority-class", name);
    insta::assert_snapshot!(world(classed("high")).workload(job().workload()).told(), @r#"
    workload {"spec":{"priority":100,"priorityClassRef":{"group":"kueue.x-k8s.io","kind":"WorkloadPriorityClass","name":"high"}}}
    Normal UpdatedWorkload: Updated workload priority class: ns/job-train-1b29a
    "#);
    let reserved = world(classed("high")).workload(job().workload().reserved());
    assert_eq!(reserved.told(), "", "a class cannot be added once quota is reserved");
}

#[rstest]
#[case::removed(None, false)]
#[case::unknown(Some("none"), true)]
fn fixed_priority_class_does_not_delay_the_end(#[case] class: Option<&str>, #[case] told: bool) {
    let labelled = |class: Option<&str>| {
        job().with(json!({"metadata": {"labels": {"kueue.x-k8s.io/priority-class": class}}}))
    };
    let admitted = || {
        labelled(Some("high")).workload().admitted().edit(|workload| {
            let class =
                json!({"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "high"});
            workload.spec.priority_class_ref = Some(serde_json::from_value(class).unwrap());
            workload.spec.priority = Some(100);
        })
    };
    let started = |workload: &TestWorkload| labelled(class).started(&workload.0);
    let running =
        World { waits: false, ..world(started(&admitted()).running()) }.workload(admitted());
    assert_eq!(
        running.told().contains("WorkloadPriorityClassNotFound"),
        told,
        "{}",
        running.told()
    );
    let ended = world(started(&admitted()).condition("Complete")).workload(admitted());
    assert!(ended.told().contains("Finished=True/Succeeded"), "{}", ended.told());
    let evicted = world(started(&admitted()).running()).workload(admitted().evicted());
    assert!(evicted.told().contains("\"suspend\":true"), "{}", evicted.told());
}

#[test]
fn cluster_affinity_rules_are_synced_to_the_workload() {
    let bound = || {
        let rules = json!({"switchyard.dev/clusters": "west", "switchyard.dev/excluded-cluster-selector": "spot"});
        job().with(json!({"metadata": {"annotations": rules}}))
    };
    let told = world(job()).workload(bound().workload()).told();
    assert!(
        told.contains(r#""switchyard.dev/clusters":null"#) && told.contains(r#"selector":null"#),
        "{told}"
    );
    let told = world(bound()).workload(job().workload()).told();
    assert!(told.contains(r#""switchyard.dev/clusters":"west""#), "{told}");
    assert!(
        told.contains(
            "Updated workload switchyard.dev/clusters, switchyard.dev/excluded-cluster-selector"
        ),
        "{told}"
    );
    assert_eq!(world(bound()).workload(bound().workload()).told(), "");
}

#[test]
fn admission_gates_are_synced_to_the_workload() {
    let gated = || {
        job().with(json!({"metadata": {"annotations": {"kueue.x-k8s.io/admission-gated-by": "example.com/x"}}}))
    };
    insta::assert_snapshot!(world(job()).workload(gated().workload()).told(), @r#"
    workload {"metadata":{"annotations":{"kueue.x-k8s.io/admission-gated-by":null}}}
    Normal UpdatedWorkload: Updated workload AdmissionGatedBy to ""
    "#);
    assert_eq!(world(gated()).workload(gated().workload()).told(), "");
}

#[test]
fn changed_queue_moves_the_workload_without_quota() {
    let moved = || job().label("kueue.x-k8s.io/queue-name", "other");
    insta::assert_snapshot!(world(moved()).workload(job().workload()).told(), @r#"workload {"spec":{"queueName":"other"}}"#);
    assert_eq!(world(moved()).workload(job().workload().reserved()).told(), "");
}

fn prebuilt(prebuilt: Prebuilt, job: TestJob) -> World {
    World { prebuilt, ..world(job.label("kueue.x-k8s.io/prebuilt-workload-name", "w")) }
}

fn unowned(workload: TestWorkload) -> Prebuilt {
    let workload = workload.edit(|workload| {
        workload.metadata.owner_references = None;
        workload.metadata.labels = None;
    });
    Prebuilt::Found(Arc::new(workload.0))
}

#[test]
fn job_waits_for_its_prebuilt_workload() {
    assert_eq!(prebuilt(Prebuilt::Missing, job()).told(), "");
    insta::assert_snapshot!(prebuilt(Prebuilt::Missing, job().unsuspended()).told(), @r#"
    job {"spec":{"suspend":true}}
    Normal Stopped: missing workload
    "#);
}

#[test]
fn prebuilt_workload_is_adopted() {
    insta::assert_snapshot!(prebuilt(unowned(job().workload().admitted()), job()).told(), @r#"workload {"metadata":{"labels":{"kueue.x-k8s.io/job-uid":"job-uid"},"ownerReferences":[{"apiVersion":"batch/v1","blockOwnerDeletion":true,"controller":true,"kind":"Job","name":"train","uid":"job-uid"}]}}"#);
}

/// A job and a workload that an agent created together.
fn copies(workload: TestWorkload, job: TestJob) -> World {
    let marks = json!({"switchyard.dev/workload-uid": "u", "switchyard.dev/attempt": "1"});
    let job = job.with(
        json!({"metadata": {"labels": {"switchyard.dev/hub-id": "hub"}, "annotations": marks}}),
    );
    let workload = workload.edit(|workload| {
        workload.metadata.owner_references = None;
        workload.metadata.finalizers = None;
        let labels = [("switchyard.dev/hub-id", "hub")];
        workload.metadata.labels =
            Some(labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into());
        let annotations = [
            ("switchyard.dev/workload-uid", "u"),
            ("switchyard.dev/attempt", "1"),
            ("kueue.x-k8s.io/job-owner-gvk", "batch/v1, Kind=Job"),
            ("kueue.x-k8s.io/job-owner-name", "train"),
        ];
        workload.metadata.annotations =
            Some(annotations.map(|(key, value)| (key.to_owned(), value.to_owned())).into());
    });
    prebuilt(Prebuilt::Found(Arc::new(workload.0)), job)
}

#[test]
fn agents_job_and_workload_need_no_write() {
    let admitted = || job().workload().admitted();
    let started = || job().started(&admitted().0);
    assert_eq!(copies(admitted(), started()).told(), "", "as it was created");
    let running =
        World { ready_for: Duration::from_secs(1), ..copies(admitted(), started().running()) };
    assert_eq!(running.told(), "again after 29s", "then its pods have been ready for a while");
    let ended = |at: &str| {
        started().running().with(json!({"status": {"active": 0, "ready": 0, "conditions": [
            {"type": "Complete", "status": "True", "message": "done", "lastTransitionTime": at},
        ]}}))
    };
    assert_eq!(copies(admitted(), ended("2026-11-21T09:59:59Z")).told(), "again after 2s");
    insta::assert_snapshot!(copies(admitted(), ended("2026-11-21T09:59:57Z")).told(), @r#"
    workload status {"conditions":["Finished=True/Succeeded: done"]}
    Normal FinishedWorkload: Workload 'ns/job-train-1b29a' is declared finished
    "#);
}

#[test]
fn agents_suspended_job_is_started() {
    insta::assert_snapshot!(copies(job().workload().admitted(), job()).told(), @r#"
    job {"spec":{"suspend":false,"template":{"metadata":{"annotations":{"kueue.x-k8s.io/workload":"job-train-1b29a"},"labels":{"kueue.x-k8s.io/cluster-queue-name":"cq","kueue.x-k8s.io/local-queue-name":"lq","kueue.x-k8s.io/podset":"main"}},"spec":{"nodeSelector":{"accelerator":"a100"}}}}}
    Normal Started: Admitted by clusterQueue cq
    "#);
}

#[test]
fn copy_of_an_agents_copy_does_not_run() {
    let admitted = job().workload().admitted();
    let second =
        job().started(&admitted.0).with(json!({"metadata": {"name": "second", "uid": "second"}}));
    insta::assert_snapshot!(copies(admitted, second).told(), @r#"
    job {"spec":{"suspend":true}}
    Normal Stopped: missing workload
    "#);
}

#[test]
fn prebuilt_workload_of_another_job_is_ignored() {
    let other = job().with(json!({"metadata": {"uid": "other"}})).workload();
    assert_eq!(prebuilt(Prebuilt::Found(Arc::new(other.0)), job()).told(), "");
}

#[test]
fn mismatched_prebuilt_workload_is_finished() {
    let workload = job().workload().reserved();
    let changed = job().with(json!({"spec": {"parallelism": 2}}));
    insta::assert_snapshot!(prebuilt(Prebuilt::Found(Arc::new(workload.0)), changed).told(), @r#"
    workload status {"conditions":["Finished=True/OutOfSync: The prebuilt workload is out of sync with its user job"]}
    Normal FinishedWorkload: Workload 'ns/job-train-1b29a' is declared finished
    "#);
}

#[test]
fn job_below_too_many_owners_gets_an_event() {
    let told = |ancestor| World { ancestor, ..world(job().unsuspended()) }.told();
    insta::assert_snapshot!(told(Ancestor::TooDeep), @r"
    Warning JobNestingTooDeep: Terminated search for Kueue-managed Job because ancestor depth exceeded limit of 10
    retry: Terminated search for Kueue-managed Job because ancestor depth exceeded limit of 10
    ");
    insta::assert_snapshot!(told(Ancestor::Cyclic), @"retry: the job's owners own each other");
}
