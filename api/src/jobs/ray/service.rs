//! `ray.io/v1` RayService. It never finishes, and is suspended by the spec of its cluster.

use serde_json::Value;

use super::super::plain::{Keys, PlainKind, Slot, true_condition};
use super::super::{Finished, JobError, KindId};
use super::{KUBERAY, account_for_head, cluster_slots, id, validate_cluster};
use crate::field::{FieldError, Path};
use crate::v1beta2::PodSet;

/// The kind `ray.io/v1` RayService.
#[derive(Debug, Clone, Copy)]
pub struct RayService;

const CLUSTER: &str = "/spec/rayClusterConfig";

fn is_ready(job: &Value) -> bool {
    true_condition(job, &["Ready"]).is_some()
}

impl PlainKind for RayService {
    fn id(&self) -> KindId {
        id("RayService", "rayservices", "ray.io/rayservice")
    }

    fn suspend_at(&self) -> Keys {
        &["spec", "rayClusterConfig", "suspend"]
    }

    fn own_controller(&self) -> &'static str {
        KUBERAY
    }

    fn slots(&self, job: &Value) -> Result<Vec<Slot>, JobError> {
        cluster_slots(job, CLUSTER)
    }

    fn account(&self, job: &Value, pod_sets: &mut [PodSet]) {
        account_for_head(job, CLUSTER, pod_sets);
    }

    fn is_active(&self, job: &Value) -> bool {
        is_ready(job)
    }

    fn finished(&self, _job: &Value) -> Option<Finished> {
        None
    }

    fn pods_ready(&self, job: &Value) -> bool {
        is_ready(job)
    }

    fn validate(&self, job: &Value) -> Vec<FieldError> {
        validate_cluster(job, CLUSTER, &Path::new("spec").child("rayClusterConfig"))
    }
}
