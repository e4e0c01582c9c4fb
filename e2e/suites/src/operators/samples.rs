//! An object of each kind as its user writes it, and what its status says when it runs and when it has succeeded.

use serde_json::{Value, json};
use switchyard_e2e::job::RUN_FOR;

/// How long the pods run of what ends: long enough that all are seen at once.
const WHILE: &str = "6s";
const FOREVER: &str = "forever";

/// A kind, by one object of it.
#[derive(Debug)]
pub(super) struct Sample {
    /// `apiVersion`.
    pub(super) api: &'static str,
    /// Kind.
    pub(super) kind: &'static str,
    /// The spec, not suspended.
    pub(super) spec: Value,
    /// JSON pointer of the field that suspends it; none where its pods wait behind gates.
    pub(super) suspend: Option<&'static str>,
    /// JSON pointer of the field that names its manager, if the kind has one.
    pub(super) managed_by: Option<&'static str>,
    /// How many Workloads it has.
    pub(super) workloads: usize,
    /// How many pods its operator makes.
    pub(super) pods: usize,
    /// Whether its status says that everything runs.
    pub(super) runs: fn(&Value) -> bool,
    /// Whether its status says that it has succeeded; none for what runs until it is deleted.
    pub(super) ended: Option<fn(&Value) -> bool>,
}

/// A pod of one container with one cpu, which runs for so long.
fn template(container: &str, run_for: &str) -> Value {
    let container = json!({"name": container, "image": "example.org/job:1", "resources": {"requests": {"cpu": "1"}}});
    json!({
        "metadata": {"annotations": {RUN_FOR: run_for}},
        "spec": {"terminationGracePeriodSeconds": 1, "containers": [container]},
    })
}

fn condition(status: &Value, kind: &str) -> bool {
    let mut conditions = status["conditions"].as_array().into_iter().flatten();
    conditions.any(|condition| condition["type"] == kind && condition["status"] == "True")
}

/// A leader and two workers.
pub(super) fn job_set() -> Sample {
    let group = |name: &str, pods: i32| {
        let mut template = template("main", WHILE);
        template["spec"]["restartPolicy"] = "Never".into();
        let spec = json!({"parallelism": pods, "completions": pods, "template": template});
        json!({"name": name, "replicas": 1, "template": {"spec": spec}})
    };
    Sample {
        api: "jobset.x-k8s.io/v1alpha2",
        kind: "JobSet",
        spec: json!({"replicatedJobs": [group("leader", 1), group("worker", 2)]}),
        suspend: Some("/spec/suspend"),
        managed_by: Some("/spec/managedBy"),
        workloads: 1,
        pods: 3,
        runs: |status| {
            let jobs = status["replicatedJobsStatus"].as_array();
            jobs.is_some_and(|jobs| jobs.len() == 2 && jobs.iter().all(|job| job["ready"] == 1))
        },
        ended: Some(|status| condition(status, "Completed")),
    }
}

/// Two replicas of a leader and a worker each.
pub(super) fn leader_worker_set() -> Sample {
    let group = json!({
        "size": 2, "leaderTemplate": template("main", FOREVER), "workerTemplate": template("main", FOREVER),
    });
    Sample {
        api: "leaderworkerset.x-k8s.io/v1",
        kind: "LeaderWorkerSet",
        spec: json!({"replicas": 2, "leaderWorkerTemplate": group}),
        suspend: None,
        managed_by: None,
        workloads: 2,
        pods: 4,
        runs: |status| status["readyReplicas"] == 2 && condition(status, "Available"),
        ended: None,
    }
}

/// A master and two workers.
pub(super) fn pytorch_job() -> Sample {
    // Its webhook wants the name.
    let replicas = |count: i32| json!({"replicas": count, "restartPolicy": "Never", "template": template("pytorch", WHILE)});
    Sample {
        api: "kubeflow.org/v1",
        kind: "PyTorchJob",
        spec: json!({"pytorchReplicaSpecs": {"Master": replicas(1), "Worker": replicas(2)}}),
        suspend: Some("/spec/runPolicy/suspend"),
        managed_by: Some("/spec/runPolicy/managedBy"),
        workloads: 1,
        pods: 3,
        runs: |status| condition(status, "Running"),
        ended: Some(|status| condition(status, "Succeeded")),
    }
}

/// The spec of a head and two workers.
fn ray() -> Value {
    let group = json!({
        "groupName": "small", "replicas": 2, "minReplicas": 2, "maxReplicas": 2, "rayStartParams": {},
        "template": template("ray", FOREVER),
    });
    let head = json!({"rayStartParams": {}, "template": template("ray", FOREVER)});
    json!({"rayVersion": "2.46.0", "headGroupSpec": head, "workerGroupSpecs": [group]})
}

/// It has no end of its own.
pub(super) fn ray_cluster() -> Sample {
    Sample {
        api: "ray.io/v1",
        kind: "RayCluster",
        spec: ray(),
        suspend: Some("/spec/suspend"),
        managed_by: Some("/spec/managedBy"),
        workloads: 1,
        pods: 3,
        runs: |status| status["state"] == "ready" && status["readyWorkerReplicas"] == 2,
        ended: None,
    }
}

/// A cluster of its own, and a pod that submits the job to it.
pub(super) fn ray_job() -> Sample {
    let mut submitter = template("submitter", WHILE);
    submitter["spec"]["restartPolicy"] = "Never".into();
    Sample {
        api: "ray.io/v1",
        kind: "RayJob",
        spec: json!({
            "entrypoint": "python", "shutdownAfterJobFinishes": true, "rayClusterSpec": ray(),
            "submitterPodTemplate": submitter,
        }),
        suspend: Some("/spec/suspend"),
        managed_by: Some("/spec/managedBy"),
        workloads: 1,
        pods: 4,
        runs: |status| status["jobStatus"] == "RUNNING",
        ended: Some(|status| {
            status["jobDeploymentStatus"] == "Complete" && status["jobStatus"] == "SUCCEEDED"
        }),
    }
}

/// A launcher, which ends, and two workers, which its operator ends then.
pub(super) fn mpi_job() -> Sample {
    let replicas = |count: i32, run_for: &str| {
        let template = template("mpi", run_for);
        json!({"replicas": count, "restartPolicy": "Never", "template": template})
    };
    Sample {
        api: "kubeflow.org/v2beta1",
        kind: "MPIJob",
        spec: json!({
            "runPolicy": {"cleanPodPolicy": "Running"},
            "mpiReplicaSpecs": {"Launcher": replicas(1, WHILE), "Worker": replicas(2, FOREVER)},
        }),
        suspend: Some("/spec/runPolicy/suspend"),
        managed_by: Some("/spec/runPolicy/managedBy"),
        workloads: 1,
        pods: 3,
        runs: |status| condition(status, "Running"),
        ended: Some(|status| condition(status, "Succeeded")),
    }
}
