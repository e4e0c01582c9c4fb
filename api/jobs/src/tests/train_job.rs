use rstest::rstest;

use super::plain::{changed, object, running, shape, template};
use super::*;

const STEP: &str = "trainer.kubeflow.org/trainjob-ancestor-step";

fn replicated(name: &str, step: &str, spec: Value) -> Value {
    let spec = changed(&spec, json!({"template": template(name)}));
    json!({"name": name, "template": {"metadata": {"labels": {STEP: step}}, "spec": spec}})
}

/// A runtime that fetches a dataset and trains on one node.
fn runtime(policy: Value) -> Value {
    let jobs = [
        replicated("dataset-initializer", "dataset-initializer", json!({})),
        replicated("node", "trainer", json!({})),
    ];
    json!({"metadata": {"name": "torch"}, "spec": {"mlPolicy": policy, "template": {"spec": {"replicatedJobs": jobs}}}})
}

/// A TrainJob of that runtime, which is not attached.
fn written(spec: Value) -> (&'static dyn JobKind, Value) {
    let reference = json!({"runtimeRef": {"kind": "ClusterTrainingRuntime", "name": "torch"}});
    object("trainer.kubeflow.org", "TrainJob", changed(&reference, spec))
}

fn of(runtime: &Value, spec: Value) -> (&'static dyn JobKind, Value) {
    let (kind, mut job) = written(spec);
    kind.attach(&mut job, runtime);
    (kind, job)
}

/// A TrainJob with three nodes, after one pod that fetches the dataset.
pub(super) fn train_job() -> (&'static dyn JobKind, Value) {
    of(&runtime(json!({"numNodes": 2, "torch": {}})), json!({"trainer": {"numNodes": 3}}))
}

#[rstest]
#[case::as_the_runtime_says(json!({"numNodes": 4}), json!({}), "dataset-initializer x 1, node x 4")]
#[case::as_the_job_says(json!({"numNodes": 4, "torch": {}}), json!({"trainer": {"numNodes": 2}}), "dataset-initializer x 1, node x 2")]
#[case::one_by_default(json!({}), json!({}), "dataset-initializer x 1, node x 1")]
#[case::without_a_policy(json!(null), json!({"trainer": {"numNodes": 2}}), "dataset-initializer x 1, node x 2")]
#[case::negative(json!({}), json!({"trainer": {"numNodes": -1}}), "spec.trainer.numNodes: gives -1 pods; must be between 0 and 2147483647")]
fn nodes(#[case] policy: Value, #[case] spec: Value, #[case] want: &str) {
    let (kind, job) = of(&runtime(policy), spec);
    assert_eq!(shape(kind, &job), want);
}

#[rstest]
#[case::the_launcher_is_a_node(true, "launcher x 1, node x 3")]
#[case::the_launcher_is_none(false, "launcher x 1, node x 4")]
fn nodes_of_mpi(#[case] run_launcher_as_node: bool, #[case] want: &str) {
    let jobs = [
        replicated("launcher", "trainer", json!({})),
        replicated("node", "", json!({"parallelism": 1})),
    ];
    let policy = json!({"numNodes": 1, "mpi": {"runLauncherAsNode": run_launcher_as_node}});
    let runtime =
        json!({"spec": {"mlPolicy": policy, "template": {"spec": {"replicatedJobs": jobs}}}});
    let (kind, job) = of(
        &runtime,
        json!({"trainer": {"numNodes": 4, "resourcesPerNode": {"requests": {"cpu": "7"}}}}),
    );
    assert_eq!(shape(kind, &job), want);
    let pod_sets = kind.pod_sets(&job).unwrap();
    let node =
        &pod_sets[1].template.value()["spec"]["containers"][0]["resources"]["requests"]["cpu"];
    assert_eq!(*node == "7", run_launcher_as_node);
}

