//! Properties of every kind with templates in its spec, checked with one sample object for each
//! kind.

use rstest::rstest;

use super::*;

/// A pod template with one container.
pub(super) fn template(name: &str) -> Value {
    json!({
        "metadata": {"labels": {"app": name}, "creationTimestamp": null},
        "spec": {"containers": [{"name": name, "image": "i", "resources": {"requests": {"cpu": 1}}}]},
    })
}

/// An object of a kind, suspended in queue `lq`.
pub(super) fn object(group: &str, kind: &str, spec: Value) -> (&'static dyn JobKind, Value) {
    let kind = kind_for(group, kind).unwrap();
    let mut job = json!({
        "apiVersion": kind.id().api_version(), "kind": kind.id().kind,
        "metadata": {
            "name": "train", "namespace": "ns", "uid": "job-uid", "resourceVersion": "7",
            "labels": {"kueue.x-k8s.io/queue-name": "lq"},
        },
        "spec": spec,
    });
    kind.suspend(&mut job);
    (kind, job)
}

/// One sample object for each kind.
pub(super) fn samples() -> Vec<(&'static dyn JobKind, Value)> {
    let replicas = |count: i32| json!({"replicas": count, "template": template("c")});
    let cluster = json!({
        "headGroupSpec": {"template": template("head")},
        "workerGroupSpecs": [{"groupName": "small", "replicas": 2, "template": template("worker")}],
    });
    vec![
        object(
            "jobset.x-k8s.io",
            "JobSet",
            json!({"replicatedJobs": [
                {"name": "leader", "template": {"spec": {"template": template("leader")}}},
                {"name": "worker", "replicas": 2, "template": {"spec": {"parallelism": 3, "template": template("w")}}},
            ]}),
        ),
        object(
            "kubeflow.org",
            "TFJob",
            json!({"tfReplicaSpecs": {"PS": replicas(2), "Worker": replicas(3)}}),
        ),
        object(
            "kubeflow.org",
            "PyTorchJob",
            json!({"pytorchReplicaSpecs": {"Worker": replicas(3), "Master": replicas(1)}}),
        ),
        object("kubeflow.org", "PaddleJob", json!({"paddleReplicaSpecs": {"Worker": replicas(3)}})),
        object(
            "kubeflow.org",
            "XGBoostJob",
            json!({"xgbReplicaSpecs": {"Master": replicas(1), "Worker": replicas(3)}}),
        ),
        object("kubeflow.org", "JAXJob", json!({"jaxReplicaSpecs": {"Worker": replicas(3)}})),
        object(
            "kubeflow.org",
            "MPIJob",
            json!({"mpiReplicaSpecs": {"Worker": replicas(3), "Launcher": replicas(1)}}),
        ),
        object("ray.io", "RayCluster", cluster.clone()),
        object(
            "ray.io",
            "RayJob",
            json!({"shutdownAfterJobFinishes": true, "submissionMode": "HTTPMode", "rayClusterSpec": cluster}),
        ),
        object("ray.io", "RayService", json!({"rayClusterConfig": cluster})),
        object(
            "workload.codeflare.dev",
            "AppWrapper",
            json!({"components": [{"template": {
                "apiVersion": "batch/v1", "kind": "Job", "spec": {"parallelism": 2, "template": template("c")},
            }}]}),
        ),
        object(
            "sparkoperator.k8s.io",
            "SparkApplication",
            json!({
                "mode": "cluster",
                "driver": {"coreRequest": "1", "labels": {"app": "spark-kubernetes-driver"}},
                "executor": {"instances": 3, "coreRequest": "1", "labels": {"app": "spark-kubernetes-executor"}},
            }),
        ),
        super::train_job::train_job(),
    ]
}

#[test]
fn every_kind_but_job_has_a_sample() {
    let mut sampled: Vec<KindId> = samples().iter().map(|(kind, _)| kind.id()).collect();
    sampled.extend([BatchJob.id(), crate::pod::Pod.id()]);
    // Kinds that are queued by their pods are never started or stopped.
    for kind in kinds().iter().filter(|kind| kind.suspend_mode() != crate::SuspendMode::Pods) {
        assert!(sampled.contains(&kind.id()), "{:?}", kind.id());
    }
}

