use rstest::rstest;

use super::plain::{changed, object, running, shape, template};
use super::*;

fn wrapper(components: Value) -> (&'static dyn JobKind, Value) {
    object("workload.codeflare.dev", "AppWrapper", json!({ "components": components }))
}

fn wrapped(api_version: &str, kind: &str, spec: Value) -> Value {
    json!({"template": {"apiVersion": api_version, "kind": kind, "metadata": {"name": "x"}, "spec": spec}})
}

#[rstest]
#[case::a_pod(wrapped("v1", "Pod", template("c")["spec"].clone()), "train-0 x 1")]
#[case::a_deployment(wrapped("apps/v1", "Deployment", json!({"replicas": 3, "template": template("c")})), "train-0 x 3")]
#[case::a_job(wrapped("batch/v1", "Job", json!({"parallelism": 3, "completions": 2, "template": template("c")})), "train-0 x 2")]
#[case::a_job_set(wrapped("jobset.x-k8s.io/v1alpha2", "JobSet", json!({"replicatedJobs": [{"replicas": 2, "template": {"spec": {"parallelism": 2, "template": template("c")}}}]})), "train-0 x 4")]
#[case::a_pytorch_job(wrapped("kubeflow.org/v1", "PyTorchJob", json!({"pytorchReplicaSpecs": {"Worker": {"replicas": 3, "template": template("c")}}})), "train-0 x 3")]
#[case::a_ray_cluster(wrapped("ray.io/v1", "RayCluster", json!({"headGroupSpec": {"template": template("h")}, "workerGroupSpecs": [{"replicas": 2, "template": template("w")}]})), "train-0 x 1, train-1 x 2")]
#[case::a_ray_job(wrapped("ray.io/v1", "RayJob", json!({"rayClusterSpec": {"headGroupSpec": {"template": template("h")}}})), "train-0 x 1")]
#[case::no_pods(wrapped("v1", "ConfigMap", json!({})), "spec: has no pod template; AppWrapper needs at least one")]
fn known_kinds_need_no_declaration(#[case] component: Value, #[case] want: &str) {
    let (kind, job) = wrapper(json!([component]));
    assert_eq!(shape(kind, &job), want);
}

fn declared(pod_sets: Value) -> (&'static dyn JobKind, Value) {
    let own = wrapped(
        "example.com/v1",
        "Own",
        json!({"groups": [{"template": template("a")}, {"template": template("b")}]}),
    );
    wrapper(json!([changed(&own, json!({ "podSets": pod_sets }))]))
}

#[rstest]
#[case::one(json!([{"path": "template.spec.groups[1].template", "replicas": 4}]), "train-0 x 4")]
#[case::one_replica_by_default(json!([{"path": "template.spec.groups[0].template"}, {"path": "template.spec.groups[1].template", "replicas": 2}]), "train-0 x 1, train-1 x 2")]
#[case::nothing_there(json!([{"path": "template.spec.groups[2].template"}]), "spec.components[0].template.spec.groups[2].template.spec: is missing; AppWrapper needs a pod template here")]
#[case::no_path(json!([{"path": "spec.groups"}]), "spec.components[0].podSets[0].path: \"spec.groups\" is no path like template.spec.template or template.spec.jobs[0].template")]
#[case::no_number(json!([{"path": "template.spec.groups[x]"}]), "spec.components[0].podSets[0].path: \"template.spec.groups[x]\" is no path like template.spec.template or template.spec.jobs[0].template")]
fn declared_places(#[case] pod_sets: Value, #[case] want: &str) {
    let (kind, job) = declared(pod_sets);
    assert_eq!(shape(kind, &job), want);
}

#[test]
fn controllers_recorded_pod_sets_override_the_spec() {
    let (kind, job) = declared(json!([{"path": "template.spec.groups[0].template"}]));
    let found = json!([{"name": "x", "podSets": [{"path": "template.spec.groups[1].template", "replicas": 7}]}]);
    let job = changed(&job, json!({"status": {"componentStatus": found}}));
    assert_eq!(shape(kind, &job), "train-0 x 7");
}

#[test]
fn admission_is_written_beside_the_templates() {
    let job = wrapped("batch/v1", "Job", json!({"template": template("c")}));
    let ray = wrapped(
        "ray.io/v1",
        "RayCluster",
        json!({"headGroupSpec": {"template": template("h")}, "workerGroupSpecs": [{"template": template("w")}]}),
    );
    let (kind, before) = wrapper(json!([job, wrapped("v1", "Service", json!({})), ray]));
    let started = running(kind, &before);
    let infos =
        |at: usize| started["spec"]["components"][at]["podSetInfos"].as_array().map_or(0, Vec::len);
    assert_eq!((infos(0), infos(1), infos(2)), (1, 0, 2));
    let first = &started["spec"]["components"][0];
    assert_eq!(first["podSetInfos"][0]["nodeSelector"], json!({"accelerator": "a100"}));
    assert_eq!(first["podSetInfos"][0]["labels"]["kueue.x-k8s.io/podset"], "train-0");
    assert_eq!(first["podSetInfos"][0].get("schedulingGates"), None);
    assert_eq!(first["template"], before["spec"]["components"][0]["template"]);
    assert_eq!(running(kind, &started), started, "started again, it is the same");
}

#[rstest]
#[case::suspended(json!({"phase": "Suspended"}), (false, false), None)]
#[case::resuming(json!({"phase": "Resuming", "conditions": [{"type": "QuotaReserved", "status": "True"}]}), (true, false), None)]
#[case::running(json!({"phase": "Running", "conditions": [{"type": "QuotaReserved", "status": "True"}, {"type": "PodsReady", "status": "True"}]}), (true, true), None)]
#[case::succeeded(json!({"phase": "Succeeded"}), (false, false), Some((true, "AppWrapper finished successfully")))]
#[case::failed_and_still_there(json!({"phase": "Failed", "conditions": [{"type": "ResourcesDeployed", "status": "True"}]}), (false, false), None)]
#[case::failed(json!({"phase": "Failed", "conditions": [{"type": "ResourcesDeployed", "status": "False"}]}), (false, false), Some((false, "AppWrapper failed")))]
fn app_wrapper_status_is_interpreted(
    #[case] status: Value,
    #[case] life: (bool, bool),
    #[case] end: Option<(bool, &str)>,
) {
    let (kind, job) = wrapper(json!([wrapped("v1", "Pod", template("c")["spec"].clone())]));
    let job = changed(&job, json!({ "status": status }));
    assert_eq!((kind.is_active(&job), kind.pods_ready(&job)), life);
    assert_eq!(
        kind.finished(&job),
        end.map(|(success, message)| JobEnd { success, message: message.into() })
    );
}
