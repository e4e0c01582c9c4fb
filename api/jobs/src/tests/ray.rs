use rstest::rstest;

use super::plain::{changed, object, running, shape, template};
use super::*;

fn cluster(groups: &[(&str, Value)]) -> Value {
    let group = |(name, more): &(&str, Value)| {
        changed(&json!({"groupName": name, "template": template("w")}), more.clone())
    };
    json!({
        "headGroupSpec": {"template": template("head")},
        "workerGroupSpecs": groups.iter().map(group).collect::<Vec<_>>(),
    })
}

fn ray_cluster(groups: &[(&str, Value)]) -> (&'static dyn JobKind, Value) {
    object("ray.io", "RayCluster", cluster(groups))
}

fn ray_job(more: Value) -> (&'static dyn JobKind, Value) {
    let spec = json!({"shutdownAfterJobFinishes": true, "rayClusterSpec": cluster(&[("g", json!({"replicas": 2}))])});
    object("ray.io", "RayJob", changed(&spec, more))
}

fn ray_service() -> (&'static dyn JobKind, Value) {
    object("ray.io", "RayService", json!({"rayClusterConfig": cluster(&[("g", json!({}))])}))
}

#[rstest]
#[case::the_head_alone(&[], "head x 1")]
#[case::one_replica_by_default(&[("Group", json!({}))], "head x 1, group x 1")]
#[case::hosts_multiply(&[("tpu", json!({"replicas": 3, "numOfHosts": 4}))], "head x 1, tpu x 12")]
#[case::none(&[("later", json!({"replicas": 0}))], "head x 1, later x 0")]
fn pod_sets_of_a_cluster(#[case] groups: &[(&str, Value)], #[case] want: &str) {
    let (kind, job) = ray_cluster(groups);
    assert_eq!(shape(kind, &job), want);
}

#[rstest]
#[case::a_pod_submits(json!({"submissionMode": "K8sJobMode"}), "head x 1, g x 2, submitter x 1")]
#[case::so_it_does_by_default(json!({}), "head x 1, g x 2, submitter x 1")]
#[case::http(json!({"submissionMode": "HTTPMode"}), "head x 1, g x 2")]
#[case::a_sidecar(json!({"submissionMode": "SidecarMode"}), "head x 1, g x 2")]
fn pod_sets_of_a_job(#[case] more: Value, #[case] want: &str) {
    let (kind, job) = ray_job(more);
    assert_eq!(shape(kind, &job), want);
}

fn head_containers(kind: &dyn JobKind, job: &Value) -> Value {
    kind.pod_sets(job).unwrap()[0].template.value()["spec"]["containers"].clone()
}

#[test]
fn kuberays_additions_to_the_head_are_counted() {
    let (kind, job) = ray_job(json!({"submissionMode": "SidecarMode"}));
    let containers = head_containers(kind, &job);
    assert_eq!(containers[1]["name"], "ray-job-submitter");
    assert_eq!(containers[1]["resources"]["requests"], json!({"cpu": "500m", "memory": "200Mi"}));

    let (kind, job) = ray_cluster(&[]);
    let scaled = changed(&job, json!({"spec": {"enableInTreeAutoscaling": true}}));
    assert_eq!(
        head_containers(kind, &scaled)[1]["resources"]["limits"],
        json!({"cpu": "500m", "memory": "512Mi"})
    );
    let own = json!({"spec": {"enableInTreeAutoscaling": true, "autoscalerOptions": {"resources": {"requests": {"cpu": "2"}}}}});
    assert_eq!(
        head_containers(kind, &changed(&job, own))[1]["resources"],
        json!({"requests": {"cpu": "2"}})
    );
}

#[rstest]
#[case::as_usual(json!({}), json!({"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"cpu": "200m", "memory": "256Mi"}}))]
#[case::of_its_own(json!({"resources": {"requests": {"cpu": "2"}}}), json!({"requests": {"cpu": "2"}}))]
fn history_server_collector_is_counted_in_every_pod(#[case] options: Value, #[case] want: Value) {
    let (kind, job) =
        ray_job(json!({"rayClusterSpec": {"historyServerOptions": {"collectorOptions": options}}}));
    let pod_sets = kind.pod_sets(&job).unwrap();
    let collector = |at: usize| pod_sets[at].template.value()["spec"]["containers"].get(1).cloned();
    for of_cluster in [0, 1] {
        assert_eq!(
            collector(of_cluster),
            Some(json!({"name": "ray-history-collector", "resources": want}))
        );
    }
    assert_eq!(collector(2), None, "the submitter is no pod of the cluster");
}

#[test]
fn ray_head_without_containers_is_rejected() {
    let none = json!({"headGroupSpec": {"template": {"spec": {"containers": []}}}});
    for (kind, job, at, path) in [
        (ray_cluster(&[]).0, ray_cluster(&[]).1, "/spec", "spec"),
        (ray_job(json!({})).0, ray_job(json!({})).1, "/spec/rayClusterSpec", "spec.rayClusterSpec"),
        (ray_service().0, ray_service().1, "/spec/rayClusterConfig", "spec.rayClusterConfig"),
    ] {
        assert_eq!(validate_create(kind, &job), []);
        let mut empty = job.clone();
        apply_merge(empty.pointer_mut(at).unwrap(), &none);
        let said: Vec<String> =
            validate_create(kind, &empty).iter().map(ToString::to_string).collect();
        let want = format!(
            "{path}.headGroupSpec.template.spec.containers: Required value: the head needs a container"
        );
        assert_eq!(said, [want]);
    }
}