/// The Workload of a job with quota, flavor `gpu` for all pod sets.
pub(super) fn admitted(kind: &dyn JobKind, job: &Value) -> Workload {
    let pod_sets = job_pod_sets(kind, job).unwrap();
    let assignments: Vec<Value> = pod_sets
        .iter()
        .map(|it| json!({"name": it.name, "flavors": {"cpu": "gpu"}, "count": it.count}))
        .collect();
    let workload =
        build_workload(kind, job, pod_sets, &Priority::default(), BuildOptions::default());
    let mut workload = reserved(workload, 1, true);
    let admission = json!({"clusterQueue": "cq", "podSetAssignments": assignments});
    workload.status.as_mut().unwrap().admission = serde_json::from_value(admission).unwrap();
    workload
}

/// The running job.
pub(super) fn running(kind: &dyn JobKind, job: &Value) -> Value {
    let mut job = job.clone();
    let infos = infos_of(&admitted(kind, &job));
    kind.run(&mut job, &infos).unwrap();
    job
}

/// Pod sets as `name x count`.
pub(super) fn shape(kind: &dyn JobKind, job: &Value) -> String {
    match kind.pod_sets(job) {
        Ok(pod_sets) => pod_sets
            .iter()
            .map(|it| format!("{} x {}", it.name, it.count))
            .collect::<Vec<_>>()
            .join(", "),
        Err(error) => error.to_string(),
    }
}

/// The object with a merge patch applied.
pub(super) fn changed(job: &Value, patch: Value) -> Value {
    let mut job = job.clone();
    apply_merge(&mut job, &patch);
    job
}

