//! Elastic jobs with several pod sets, as Ray's kinds.

use rstest::rstest;
use serde_json::json;
use switchyard_jobs::{
    elastic::{gate_pods, mark_slice},
    kind_for,
};

use super::*;
use crate::reconcilers::job::slices::elastic_keeps_running;

fn kind(name: &str) -> &'static dyn JobKind {
    kind_for("ray.io", name).unwrap()
}

/// An elastic cluster with groups `a` and `b` of so many workers, gated by the webhook.
fn cluster(a: i32, b: i32) -> TestJob {
    let container = json!({"name": "c", "resources": {"requests": {"cpu": "1"}}});
    let template =
        json!({"metadata": {"labels": {"app": "train"}}, "spec": {"containers": [container]}});
    let group = |name: &str, replicas: i32| json!({"groupName": name, "replicas": replicas, "template": template});
    let mut job = json!({
        "apiVersion": "ray.io/v1", "kind": "RayCluster",
        "metadata": {
            "name": "train", "namespace": "ns", "uid": "job-uid", "resourceVersion": "7", "generation": i64::from(a + b),
            "labels": {"kueue.x-k8s.io/queue-name": "lq"}, "annotations": {"kueue.x-k8s.io/elastic-job": "true"},
        },
        "spec": {
            "suspend": true, "headGroupSpec": {"template": template}, "workerGroupSpecs": [group("a", a), group("b", b)],
        },
    });
    gate_pods(kind("RayCluster"), &mut job);
    TestJob(job)
}

/// A slice of the cluster, created at that second.
fn slice(second: i64, job: &TestJob, replaced: Option<&TestWorkload>) -> TestWorkload {
    let kind = kind("RayCluster");
    let pod_sets = job_pod_sets(kind, &job.0).unwrap();
    let mut workload =
        build_workload(kind, &job.0, pod_sets, &Priority::default(), BuildOptions::default());
    mark_slice(kind, &job.0, &mut workload, replaced.map(|it| &it.0), &[]);
    workload.metadata.name = Some(format!("slice-{second}"));
    workload.metadata.uid = Some(format!("uid-{second}"));
    workload.metadata.creation_timestamp = Some(Time(Timestamp::from_second(second).unwrap()));
    TestWorkload(workload)
}

/// Has quota for two workers of each group.
fn first() -> TestWorkload {
    let ready = |edit: &mut Edit| {
        edit.set(
            conditions::PODS_READY,
            true,
            "Started",
            "All pods reached readiness and the workload is running",
        );
    };
    slice(1, &cluster(2, 2), None).admitted().status(ready)
}

/// The cluster as it runs with that, since resized.
fn runs(a: i32, b: i32) -> TestJob {
    let (mut job, gpu, workload) = (cluster(a, b), gpu(), first());
    kind("RayCluster")
        .run(&mut job.0, &pod_set_infos(&workload.0, |_| Some(&gpu)).unwrap())
        .unwrap();
    job.with(json!({"status": {"state": "ready"}}))
}

fn of(job: TestJob) -> World {
    World { kind: kind("RayCluster"), ..world(job) }
}

/// Counts of created and changed slices, and whether the job stops.
fn outcome(world: &World) -> String {
    let counts = |workload: &Workload| {
        let counts: Vec<String> =
            workload.spec.pod_sets.iter().map(|it| format!("{} {}", it.name, it.count)).collect();
        counts.join(", ")
    };
    let told = |action: &Action| match action {
        Action::CreateWorkload(new) => Some(format!("new: {}", counts(new))),
        Action::UpdateWorkload { old, new } => {
            Some(format!("{}: {}", old.metadata.name.as_deref().unwrap(), counts(new)))
        }
        Action::UpdateWorkloadStatus { old, .. } => {
            Some(format!("{} changes", old.metadata.name.as_deref().unwrap()))
        }
        Action::UpdateJob(job) => Some(format!("suspend {}", job["spec"]["suspend"])),
        _ => None,
    };
    world.decide().actions.iter().filter_map(told).collect::<Vec<_>>().join("; ")
}

#[rstest]
#[case::unchanged(runs(2, 2), vec![], "")]
#[case::one_group_grows(runs(3, 2), vec![], "new: head 1, a 3, b 2")]
#[case::one_group_shrinks(runs(2, 0), vec![], "slice-1: head 1, a 2, b 0")]
#[case::both_shrink(runs(1, 1), vec![], "slice-1: head 1, a 1, b 1")]
#[case::one_grows_and_one_shrinks(runs(1, 3), vec![], "new: head 1, a 1, b 3")]
#[case::larger_slice_waits(runs(1, 3), vec![slice(2, &cluster(1, 3), Some(&first()))], "")]
#[case::other_group_grows_too(runs(3, 3), vec![slice(2, &cluster(1, 3), Some(&first()))], "slice-2: head 1, a 3, b 3")]
#[case::growth_reverted(runs(1, 2), vec![slice(2, &cluster(1, 3), Some(&first()))], "slice-2 changes")]
fn cluster_runs_on_while_it_is_resized(
    #[case] job: TestJob,
    #[case] more: Vec<TestWorkload>,
    #[case] want: &str,
) {
    let world = more.into_iter().fold(of(job).workload(first()), World::workload);
    assert_eq!(outcome(&world), want);
}

#[test]
fn another_group_is_another_job() {
    let group = json!({"groupName": "c", "template": {"spec": {"containers": []}}});
    let mut job = runs(2, 2);
    job.0["spec"]["workerGroupSpecs"].as_array_mut().unwrap().push(group);
    gate_pods(kind("RayCluster"), &mut job.0);
    assert_eq!(outcome(&of(job).workload(first())), "suspend true");
}

#[test]
fn evicted_cluster_stops_with_its_new_size() {
    let world = of(runs(1, 5)).workload(first().evicted());
    assert_eq!(outcome(&world), "suspend true");
    let [Action::UpdateJob(stopped), _] = &world.decide().actions[..] else {
        panic!("{}", world.told())
    };
    assert_eq!(stopped["spec"], cluster(1, 5).0["spec"]);
}

#[test]
fn dispatched_cluster_follows_its_hub() {
    let mut grown = of(runs(2, 5)).workload(first());
    (grown.role, grown.check) = (Role::Hub, Some("multikueue"));
    assert_eq!(outcome(&grown), "suspend true");
}

#[test]
fn without_the_feature_gate_a_cluster_is_not_elastic() {
    let mut grown = of(runs(2, 5)).workload(first());
    grown.elastic = false;
    assert_eq!(outcome(&grown), "suspend true");
}

#[test]
fn children_run_on_while_larger_slice_waits_for_checks() {
    let job = runs(3, 2).0;
    let grew = slice(2, &cluster(3, 2), Some(&first()));
    let goes =
        |workload: TestWorkload| elastic_keeps_running(kind("RayCluster"), &job, &workload.0);
    assert!(goes(TestWorkload(grew.0.clone()).reserved()));
    assert!(!goes(grew), "it has no quota");
    assert!(!goes(slice(1, &cluster(2, 2), None).reserved()), "there was nothing before");
}
