//! Elastic jobs of Ray's kinds.

use rstest::rstest;

use super::plain::{admitted, changed, object, running, shape, template};
use super::*;
use crate::elastic::{
    gate_pods, grown, is_elastic, makes_pods_of, mark_first, mark_slice, may_be_elastic, resizing,
};

fn group(name: &str, replicas: i32) -> Value {
    json!({"groupName": name, "replicas": replicas, "template": template("w")})
}

fn cluster() -> Value {
    json!({"headGroupSpec": {"template": template("head")}, "workerGroupSpecs": [group("Small", 2), group("big", 1)]})
}

/// An elastic job of the kind in generation 3, as its user wrote it.
fn elastic(kind: &str, of_cluster: Value) -> (&'static dyn JobKind, Value) {
    let cluster = changed(&cluster(), of_cluster);
    let spec = match kind {
        "RayJob" => json!({"shutdownAfterJobFinishes": true, "rayClusterSpec": cluster}),
        "RayService" => json!({"rayClusterConfig": cluster}),
        _ => cluster,
    };
    let (kind, job) = object("ray.io", kind, spec);
    let marked = json!({"metadata": {"generation": 3, "annotations": {"kueue.x-k8s.io/elastic-job": "true"}}});
    (kind, changed(&job, marked))
}

const AUTOSCALES: &str = "enableInTreeAutoscaling";

#[rstest]
#[case::a_cluster("RayCluster", "/spec")]
#[case::a_jobs("RayJob", "/spec/rayClusterSpec")]
#[case::a_services("RayService", "/spec/rayClusterConfig")]
fn head_and_worker_pods_are_gated(#[case] kind: &str, #[case] at: &str) {
    let (kind, mut job) = elastic(kind, json!({}));
    assert!(may_be_elastic(kind, &job) && !is_elastic(kind, &job));
    let submitter = json!({"spec": {"submitterPodTemplate": template("submitter")}});
    job = changed(&job, submitter);
    gate_pods(kind, &mut job);
    let templates = ["headGroupSpec", "workerGroupSpecs/0", "workerGroupSpecs/1"];
    let gates = |job: &Value, of: &str| {
        job.pointer(&format!("{at}/{of}/template/spec/schedulingGates")).cloned()
    };
    for of in templates {
        assert_eq!(gates(&job, of), Some(json!([{"name": "kueue.x-k8s.io/elastic-job"}])), "{of}");
    }
    assert_eq!(
        job.pointer("/spec/submitterPodTemplate/spec/schedulingGates"),
        None,
        "it is always one pod"
    );
    assert!(is_elastic(kind, &job));
    let groups = format!("{at}/workerGroupSpecs");
    job.pointer_mut(&groups).unwrap().as_array_mut().unwrap().push(group("late", 1));
    assert!(!is_elastic(kind, &job), "the pods of a group would not wait");
}

#[test]
fn ray_cluster_copy_resized_changes_only_worker_groups() {
    let of = |small: i32, hosts: i32| {
        let groups =
            [changed(&group("Small", small), json!({"numOfHosts": hosts})), group("big", 1)];
        elastic("RayCluster", json!({"workerGroupSpecs": groups}))
    };
    let (kind, there) = of(2, 2);
    let groups = resizing(kind, &of(3, 2).1, &there).unwrap()["spec"].clone();
    let replicas = |index: usize| groups["workerGroupSpecs"][index]["replicas"].clone();
    assert_eq!((replicas(0), replicas(1)), (json!(3), json!(1)));
    assert_eq!(groups.as_object().unwrap().len(), 1, "{groups}");
    assert_eq!(resizing(kind, &of(2, 2).1, &there), None);

    let groups = resizing(kind, &of(2, 4).1, &there).unwrap()["spec"]["workerGroupSpecs"].clone();
    assert_eq!(
        (&groups[0]["replicas"], &groups[0]["numOfHosts"]),
        (&json!(2), &json!(4)),
        "as many of more hosts"
    );
    let groups = resizing(kind, &of(4, 1).1, &there).unwrap()["spec"]["workerGroupSpecs"].clone();
    assert_eq!(
        (&groups[0]["replicas"], &groups[0]["numOfHosts"]),
        (&json!(4), &json!(1)),
        "as many pods"
    );
    let unsaid =
        elastic("RayCluster", json!({"workerGroupSpecs": [group("Small", 4), group("big", 1)]})).1;
    assert_eq!(resizing(kind, &unsaid, &of(4, 1).1), None, "of one host, said or not");
    assert_eq!(resizing(kind, &of(4, 1).1, &unsaid), None, "of one host, said or not");
    let mut fewer = of(3, 2).1;
    fewer.pointer_mut("/spec/workerGroupSpecs").unwrap().as_array_mut().unwrap().reverse();
    let groups = resizing(kind, &fewer, &there).unwrap()["spec"]["workerGroupSpecs"].clone();
    assert_eq!(
        (&groups[0]["replicas"], &groups[1]["replicas"]),
        (&json!(3), &json!(1)),
        "by their names"
    );
}