#[test]
fn jobs_fields_override_the_training_container() {
    let trainer = json!({
        "image": "mine", "command": ["train"], "resourcesPerNode": {"limits": {"nvidia.com/gpu": 8}},
        "env": [{"name": "A", "value": "b"}],
    });
    let (kind, job) = of(&runtime(json!({})), json!({ "trainer": trainer }));
    let pod_sets = kind.pod_sets(&job).unwrap();
    let container = |at: usize| pod_sets[at].template.value()["spec"]["containers"][0].clone();
    let want = json!({
        "name": "node", "image": "mine", "command": ["train"],
        "resources": {"requests": {"cpu": "1"}, "limits": {"nvidia.com/gpu": "8"}},
        "env": [{"name": "A", "value": "b"}],
    });
    assert_eq!(container(1), want);
    assert_eq!(container(0)["image"], "i", "the other is left alone");
}

/// Trainer 2.3 merges them, and earlier versions replaced them.
#[rstest]
#[case::another_resource(json!({}), json!({"limits": {"gpu": "8"}}), json!({"requests": {"cpu": "1"}, "limits": {"gpu": "8"}}))]
#[case::the_same(json!({}), json!({"requests": {"cpu": "2"}}), json!({"requests": {"cpu": "2"}}))]
#[case::a_limit_in_place_of_a_request(json!({}), json!({"limits": {"cpu": "4"}}), json!({"requests": {"cpu": "4"}, "limits": {"cpu": "4"}}))]
#[case::a_limit_of_the_runtime(json!({"limits": {"gpu": "1"}}), json!({"requests": {"cpu": "2"}}), json!({"requests": {"cpu": "2"}, "limits": {"gpu": "1"}}))]
fn resources_of_a_node_are_those_of_job_and_runtime(
    #[case] runtimes: Value,
    #[case] own: Value,
    #[case] want: Value,
) {
    let mut runtime = runtime(json!({}));
    let container =
        "/spec/template/spec/replicatedJobs/1/template/spec/template/spec/containers/0/resources";
    apply_merge(runtime.pointer_mut(container).unwrap(), &runtimes);
    let (kind, job) = of(&runtime, json!({"trainer": {"resourcesPerNode": own}}));
    let pod_sets = kind.pod_sets(&job).unwrap();
    assert_eq!(pod_sets[1].template.value()["spec"]["containers"][0]["resources"], want);
}

