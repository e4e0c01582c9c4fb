//! The input of an audit: the objects of one cluster.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use switchyard_api::v1beta2::{ClusterQueue, Cohort, LocalQueue, Workload};

/// An object that owns pods, directly or through other objects.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Owner {
    /// `group/version`, as in an owner reference.
    pub api_version: String,
    pub kind: String,
    /// Only name, uid, labels, annotations and owner references are read.
    pub metadata: ObjectMeta,
}

/// Lists may be empty if the API server does not serve a kind.
#[derive(Clone, Debug, Default)]
pub struct Cluster {
    /// As in findings. For a worker, the name of its MultiKueueCluster.
    pub name: String,
    /// Set if only this namespace was listed.
    pub namespace: Option<String>,
    pub pods: Vec<Pod>,
    /// The owners of pods, their owners, and so on.
    pub owners: Vec<Owner>,
    pub workloads: Vec<Workload>,
    pub cluster_queues: Vec<ClusterQueue>,
    pub local_queues: Vec<LocalQueue>,
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

/// The value of a label or an annotation. As in Kueue, an empty value is none.
pub(crate) fn mark<'a>(marks: &'a Option<BTreeMap<String, String>>, key: &str) -> Option<&'a str> {
    marks.as_ref()?.get(key).map(String::as_str).filter(|value| !value.is_empty())
}

/// The owner reference with `controller: true`.
pub(crate) fn controller(metadata: &ObjectMeta) -> Option<&OwnerReference> {
    metadata.owner_references.iter().flatten().find(|owner| owner.controller == Some(true))
}
