//! `ray.io/v1` RayCluster. It never finishes: its workload ends with the object.

use serde_json::Value;

use super::super::meta::str_at;
use super::super::plain::{PlainKind, Slot};
use super::super::{Finished, JobError, KindId};
use super::{KUBERAY, account_for_head, cluster_slots, id, validate_cluster};
use crate::field::{FieldError, Path};
use crate::v1beta2::PodSet;

/// The kind `ray.io/v1` RayCluster.
#[derive(Debug, Clone, Copy)]
pub struct RayCluster;

const CLUSTER: &str = "/spec";

fn is_ready(job: &Value) -> bool {
    str_at(job, "/status/state") == "ready"
}

impl PlainKind for RayCluster {
    fn id(&self) -> KindId {
        id("RayCluster", "rayclusters", "ray.io/raycluster")
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
        validate_cluster(job, CLUSTER, &Path::new("spec"))
    }
}
