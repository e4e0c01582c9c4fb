//! One object of each kind as its user writes it, and what the kind's own controller would say of it.

use serde_json::{Value, json};

/// A kind, by one object of it.
pub(crate) struct Sample {
    /// `apiVersion`.
    pub(crate) api: &'static str,
    /// Kind.
    pub(crate) kind: &'static str,
    /// The spec, not suspended.
    pub(crate) spec: Value,
    /// JSON pointer of the field that suspends.
    pub(crate) suspend: &'static str,
    /// JSON pointer of the field that names its manager, if the kind has one.
    pub(crate) managed_by: Option<&'static str>,
    /// JSON pointers of the labels of each pod set's pods, in the order of the pod sets.
    pub(crate) labels: &'static [&'static str],
    /// Names of the pod sets, and how many pods each has.
    pub(crate) pod_sets: &'static [(&'static str, i32)],
    /// Its status when everything runs.
    pub(crate) running: Value,
    /// Its status when it has succeeded; none for kinds that never end.
    pub(crate) ended: Option<Value>,
}

/// Modules, and their CRDs: a file, or a folder with no other.
pub(crate) const CRDS: &[(&str, &[&str])] = &[
    ("sigs.k8s.io/jobset", &["config/components/crd/bases"]),
    (
        "github.com/kubeflow/training-operator",
        &[
            // Not its MPIJob, which is that of before the MPI operator's v2.
            "manifests/base/crds/kubeflow.org_tfjobs.yaml",
            "manifests/base/crds/kubeflow.org_pytorchjobs.yaml",
            "manifests/base/crds/kubeflow.org_paddlejobs.yaml",
            "manifests/base/crds/kubeflow.org_xgboostjobs.yaml",
            "manifests/base/crds/kubeflow.org_jaxjobs.yaml",
        ],
    ),
    ("github.com/kubeflow/mpi-operator", &["manifests/base/kubeflow.org_mpijobs.yaml"]),
    (
        "github.com/ray-project/kuberay/ray-operator",
        &[
            "config/crd/bases/ray.io_rayclusters.yaml",
            "config/crd/bases/ray.io_rayjobs.yaml",
            "config/crd/bases/ray.io_rayservices.yaml",
        ],
    ),
    ("github.com/project-codeflare/appwrapper", &["config/crd/bases"]),
    (
        "github.com/kubeflow/trainer/v2",
        &[
            "manifests/base/crds/trainer.kubeflow.org_clustertrainingruntimes.yaml",
            "manifests/base/crds/trainer.kubeflow.org_trainingruntimes.yaml",
            "manifests/base/crds/trainer.kubeflow.org_trainjobs.yaml",
        ],
    ),
    (
        "github.com/kubeflow/spark-operator/v2",
        &["config/crd/bases/sparkoperator.k8s.io_sparkapplications.yaml"],
    ),
];

/// A pod template of one container with one cpu.
pub(crate) fn template() -> Value {
    json!({
        "metadata": {"labels": {"app": "train"}},
        "spec": {
            "restartPolicy": "Never",
            "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": 1}}}],
        },
    })
}

fn condition(type_: &str) -> Value {
    let time = "2026-01-01T00:00:00Z";
    json!({
        "type": type_, "status": "True", "reason": "R", "message": format!("it is {type_}"), "lastTransitionTime": time,
    })
}

/// All kinds but `batch/v1` Job.
pub(crate) fn samples() -> Vec<Sample> {
    let mut samples = kubeflow();
    samples.extend(ray());
    samples.extend([job_set(), app_wrapper(), spark_application(), train_job()]);
    samples
}

fn job_set() -> Sample {
    let group = |name: &str, parallelism: i32| {
        let spec =
            json!({"parallelism": parallelism, "completions": parallelism, "template": template()});
        json!({"name": name, "replicas": 1, "template": {"spec": spec}})
    };
    let status = |active: i32, succeeded: i32, conditions: Value| {
        let of = |name: &str| json!({"name": name, "active": active, "ready": active, "succeeded": succeeded, "failed": 0, "suspended": 0});
        json!({"replicatedJobsStatus": [of("leader"), of("worker")], "conditions": conditions})
    };
    Sample {
        api: "jobset.x-k8s.io/v1alpha2",
        kind: "JobSet",
        spec: json!({"replicatedJobs": [group("leader", 1), group("worker", 2)]}),
        suspend: "/spec/suspend",
        managed_by: Some("/spec/managedBy"),
        labels: &[
            "/spec/replicatedJobs/0/template/spec/template/metadata/labels",
            "/spec/replicatedJobs/1/template/spec/template/metadata/labels",
        ],
        pod_sets: &[("leader", 1), ("worker", 2)],
        running: status(1, 0, json!([])),
        ended: Some(status(0, 1, json!([condition("Completed")]))),
    }
}