#[test]
fn every_kind_gives_its_pod_sets_in_kueues_order() {
    let shapes: Vec<String> = samples()
        .iter()
        .map(|(kind, job)| format!("{}: {}", kind.id().kind, shape(*kind, job)))
        .collect();
    insta::assert_snapshot!(shapes.join("\n"), @"
    JobSet: leader x 1, worker x 6
    TFJob: ps x 2, worker x 3
    PyTorchJob: master x 1, worker x 3
    PaddleJob: worker x 3
    XGBoostJob: master x 1, worker x 3
    JAXJob: worker x 3
    MPIJob: launcher x 1, worker x 3
    RayCluster: head x 1, small x 2
    RayJob: head x 1, small x 2
    RayService: head x 1, small x 2
    AppWrapper: train-0 x 2
    SparkApplication: driver x 1, executor x 3
    TrainJob: dataset-initializer x 1, node x 3
    ");
}

#[test]
fn templates_keep_labels_and_spec_and_hold_quantities_as_text() {
    for (kind, job) in samples() {
        for pod_set in kind.pod_sets(&job).unwrap() {
            let template = pod_set.template.parse().unwrap();
            let container = &template.spec.unwrap().containers[0];
            let requests = container.resources.as_ref().unwrap().requests.as_ref().unwrap();
            assert_eq!(requests["cpu"].0, "1", "{}", kind.id().kind);
            assert_eq!(template.metadata.unwrap().labels.unwrap()["app"], container.name);
        }
    }
}

#[test]
fn start_adds_the_admission_and_stop_restores() {
    for (kind, job) in samples() {
        let name = kind.id().kind;
        let workload = admitted(kind, &job);
        let started = running(kind, &job);
        assert!(!kind.is_suspended(&started), "{name}");
        let text = started.to_string();
        assert!(text.contains("a100") && text.contains("kueue.x-k8s.io/podset"), "{name}: {text}");
        let infos = infos_of(&workload);
        let pod_sets = job_pod_sets(kind, &started).unwrap();
        assert!(
            is_equivalent(&started, &pod_sets, false, &workload, Some(&infos)),
            "{name}: matches while it runs"
        );

        let Stop::Update { job: mut stopped, now: true } =
            kind.stop(&started, Some(&workload.spec.pod_sets))
        else {
            panic!("{name} must be stopped at once");
        };
        assert!(kind.is_suspended(&stopped));
        // Some kinds restore in a separate step.
        while let Stop::Update { job: further, now: false } =
            kind.stop(&stopped, Some(&workload.spec.pod_sets))
        {
            stopped = further;
        }
        // The API server drops nulls.
        assert_eq!(without_nulls(*stopped.clone()), without_nulls(job.clone()), "{name}");
        assert_eq!(kind.stop(&stopped, Some(&workload.spec.pod_sets)), Stop::Done, "{name}");
        assert!(
            !kind.restore(&mut stopped.clone(), &workload.spec.pod_sets),
            "{name}: nothing left to restore"
        );
        assert_eq!(kind.before_run(&stopped), None);
    }
}

fn without_nulls(mut value: Value) -> Value {
    match &mut value {
        Value::Object(map) => {
            map.retain(|_, value| !value.is_null());
            map.values_mut().for_each(|value| *value = without_nulls(value.take()));
        }
        Value::Array(items) => {
            items.iter_mut().for_each(|value| *value = without_nulls(value.take()))
        }
        _ => {}
    }
    value
}

#[test]
fn workload_of_another_shape_neither_starts_nor_restores() {
    for (kind, job) in samples() {
        let name = kind.id().kind;
        let mut untouched = job.clone();
        let error = kind.run(&mut untouched, &vec![PodSetInfo::default(); 9]).unwrap_err();
        assert!(
            matches!(error, JobError::PodSetCount { got: 9, .. }) && error.is_permanent(),
            "{name}: {error}"
        );
        let mut started = running(kind, &job);
        assert!(!kind.restore(&mut started, &vec![PodSet::default(); 9]), "{name}");
    }
}

#[test]
fn admission_that_contradicts_a_template_is_refused() {
    for (kind, job) in samples() {
        if kind.id().kind == "AppWrapper" {
            // The kind's own controller merges.
            continue;
        }
        let mut infos = infos_of(&admitted(kind, &job));
        infos[0].labels.insert("app".into(), "other".into());
        let error = kind.run(&mut job.clone(), &infos).unwrap_err();
        assert!(matches!(error, JobError::PodSetUpdateConflict { what: "labels", .. }), "{error}");
    }
}

#[test]
fn managed_by_is_set_for_jobs_that_nobody_else_runs() {
    for (kind, mut job) in samples() {
        let name = kind.id().kind;
        if kind.managed().is_none() {
            kind.set_managed_by(&mut job, Some(switchyard_syntax::names::MULTIKUEUE_CONTROLLER));
            assert!(
                kind.managed_by(&job).is_none() && !kind.can_default_managed_by(&job),
                "{name} has no such field"
            );
            continue;
        }
        assert!(kind.can_default_managed_by(&job), "{name}");
        assert_eq!(kind.managed_by(&job), None);
        kind.set_managed_by(&mut job, Some(switchyard_syntax::names::MULTIKUEUE_CONTROLLER));
        assert_eq!(kind.managed_by(&job), Some("kueue.x-k8s.io/multikueue"), "{name}");
        assert!(!kind.can_default_managed_by(&job));
        kind.set_managed_by(&mut job, None);
        assert_eq!(kind.managed_by(&job), None);
    }
}

#[rstest]
#[case("jobset.x-k8s.io", "JobSet", "jobset.sigs.k8s.io/jobset-controller")]
#[case("kubeflow.org", "PyTorchJob", "kubeflow.org/training-operator")]
#[case("kubeflow.org", "MPIJob", "kubeflow.org/mpi-operator")]
#[case("ray.io", "RayJob", "ray.io/kuberay-operator")]
#[case("workload.codeflare.dev", "AppWrapper", "workload.codeflare.dev/appwrapper-controller")]
#[case("trainer.kubeflow.org", "TrainJob", "trainer.kubeflow.org/trainjob-controller")]
fn job_naming_the_kinds_own_controller_may_be_dispatched(
    #[case] group: &str,
    #[case] kind: &str,
    #[case] own: &str,
) {
    let (kind, mut job) = object(group, kind, json!({}));
    kind.set_managed_by(&mut job, Some(own));
    assert!(kind.can_default_managed_by(&job));
}

#[test]
fn remote_copy_has_no_local_fields() {
    for (kind, mut job) in samples() {
        let name = kind.id().kind;
        kind.set_managed_by(&mut job, Some(switchyard_syntax::names::MULTIKUEUE_CONTROLLER));
        let job = changed(
            &job,
            json!({
                "metadata": {
                    "ownerReferences": [{"uid": "o"}], "finalizers": ["x"], "generation": 3,
                    "annotations": {"note": "kept", "kubectl.kubernetes.io/last-applied-configuration": "{}"},
                },
                "status": {"conditions": []},
            }),
        );
        let copy =
            kind.remote().unwrap().remote_copy(&job, RemoteMeta { workload: "w", origin: "hub" });
        let want = json!({
            "name": "train", "namespace": "ns", "annotations": {"note": "kept"},
            "labels": {
                "kueue.x-k8s.io/queue-name": "lq", "kueue.x-k8s.io/multikueue-origin": "hub",
                "kueue.x-k8s.io/prebuilt-workload-name": "w",
            },
        });
        assert_eq!(copy["metadata"], want, "{name}");
        assert_eq!((copy.get("status"), kind.managed_by(&copy)), (None, None), "{name}");
        assert!(kind.is_suspended(&copy), "{name}");
        let mut spec = job["spec"].clone();
        let mut whole = json!({ "spec": spec.take() });
        kind.set_managed_by(&mut whole, None);
        assert_eq!(copy["spec"], whole["spec"], "{name}: the rest as it was written");
        let mut copy = copy;
        if let Some(attached) = job.get("switchyard.dev/jobSet") {
            assert_eq!(copy.get("switchyard.dev/jobSet"), None);
            copy["switchyard.dev/jobSet"] = attached.clone();
        }
        assert_eq!(
            shape(kind, &copy),
            shape(kind, &job),
            "{name}: so that it is equivalent to its workload"
        );
    }
}

#[rstest]
#[case::of_a_job_set("jobset.x-k8s.io", "JobSet", json!({"ttlSecondsAfterFinished": 5}), "/spec/ttlSecondsAfterFinished")]
#[case::of_kubeflow("kubeflow.org", "TFJob", json!({"runPolicy": {"ttlSecondsAfterFinished": 5}}), "/spec/runPolicy/ttlSecondsAfterFinished")]
fn remote_copy_has_no_ttl(
    #[case] group: &str,
    #[case] kind: &str,
    #[case] spec: Value,
    #[case] ttl: &str,
) {
    let (kind, job) = object(group, kind, spec);
    assert!(job.pointer(ttl).is_some());
    let copy =
        kind.remote().unwrap().remote_copy(&job, RemoteMeta { workload: "w", origin: "hub" });
    assert_eq!(copy.pointer(ttl), None);
}

#[test]
fn remote_status_is_mirrored_until_the_end() {
    let remote = |status: Value| json!({"spec": {"suspend": false}, "status": status});
    for (kind, job) in samples() {
        let name = kind.id().kind;
        assert_eq!(kind.mirror_status(&job, &json!({})), None, "{name}: nothing to show");
        let status =
            json!({"conditions": [{"type": "Running", "status": "True"}], "some": {"counter": 1}});
        assert_eq!(
            kind.mirror_status(&job, &remote(status.clone())),
            Some(status.clone()),
            "{name}"
        );
        let shown = changed(&job, json!({ "status": status }));
        assert_eq!(kind.mirror_status(&shown, &remote(status)), None, "{name}: shown already");
        let other = json!({"some": {"counter": 2}});
        assert_eq!(
            kind.mirror_status(&shown, &remote(other.clone())),
            Some(other),
            "{name}: what is gone goes"
        );
    }
}

#[test]
fn job_without_its_copy_has_a_reset_status() {
    let now = Timestamp::UNIX_EPOCH;
    for (kind, job) in samples() {
        let name = kind.id().kind;
        assert_eq!(kind.reset_status(&job, now), None, "{name}");
        let shown = changed(&job, json!({"status": {"some": 1}}));
        assert_eq!(kind.reset_status(&shown, now), Some(json!({})), "{name}");
    }
}

#[test]
fn finished_pod_never_changes() {
    let ends = [
        ("JobSet", json!({"conditions": [{"type": "Completed", "status": "True"}]})),
        ("TFJob", json!({"conditions": [{"type": "Failed", "status": "True"}]})),
        ("MPIJob", json!({"conditions": [{"type": "Succeeded", "status": "True"}]})),
        ("RayJob", json!({"jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED"})),
        ("AppWrapper", json!({"phase": "Succeeded"})),
        ("SparkApplication", json!({"applicationState": {"state": "COMPLETED"}})),
        ("TrainJob", json!({"conditions": [{"type": "Complete", "status": "True"}]})),
    ];
    for (name, status) in ends {
        let (kind, job) = samples().into_iter().find(|(kind, _)| kind.id().kind == name).unwrap();
        let ended = changed(&job, json!({ "status": status }));
        assert!(kind.finished(&ended).is_some(), "{name}");
        assert_eq!(kind.mirror_status(&ended, &json!({"status": {"other": 1}})), None, "{name}");
        assert_eq!(kind.reset_status(&ended, Timestamp::UNIX_EPOCH), None, "{name}");
    }
}

#[rstest]
#[case::no_template("jobset.x-k8s.io", "JobSet", json!({"replicatedJobs": [{"name": "a", "template": {}}]}),
    "spec.replicatedJobs[0].template.spec.template.spec: is missing; JobSet needs a pod template here")]
