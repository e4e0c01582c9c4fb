//! Kubeflow's job kinds: `kubeflow.org/v1` TFJob, PyTorchJob, PaddleJob, XGBoostJob and JAXJob of
//! the training operator, and `kubeflow.org/v2beta1` MPIJob of the MPI operator.
//!
//! They differ in the name of the map with the pod templates by replica type, and in the replica
//! types. Each kind is one constant.

use serde_json::{Map, Value};

use super::meta::{Keys, annotation, count_at, str_at};
use super::plain::{PlainKind, Slot};
use super::status::{finished_by, true_condition};
use super::topology::{self, PodRanks, REPLICA_INDEX};
use super::{JobEnd, JobError, KindId, KindProfile};
use switchyard_syntax::field::Path;
use switchyard_syntax::names;

/// One of Kubeflow's kinds.
#[derive(Debug, Clone, Copy)]
pub struct Kubeflow {
    id: KindId,
    /// Name of the map of replica specs in `spec`.
    specs: &'static str,
    /// Replica types in Kueue's order of pod sets.
    types: &'static [&'static str],
    controller: &'static str,
}

const fn trained(
    kind: &'static str,
    plural: &'static str,
    framework: &'static str,
    specs: &'static str,
    types: &'static [&'static str],
) -> Kubeflow {
    let id = KindId { group: "kubeflow.org", version: "v1", kind, plural, framework };
    Kubeflow { id, specs, types, controller: "kubeflow.org/training-operator" }
}

/// `kubeflow.org/v1` TFJob.
pub static TF_JOB: Kubeflow = trained(
    "TFJob",
    "tfjobs",
    "kubeflow.org/tfjob",
    "tfReplicaSpecs",
    &["Chief", "Master", "PS", "Worker", "Evaluator"],
);

/// `kubeflow.org/v1` PyTorchJob.
pub static PYTORCH_JOB: Kubeflow = trained(
    "PyTorchJob",
    "pytorchjobs",
    "kubeflow.org/pytorchjob",
    "pytorchReplicaSpecs",
    &["Master", "Worker"],
);

/// `kubeflow.org/v1` PaddleJob.
pub static PADDLE_JOB: Kubeflow = trained(
    "PaddleJob",
    "paddlejobs",
    "kubeflow.org/paddlejob",
    "paddleReplicaSpecs",
    &["Master", "Worker"],
);

/// `kubeflow.org/v1` XGBoostJob.
pub static XGBOOST_JOB: Kubeflow = trained(
    "XGBoostJob",
    "xgboostjobs",
    "kubeflow.org/xgboostjob",
    "xgbReplicaSpecs",
    &["Master", "Worker"],
);

/// `kubeflow.org/v1` JAXJob.
pub static JAX_JOB: Kubeflow =
    trained("JAXJob", "jaxjobs", "kubeflow.org/jaxjob", "jaxReplicaSpecs", &["Worker"]);

/// `kubeflow.org/v2beta1` MPIJob.
pub static MPI_JOB: Kubeflow = Kubeflow {
    id: KindId {
        group: "kubeflow.org",
        version: "v2beta1",
        kind: "MPIJob",
        plural: "mpijobs",
        framework: "kubeflow.org/mpijob",
    },
    specs: "mpiReplicaSpecs",
    types: &["Launcher", "Worker"],
    controller: "kubeflow.org/mpi-operator",
};

impl KindProfile for Kubeflow {
    fn id(&self) -> KindId {
        self.id
    }

    /// With `runLauncherAsWorker`, the launcher has index 0 and the workers are numbered from 1,
    /// except in a pod set group.
    fn apply_topology_defaults(&self, job: &mut Value) {
        let of = |type_: &str| format!("/spec/{}/{type_}/template", self.specs);
        let launcher_works =
            job.pointer("/spec/runLauncherAsWorker").and_then(Value::as_bool) == Some(true);
        let grouped = |launcher: &Value| annotation(launcher, names::POD_SET_GROUP_NAME).is_some();
        let alone = job.pointer(&of("Launcher")).is_some_and(|launcher| !grouped(launcher));
        if launcher_works
            && alone
            && let Some(workers) = job.pointer_mut(&of("Worker"))
        {
            topology::number_from_one(workers);
        }
    }

    fn is_active(&self, job: &Value) -> bool {
        let statuses = job.pointer("/status/replicaStatuses").and_then(Value::as_object);
        statuses.into_iter().flatten().any(|(_, status)| count_at(status, "/active", 0) != 0)
    }

    fn finished(&self, job: &Value) -> Option<JobEnd> {
        finished_by(job, "Succeeded", "Failed")
    }

    fn pods_ready(&self, job: &Value) -> bool {
        true_condition(job, &["Running"]).is_some()
    }

    /// The scheduling policy's class takes precedence over the templates'.
    fn priority_class(&self, job: &Value) -> Option<String> {
        let named = str_at(job, "/spec/runPolicy/schedulingPolicy/priorityClass");
        (!named.is_empty()).then(|| named.to_owned())
    }
}

impl PlainKind for Kubeflow {
    fn suspend_at(&self) -> Keys {
        &["spec", "runPolicy", "suspend"]
    }

    fn managed_by_at(&self) -> Option<Keys> {
        Some(&["spec", "runPolicy", "managedBy"])
    }

    fn own_controller(&self) -> &'static str {
        self.controller
    }

    fn slots(&self, job: &Value) -> Result<Vec<Slot>, JobError> {
        let slot = |type_: &&str| {
            let at = format!("/spec/{}/{type_}", self.specs);
            job.pointer(&at).filter(|spec| !spec.is_null())?;
            Some(Slot {
                name: (*type_).to_owned(),
                template: format!("{at}/template"),
                replicas: format!("{at}/replicas"),
                count: count_at(job, &format!("{at}/replicas"), 1),
                ranks: PodRanks::by(REPLICA_INDEX),
            })
        };
        Ok(self.types.iter().filter_map(slot).collect())
    }

    fn metadata_path(&self, slot: &Slot) -> Path {
        Path::new("spec").child(self.specs).key(&slot.name).child("template").child("metadata")
    }

    fn trim_copy(&self, spec: &mut Map<String, Value>) {
        // The hub deletes the copy after it has recorded the end.
        if let Some(policy) = spec.get_mut("runPolicy").and_then(Value::as_object_mut) {
            policy.remove("ttlSecondsAfterFinished");
        }
    }
}
