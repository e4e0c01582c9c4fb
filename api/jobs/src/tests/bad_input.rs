//! Malformed objects: each error names the field, and no object is mistaken for another.

use super::plain::{changed, object, shape, template};
use super::*;

const NO_COUNT: &str = "must be between 0 and 2147483647";

/// Kubeflow's kinds, with the field of their pod templates.
const KUBEFLOW: [(&str, &str); 6] = [
    ("TFJob", "tfReplicaSpecs"),
    ("PyTorchJob", "pytorchReplicaSpecs"),
    ("PaddleJob", "paddleReplicaSpecs"),
    ("XGBoostJob", "xgbReplicaSpecs"),
    ("JAXJob", "jaxReplicaSpecs"),
    ("MPIJob", "mpiReplicaSpecs"),
];

fn ray(kind: &str, at: &str, cluster: Value) -> (&'static dyn JobKind, Value) {
    let spec = if at.is_empty() { cluster } else { json!({at: cluster}) };
    let (kind, job) = object("ray.io", kind, spec);
    (
        kind,
        changed(
            &job,
            json!({"spec": {"shutdownAfterJobFinishes": true, "submissionMode": "HTTPMode"}}),
        ),
    )
}

/// A cluster with worker groups of these sizes.
fn cluster(groups: &[i32]) -> Value {
    let group = |(at, replicas): (usize, &i32)| json!({"groupName": format!("g{at}"), "replicas": replicas, "template": template("w")});
    let groups: Vec<Value> = groups.iter().enumerate().map(group).collect();
    json!({"headGroupSpec": {"template": template("h")}, "workerGroupSpecs": groups})
}

fn train_job(replicated: Value) -> (&'static dyn JobKind, Value) {
    let (kind, mut job) =
        object("trainer.kubeflow.org", "TrainJob", json!({"runtimeRef": {"name": "torch"}}));
    kind.attach(&mut job, &json!({"spec": {"template": {"spec": {"replicatedJobs": replicated}}}}));
    (kind, job)
}

fn app_wrapper(pod_sets: Value, spec: Value) -> (&'static dyn JobKind, Value) {
    let wrapped = json!({"apiVersion": "apps/v1", "kind": "Deployment", "spec": spec});
    let components = json!([{"template": wrapped, "podSets": pod_sets}]);
    object("workload.codeflare.dev", "AppWrapper", json!({ "components": components }))
}

#[test]
fn missing_pod_template_is_reported_with_its_path() {
    let mut table = vec![
        (
            object("jobset.x-k8s.io", "JobSet", json!({"replicatedJobs": [{"name": "a"}]})),
            "spec.replicatedJobs[0].template.spec.template.spec: is missing; JobSet needs a pod template here"
                .to_owned(),
        ),
        (
            train_job(json!([{"name": "node"}])),
            "spec.runtimeRef: the replicated job \"node\" of \"torch\" has no pod template; it needs one".to_owned(),
        ),
        (app_wrapper(json!([]), json!({})), "spec: has no pod template; AppWrapper needs at least one".to_owned()),
        (
            app_wrapper(json!([{"path": "template.spec.template"}]), json!({})),
            "spec.components[0].template.spec.template.spec: is missing; AppWrapper needs a pod template here"
                .to_owned(),
        ),
        (
            object("apps", "StatefulSet", json!({})),
            "spec.template.spec: is missing; a pod template is needed here".to_owned(),
        ),
        (
            object("leaderworkerset.x-k8s.io", "LeaderWorkerSet", json!({})),
            "spec.leaderWorkerTemplate.workerTemplate.spec: is missing; a pod template is needed here".to_owned(),
        ),
        (object("apps", "Deployment", json!({})), "kind: each pod of a Deployment is a job of its own".to_owned()),
    ];
    for (kind, at) in
        [("RayCluster", ""), ("RayJob", "rayClusterSpec"), ("RayService", "rayClusterConfig")]
    {
        let field = format!("spec.{at}.headGroupSpec.template.spec").replace("..", ".");
        table.push((
            ray(kind, at, json!({})),
            format!("{field}: is missing; {kind} needs a pod template here"),
        ));
    }
    for (kind, specs) in KUBEFLOW {
        let want = format!(
            "spec.{specs}.Worker.template.spec: is missing; {kind} needs a pod template here"
        );
        table.push((
            object("kubeflow.org", kind, json!({specs: {"Worker": {"replicas": 1}}})),
            want,
        ));
    }
    for ((kind, job), want) in table {
        assert_eq!(shape(kind, &job), want, "{}", kind.id().kind);
        assert!(job_pod_sets(kind, &job).is_err());
    }
}