#[rstest]
#[case::by_annotation(json!({"metadata": {"annotations": {"ray.io/ft-enabled": "True"}}}), json!({"cpu": "1", "memory": "256Mi"}))]
#[case::by_its_options(json!({"spec": {"gcsFaultToleranceOptions": {"redisAddress": "r"}}}), json!({"cpu": "1", "memory": "256Mi"}))]
#[case::not_at_all(json!({}), json!({"cpu": "1"}))]
fn fault_tolerant_cluster_requests_room_for_clean_up(#[case] more: Value, #[case] want: Value) {
    let (kind, job) = ray_cluster(&[]);
    assert_eq!(head_containers(kind, &changed(&job, more))[0]["resources"]["requests"], want);
}

#[test]
fn submitter_template_is_written_at_the_start() {
    let (kind, job) = ray_job(json!({}));
    let started = running(kind, &job);
    let submitter = &started["spec"]["submitterPodTemplate"];
    assert_eq!(submitter["spec"]["containers"][0]["image"], "i", "the head's");
    assert_eq!(submitter["spec"]["nodeSelector"]["accelerator"], "a100");
    let (kind, own) = ray_job(json!({"submitterPodTemplate": template("mine")}));
    let started = running(kind, &own);
    assert_eq!(started["spec"]["submitterPodTemplate"]["spec"]["containers"][0]["name"], "mine");
}

#[rstest]
#[case::new(json!({}), (false, false), None)]
#[case::suspended(json!({"jobDeploymentStatus": "Suspended"}), (false, false), None)]
#[case::initializing(json!({"jobDeploymentStatus": "Initializing"}), (true, false), None)]
#[case::running(json!({"jobDeploymentStatus": "Running", "jobStatus": "RUNNING", "rayClusterStatus": {"state": "ready"}}), (true, true), None)]
#[case::complete(json!({"jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED", "message": "done"}), (true, false), Some((true, "done")))]
#[case::failed(json!({"jobDeploymentStatus": "Failed", "jobStatus": "FAILED", "message": "oops"}), (true, false), Some((false, "oops")))]
#[case::complete_though_the_job_failed(json!({"jobDeploymentStatus": "Complete", "jobStatus": "FAILED"}), (true, false), Some((false, "")))]
#[case::not_valid(json!({"jobDeploymentStatus": "ValidationFailed"}), (true, false), None)]
fn ray_job_status_is_interpreted(
    #[case] status: Value,
    #[case] life: (bool, bool),
    #[case] end: Option<(bool, &str)>,
) {
    let (kind, job) = ray_job(json!({}));
    let job = changed(&job, json!({ "status": status }));
    assert_eq!((kind.is_active(&job), kind.pods_ready(&job)), life);
    assert_eq!(
        kind.finished(&job),
        end.map(|(success, message)| JobEnd { success, message: message.into() })
    );
    assert_eq!(kind.on_hold(&job), job["status"]["jobDeploymentStatus"] == "ValidationFailed");
}

#[rstest]
#[case::no_status(json!({}), false)]
#[case::ready(json!({"state": "ready"}), true)]
#[case::failed(json!({"state": "failed"}), false)]
#[case::suspended(json!({"state": "suspended"}), false)]
fn ray_cluster_is_active_when_ready_and_never_finishes(#[case] status: Value, #[case] ready: bool) {
    let (kind, job) = ray_cluster(&[]);
    let job = changed(&job, json!({ "status": status }));
    assert_eq!(
        (kind.is_active(&job), kind.pods_ready(&job), kind.finished(&job)),
        (ready, ready, None)
    );
}

#[test]
fn ray_service_is_suspended_by_its_clusters_spec() {
    let (kind, job) = ray_service();
    assert_eq!(job["spec"]["rayClusterConfig"]["suspend"], true);
    let ready =
        changed(&job, json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}}));
    assert_eq!(
        (kind.is_active(&job), kind.is_active(&ready), kind.pods_ready(&ready)),
        (false, true, true)
    );
    assert_eq!(kind.finished(&ready), None);
}

#[test]
fn ray_job_on_an_existing_cluster_is_skipped() {
    let (kind, job) =
        object("ray.io", "RayJob", json!({"clusterSelector": {"ray.io/cluster": "c"}}));
    assert!(kind.skips(&job) && kind.validate(&job).is_empty());
    let (kind, job) = ray_job(json!({}));
    assert!(!kind.skips(&job));
}

