use rstest::rstest;

use super::plain::{changed, object, shape, template};
use super::*;

fn replicas(count: i32) -> Value {
    json!({"replicas": count, "template": template("c")})
}

#[rstest]
#[case::all_of_tensorflow("TFJob", "tfReplicaSpecs", &["Worker", "PS", "Evaluator", "Chief", "Master"], "chief x 1, master x 1, ps x 1, worker x 1, evaluator x 1")]
#[case::pytorch("PyTorchJob", "pytorchReplicaSpecs", &["Worker", "Master"], "master x 1, worker x 1")]
#[case::paddle("PaddleJob", "paddleReplicaSpecs", &["Worker", "Master"], "master x 1, worker x 1")]
#[case::xgboost("XGBoostJob", "xgbReplicaSpecs", &["Worker", "Master"], "master x 1, worker x 1")]
#[case::jax("JAXJob", "jaxReplicaSpecs", &["Worker"], "worker x 1")]
#[case::mpi("MPIJob", "mpiReplicaSpecs", &["Worker", "Launcher"], "launcher x 1, worker x 1")]
#[case::a_type_that_is_not_known_is_left_out("JAXJob", "jaxReplicaSpecs", &["Worker", "Master"], "worker x 1")]
fn pod_sets_in_the_order_of_types(
    #[case] kind: &str,
    #[case] field: &str,
    #[case] types: &[&str],
    #[case] want: &str,
) {
    let specs: serde_json::Map<String, Value> = types
        .iter()
        .map(|type_| ((*type_).to_owned(), json!({"template": template("c")})))
        .collect();
    let (kind, job) = object("kubeflow.org", kind, json!({ field: specs }));
    assert_eq!(shape(kind, &job), want);
}

fn pytorch() -> (&'static dyn JobKind, Value) {
    object(
        "kubeflow.org",
        "PyTorchJob",
        json!({"pytorchReplicaSpecs": {"Master": replicas(1), "Worker": replicas(4)}}),
    )
}

/// One job of each kind with one working pod.
fn all() -> [(&'static dyn JobKind, Value); 6] {
    [
        ("TFJob", "tfReplicaSpecs"),
        ("PyTorchJob", "pytorchReplicaSpecs"),
        ("PaddleJob", "paddleReplicaSpecs"),
        ("XGBoostJob", "xgbReplicaSpecs"),
        ("JAXJob", "jaxReplicaSpecs"),
        ("MPIJob", "mpiReplicaSpecs"),
    ]
    .map(|(kind, specs)| object("kubeflow.org", kind, json!({specs: {"Worker": replicas(4)}})))
}

#[test]
fn the_run_policy_suspends() {
    let (kind, job) = pytorch();
    assert_eq!(job["spec"]["runPolicy"], json!({"suspend": true}));
    assert!(kind.is_suspended(&job));
    assert!(!kind.is_suspended(&json!({"spec": {}})));
    let mut job = job;
    kind.set_managed_by(&mut job, Some("x"));
    assert_eq!(job["spec"]["runPolicy"]["managedBy"], "x");
}

#[rstest]
#[case::no_status(json!({}), (false, false))]
#[case::created(json!({"conditions": [{"type": "Created", "status": "True"}], "replicaStatuses": {"Worker": {}}}), (false, false))]
#[case::pods_there(json!({"replicaStatuses": {"Master": {}, "Worker": {"active": 2}}}), (true, false))]
#[case::running(json!({"conditions": [{"type": "Running", "status": "True"}], "replicaStatuses": {"Worker": {"active": 4}}}), (true, true))]
#[case::not_running_any_more(json!({"conditions": [{"type": "Running", "status": "False"}], "replicaStatuses": {"Worker": {"succeeded": 4}}}), (false, false))]
fn active_and_ready(#[case] status: Value, #[case] want: (bool, bool)) {
    for (kind, job) in all() {
        let job = changed(&job, json!({ "status": status }));
        assert_eq!((kind.is_active(&job), kind.pods_ready(&job)), want, "{}", kind.id().kind);
        assert!(kind.reclaimable(&job).is_empty());
    }
}

#[rstest]
#[case::running(json!([{"type": "Running", "status": "True"}]), None)]
#[case::succeeded(json!([{"type": "Running", "status": "False"}, {"type": "Succeeded", "status": "True", "message": "done"}]), Some((true, "done")))]
#[case::failed(json!([{"type": "Failed", "status": "True", "message": "worker 0"}]), Some((false, "worker 0")))]
#[case::restarting(json!([{"type": "Restarting", "status": "True"}, {"type": "Failed", "status": "False"}]), None)]
fn finished(#[case] conditions: Value, #[case] want: Option<(bool, &str)>) {
    let want = want.map(|(success, message)| JobEnd { success, message: message.into() });
    for (kind, job) in all() {
        let job = changed(&job, json!({"status": {"conditions": conditions}}));
        assert_eq!(kind.finished(&job), want, "{}", kind.id().kind);
    }
}

#[test]
fn scheduling_policys_class_takes_precedence() {
    let (kind, job) = pytorch();
    assert_eq!(kind.priority_class(&job), None);
    let job = changed(
        &job,
        json!({"spec": {"runPolicy": {"schedulingPolicy": {"priorityClass": "high"}}}}),
    );
    assert_eq!(kind.priority_class(&job).as_deref(), Some("high"));
}
