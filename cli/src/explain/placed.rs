//! A workload with quota: its usage, admission checks and worker cluster.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Serialize;
use switchyard_api::conditions::{self, find};
use switchyard_api::v1beta2::{OtherFlavor, Workload, WorkloadStatus};

use super::topology::DomainsView;

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionView {
    pub cluster_queue: String,
    pub reserved_since: Option<Timestamp>,
    pub admitted_since: Option<Timestamp>,
    pub pod_sets: Vec<AssignmentView>,
    /// Nodes that failed under its pods and are not replaced yet.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unhealthy_nodes: Vec<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AssignmentView {
    pub name: String,
    /// Number of pods.
    pub count: Option<i32>,
    /// Flavor by resource.
    pub flavors: BTreeMap<String, String>,
    /// Usage by resource.
    pub usage: BTreeMap<String, String>,
    /// The topology domains of its pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topology: Option<DomainsView>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CheckView {
    pub name: String,
    /// `Pending`, `Ready`, `Retry` or `Rejected`.
    pub state: String,
    /// For the check that dispatches: each cluster's refusal.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DispatchView {
    /// The worker cluster that took the workload.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// The worker cluster of an evicted workload, which may still have its pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left_cluster: Option<String>,
    /// Worker clusters that are being tried.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nominated_clusters: Vec<String>,
    /// How often it was dispatched.
    pub attempt: i64,
    /// Flavors on the cluster that differ from those that its queue charges.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub other_flavors: Vec<OtherFlavor>,
}

impl AdmissionView {
    pub(super) fn of(status: &WorkloadStatus) -> Option<Self> {
        let since = |condition| {
            find(&status.conditions, condition).filter(|c| c.status == conditions::TRUE)
        };
        let reserved = since(conditions::QUOTA_RESERVED)?;
        let admission = status.admission.as_ref()?;
        let pod_sets = admission.pod_set_assignments.iter().map(|assignment| AssignmentView {
            name: assignment.name.clone(),
            count: assignment.count,
            flavors: assignment.flavors.clone().into_iter().collect(),
            usage: assignment
                .resource_usage
                .iter()
                .map(|(name, usage)| (name.clone(), usage.0.clone()))
                .collect(),
            topology: assignment.topology_assignment.as_ref().map(DomainsView::new),
        });
        Some(Self {
            cluster_queue: admission.cluster_queue.clone(),
            reserved_since: Some(reserved.last_transition_time.0),
            admitted_since: since(conditions::ADMITTED)
                .map(|condition| condition.last_transition_time.0),
            pod_sets: pod_sets.collect(),
            unhealthy_nodes: status.unhealthy_nodes.iter().map(|node| node.name.clone()).collect(),
        })
    }
}

impl CheckView {
    pub(super) fn all(status: &WorkloadStatus) -> Vec<Self> {
        let view = |check: &switchyard_api::v1beta2::AdmissionCheckState| Self {
            name: check.name.clone(),
            state: format!("{:?}", check.state),
            message: check.message.clone(),
        };
        status.admission_checks.iter().map(view).collect()
    }
}

impl DispatchView {
    pub(super) fn of(workload: &Workload) -> Option<Self> {
        let status = workload.status.as_ref()?;
        let attempt = status.dispatch.as_ref().map_or(0, |dispatch| dispatch.attempt);
        let sent = status.cluster_name.is_some()
            || !status.nominated_cluster_names.is_empty()
            || attempt > 0;
        let left = status.dispatch.as_ref().and_then(|dispatch| dispatch.cluster_name.clone());
        sent.then(|| Self {
            cluster: status.cluster_name.clone(),
            left_cluster: left.filter(|_| {
                conditions::is_true(&status.conditions, conditions::EVICTED)
                    && conditions::is_true(&status.conditions, conditions::QUOTA_RESERVED)
            }),
            nominated_clusters: status.nominated_cluster_names.clone(),
            attempt,
            other_flavors: status
                .dispatch
                .iter()
                .filter(|_| status.cluster_name.is_some())
                .flat_map(|dispatch| dispatch.other_flavors.clone())
                .collect(),
        })
    }
}
