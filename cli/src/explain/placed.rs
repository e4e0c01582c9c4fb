//! Where a workload with quota is: what it holds, its checks, its worker cluster.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Serialize;
use switchyard_api::conditions::{self, find};
use switchyard_api::v1beta2::{Workload, WorkloadStatus};

/// The quota that a workload holds.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionView {
    /// Whose quota.
    pub cluster_queue: String,
    /// Since when it holds it.
    pub reserved_since: Option<Timestamp>,
    /// Since when it may run.
    pub admitted_since: Option<Timestamp>,
    /// By pod set.
    pub pod_sets: Vec<AssignmentView>,
}

/// The quota of one pod set.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AssignmentView {
    /// The pod set.
    pub name: String,
    /// How many pods.
    pub count: Option<i32>,
    /// Flavor by resource.
    pub flavors: BTreeMap<String, String>,
    /// Usage by resource.
    pub usage: BTreeMap<String, String>,
}

/// An admission check's answer.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CheckView {
    /// The check.
    pub name: String,
    /// `Pending`, `Ready`, `Retry` or `Rejected`.
    pub state: String,
    /// What it says. Of the check that sends jobs to worker clusters: by cluster, why not.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// Where a workload was sent.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DispatchView {
    /// The worker cluster that took it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// Worker clusters that are being tried.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nominated_clusters: Vec<String>,
    /// How often it was sent to a cluster.
    pub attempt: i64,
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
        });
        Some(Self {
            cluster_queue: admission.cluster_queue.clone(),
            reserved_since: Some(reserved.last_transition_time.0),
            admitted_since: since(conditions::ADMITTED)
                .map(|condition| condition.last_transition_time.0),
            pod_sets: pod_sets.collect(),
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
        sent.then(|| Self {
            cluster: status.cluster_name.clone(),
            nominated_clusters: status.nominated_cluster_names.clone(),
            attempt,
        })
    }
}