#[rstest]
#[case("RayCluster")]
#[case("RayJob")]
#[case("RayService")]
fn ray_pods_bear_the_slice_name_only_while_running(#[case] kind: &str) {
    let (kind, mut job) = elastic(kind, json!({}));
    gate_pods(kind, &mut job);
    let mut workload = admitted(kind, &job);
    mark_first(&mut workload);
    let mut started = job.clone();
    kind.run(&mut started, &infos_of(&workload)).unwrap();
    assert!(makes_pods_of(kind, &started, &workload));
    assert!(
        !makes_pods_of(kind, &running(kind, &job), &workload),
        "of one that was not started as an elastic job"
    );
    kind.restore(&mut started, &workload.spec.pod_sets);
    assert!(!makes_pods_of(kind, &started, &workload) && is_elastic(kind, &started));
}

/// A RayCluster that KubeRay created for a job, changed by the autoscaler.
fn child(groups: Value) -> Value {
    json!({"metadata": {"name": "train-x7", "namespace": "ns", "generation": 5}, "spec": {"workerGroupSpecs": groups}})
}

fn with_child(kind: &str, autoscales: bool, groups: Value) -> (&'static dyn JobKind, Value) {
    let (kind, job) = elastic(kind, json!({AUTOSCALES: autoscales}));
    let status = json!({"rayClusterName": "train-x7", "activeServiceStatus": {"rayClusterName": "train-x7"}});
    let mut job = changed(&job, json!({ "status": status }));
    let needed = kind.depends_on(&job).unwrap();
    assert_eq!(
        (needed.kind.kind, needed.namespace.as_str(), needed.name.as_str()),
        ("RayCluster", "ns", "train-x7")
    );
    assert!(kind.dependencies().contains(&needed.kind));
    kind.attach(&mut job, &child(groups));
    (kind, job)
}

#[rstest]
#[case::grown(json!([group("Small", 4), group("big", 1)]), "small x 4, big x 1")]
#[case::in_another_order(json!([group("big", 0), group("Small", 3)]), "small x 3, big x 0")]
#[case::of_several_hosts(json!([{"groupName": "big", "replicas": 2, "numOfHosts": 4}]), "small x 2, big x 8")]
#[case::one_that_does_not_say(json!([{"groupName": "Small"}]), "small x 2, big x 1")]
#[case::one_of_an_older_cluster(json!([group("gone", 9)]), "small x 2, big x 1")]
fn autoscaled_cluster_overrides_the_jobs_counts(#[case] groups: Value, #[case] want: &str) {
    let (kind, service) = with_child("RayService", true, groups.clone());
    assert_eq!(shape(kind, &service), format!("head x 1, {want}"));
    let (kind, job) = with_child("RayJob", true, groups.clone());
    assert_eq!(shape(kind, &job), format!("head x 1, {want}, submitter x 1"));
    let (kind, job) = with_child("RayJob", false, groups);
    assert_eq!(
        shape(kind, &job),
        "head x 1, small x 2, big x 1, submitter x 1",
        "nobody but its user changes it"
    );
}

#[test]
fn cluster_of_a_plain_job_is_ignored() {
    let named =
        json!({"metadata": {"annotations": null}, "status": {"rayClusterName": "train-x7"}});
    let (kind, job) = elastic("RayJob", json!({}));
    assert!(kind.depends_on(&changed(&job, named)).is_none());
    assert!(kind.depends_on(&job).is_none(), "nor one that there is not yet");
    let (kind, _) = elastic("RayCluster", json!({}));
    assert!(kind.dependencies().is_empty());
}

#[test]
fn slice_names_use_job_and_cluster_generations() {
    let name = |(kind, job): (&'static dyn JobKind, Value)| {
        let pod_sets = job_pod_sets(kind, &job).unwrap();
        let mut workload =
            build_workload(kind, &job, pod_sets, &Priority::default(), BuildOptions::default());
        mark_slice(kind, &job, &mut workload, None, &[]);
        (kind.elastic().unwrap().size_generation(&job), workload.metadata.name.unwrap())
    };
    // printf 'RayJob\nray.io\ntrain\njob-uid\n3' | sha1sum
    assert_eq!(name(elastic("RayJob", json!({}))), ("3".into(), "rayjob-train-3f79f".into()));
    // printf 'RayJob\nray.io\ntrain\njob-uid\n3_5' | sha1sum
    assert_eq!(
        name(with_child("RayJob", true, json!([]))),
        ("3_5".into(), "rayjob-train-4e852".into())
    );
}