#[case::no_group("jobset.x-k8s.io", "JobSet", json!({"replicatedJobs": []}), "spec: has no pod template; JobSet needs at least one")]
#[case::negative_replicas("jobset.x-k8s.io", "JobSet", json!({"replicatedJobs": [{"name": "a", "replicas": -1, "template": {"spec": {"template": template("a")}}}]}),
    "spec.replicatedJobs[0].replicas: gives -1 pods; must be between 0 and 2147483647")]
#[case::more_pods_than_can_be_counted("jobset.x-k8s.io", "JobSet", json!({"replicatedJobs": [{"name": "a", "replicas": 2_000_000_000, "template": {"spec": {"parallelism": 2, "template": template("a")}}}]}),
    "spec.replicatedJobs[0].replicas: gives 4000000000 pods; must be between 0 and 2147483647")]
#[case::kubeflow_without_template("kubeflow.org", "PyTorchJob", json!({"pytorchReplicaSpecs": {"Worker": {}}}),
    "spec.pytorchReplicaSpecs.Worker.template.spec: is missing; PyTorchJob needs a pod template here")]
#[case::kubeflow_without_replicas("kubeflow.org", "PyTorchJob", json!({"pytorchReplicaSpecs": {}}), "spec: has no pod template; PyTorchJob needs at least one")]
#[case::kubeflow_negative("kubeflow.org", "TFJob", json!({"tfReplicaSpecs": {"Worker": {"replicas": -2, "template": template("a")}}}),
    "spec.tfReplicaSpecs.Worker.replicas: gives -2 pods; must be between 0 and 2147483647")]