/// Trainer 2.3 adds it, and earlier versions ignored it.
#[rstest]
#[case::with_a_container(json!({"containers": [{"name": "c"}]}), "dataset-initializer x 1, node x 1, extra x 1")]
#[case::that_no_pod_can_be_made_of(json!({"nodeSelector": {"zone": "a"}}), "dataset-initializer x 1, node x 1")]
fn replicated_job_added_by_a_patch_is_counted(#[case] spec: Value, #[case] want: &str) {
    let extra = json!({"name": "extra", "template": {"spec": {"template": {"spec": spec}}}});
    let patch = json!({"manager": "example.com/me", "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [extra]}}}});
    let (kind, job) = of(&runtime(json!({})), json!({"runtimePatches": [patch]}));
    assert_eq!(shape(kind, &job), want);
    let ready =
        |jobs: Value| kind.pods_ready(&changed(&job, json!({"status": {"jobsStatus": jobs}})));
    let runtimes =
        [json!({"name": "dataset-initializer", "ready": 1}), json!({"name": "node", "ready": 1})];
    assert!(ready(json!(runtimes)), "an earlier Trainer has no other");
    let counted = want.contains("extra");
    let [first, second] = runtimes;
    assert_eq!(ready(json!([first, second, {"name": "extra", "active": 1}])), !counted);
}

#[test]
fn jobs_fields_override_the_initializers() {
    let own = |name: &str, env: Value| {
        let container = json!({"name": name, "image": "i", "env": env});
        let of_job = replicated(name, name, json!({}));
        changed(
            &of_job,
            json!({"template": {"spec": {"template": {"spec": {"containers": [container]}}}}}),
        )
    };
    let uri = json!([{"name": "STORAGE_URI", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}}]);
    let jobs = [own("dataset-initializer", uri), own("model-initializer", json!(null))];
    let runtime = json!({"spec": {"template": {"spec": {"replicatedJobs": jobs}}}});
    let initializer = json!({
        "dataset": {"storageUri": "hf://data", "env": [{"name": "A", "value": "b"}], "secretRef": {"name": "token"}},
        "model": {"env": [{"name": "STORAGE_URI", "value": "s3://model"}]},
    });
    let (kind, job) = of(&runtime, json!({ "initializer": initializer }));
    let pod_sets = kind.pod_sets(&job).unwrap();
    let container = |at: usize| pod_sets[at].template.value()["spec"]["containers"][0].clone();
    let want = json!({
        "name": "dataset-initializer", "image": "i",
        "env": [{"name": "STORAGE_URI", "value": "hf://data"}, {"name": "A", "value": "b"}],
        "envFrom": [{"secretRef": {"name": "token"}}],
    });
    assert_eq!(container(0), want);
    assert_eq!(container(1)["env"], json!([{"name": "STORAGE_URI", "value": "s3://model"}]));
    let (kind, job) = of(&runtime, json!({"initializer": {"model": {}}}));
    let pod_sets = kind.pod_sets(&job).unwrap();
    let env = &pod_sets[0].template.value()["spec"]["containers"][0]["env"];
    assert!(env[0].get("valueFrom").is_some(), "the runtime's stays");
}

#[test]
fn patches_of_others_count_as_the_jobs_own() {
    let template = json!({"spec": {"template": {"spec": {"nodeSelector": {"zone": "a"}, "tolerations": [{"key": "k"}]}}}});
    let jobs = [
        json!({"name": "node", "template": template}),
        json!({"name": "unknown", "template": template}),
    ];
    let patch = json!({"manager": "example.com/me", "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": jobs}}}});
    let (kind, job) = of(&runtime(json!({})), json!({"runtimePatches": [patch]}));
    let pod_sets = kind.pod_sets(&job).unwrap();
    assert_eq!(pod_sets[1].template.value()["spec"]["nodeSelector"], json!({"zone": "a"}));
    assert_eq!(pod_sets[0].template.value()["spec"].get("nodeSelector"), None);
    let started = running(kind, &job);
    let ours = started
        .pointer("/spec/runtimePatches/1/trainingRuntimeSpec/template/spec/replicatedJobs/1")
        .unwrap();
    let keys: Vec<&Value> = ours
        .pointer("/template/spec/template/spec/tolerations")
        .unwrap()
        .as_array()
        .unwrap()
        .iter()
        .map(|it| &it["key"])
        .collect();
    assert_eq!(keys, ["k", "gpu"], "the trainer replaces the list, so it is whole");
    assert_eq!(started["spec"]["runtimePatches"][0], job["spec"]["runtimePatches"][0]);
}

#[test]
fn running_train_job_still_matches_after_attach() {
    let runtime = runtime(json!({"numNodes": 2}));
    let (kind, job) = of(&runtime, json!({}));
    let workload = super::plain::admitted(kind, &job);
    let mut started = running(kind, &job);
    kind.attach(&mut started, &runtime);
    let pod_sets = job_pod_sets(kind, &started).unwrap();
    assert_eq!(
        pod_sets[1].template.value()["spec"]["nodeSelector"],
        json!({"accelerator": "a100"})
    );
    assert!(is_equivalent(&started, &pod_sets, false, &workload, Some(&infos_of(&workload))));
}

