//! What Kueue's objects in the API say, read in one way by all parts of the hub.

use std::sync::Arc;

use jiff::Timestamp;
use kube::ResourceExt as _;
use switchyard_api::v1beta2::{
    AdmissionCheck, ClusterQueue, MultiKueueCluster, MultiKueueConfig, Workload,
};
use switchyard_api::{conditions, names};
use switchyard_controller::store::Store;
use switchyard_controller::stores::Stores;
use switchyard_controller::workload::is_finished;

use crate::disconnect_policy;
use crate::dispatch::Loss;

/// The MultiKueueConfig that a check names.
pub(crate) fn parameters(check: &AdmissionCheck) -> Option<&str> {
    let parameters = check.spec.parameters.as_ref()?;
    (parameters.kind == "MultiKueueConfig" && parameters.api_group == "kueue.x-k8s.io")
        .then_some(&*parameters.name)
}

/// Whether the agent has said that it cannot act, and has not been back since.
pub(crate) fn is_unable(cluster: &MultiKueueCluster) -> bool {
    let agent = cluster.status.as_ref().and_then(|status| status.agent.as_ref());
    cluster.spec.cluster_source.agent.is_some()
        && agent.is_some_and(|agent| agent.unable_since.is_some())
}

/// Since when a cluster is not active, by its status.
pub(crate) fn lost_since(cluster: &MultiKueueCluster) -> Option<Timestamp> {
    let active = conditions::find(&cluster.status.as_ref()?.conditions, conditions::ACTIVE)?;
    (active.status != conditions::TRUE).then_some(active.last_transition_time.0)
}

/// Whether somebody has declared it lost, and meant the loss that it is in.
pub(crate) fn is_declared_lost(cluster: &MultiKueueCluster) -> bool {
    let declared = cluster.annotations().get(names::DECLARED_LOST);
    declared.is_some() && declared.and_then(|text| text.parse().ok()) == lost_since(cluster)
}

/// Whether its jobs stay its own while it is away, unless they or their queues say otherwise.
pub(crate) fn is_held(cluster: &MultiKueueCluster) -> bool {
    disconnect_policy::of_cluster(cluster) == Loss::Hold
}

/// The configuration of a ClusterQueue's MultiKueue check.
pub(crate) fn multi_kueue_config(
    stores: &Stores,
    queue: &ClusterQueue,
) -> Option<Arc<MultiKueueConfig>> {
    let check = multi_kueue_check(stores, queue)?;
    stores.multi_kueue_configs.get("", parameters(&check)?)
}

/// The ClusterQueue's check that sends its workloads to workers.
pub(crate) fn multi_kueue_check(
    stores: &Stores,
    queue: &ClusterQueue,
) -> Option<Arc<AdmissionCheck>> {
    let rules = &queue.spec.admission_checks_strategy.as_ref()?.admission_checks;
    let checks = rules.iter().filter_map(|rule| stores.admission_checks.get("", &rule.name));
    checks.into_iter().find(|check| check.spec.controller_name == names::MULTIKUEUE_CONTROLLER)
}

/// Whether a check is a MultiKueue check.
pub(crate) fn is_dispatching(stores: &Stores, check: &str) -> bool {
    let check = stores.admission_checks.get("", check);
    check.is_some_and(|check| check.spec.controller_name == names::MULTIKUEUE_CONTROLLER)
}

/// Whether a Workload's quota is for jobs that run elsewhere: it has a MultiKueue check.
pub(crate) fn dispatches(stores: &Stores, workload: &Workload) -> bool {
    let checks = workload
        .status
        .as_ref()
        .map(|status| status.admission_checks.as_slice())
        .unwrap_or_default();
    checks.iter().any(|check| is_dispatching(stores, &check.name))
}

/// Whether a job that has not ended was sent to a cluster. Goes through all.
pub(crate) fn has_jobs(workloads: &Store<Workload>, cluster: &str) -> bool {
    let sent = |workload: &Workload| {
        workload.status.as_ref().and_then(|it| it.cluster_name.as_deref()) == Some(cluster)
    };
    workloads.any(|workload: &Workload| sent(workload) && !is_finished(workload))
}
