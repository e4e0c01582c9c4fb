use rstest::rstest;
use serde_json::{Value, json};

use super::*;

fn equivalent(job: &Value, workload: &Workload) -> bool {
    let infos = workload.status.as_ref().map(|_| infos_of(workload));
    let pod_sets = job_pod_sets(&BatchJob, job).unwrap();
    is_equivalent(job, &pod_sets, BatchJob.is_suspended(job), workload, infos.as_deref())
}

fn container(patch: Value) -> Value {
    let mut container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}});
    apply_merge(&mut container, &patch);
    json!({"spec": {"template": {"spec": {"containers": [container]}}}})
}

#[rstest]
#[case::nothing_changed(json!({}), true)]
#[case::a_label_of_the_pods(json!({"spec": {"template": {"metadata": {"labels": {"x": "y"}}}}}), true)]
#[case::a_node_selector(json!({"spec": {"template": {"spec": {"nodeSelector": {"x": "y"}}}}}), false)]
#[case::an_affinity(json!({"spec": {"template": {"spec": {"affinity": {"nodeAffinity": {"x": 1}}}}}}), false)]
#[case::resources_of_the_pod(json!({"spec": {"template": {"spec": {"resources": {"requests": {"cpu": "8"}}}}}}), false)]
#[case::a_runtime_class(json!({"spec": {"template": {"spec": {"runtimeClassName": "kata"}}}}), false)]
#[case::a_claim(json!({"spec": {"template": {"spec": {"resourceClaims": [{"name": "gpu"}]}}}}), false)]
#[case::the_number_of_pods(json!({"spec": {"parallelism": 2, "completions": 2}}), false)]
#[case::a_toleration(json!({"spec": {"template": {"spec": {"tolerations": [{"key": "x"}]}}}}), false)]
#[case::an_image(container(json!({"image": "j"})), false)]
#[case::a_request(container(json!({"resources": {"requests": {"cpu": "2"}}})), false)]
#[case::the_same_request_written_otherwise(container(json!({"resources": {"requests": {"cpu": "1000m"}}})), true)]
#[case::an_empty_list_where_there_was_none(container(json!({"env": [], "resources": {"limits": {}}})), true)]
#[case::a_default_of_a_newer_server(container(json!({"fieldOfTheFuture": "Default"})), true)]
#[case::an_init_container(json!({"spec": {"template": {"spec": {"initContainers": [{"name": "i"}]}}}}), false)]
#[case::the_minimum_of_pods(json!({"metadata": {"annotations": {"kueue.x-k8s.io/job-min-parallelism": "1"}}}), false)]
#[case::the_maximum_execution_time(json!({"metadata": {"labels": {"kueue.x-k8s.io/max-exec-time-seconds": "5"}}}), false)]
fn a_queued_job_and_its_workload(#[case] change: Value, #[case] want: bool) {
    let workload = job().workload();
    assert_eq!(equivalent(&job().with(change).build(), &workload), want);
}

fn started(test: TestJob, workload: &Workload) -> Value {
    let mut job = test.build();
    BatchJob.run(&mut job, &infos_of(workload)).unwrap();
    job
}

#[test]
fn running_job_matches_its_admitted_workload() {
    let test = job().pods(5, 10).min_parallelism("2");
    let workload = reserved(test.workload(), 3, true);
    assert!(equivalent(&started(test, &workload), &workload));
}

#[test]
fn suspended_job_with_quota_matches_the_users_templates() {
    let test = job().pods(5, 10).min_parallelism("2");
    let workload = reserved(test.workload(), 3, true);
    assert!(equivalent(&test.build(), &workload));
}

#[test]
fn running_job_without_its_flavors_does_not_match() {
    let test = job().pods(5, 10).min_parallelism("2");
    let workload = reserved(test.workload(), 3, true);
    assert!(!equivalent(&test.running().build(), &workload));
}

/// Admission adds node selectors to a job but never amounts.
#[test]
fn place_of_an_admitted_job_does_not_count_and_its_amounts_do() {
    let workload = reserved(job().workload(), 1, true);
    let mut moved = started(job(), &workload);
    moved["spec"]["template"]["spec"]["nodeSelector"]["x"] = json!("y");
    assert!(equivalent(&moved, &workload));
    let mut larger = started(job(), &workload);
    larger["spec"]["template"]["spec"]["resources"] = json!({"requests": {"cpu": "8"}});
    assert!(!equivalent(&larger, &workload));
}

#[test]
fn tolerations_may_be_added_once_admitted() {
    let workload = reserved(job().workload(), 1, true);
    let mut job = started(job(), &workload);
    job["spec"]["template"]["spec"]["tolerations"] = json!([]);
    assert!(equivalent(&job, &workload));
    let reserved = reserved(super::job().workload(), 1, false);
    assert!(!equivalent(&job, &reserved), "but not with quota alone");
}