#[test]
fn negative_pod_count_is_rejected_with_its_path() {
    let group =
        json!({"name": "a", "replicas": -1, "template": {"spec": {"template": template("c")}}});
    let mut table = vec![
        (
            object("jobset.x-k8s.io", "JobSet", json!({"replicatedJobs": [group]})),
            format!("spec.replicatedJobs[0].replicas: gives -1 pods; {NO_COUNT}"),
        ),
        (
            app_wrapper(
                json!([{"path": "template.spec.template", "replicas": -1}]),
                json!({"template": template("c")}),
            ),
            format!("spec.components[0].podSets: gives -1 pods; {NO_COUNT}"),
        ),
        (
            object("apps", "StatefulSet", json!({"replicas": -1, "template": template("c")})),
            format!("spec.replicas: gives -1 pods; {NO_COUNT}"),
        ),
        (
            object("apps", "Deployment", json!({"replicas": -1, "template": template("c")})),
            "kind: each pod of a Deployment is a job of its own".to_owned(),
        ),
        (
            object(
                "leaderworkerset.x-k8s.io",
                "LeaderWorkerSet",
                json!({
                    "leaderWorkerTemplate": {"size": -1, "workerTemplate": template("c")},
                }),
            ),
            "spec.leaderWorkerTemplate.size: must be between 1 and 2147483647".to_owned(),
        ),
    ];
    for (kind, at) in
        [("RayCluster", ""), ("RayJob", "rayClusterSpec"), ("RayService", "rayClusterConfig")]
    {
        let field = format!("spec.{at}.workerGroupSpecs[0].replicas").replace("..", ".");
        table.push((ray(kind, at, cluster(&[-1])), format!("{field}: gives -1 pods; {NO_COUNT}")));
    }
    for (kind, specs) in KUBEFLOW {
        let specs_of = json!({specs: {"Worker": {"replicas": -1, "template": template("c")}}});
        let want = format!("spec.{specs}.Worker.replicas: gives -1 pods; {NO_COUNT}");
        table.push((object("kubeflow.org", kind, specs_of), want));
    }
    for ((kind, job), want) in table {
        assert_eq!(shape(kind, &job), want, "{}", kind.id().kind);
    }
}

#[test]
fn too_many_pod_sets_are_rejected_or_all_counted() {
    let group = |at: usize| json!({"name": format!("g{at}"), "template": {"spec": {"template": template("c")}}});
    let groups: Vec<Value> = (0..19).map(group).collect();
    for (kind, job) in [
        object("jobset.x-k8s.io", "JobSet", json!({"replicatedJobs": groups})),
        train_job(json!(groups)),
    ] {
        assert_eq!(
            kind.pod_sets(&job).unwrap().len(),
            19,
            "{}: the API server refuses its Workload",
            kind.id().kind
        );
    }
    let said = |kind: &dyn JobKind, job: &Value| {
        validate_create(kind, job).iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    };
    for (kind, at) in
        [("RayCluster", ""), ("RayJob", "rayClusterSpec"), ("RayService", "rayClusterConfig")]
    {
        let field = format!("spec.{at}.workerGroupSpecs").replace("..", ".");
        let (kind, job) = ray(kind, at, cluster(&[1; 18]));
        assert_eq!(said(kind, &job), format!("{field}: Too many: 19: must have at most 18 items"));
        let (kind, job) = ray(kind.id().kind, at, cluster(&[1; 17]));
        assert_eq!(said(kind, &job), "", "{}", kind.id().kind);
    }
}