#[case::ray_without_a_cluster("ray.io", "RayJob", json!({}), "spec.rayClusterSpec: is missing; the job needs the spec of a RayCluster")]
#[case::ray_without_a_head("ray.io", "RayCluster", json!({"workerGroupSpecs": []}), "spec.headGroupSpec.template.spec: is missing; RayCluster needs a pod template here")]
#[case::ray_negative("ray.io", "RayCluster", json!({"headGroupSpec": {"template": template("h")}, "workerGroupSpecs": [{"groupName": "g", "replicas": -1, "template": template("w")}]}),
    "spec.workerGroupSpecs[0].replicas: gives -1 pods; must be between 0 and 2147483647")]
#[case::nothing_wrapped("workload.codeflare.dev", "AppWrapper", json!({"components": []}), "spec: has no pod template; AppWrapper needs at least one")]
fn malformed_object_is_reported_with_its_path(
    #[case] group: &str,
    #[case] kind: &str,
    #[case] spec: Value,
    #[case] want: &str,
) {
    let (kind, job) = object(group, kind, spec);
    assert_eq!(shape(kind, &job), want);
    assert!(kind.pod_sets(&job).unwrap_err().is_permanent());
    // Nothing may panic on such an object.
    let _ =
        (kind.is_active(&job), kind.pods_ready(&job), kind.finished(&job), kind.reclaimable(&job));
    let _ = (kind.validate(&job), kind.priority_class(&job), kind.stop(&job, Some(&[])));
}

#[test]
fn queue_can_change_only_while_suspended() {
    for (kind, job) in samples() {
        let name = kind.id().kind;
        let moved = |job: &Value| {
            changed(job, json!({"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "other"}}}))
        };
        let said = |old: &Value, new: &Value| {
            let errors = validate_update(kind, old, new, UpdateContext::default());
            errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
        };
        assert_eq!(said(&job, &moved(&job)), "", "{name}");
        let running = running(kind, &job);
        let refused = "metadata.labels[kueue.x-k8s.io/queue-name]: Invalid value: \"other\": field is immutable";
        assert_eq!(said(&running, &moved(&running)), refused, "{name}");
    }
}
