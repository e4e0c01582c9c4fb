//! The pods that run.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Pod, PodSpec};

use crate::chain::{Chain, Owners};
use crate::cluster::Cluster;
use crate::holders::Holders;

/// A pod that runs, its owners, and the places of its Workloads in the cluster's list.
pub(crate) struct Running<'a> {
    pub(crate) pod: &'a Pod,
    pub(crate) spec: &'a PodSpec,
    pub(crate) chain: Chain<'a>,
    pub(crate) holders: BTreeSet<usize>,
}

/// All pods of a cluster that run, by namespace and name.
pub(crate) fn running(cluster: &Cluster) -> Vec<Running<'_>> {
    let (owners, holders) = (Owners::of(cluster), Holders::of(&cluster.workloads));
    let runs = |pod| {
        let spec = spec_of_running(pod)?;
        let chain = owners.chain(pod);
        let holders = holders.of_pod(&chain);
        Some(Running { pod, spec, chain, holders })
    };
    let mut running: Vec<Running<'_>> = cluster.pods.iter().filter_map(runs).collect();
    running.sort_by_key(|it| (&it.pod.metadata.namespace, &it.pod.metadata.name));
    running
}

/// The spec of a pod that is bound to a node or may be bound at any moment, and has not ended. A pod that is being deleted takes
/// its node's resources until it has ended. One that waits behind a scheduling gate takes none, whatever phase a hub has copied
/// into its status.
fn spec_of_running(pod: &Pod) -> Option<&PodSpec> {
    let spec = pod.spec.as_ref()?;
    let has_ended = matches!(
        pod.status.as_ref().and_then(|status| status.phase.as_deref()),
        Some("Succeeded" | "Failed")
    );
    let is_bound = spec.node_name.as_deref().is_some_and(|node| !node.is_empty());
    let is_gated = spec.scheduling_gates.as_ref().is_some_and(|gates| !gates.is_empty());
    // The scheduler binds no pod that is being deleted.
    let may_be_bound = !is_gated && pod.metadata.deletion_timestamp.is_none();
    (!has_ended && (is_bound || may_be_bound)).then_some(spec)
}