#[test]
fn grown_pod_sets_have_the_jobs_changed_containers() {
    let (kind, mut job) = elastic("RayCluster", json!({}));
    gate_pods(kind, &mut job);
    let before = admitted(kind, &job);
    let mut started = running(kind, &job);
    let sizes = |job: &Value| grown(&before.spec.pod_sets, &kind.pod_sets(job).unwrap());
    assert_eq!(sizes(&started), before.spec.pod_sets, "as its user wrote it");
    *started.pointer_mut("/spec/workerGroupSpecs/1/replicas").unwrap() = json!(7);
    *started
        .pointer_mut("/spec/workerGroupSpecs/1/template/spec/containers/0/resources/requests/cpu")
        .unwrap() = json!(9);
    let after = sizes(&started);
    assert_eq!((after[2].count, &after[1]), (7, &before.spec.pod_sets[1]));
    let (was, is) = (before.spec.pod_sets[2].template.value(), after[2].template.value());
    assert_eq!(is["spec"]["containers"][0]["resources"]["requests"]["cpu"], "9");
    assert_eq!((&is["metadata"], &is["spec"]["nodeSelector"]), (&was["metadata"], &Value::Null));
}

const ONLY_ELASTIC: &str = "Invalid value: true: a kueue-managed RayCluster can use autoscaling only as an elastic job: \
     enable the ElasticJobsViaWorkloadSlices feature gate and set the \"kueue.x-k8s.io/elastic-job\": \"true\" annotation";
const NOT_SENT: &str =
    "Forbidden: in-tree autoscaling is not supported for a MultiKueue-managed elastic RayCluster";

#[rstest]
#[case::one_that_does_not(json!({"spec": {"enableInTreeAutoscaling": null}}), true, "")]
#[case::an_elastic_one(json!({}), true, "")]
#[case::another_one(json!({"metadata": {"annotations": null}}), true, ONLY_ELASTIC)]
#[case::without_the_feature_gate(json!({}), false, ONLY_ELASTIC)]
#[case::one_that_a_hub_sends_elsewhere(json!({"spec": {"managedBy": "kueue.x-k8s.io/multikueue"}}), true, NOT_SENT)]
#[case::a_hubs_copy(json!({"metadata": {"labels": {"kueue.x-k8s.io/prebuilt-workload-name": "wl"}}}), true, NOT_SENT)]
fn autoscaling_needs_an_elastic_job(
    #[case] change: Value,
    #[case] enabled: bool,
    #[case] want: &str,
) {
    let (kind, job) = elastic("RayCluster", json!({AUTOSCALES: true}));
    let error =
        validate_autoscaling(kind, &changed(&job, change), enabled).map(|error| error.to_string());
    let want = (!want.is_empty()).then(|| format!("spec.{AUTOSCALES}: {want}"));
    assert_eq!(error, want);
}

#[rstest]
#[case("RayJob", "spec.rayClusterSpec.enableInTreeAutoscaling")]
#[case("RayService", "spec.rayClusterConfig.enableInTreeAutoscaling")]
fn autoscaling_is_refused_where_it_stands(#[case] kind: &str, #[case] path: &str) {
    let (kind, job) = elastic(kind, json!({AUTOSCALES: true}));
    assert_eq!(validate_autoscaling(kind, &job, true), None);
    let sent = changed(&job, json!({"spec": {"managedBy": "kueue.x-k8s.io/multikueue"}}));
    let said = |job: &Value| {
        validate_autoscaling(kind, job, true).map(|error| error.to_string()).unwrap_or_default()
    };
    let not_sent = NOT_SENT.replace("RayCluster", kind.id().kind);
    assert_eq!(said(&sent), format!("{path}: {not_sent}"));
    let plain = said(&changed(&job, json!({"metadata": {"annotations": null}})));
    let want = "Invalid value: true: a kueue managed job should only use autoscaling when workload slicing is enabled";
    assert!(plain.starts_with(&format!("{path}: {want}")), "{plain}");
}

#[test]
fn ray_worker_group_without_gate_is_rejected() {
    let (kind, mut old) = elastic("RayCluster", json!({}));
    let ungated = old.clone();
    gate_pods(kind, &mut old);
    let said = |old: &Value, new: &Value| {
        validate_elastic(kind, Some(old), new)
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join("\n")
    };
    let mut new = old.clone();
    new["spec"]["workerGroupSpecs"].as_array_mut().unwrap().push(group("late", 1));
    let want = "spec.workerGroupSpecs[2].template.spec.schedulingGates: Invalid value: null: an elastic job must have the \
                ElasticJobSchedulingGate: \"kueue.x-k8s.io/elastic-job\"";
    assert_eq!(said(&old, &new), want);
    gate_pods(kind, &mut new);
    assert_eq!(said(&old, &new), "");
    assert_eq!(said(&ungated, &ungated), "", "one that was made without is as any other");
}

#[test]
fn skipped_job_is_not_validated() {
    let (kind, elsewhere) =
        object("ray.io", "RayJob", json!({"clusterSelector": {"ray.io/cluster": "c"}}));
    let marked = json!({"metadata": {"annotations": {"kueue.x-k8s.io/elastic-job": "true"}}});
    assert!(validate_elastic(kind, None, &changed(&elsewhere, marked)).is_empty());
}
