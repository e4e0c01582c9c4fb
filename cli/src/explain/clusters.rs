//! Worker clusters that a workload's rules allow, in the order in which BestFit asks those with
//! capacity.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde::Serialize;
use switchyard_api::affinity::Affinity;
use switchyard_api::quantity::{amount_of, format_amount};
use switchyard_api::v1beta2::{
    AgentCapacity, ClusterQueue, MultiKueueCluster, MultiKueueConfig, Workload,
};
use switchyard_controller::stores::{Stores, dispatching::multi_kueue_check};
use switchyard_scheduler::PodSetOutlook;

/// One cluster under the rules.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterView {
    pub name: String,
    /// Number of rules that prefer it.
    pub preferred_by: usize,
    pub cost: i32,
    /// The rule that excludes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub excluded_by: Option<String>,
    /// Why its pods would wait for nodes there now, as far as sums tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nodes_full: Option<String>,
}

/// Clusters of a workload's ClusterQueue, if rules, costs or room on nodes distinguish them. BestFit
/// asks the first one first; excluded ones come last.
pub(super) fn of(
    workload: &Workload,
    pod_sets: &[PodSetOutlook],
    queue: Option<&ClusterQueue>,
    stores: &Stores,
) -> Vec<ClusterView> {
    let Some(config) = queue.and_then(|queue| config_of(queue, stores)) else { return Vec::new() };
    let default = queue
        .and_then(|it| Some((it.metadata.name.as_deref()?, it.spec.cluster_affinity.as_ref()?)));
    let affinity = Affinity::of(workload.metadata.annotations.as_ref(), default);
    let view = |name: &String| {
        let cluster = stores.multi_kueue_clusters.get("", name);
        let labels = cluster
            .as_ref()
            .and_then(|cluster| cluster.metadata.labels.clone())
            .unwrap_or_default();
        ClusterView {
            name: name.clone(),
            preferred_by: affinity.as_ref().map_or(0, |it| it.preference(name, &labels)),
            cost: cluster.as_ref().and_then(|cluster| cluster.spec.cost).unwrap_or(0),
            nodes_full: cluster.as_deref().and_then(|it| nodes_full(it, workload, pod_sets)),
            excluded_by: affinity.as_ref().and_then(|it| it.refusal(name, &labels)),
        }
    };
    let mut views: Vec<ClusterView> = config.spec.clusters.iter().map(view).collect();
    let plain = |view: &ClusterView| view.cost == 0 && view.nodes_full.is_none();
    if affinity.is_none() && views.iter().all(plain) {
        return Vec::new();
    }
    views.sort_by_key(|view| {
        let last = (view.excluded_by.is_some(), view.nodes_full.is_some());
        (last, std::cmp::Reverse(view.preferred_by), view.cost)
    });
    views
}

/// Why the workload's pods would wait for nodes of a cluster, by its last report. Either no node has
/// room for one of them, or all nodes together have too little for all. The hub packs pods node by
/// node, and so may find no room where this finds some.
fn nodes_full(
    cluster: &MultiKueueCluster,
    workload: &Workload,
    pod_sets: &[PodSetOutlook],
) -> Option<String> {
    // A job that is there has its room already.
    let status = workload.status.as_ref();
    if status.is_some_and(|status| status.cluster_name.is_some()) {
        return None;
    }
    let namespace = workload.metadata.namespace.as_deref().unwrap_or_default();
    let queue = workload.spec.queue_name.as_deref().unwrap_or_default();
    let through = format!("{namespace}/{queue}");
    let rows = &cluster.status.as_ref()?.agent.as_ref()?.capacity;
    for pod_set in pod_sets.iter().filter(|pod_set| pod_set.count > 0) {
        for (resource, total) in &pod_set.requests {
            let mine =
                |row: &&AgentCapacity| row.local_queue == through && row.resource == **resource;
            let free = rows.iter().filter(mine).map(|row| {
                let amount = |of: &Option<Quantity>| Some(amount_of(resource, of.as_ref()?));
                Some((amount(&row.free_on_one_node)?, amount(&row.free_on_nodes)?))
            });
            // A flavor whose nodes are not known may have room.
            let Some(free) = free.collect::<Option<Vec<(i64, i64)>>>() else { continue };
            let Some(most) = free.iter().map(|(one, _)| *one).max() else { continue };
            let all = free.iter().map(|(_, all)| *all).max().unwrap_or(0);
            let (count, name) = (i64::from(pod_set.count), &pod_set.name);
            let amount = |amount: i64| format_amount(resource, amount);
            let each = total.get() / count;
            if most < each {
                return Some(format!(
                    "a pod of {name} requests {resource} {}, and no node has more than {} free",
                    amount(each),
                    amount(most)
                ));
            }
            if all < total.get() {
                return Some(format!(
                    "{count} pods of {name} request {resource} {}, and nodes have {} free together",
                    amount(total.get()),
                    amount(all)
                ));
            }
        }
    }
    None
}

pub(super) fn config_of(
    queue: &ClusterQueue,
    stores: &Stores,
) -> Option<std::sync::Arc<MultiKueueConfig>> {
    let check = multi_kueue_check(stores, queue)?;
    stores.multi_kueue_configs.get("", &check.spec.parameters.as_ref()?.name)
}