fn kubeflow() -> Vec<Sample> {
    let one = |api, kind, specs: &str, first: &str, labels, pod_sets| {
        let replicas = |count: i32| json!({"replicas": count, "template": template()});
        let mut spec = json!({ specs: {"Worker": replicas(2)} });
        spec[specs][first] = replicas(if first == "Worker" { 2 } else { 1 });
        let counts = json!({first: {"active": 1}});
        Sample {
            api,
            kind,
            spec,
            suspend: "/spec/runPolicy/suspend",
            managed_by: Some("/spec/runPolicy/managedBy"),
            labels,
            pod_sets,
            running: json!({"conditions": [condition("Running")], "replicaStatuses": counts}),
            ended: Some(
                json!({"conditions": [condition("Succeeded")], "replicaStatuses": {first: {"active": 0}}}),
            ),
        }
    };
    let (v1, two): (_, &[(&str, i32)]) = ("kubeflow.org/v1", &[("master", 1), ("worker", 2)]);
    vec![
        one(
            v1,
            "TFJob",
            "tfReplicaSpecs",
            "PS",
            &[
                "/spec/tfReplicaSpecs/PS/template/metadata/labels",
                "/spec/tfReplicaSpecs/Worker/template/metadata/labels",
            ],
            &[("ps", 1), ("worker", 2)],
        ),
        one(
            v1,
            "PyTorchJob",
            "pytorchReplicaSpecs",
            "Master",
            &[
                "/spec/pytorchReplicaSpecs/Master/template/metadata/labels",
                "/spec/pytorchReplicaSpecs/Worker/template/metadata/labels",
            ],
            two,
        ),
        one(
            v1,
            "PaddleJob",
            "paddleReplicaSpecs",
            "Master",
            &[
                "/spec/paddleReplicaSpecs/Master/template/metadata/labels",
                "/spec/paddleReplicaSpecs/Worker/template/metadata/labels",
            ],
            two,
        ),
        one(
            v1,
            "XGBoostJob",
            "xgbReplicaSpecs",
            "Master",
            &[
                "/spec/xgbReplicaSpecs/Master/template/metadata/labels",
                "/spec/xgbReplicaSpecs/Worker/template/metadata/labels",
            ],
            two,
        ),
        one(
            v1,
            "JAXJob",
            "jaxReplicaSpecs",
            "Worker",
            &["/spec/jaxReplicaSpecs/Worker/template/metadata/labels"],
            &[("worker", 2)],
        ),
        one(
            "kubeflow.org/v2beta1",
            "MPIJob",
            "mpiReplicaSpecs",
            "Launcher",
            &[
                "/spec/mpiReplicaSpecs/Launcher/template/metadata/labels",
                "/spec/mpiReplicaSpecs/Worker/template/metadata/labels",
            ],
            &[("launcher", 1), ("worker", 2)],
        ),
    ]
}

