//! Usage by flavor and resource in the form of ClusterQueues and LocalQueues.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use switchyard_api::v1beta2::{
    FlavorUsage, LocalQueueFlavorUsage, LocalQueueResourceUsage, ResourceUsage,
};
use switchyard_scheduler as engine;

fn by_flavor<T>(
    usage: &[engine::ResourceUsage],
    entry: impl Fn(&engine::ResourceUsage) -> T,
) -> Vec<(String, Vec<T>)> {
    let mut flavors: Vec<(String, Vec<T>)> = Vec::new();
    for used in usage {
        match flavors.iter_mut().find(|(flavor, _)| **flavor == *used.flavor) {
            Some((_, entries)) => entries.push(entry(used)),
            None => flavors.push((used.flavor.to_string(), vec![entry(used)])),
        }
    }
    flavors
}

pub(super) fn of_cluster_queue(usage: &[engine::ResourceUsage]) -> Vec<FlavorUsage> {
    let entry = |used: &engine::ResourceUsage| ResourceUsage {
        name: used.resource.to_string(),
        total: Quantity(used.total.quantity(&used.resource)),
        borrowed: Quantity(used.borrowed.quantity(&used.resource)),
    };
    by_flavor(usage, entry)
        .into_iter()
        .map(|(name, resources)| FlavorUsage { name, resources })
        .collect()
}

pub(super) fn of_local_queue(usage: &[engine::ResourceUsage]) -> Vec<LocalQueueFlavorUsage> {
    let entry = |used: &engine::ResourceUsage| LocalQueueResourceUsage {
        name: used.resource.to_string(),
        total: Quantity(used.total.quantity(&used.resource)),
    };
    by_flavor(usage, entry)
        .into_iter()
        .map(|(name, resources)| LocalQueueFlavorUsage { name, resources })
        .collect()
}

pub(super) fn count(number: usize) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}
