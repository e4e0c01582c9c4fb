//! `ray.io/v1` RayJob: a cluster for one job, and the pod that submits the job.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::super::meta::{object_mut, str_at, time_at};
use super::super::plain::{PlainKind, Slot};
use super::super::topology::PodRanks;
use super::super::{Dependency, Dependent, Elastic, JobEnd, JobError, KindId, KindProfile};
use super::{
    KUBERAY, account_for_additions, add_container, autoscaling, child, cluster_slots,
    cluster_templates, id, validate_cluster,
};
use switchyard_api::v1beta2::PodSet;
use switchyard_syntax::field::{FieldError, Path};

/// The kind `ray.io/v1` RayJob.
#[derive(Debug, Clone, Copy)]
pub struct RayJob;

const CLUSTER: &str = "/spec/rayClusterSpec";
const SUBMITTER: &str = "/spec/submitterPodTemplate";
/// KubeRay's name of the container that submits the job.
const SUBMITTER_CONTAINER: &str = "ray-job-submitter";

/// Whether a separate pod submits the job. The API server defaults the field to this.
fn submits_by_job(job: &Value) -> bool {
    matches!(str_at(job, "/spec/submissionMode"), "" | "K8sJobMode")
}

/// Whether a sidecar of the head submits the job.
fn submits_by_sidecar(job: &Value) -> bool {
    str_at(job, "/spec/submissionMode") == "SidecarMode"
}

/// KubeRay's default resources of the submitter.
fn submitter_resources() -> Value {
    json!({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m", "memory": "200Mi"}})
}

fn uses_existing_cluster(job: &Value) -> bool {
    job.pointer("/spec/clusterSelector")
        .and_then(Value::as_object)
        .is_some_and(|selector| !selector.is_empty())
}

fn has_cluster(job: &Value) -> bool {
    job.pointer(CLUSTER).is_some_and(Value::is_object)
}

impl KindProfile for RayJob {
    fn id(&self) -> KindId {
        id("RayJob", "rayjobs", "ray.io/rayjob")
    }

    fn elastic(&self) -> Option<&dyn Elastic> {
        Some(self)
    }

    fn dependent(&self) -> Option<&dyn Dependent> {
        Some(self)
    }

    /// A job for an existing cluster takes no quota.
    fn skips(&self, job: &Value) -> bool {
        uses_existing_cluster(job)
    }

    fn is_active(&self, job: &Value) -> bool {
        !matches!(str_at(job, "/status/jobDeploymentStatus"), "" | "Suspended")
    }

    /// KubeRay runs nothing of the job until its spec is valid.
    fn on_hold(&self, job: &Value) -> bool {
        str_at(job, "/status/jobDeploymentStatus") == "ValidationFailed"
    }

    fn finished(&self, job: &Value) -> Option<JobEnd> {
        matches!(str_at(job, "/status/jobDeploymentStatus"), "Complete" | "Failed").then(|| {
            JobEnd {
                success: str_at(job, "/status/jobStatus") == "SUCCEEDED",
                message: str_at(job, "/status/message").to_owned(),
            }
        })
    }

    /// A RayJob has no conditions.
    fn ended_at(&self, job: &Value) -> Option<Timestamp> {
        time_at(job, "/status/endTime")
    }

    fn pods_ready(&self, job: &Value) -> bool {
        str_at(job, "/status/rayClusterStatus/state") == "ready"
    }

    fn validate(&self, job: &Value) -> Vec<FieldError> {
        let spec = Path::new("spec");
        match (uses_existing_cluster(job), has_cluster(job)) {
            (true, false) => return Vec::new(),
            (true, true) => {
                let selector = job.pointer("/spec/clusterSelector").cloned().unwrap_or_default();
                let detail = "a kueue managed job should not use an existing cluster";
                return vec![FieldError::invalid(&spec.child("clusterSelector"), selector, detail)];
            }
            (false, false) => {
                let detail = "rayClusterSpec is required for Kueue-managed jobs that don't use clusterSelector";
                return vec![FieldError::required(&spec.child("rayClusterSpec"), detail)];
            }
            (false, true) => {}
        }
        let mut errors = Vec::new();
        // A cluster that is not deleted would keep using the queue's quota.
        if job.pointer("/spec/shutdownAfterJobFinishes").and_then(Value::as_bool) != Some(true) {
            errors.push(FieldError::invalid(
                &spec.child("shutdownAfterJobFinishes"),
                Value::from(false),
                "a kueue managed job should delete the cluster after finishing",
            ));
        }
        errors.extend(validate_cluster(job, CLUSTER, &spec.child("rayClusterSpec")));
        errors
    }
}

impl PlainKind for RayJob {
    fn own_controller(&self) -> &'static str {
        KUBERAY
    }

    fn slots(&self, job: &Value) -> Result<Vec<Slot>, JobError> {
        let mut slots = cluster_slots(job, CLUSTER)?;
        if submits_by_job(job) {
            let template = SUBMITTER.to_owned();
            let ranks = PodRanks::default();
            slots.push(Slot {
                name: "submitter".to_owned(),
                replicas: template.clone(),
                template,
                count: 1,
                ranks,
            });
        }
        Ok(slots)
    }

    /// Writes out KubeRay's default template, so that admission can change it.
    fn complete(&self, job: &mut Value) {
        if !submits_by_job(job) || job.pointer(SUBMITTER).is_some_and(Value::is_object) {
            return;
        }
        let image =
            str_at(job, "/spec/rayClusterSpec/headGroupSpec/template/spec/containers/0/image")
                .to_owned();
        let template = json!({"spec": {
            "containers": [{"name": SUBMITTER_CONTAINER, "image": image, "resources": submitter_resources()}],
            "restartPolicy": "Never",
        }});
        if let Some(spec) = object_mut(job, &["spec"]) {
            spec.insert("submitterPodTemplate".to_owned(), template);
        }
    }

    fn account(&self, job: &Value, pod_sets: &mut [PodSet]) {
        account_for_additions(job, CLUSTER, pod_sets);
        if submits_by_sidecar(job)
            && let Some(head) = pod_sets.first_mut()
        {
            add_container(
                head,
                json!({"name": SUBMITTER_CONTAINER, "resources": submitter_resources()}),
            );
        }
    }
}

impl Dependent for RayJob {
    fn dependencies(&self) -> &'static [KindId] {
        &child::KINDS
    }

    fn depends_on(&self, job: &Value) -> Option<Dependency> {
        child::named(job, "/status/rayClusterName")
    }

    fn attach(&self, job: &mut Value, found: &Value) {
        child::attach(job, found);
    }
}

impl Elastic for RayJob {
    /// Without the submitter, which is always one pod.
    fn templates(&self, job: &Value) -> Vec<String> {
        cluster_templates(job, CLUSTER)
    }

    fn size_generation(&self, job: &Value) -> String {
        child::size_generation(job)
    }

    fn autoscaler_field(&self, job: &Value) -> Option<Path> {
        autoscaling(job, CLUSTER)
    }
}
