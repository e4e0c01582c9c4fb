//! Worker clusters that a workload's rules allow, in the order in which BestFit asks those with
//! capacity.

use serde::Serialize;
use switchyard_api::affinity::Affinity;
use switchyard_api::v1beta2::{ClusterQueue, MultiKueueConfig, Workload};
use switchyard_controller::stores::{Stores, dispatching::multi_kueue_check};

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
}

/// Clusters of a workload's ClusterQueue, if rules or costs distinguish them. BestFit asks
/// the first one first; excluded ones come last.
pub(super) fn of(
    workload: &Workload,
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
            cost: cluster.and_then(|cluster| cluster.spec.cost).unwrap_or(0),
            excluded_by: affinity.as_ref().and_then(|it| it.refusal(name, &labels)),
        }
    };
    let mut views: Vec<ClusterView> = config.spec.clusters.iter().map(view).collect();
    if affinity.is_none() && views.iter().all(|view| view.cost == 0) {
        return Vec::new();
    }
    views.sort_by_key(|view| {
        (view.excluded_by.is_some(), std::cmp::Reverse(view.preferred_by), view.cost)
    });
    views
}

pub(super) fn config_of(
    queue: &ClusterQueue,
    stores: &Stores,
) -> Option<std::sync::Arc<MultiKueueConfig>> {
    let check = multi_kueue_check(stores, queue)?;
    stores.multi_kueue_configs.get("", &check.spec.parameters.as_ref()?.name)
}
