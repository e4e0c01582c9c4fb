//! Rules about Kueue's API objects that several parts of the hub need.

use std::sync::Arc;

use jiff::Timestamp;
use kube::ResourceExt as _;
use switchyard_api::v1beta2::{
    AdmissionCheck, ClusterQueue, MultiKueueCluster, MultiKueueConfig, Workload,
};
use switchyard_api::{conditions, names};
use switchyard_controller::stores::Stores;
use switchyard_controller::stores::dispatching::{is_dispatching, multi_kueue_check};
use switchyard_controller::workload::is_finished;
use switchyard_dispatcher::LossPolicy;
use switchyard_platform::store::Store;

use crate::disconnect_policy;

/// The name of the MultiKueueConfig in an AdmissionCheck's parameters.
pub(crate) fn parameters(check: &AdmissionCheck) -> Option<&str> {
    let parameters = check.spec.parameters.as_ref()?;
    (parameters.kind == "MultiKueueConfig" && parameters.api_group == "kueue.x-k8s.io")
        .then_some(&*parameters.name)
}

/// Whether the agent reported that it cannot write to its API server, and has not been back since.
pub(crate) fn is_unable(cluster: &MultiKueueCluster) -> bool {
    let agent = cluster.status.as_ref().and_then(|status| status.agent.as_ref());
    cluster.spec.cluster_source.agent.is_some()
        && agent.is_some_and(|agent| agent.unable_since.is_some())
}

/// Since when a cluster's `Active` condition is not True.
pub(crate) fn lost_since(cluster: &MultiKueueCluster) -> Option<Timestamp> {
    let active = conditions::find(&cluster.status.as_ref()?.conditions, conditions::ACTIVE)?;
    (active.status != conditions::TRUE).then_some(active.last_transition_time.0)
}

/// Whether an operator declared the cluster lost. The annotation holds the time at which `Active`
/// changed, so it covers the present loss only.
pub(crate) fn is_declared_lost(cluster: &MultiKueueCluster) -> bool {
    let declared = cluster.annotations().get(names::DECLARED_LOST);
    declared.is_some() && declared.and_then(|text| text.parse().ok()) == lost_since(cluster)
}

/// Whether the cluster's own policy is `Hold`. Jobs and ClusterQueues may set another.
pub(crate) fn is_held(cluster: &MultiKueueCluster) -> bool {
    disconnect_policy::of_cluster(cluster) == LossPolicy::Hold
}

/// The MultiKueueConfig of a ClusterQueue's MultiKueue check.
pub(crate) fn multi_kueue_config(
    stores: &Stores,
    queue: &ClusterQueue,
) -> Option<Arc<MultiKueueConfig>> {
    let check = multi_kueue_check(stores, queue)?;
    stores.multi_kueue_configs.get("", parameters(&check)?)
}

/// Whether a Workload has a MultiKueue check: its job runs on a worker cluster.
pub(crate) fn dispatches(stores: &Stores, workload: &Workload) -> bool {
    let checks = workload
        .status
        .as_ref()
        .map(|status| status.admission_checks.as_slice())
        .unwrap_or_default();
    checks.iter().any(|check| is_dispatching(stores, &check.name))
}

/// Whether an unfinished job was sent to a cluster. Visits all Workloads.
pub(crate) fn has_jobs(workloads: &Store<Workload>, cluster: &str) -> bool {
    let sent = |workload: &Workload| {
        workload.status.as_ref().and_then(|it| it.cluster_name.as_deref()) == Some(cluster)
    };
    workloads.any(|workload: &Workload| sent(workload) && !is_finished(workload))
}
