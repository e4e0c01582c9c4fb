//! `ray.io/v1` RayCluster and RayService, which contains the spec of one. They never finish. Their
//! Workloads are deleted with them.

use serde_json::Value;

use super::super::meta::{Keys, str_at};
use super::super::plain::{PlainKind, Slot};
use super::super::status::true_condition;
use super::super::{
    Dependency, Dependent, Elastic, JobEnd, JobError, JobKind, KindId, KindProfile, Managed,
    elastic,
};
use super::{
    CLUSTER_ID, KUBERAY, account_for_additions, autoscaling, child, cluster_slots,
    cluster_templates, id, is_fault_tolerant, resize_groups, size_groups_as, validate_cluster,
};
use switchyard_api::v1beta2::PodSet;
use switchyard_syntax::field::{FieldError, Path};
use switchyard_syntax::names;

/// A kind whose pods are those of one RayCluster.
#[derive(Debug, Clone, Copy)]
pub struct RayPods {
    id: KindId,
    /// JSON pointer to the spec of the RayCluster.
    at: &'static str,
    suspend_at: Keys,
    /// JSON pointer to the name of the RayCluster that KubeRay created for the object. `None` for a
    /// RayCluster itself.
    child_at: Option<&'static str>,
    propagated: &'static [&'static str],
    is_ready: fn(&Value) -> bool,
}

/// The kind `ray.io/v1` RayCluster.
pub static RAY_CLUSTER: RayPods = RayPods {
    id: CLUSTER_ID,
    at: "/spec",
    suspend_at: &["spec", "suspend"],
    child_at: None,
    propagated: &[],
    is_ready: |job| str_at(job, "/status/state") == "ready",
};

/// The kind `ray.io/v1` RayService. The suspend field is in the spec of its cluster.
pub static RAY_SERVICE: RayPods = RayPods {
    id: id("RayService", "rayservices", "ray.io/rayservice"),
    at: "/spec/rayClusterConfig",
    suspend_at: &["spec", "rayClusterConfig", "suspend"],
    child_at: Some("/status/activeServiceStatus/rayClusterName"),
    propagated: &["/spec/serveConfigV2"],
    is_ready: |job| true_condition(job, &["Ready"]).is_some(),
};

impl KindProfile for RayPods {
    fn id(&self) -> KindId {
        self.id
    }

    fn elastic(&self) -> Option<&dyn Elastic> {
        Some(self)
    }

    fn dependent(&self) -> Option<&dyn Dependent> {
        self.child_at.is_some().then_some(self)
    }

    fn is_active(&self, job: &Value) -> bool {
        (self.is_ready)(job)
    }

    fn has_cleanup(&self, job: &Value) -> bool {
        is_fault_tolerant(job, self.at)
    }

    fn finished(&self, _job: &Value) -> Option<JobEnd> {
        None
    }

    fn pods_ready(&self, job: &Value) -> bool {
        (self.is_ready)(job)
    }

    fn validate(&self, job: &Value) -> Vec<FieldError> {
        let below_spec = self.at.split('/').skip(2);
        let path = below_spec.fold(Path::new("spec"), |path, field| path.child(field));
        validate_cluster(job, self.at, &path)
    }
}

impl PlainKind for RayPods {
    fn suspend_at(&self) -> Keys {
        self.suspend_at
    }

    fn own_controller(&self) -> &'static str {
        KUBERAY
    }

    fn propagated(&self) -> &'static [&'static str] {
        self.propagated
    }

    fn slots(&self, job: &Value) -> Result<Vec<Slot>, JobError> {
        cluster_slots(job, self.at)
    }

    fn account(&self, job: &Value, pod_sets: &mut [PodSet]) {
        account_for_additions(job, self.at, pod_sets);
    }

    /// KubeRay upgrades a RayService with a second cluster beside the first, and that one has no
    /// quota. The pods of an elastic RayService wait for quota.
    fn validate_change(&self, old: &Value, new: &Value) -> Vec<FieldError> {
        let runs = |job: &Value| {
            !self.is_suspended(job) && self.managed_by(job) != Some(names::MULTIKUEUE_CONTROLLER)
        };
        let in_place =
            str_at(new, "/spec/upgradeStrategy/type") == "None" || elastic::is_marked(new);
        if self.child_at.is_none()
            || in_place
            || !runs(old)
            || !runs(new)
            || upgraded(old, self.at) == upgraded(new, self.at)
        {
            return Vec::new();
        }
        let detail = "another cluster would run beside this one without quota; set spec.upgradeStrategy.type to None, or \
                      create the service anew";
        vec![FieldError::forbidden(&Path::new("spec").child("rayClusterConfig"), detail)]
    }
}

impl Dependent for RayPods {
    fn dependencies(&self) -> &'static [KindId] {
        &child::KINDS
    }

    fn depends_on(&self, job: &Value) -> Option<Dependency> {
        child::named(job, self.child_at?)
    }

    fn attach(&self, job: &mut Value, found: &Value) {
        child::attach(job, found);
    }
}

impl Elastic for RayPods {
    fn templates(&self, job: &Value) -> Vec<String> {
        cluster_templates(job, self.at)
    }

    fn size_generation(&self, job: &Value) -> String {
        child::size_generation(job)
    }

    fn resizes(&self) -> bool {
        self.child_at.is_none()
    }

    fn resize(&self, job: &mut Value, pod_sets: &[PodSet]) {
        resize_groups(job, self.at, pod_sets);
    }

    fn apply_counts(&self, job: &mut Value, other: &Value) {
        size_groups_as(job, self.at, other);
    }

    fn autoscaler_field(&self, job: &Value) -> Option<Path> {
        autoscaling(job, self.at)
    }
}

/// The part of a cluster's spec whose change makes KubeRay start another cluster, without size and
/// `suspend`.
fn upgraded(job: &Value, at: &str) -> Value {
    let mut spec = job.pointer(at).cloned().unwrap_or_default();
    if let Some(fields) = spec.as_object_mut() {
        fields.remove("suspend");
    }
    let groups = spec.get_mut("workerGroupSpecs").and_then(Value::as_array_mut);
    for group in groups.into_iter().flatten().filter_map(Value::as_object_mut) {
        for field in ["replicas", "minReplicas", "maxReplicas", "scaleStrategy", "suspend"] {
            group.remove(field);
        }
    }
    spec
}
