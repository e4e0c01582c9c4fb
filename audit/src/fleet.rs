//! A hub beside its workers.

use std::collections::BTreeMap;

use switchyard_api::names;
use switchyard_api::quantity::format_shortest;
use switchyard_api::v1beta2::Workload;

use crate::amounts::{by_resource, charge};
use crate::cluster::{Cluster, is_admitted, mark, name, namespace};
use crate::finding::{Finding, Kind, Object};

/// What a hub charges less than its workers do for the same jobs, in a fixed order. Names of flavors may differ, so the sums over all
/// flavors are compared.
#[must_use]
pub fn compare(hub: &Cluster, workers: &[Cluster]) -> Vec<Finding> {
    let by_uid: BTreeMap<&str, &Workload> =
        hub.workloads.iter().filter_map(|it| Some((it.metadata.uid.as_deref()?, it))).collect();
    let by_name: BTreeMap<(&str, &str), &Workload> =
        hub.workloads.iter().map(|it| ((namespace(&it.metadata), name(&it.metadata)), it)).collect();
    let mut found = Vec::new();
    for worker in workers {
        for copy in &worker.workloads {
            let meta = &copy.metadata;
            let uid = mark(&meta.annotations, names::WORKLOAD_UID);
            if uid.is_none() && mark(&meta.labels, names::MULTIKUEUE_ORIGIN).is_none() {
                continue;
            }
            let ours = uid.and_then(|uid| by_uid.get(uid)).or_else(|| by_name.get(&(namespace(meta), name(meta))));
            if may_run(copy, ours.copied(), worker) {
                found.extend(charged_less(hub, worker, ours.copied(), copy));
            }
        }
    }
    found.sort();
    found
}

/// Whether pods run by a copy: not by an offer that waits for the hub's word.
fn may_run(copy: &Workload, ours: Option<&Workload>, worker: &Cluster) -> bool {
    let committed = ours.and_then(|ours| ours.status.as_ref()?.cluster_name.as_deref());
    is_admitted(copy) && committed.is_none_or(|cluster| cluster == worker.name)
}

fn charged_less(hub: &Cluster, worker: &Cluster, ours: Option<&Workload>, copy: &Workload) -> Vec<Finding> {
    let charged = ours.map(charge).unwrap_or_default();
    let (charged, there) = (by_resource(&charged), charge(copy));
    let object = Object::new("Workload", namespace(&copy.metadata), name(&copy.metadata));
    let mut found = Vec::new();
    // A resource that the hub does not count at all was left out by its configuration.
    let counted = |resource: &str| ours.is_none() || charged.is_empty() || charged.contains_key(resource);
    for (resource, amount) in by_resource(&there) {
        let limit = charged.get(resource).copied().unwrap_or(0);
        if amount <= limit || !counted(resource) {
            continue;
        }
        let message = format!(
            "{object} is charged {} {resource} on {}, and {} on {}",
            format_shortest(resource, amount),
            worker.name,
            format_shortest(resource, limit),
            hub.name,
        );
        let finding = Finding::new(Kind::HubChargedLess, &worker.name, vec![object.clone()], message);
        found.push(finding.of_amounts("", resource, amount, limit));
    }
    found
}