#[test]
fn train_job_is_restored_only_after_its_pods_ended() {
    let (kind, job) = train_job();
    let started = running(kind, &job);
    let Stop::Update { job: suspended, now: true } = kind.stop(&started, None) else { panic!() };
    let status =
        |active: i32| json!({"status": {"jobsStatus": [{"name": "node", "active": active}]}});
    assert_eq!(kind.stop(&changed(&suspended, status(1)), None), Stop::Wait);
    let Stop::Update { job: restored, now: false } =
        kind.stop(&changed(&suspended, status(0)), None)
    else {
        panic!()
    };
    assert_eq!(restored["spec"], job["spec"]);
    assert_eq!(kind.stop(&restored, None), Stop::Done);
}

#[rstest]
#[case::nothing_reported(json!([]), (false, false), "")]
#[case::some_run(json!([{"name": "dataset-initializer", "succeeded": 1}, {"name": "node", "active": 1}]), (true, false), "dataset-initializer x 1")]
#[case::all_ready(json!([{"name": "dataset-initializer", "succeeded": 1}, {"name": "node", "active": 1, "ready": 1}]), (true, true), "dataset-initializer x 1")]
#[case::all_over(json!([{"name": "dataset-initializer", "succeeded": 1}, {"name": "node", "succeeded": 1}]), (false, true), "dataset-initializer x 1, node x 3")]
fn status(#[case] jobs: Value, #[case] active_and_ready: (bool, bool), #[case] reclaimable: &str) {
    let (kind, job) = train_job();
    let job = changed(&job, json!({"status": {"jobsStatus": jobs}}));
    assert_eq!((kind.is_active(&job), kind.pods_ready(&job)), active_and_ready);
    let pods: Vec<String> =
        kind.reclaimable(&job).iter().map(|it| format!("{} x {}", it.name, it.count)).collect();
    assert_eq!(pods.join(", "), reclaimable);
}

#[rstest]
#[case::complete("Complete", Some(true))]
#[case::failed("Failed", Some(false))]
#[case::suspended("Suspended", None)]
fn finished(#[case] type_: &str, #[case] want: Option<bool>) {
    let (kind, job) = train_job();
    let job = changed(
        &job,
        json!({"status": {"conditions": [{"type": type_, "status": "True", "message": "m"}]}}),
    );
    assert_eq!(kind.finished(&job).map(|it| it.success), want);
}

#[test]
fn remote_copy_has_no_admission_patch() {
    let (kind, job) = train_job();
    let copy = kind
        .remote()
        .unwrap()
        .remote_copy(&running(kind, &job), RemoteMeta { workload: "w", origin: "hub" });
    assert_eq!(copy["spec"], job["spec"]);
}

#[rstest]
#[case::cluster_wide(json!({"kind": "ClusterTrainingRuntime", "name": "a"}), "ClusterTrainingRuntime /a")]
#[case::of_the_namespace(json!({"kind": "TrainingRuntime", "name": "a"}), "TrainingRuntime ns/a")]
#[case::by_default(json!({"name": "a"}), "ClusterTrainingRuntime /a")]
fn train_job_depends_on_its_runtime(#[case] reference: Value, #[case] want: &str) {
    let (kind, job) =
        object("trainer.kubeflow.org", "TrainJob", json!({ "runtimeRef": reference }));
    let needed = kind.depends_on(&job).unwrap();
    assert_eq!(format!("{} {}/{}", needed.kind.kind, needed.namespace, needed.name), want);
    assert!(kind.dependencies().contains(&needed.kind));
}

#[rstest]
#[case::without_its_runtime(written(json!({})), "spec.runtimeRef: ClusterTrainingRuntime \"torch\" not found; create it")]
#[case::of_an_empty_runtime(of(&json!({"spec": {}}), json!({})), "spec: has no pod template; TrainJob needs at least one")]
fn it_has_no_pods(#[case] (kind, job): (&'static dyn JobKind, Value), #[case] want: &str) {
    assert_eq!(shape(kind, &job), want);
    let _ = (
        kind.is_active(&job),
        kind.reclaimable(&job),
        kind.stop(&job, None),
        kind.restore(&mut job.clone(), &[]),
    );
    assert!(!kind.pods_ready(&job));
}
