//! The objects of one cluster that an audit reads.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use switchyard_api::v1beta2::{ClusterQueue, Cohort, LocalQueue, Workload};

/// An object that may own pods, directly or through other objects.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Owner {
    /// `group/version`, as in an owner reference.
    pub api_version: String,
    /// Such as `Job`.
    pub kind: String,
    /// Name, uid, labels, annotations and owner references count.
    pub metadata: ObjectMeta,
}

/// The objects of one cluster. Lists may be empty where a kind is not served.
#[derive(Clone, Debug, Default)]
pub struct Cluster {
    /// The name in findings; for a worker, that of its MultiKueueCluster.
    pub name: String,
    /// The only namespace that was listed; none if all were.
    pub namespace: Option<String>,
    /// Pods with metadata, spec and phase.
    pub pods: Vec<Pod>,
    /// The owners of pods, their owners, and so on.
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

/// `namespace` and `name` of an object.
pub(crate) type Key<'a> = (&'a str, &'a str);

pub(crate) fn key(metadata: &ObjectMeta) -> Key<'_> {
    (metadata.namespace.as_deref().unwrap_or_default(), name(metadata))
}

pub(crate) fn name(metadata: &ObjectMeta) -> &str {
    metadata.name.as_deref().unwrap_or_default()
}

/// The value of a label or an annotation. An empty one counts as none, as in Kueue.
pub(crate) fn mark<'a>(marks: &'a Option<BTreeMap<String, String>>, key: &str) -> Option<&'a str> {
    marks.as_ref()?.get(key).map(String::as_str).filter(|value| !value.is_empty())
}

/// The owner reference with `controller: true`.
pub(crate) fn controller(metadata: &ObjectMeta) -> Option<&OwnerReference> {
    metadata.owner_references.iter().flatten().find(|owner| owner.controller == Some(true))
}
