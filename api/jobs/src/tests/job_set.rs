use rstest::rstest;

use super::plain::{changed, object, samples, shape, template};
use super::*;

/// Two replicated jobs: `leader` with one Job of one pod, `worker` with two Jobs of three pods.
fn job_set() -> (&'static dyn JobKind, Value) {
    samples().into_iter().find(|(kind, _)| kind.id().kind == "JobSet").unwrap()
}

fn with_status(leader: Value, worker: Value) -> (&'static dyn JobKind, Value) {
    let named = |name: &str, status: Value| {
        let all = json!({"name": name, "active": 0, "ready": 0, "succeeded": 0, "failed": 0, "suspended": 0});
        changed(&all, status)
    };
    let (kind, job) = job_set();
    let statuses = [named("leader", leader), named("worker", worker)];
    (kind, changed(&job, json!({"status": {"replicatedJobsStatus": statuses}})))
}

#[rstest]
#[case::completions_limit_parallelism(json!({"parallelism": 5, "completions": 2}), "a x 4")]
#[case::parallelism_limits_completions(json!({"parallelism": 2, "completions": 9}), "a x 4")]
#[case::one_pod_by_default(json!({}), "a x 2")]
#[case::completions_alone(json!({"completions": 5}), "a x 2")]
fn pods_of_a_group(#[case] spec: Value, #[case] want: &str) {
    let spec = changed(&spec, json!({"template": template("c")}));
    let jobs = json!([{"name": "A", "replicas": 2, "template": {"spec": spec}}]);
    let (kind, job) = object("jobset.x-k8s.io", "JobSet", json!({ "replicatedJobs": jobs }));
    assert_eq!(shape(kind, &job), want);
}

#[rstest]
#[case::nothing_reported(json!({}), json!({}), (false, false))]
#[case::pods_run(json!({"active": 1}), json!({"active": 2}), (true, false))]
#[case::some_jobs_are_ready(json!({"active": 1, "ready": 1}), json!({"active": 2, "ready": 1}), (true, false))]
#[case::all_jobs_are_ready(json!({"active": 1, "ready": 1}), json!({"active": 2, "ready": 2}), (true, true))]
#[case::some_have_ended(json!({"succeeded": 1}), json!({"active": 1, "ready": 1, "succeeded": 1}), (true, true))]
fn active_and_ready(#[case] leader: Value, #[case] worker: Value, #[case] want: (bool, bool)) {
    let (kind, job) = with_status(leader, worker);
    assert_eq!((kind.is_active(&job), kind.pods_ready(&job)), want);
}

#[rstest]
#[case::nothing_succeeded(json!({"active": 1}), json!({"active": 2}), "")]
#[case::a_job_of_three_pods(json!({}), json!({"active": 1, "succeeded": 1}), "worker x 3")]
#[case::all(json!({"succeeded": 1}), json!({"succeeded": 2}), "leader x 1, worker x 6")]
#[case::more_than_there_are(json!({"succeeded": 7}), json!({}), "")]
fn reclaimable(#[case] leader: Value, #[case] worker: Value, #[case] want: &str) {
    let (kind, job) = with_status(leader, worker);
    let pods: Vec<String> =
        kind.reclaimable(&job).iter().map(|it| format!("{} x {}", it.name, it.count)).collect();
    assert_eq!(pods.join(", "), want);
}

#[rstest]
#[case::running(json!([]), None)]
#[case::suspended(json!([{"type": "Suspended", "status": "True"}]), None)]
#[case::completed(json!([{"type": "Suspended", "status": "False"}, {"type": "Completed", "status": "True", "message": "jobset completed"}]), Some((true, "jobset completed")))]
#[case::failed(json!([{"type": "Failed", "status": "True", "message": "one failed"}]), Some((false, "one failed")))]
#[case::not_failed(json!([{"type": "Failed", "status": "False"}]), None)]
fn finished(#[case] conditions: Value, #[case] want: Option<(bool, &str)>) {
    let (kind, job) = job_set();
    let job = changed(&job, json!({"status": {"conditions": conditions}}));
    assert_eq!(
        kind.finished(&job),
        want.map(|(success, message)| JobEnd { success, message: message.into() })
    );
}

#[test]
fn first_templates_class_counts() {
    let (kind, job) = job_set();
    let mut job = job;
    *job.pointer_mut("/spec/replicatedJobs/1/template/spec/template/spec").unwrap() =
        json!({"priorityClassName": "high", "containers": []});
    let pod_sets = kind.pod_sets(&job).unwrap();
    assert_eq!(pod_sets[1].template.value()["spec"]["priorityClassName"], "high");
    assert_eq!(kind.priority_class(&job), None);
}
