//! What was seen of a cluster.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use switchyard_api::conditions;
use switchyard_api::v1beta2::{Admission, ClusterQueue, Cohort, LocalQueue, Workload};

/// What may own pods, directly or through others: its metadata.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Owner {
    /// Its kind.
    pub kind: String,
    /// Its metadata.
    pub meta: ObjectMeta,
}

/// What was seen of a cluster.
#[derive(Clone, Debug, Default)]
pub struct Cluster {
    /// Its name, for findings.
    pub name: String,
    /// Whether everything was listed, and not one namespace of it: sums over queues are right only then.
    pub is_whole: bool,
    /// Pods.
    pub pods: Vec<Pod>,
    /// Jobs, and what else owns pods.
    pub owners: Vec<Owner>,
    /// Workloads.
    pub workloads: Vec<Workload>,
    /// ClusterQueues.
    pub cluster_queues: Vec<ClusterQueue>,
    /// LocalQueues.
    pub local_queues: Vec<LocalQueue>,
    /// Cohorts.
    pub cohorts: Vec<Cohort>,
}

pub(crate) fn name(meta: &ObjectMeta) -> &str {
    meta.name.as_deref().unwrap_or_default()
}

pub(crate) fn namespace(meta: &ObjectMeta) -> &str {
    meta.namespace.as_deref().unwrap_or_default()
}

/// The value of a label or of an annotation; empty ones count as none.
pub(crate) fn mark<'a>(marks: &'a Option<BTreeMap<String, String>>, key: &str) -> Option<&'a str> {
    marks.as_ref()?.get(key).map(String::as_str).filter(|value| !value.is_empty())
}

fn holds(workload: &Workload, condition: &str) -> bool {
    workload.status.as_ref().is_some_and(|status| conditions::is_true(&status.conditions, condition))
}

/// The quota that a Workload holds.
pub(crate) fn reservation(workload: &Workload) -> Option<&Admission> {
    let holds_quota = holds(workload, conditions::QUOTA_RESERVED) && !holds(workload, conditions::FINISHED);
    workload.status.as_ref()?.admission.as_ref().filter(|_| holds_quota)
}

/// Whether pods may run by a Workload.
pub(crate) fn is_admitted(workload: &Workload) -> bool {
    reservation(workload).is_some() && holds(workload, conditions::ADMITTED)
}
