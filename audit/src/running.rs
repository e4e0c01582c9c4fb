//! Running pods.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Pod, PodSpec};

use crate::chain::{Chain, Owners};
use crate::cluster::Cluster;
use crate::pod_workloads::PodWorkloads;

/// A running pod, its owners, and the indexes of its Workloads in the cluster's list.
pub(crate) struct Running<'a> {
    pub(crate) pod: &'a Pod,
    pub(crate) spec: &'a PodSpec,
    pub(crate) chain: Chain<'a>,
    pub(crate) workload_indexes: BTreeSet<usize>,
}

/// Sorted by namespace and name.
pub(crate) fn running(cluster: &Cluster) -> Vec<Running<'_>> {
    let (owners, workload_indexes) = (Owners::of(cluster), PodWorkloads::of(&cluster.workloads));
    let runs = |pod| {
        let spec = spec_of_running(pod)?;
        let chain = owners.chain(pod);
        let workload_indexes = workload_indexes.of_pod(&chain);
        Some(Running { pod, spec, chain, workload_indexes })
    };
    let mut running: Vec<Running<'_>> = cluster.pods.iter().filter_map(runs).collect();
    running.sort_by_key(|it| (&it.pod.metadata.namespace, &it.pod.metadata.name));
    running
}

/// The spec of a pod that has a node or may get one at any moment, and has not ended. A pod that is
/// being deleted uses its node until it ends. A pod behind a scheduling gate uses none, whatever
/// phase a hub copied into its status.
fn spec_of_running(pod: &Pod) -> Option<&PodSpec> {
    let spec = pod.spec.as_ref()?;
    let has_ended = matches!(
        pod.status.as_ref().and_then(|status| status.phase.as_deref()),
        Some("Succeeded" | "Failed")
    );
    let is_bound = spec.node_name.as_deref().is_some_and(|node| !node.is_empty());
    let is_gated = spec.scheduling_gates.as_ref().is_some_and(|gates| !gates.is_empty());
    // kube-scheduler binds no pod that is being deleted.
    let may_be_bound = !is_gated && pod.metadata.deletion_timestamp.is_none();
    (!has_ended && (is_bound || may_be_bound)).then_some(spec)
}