fn ray() -> Vec<Sample> {
    let group = json!({"groupName": "small", "replicas": 2, "minReplicas": 0, "maxReplicas": 5, "rayStartParams": {}, "template": template()});
    let head = json!({"rayStartParams": {}, "template": template()});
    let cluster = json!({"headGroupSpec": head, "workerGroupSpecs": [group]});
    let api = "ray.io/v1";
    let managed_by = Some("/spec/managedBy");
    vec![
        Sample {
            api,
            kind: "RayCluster",
            spec: cluster.clone(),
            suspend: "/spec/suspend",
            managed_by,
            labels: &[
                "/spec/headGroupSpec/template/metadata/labels",
                "/spec/workerGroupSpecs/0/template/metadata/labels",
            ],
            pod_sets: &[("head", 1), ("small", 2)],
            running: json!({"state": "ready", "readyWorkerReplicas": 2}),
            ended: None,
        },
        Sample {
            api,
            kind: "RayJob",
            spec: json!({"entrypoint": "python", "shutdownAfterJobFinishes": true, "rayClusterSpec": cluster}),
            suspend: "/spec/suspend",
            managed_by,
            labels: &[
                "/spec/rayClusterSpec/headGroupSpec/template/metadata/labels",
                "/spec/rayClusterSpec/workerGroupSpecs/0/template/metadata/labels",
                // Written out by admission, where the user left it to KubeRay.
                "/spec/submitterPodTemplate/metadata/labels",
            ],
            pod_sets: &[("head", 1), ("small", 2), ("submitter", 1)],
            running: json!({
                "jobDeploymentStatus": "Running", "jobStatus": "RUNNING", "rayClusterStatus": {"state": "ready"},
            }),
            ended: Some(
                json!({"jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED", "message": "done"}),
            ),
        },
        Sample {
            api,
            kind: "RayService",
            spec: json!({"rayClusterConfig": cluster}),
            suspend: "/spec/rayClusterConfig/suspend",
            managed_by,
            labels: &[
                "/spec/rayClusterConfig/headGroupSpec/template/metadata/labels",
                "/spec/rayClusterConfig/workerGroupSpecs/0/template/metadata/labels",
            ],
            pod_sets: &[("head", 1), ("small", 2)],
            running: json!({"conditions": [condition("Ready")], "numServeEndpoints": 1}),
            ended: None,
        },
    ]
}

fn app_wrapper() -> Sample {
    let job = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "wrapped"},
        "spec": {"parallelism": 2, "completions": 2, "template": template()},
    });
    Sample {
        api: "workload.codeflare.dev/v1beta2",
        kind: "AppWrapper",
        spec: json!({"components": [{"template": job}]}),
        suspend: "/spec/suspend",
        managed_by: Some("/spec/managedBy"),
        // Admission is written beside the templates.
        labels: &["/spec/components/0/podSetInfos/0/labels"],
        pod_sets: &[("-0", 2)],
        running: json!({"phase": "Running", "conditions": [condition("PodsReady")]}),
        ended: Some(json!({"phase": "Succeeded"})),
    }
}

fn spark_application() -> Sample {
    let state = |state: &str| json!({"applicationState": {"state": state}, "driverInfo": {"podName": "driver"}});
    let mut running = state("RUNNING");
    running["executorState"] = json!({"executor-1": "RUNNING", "executor-2": "RUNNING"});
    Sample {
        api: "sparkoperator.k8s.io/v1beta2",
        kind: "SparkApplication",
        spec: json!({
            "type": "Scala", "mode": "cluster", "sparkVersion": "4.0.0", "mainApplicationFile": "local:///app.jar",
            "driver": {"coreRequest": "1"},
            "executor": {"instances": 2, "coreRequest": "1"},
        }),
        suspend: "/spec/suspend",
        managed_by: None,
        labels: &["/spec/driver/labels", "/spec/executor/labels"],
        pod_sets: &[("driver", 1), ("executor", 2)],
        running,
        ended: Some(state("COMPLETED")),
    }
}

/// The runtime of the TrainJob, which is an object of its own.
pub(crate) fn training_runtime() -> Value {
    let step = json!({"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"});
    let node = json!({"name": "node", "template": {"metadata": {"labels": step}, "spec": {"template": template()}}});
    json!({
        "apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "ClusterTrainingRuntime",
        "metadata": {"name": "every-kind"},
        "spec": {"mlPolicy": {"numNodes": 1}, "template": {"spec": {"replicatedJobs": [node]}}},
    })
}

fn train_job() -> Sample {
    let status = |active: i32, succeeded: i32| json!({"name": "node", "active": active, "ready": active, "succeeded": succeeded, "failed": 0, "suspended": 0});
    Sample {
        api: "trainer.kubeflow.org/v1alpha1",
        kind: "TrainJob",
        spec: json!({
            "runtimeRef": {"name": "every-kind", "kind": "ClusterTrainingRuntime", "apiGroup": "trainer.kubeflow.org"},
            "trainer": {"numNodes": 3},
        }),
        suspend: "/spec/suspend",
        managed_by: Some("/spec/managedBy"),
        // Admission is a patch of the runtime.
        labels: &[
            "/spec/runtimePatches/0/trainingRuntimeSpec/template/spec/replicatedJobs/0/template/spec/template/metadata/labels",
        ],
        pod_sets: &[("node", 3)],
        running: json!({"jobsStatus": [status(1, 0)]}),
        ended: Some(json!({"jobsStatus": [status(0, 1)], "conditions": [condition("Complete")]})),
    }
}