#[rstest]
#[case::another_image(json!({}), json!({"headGroupSpec": {"template": {"spec": {"containers": [{"name": "new"}]}}}}), true)]
#[case::another_size(json!({}), json!({"workerGroupSpecs": [{"groupName": "g", "replicas": 5, "template": template("w")}]}), false)]
#[case::nothing(json!({}), json!({}), false)]
#[case::suspended_for_it(json!({}), json!({"suspend": true, "rayVersion": "3"}), false)]
#[case::no_upgrade_is_wanted(json!({"spec": {"upgradeStrategy": {"type": "None"}}}), json!({"rayVersion": "3"}), false)]
#[case::it_is_elastic(json!({"metadata": {"annotations": {"kueue.x-k8s.io/elastic-job": "true"}}}), json!({"rayVersion": "3"}), false)]
#[case::it_runs_elsewhere(json!({"spec": {"managedBy": "kueue.x-k8s.io/multikueue"}}), json!({"rayVersion": "3"}), false)]
fn running_ray_service_upgrade_by_second_cluster_is_rejected(
    #[case] of_both: Value,
    #[case] change: Value,
    #[case] refused: bool,
) {
    let (kind, service) = ray_service();
    let old = changed(
        &changed(&service, json!({"spec": {"rayClusterConfig": {"suspend": false}}})),
        of_both,
    );
    let new = changed(&old, json!({"spec": {"rayClusterConfig": change}}));
    let errors = kind.validate_update(&old, &new);
    assert_eq!(!errors.is_empty(), refused, "{errors:?}");
}

fn many_groups(count: usize) -> Value {
    let groups: Vec<Value> = (0..count).map(|at| json!({"groupName": format!("g{at}")})).collect();
    json!({ "workerGroupSpecs": groups })
}

#[rstest]
#[case::a_good_cluster("RayCluster", json!({}), "")]
#[case::as_many_groups_as_can_be("RayCluster", many_groups(17), "")]
#[case::too_many_groups(
    "RayCluster",
    many_groups(18),
    "spec.workerGroupSpecs: Too many: 19: must have at most 18 items"
)]
#[case::a_group_named_head("RayCluster", json!({"workerGroupSpecs": [{"groupName": "a"}, {"groupName": "head"}]}), "spec.workerGroupSpecs[1].groupName: Forbidden: \"head\" is reserved for the head group")]
#[case::a_cluster_that_stays("RayJob", json!({"rayClusterSpec": {}}), "spec.shutdownAfterJobFinishes: Invalid value: false: a kueue managed job should delete the cluster after finishing")]
#[case::no_cluster("RayJob", json!({}), "spec.rayClusterSpec: Required value: rayClusterSpec is required for Kueue-managed jobs that don't use clusterSelector")]
#[case::both("RayJob", json!({"rayClusterSpec": {}, "clusterSelector": {"a": "b"}}), "spec.clusterSelector: Invalid value: {\"a\":\"b\"}: a kueue managed job should not use an existing cluster")]
#[case::a_jobs_cluster("RayJob", json!({"shutdownAfterJobFinishes": true, "rayClusterSpec": {"workerGroupSpecs": [{"groupName": "head"}]}}), "spec.rayClusterSpec.workerGroupSpecs[0].groupName: Forbidden: \"head\" is reserved for the head group")]
#[case::a_services_cluster("RayService", json!({"rayClusterConfig": {"workerGroupSpecs": [{"groupName": "head"}]}}), "spec.rayClusterConfig.workerGroupSpecs[0].groupName: Forbidden: \"head\" is reserved for the head group")]
fn refusals(#[case] kind: &str, #[case] spec: Value, #[case] want: &str) {
    let at = match kind {
        "RayCluster" => "/spec",
        "RayJob" => "/spec/rayClusterSpec",
        _ => "/spec/rayClusterConfig",
    };
    let (kind, mut job) = object("ray.io", kind, spec);
    if let Some(Value::Object(cluster)) = job.pointer_mut(at) {
        cluster.insert("headGroupSpec".to_owned(), json!({"template": template("head")}));
    }
    let said = |errors: Vec<switchyard_syntax::field::FieldError>| {
        errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    };
    assert_eq!(said(kind.validate(&job)), want);
    assert_eq!(said(kind.validate_update(&job, &job)), want, "also when it is changed");
}

#[test]
fn end_time_without_conditions_comes_from_the_status() {
    let at = "2026-01-02T03:04:05Z";
    let end = |group: &str, kind: &str, status: Value| {
        kind_for(group, kind).unwrap().ended_at(&json!({"status": status})).map(|at| at.to_string())
    };
    assert_eq!(end("ray.io", "RayJob", json!({"endTime": at})).as_deref(), Some(at));
    assert_eq!(end("ray.io", "RayJob", json!({})), None);
    assert_eq!(
        end("sparkoperator.k8s.io", "SparkApplication", json!({"terminationTime": at})).as_deref(),
        Some(at)
    );
    let conditions = json!({"conditions": [
        {"type": "Complete", "lastTransitionTime": at},
        {"type": "SuccessCriteriaMet", "lastTransitionTime": "2026-01-02T03:04:04Z"},
    ]});
    assert_eq!(end("batch", "Job", conditions).as_deref(), Some(at));
}
