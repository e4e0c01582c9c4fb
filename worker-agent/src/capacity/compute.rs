//! Computes capacity from the objects of a cluster, whatever controller manages them. Pure.
//!
//! # Caveats
//!
//! Borrowing is approximate. A cohort counts as its ClusterQueues and its own quota, without its
//! parent cohorts, and the usage of others is known only as far as their status shows it. The
//! worker's admission decides; the capacity only tells the hub which cluster to ask first.

use std::collections::BTreeMap;
use std::sync::Arc;

use switchyard_api::conditions::find;
use switchyard_api::quantity::amount_of;
use switchyard_api::v1beta2::{
    ClusterQueue, Cohort, LocalQueue, ResourceFlavor, ResourceGroup, ResourceQuota,
};
use switchyard_proto::v1;

use super::wire_taint;

/// The objects of a cluster that determine its capacity.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    pub cluster_queues: Vec<Arc<ClusterQueue>>,
    pub local_queues: Vec<Arc<LocalQueue>>,
    pub flavors: Vec<Arc<ResourceFlavor>>,
    pub cohorts: Vec<Arc<Cohort>>,
}

/// Flavor and resource.
type Cell = (String, String);

/// The quota of a ClusterQueue for one flavor and resource.
#[derive(Clone, Copy, Debug, Default)]
struct Quota {
    nominal: i64,
    borrowing: Option<i64>,
    lendable: i64,
    used: i64,
}

impl Quota {
    /// The amount that other queues could borrow now. Negative while the queue borrows.
    fn spare(self) -> i64 {
        let guaranteed = self.nominal.saturating_sub(self.lendable);
        self.lendable.saturating_sub(self.used.saturating_sub(guaranteed).max(0))
    }
}

/// The capacity of each LocalQueue.
pub fn compute(snapshot: &Snapshot) -> v1::Capacity {
    let queues: BTreeMap<&str, &ClusterQueue> = snapshot
        .cluster_queues
        .iter()
        .filter_map(|queue| Some((queue.metadata.name.as_deref()?, &**queue)))
        .collect();
    let tables: BTreeMap<&str, BTreeMap<Cell, Quota>> =
        queues.iter().map(|(name, queue)| (*name, table(queue))).collect();
    let mut local: Vec<_> = snapshot.local_queues.iter().collect();
    local.sort_by_key(|queue| (queue.metadata.namespace.clone(), queue.metadata.name.clone()));
    let capacities = local.into_iter().map(|local| {
        let name = local.spec.cluster_queue.clone().unwrap_or_default();
        let queue = queues.get(name.as_str()).copied();
        let inactive = inactive(local, queue, &name);
        v1::QueueCapacity {
            namespace: local.metadata.namespace.clone().unwrap_or_default(),
            local_queue: local.metadata.name.clone().unwrap_or_default(),
            active: inactive.is_none(),
            inactive_reason: inactive.unwrap_or_default(),
            pending: pending(queue),
            flavors: queue
                .map(|queue| flavors(queue, &name, &queues, &tables, snapshot))
                .unwrap_or_default(),
            cluster_queue: name,
        }
    });
    // Stock Kueue chooses flavors by itself. Another admission may not, which nothing shows.
    v1::Capacity { queues: capacities.collect(), enforces_pins: false, rooms: Vec::new() }
}

fn inactive(local: &LocalQueue, queue: Option<&ClusterQueue>, name: &str) -> Option<String> {
    let Some(queue) = queue else { return Some(format!("ClusterQueue {name} not found")) };
    let mine = local.status.as_ref().and_then(|status| find(&status.conditions, "Active"));
    let theirs = queue.status.as_ref().and_then(|status| find(&status.conditions, "Active"));
    let not = [theirs, mine].into_iter().flatten().find(|condition| condition.status == "False");
    not.map(|condition| {
        if condition.message.is_empty() {
            condition.reason.clone()
        } else {
            condition.message.clone()
        }
    })
}

fn pending(queue: Option<&ClusterQueue>) -> u32 {
    let count =
        queue.and_then(|queue| queue.status.as_ref()).map(|status| status.pending_workloads);
    count.and_then(|count| u32::try_from(count).ok()).unwrap_or_default()
}

fn flavors(
    queue: &ClusterQueue,
    name: &str,
    queues: &BTreeMap<&str, &ClusterQueue>,
    tables: &BTreeMap<&str, BTreeMap<Cell, Quota>>,
    snapshot: &Snapshot,
) -> Vec<v1::FlavorCapacity> {
    let mates: Vec<&str> = match queue.spec.cohort_name.as_deref() {
        Some(cohort) => {
            let same = |mate: &&ClusterQueue| mate.spec.cohort_name.as_deref() == Some(cohort);
            queues
                .iter()
                .filter(|(other, mate)| **other != name && same(mate))
                .map(|(other, _)| *other)
                .collect()
        }
        None => Vec::new(),
    };
    let own = queue
        .spec
        .cohort_name
        .as_deref()
        .map(|cohort| cohort_table(cohort, &snapshot.cohorts))
        .unwrap_or_default();
    let mine = tables.get(name);
    let cells = queue.spec.resource_groups.iter().flat_map(cells);
    let capacities = cells.filter_map(|cell| {
        let quota = *mine?.get(&cell)?;
        let mates = mates.iter().filter_map(|mate| tables.get(mate)?.get(&cell));
        let (mut spare, mut lendable) = (0_i64, 0_i64);
        for mate in mates.chain(own.get(&cell)) {
            spare = spare.saturating_add(mate.spare());
            lendable = lendable.saturating_add(mate.lendable);
        }
        let limit = |borrowable: i64| {
            quota.borrowing.map_or(borrowable, |limit| borrowable.min(limit)).max(0)
        };
        // The amount that this queue has borrowed counts against its limit, and is not spare in the
        // others.
        let borrowed = quota.used.saturating_sub(quota.nominal).max(0);
        let free = quota.nominal.saturating_sub(quota.used).max(0);
        let more = quota.borrowing.map_or(spare, |limit| spare.min(limit.saturating_sub(borrowed)));
        let more = if borrowed > 0 { more.min(spare.saturating_sub(borrowed)) } else { more };
        Some(v1::FlavorCapacity {
            nominal: quota.nominal,
            used: quota.used,
            available: free.saturating_add(more.max(0)),
            potential: quota.nominal.saturating_add(limit(lendable)),
            ..shape(&cell, &snapshot.flavors)
        })
    });
    capacities.collect()
}

/// The flavors and resources of a group, in the order in which flavors are tried.
fn cells(group: &ResourceGroup) -> Vec<Cell> {
    let of = |flavor: &switchyard_api::v1beta2::FlavorQuotas| {
        flavor
            .resources
            .iter()
            .map(|quota| (flavor.name.clone(), quota.name.clone()))
            .collect::<Vec<_>>()
    };
    group.flavors.iter().flat_map(of).collect()
}

fn quota(quota: &ResourceQuota, used: i64) -> Quota {
    let amount =
        |of: &k8s_openapi::apimachinery::pkg::api::resource::Quantity| amount_of(&quota.name, of);
    let nominal = amount(&quota.nominal_quota);
    let lendable = quota.lending_limit.as_ref().map_or(nominal, |limit| amount(limit).min(nominal));
    Quota { nominal, borrowing: quota.borrowing_limit.as_ref().map(amount), lendable, used }
}

fn table(queue: &ClusterQueue) -> BTreeMap<Cell, Quota> {
    let mut used = BTreeMap::new();
    for flavor in queue.status.iter().flat_map(|status| &status.flavors_reservation) {
        for resource in &flavor.resources {
            let cell = (flavor.name.clone(), resource.name.clone());
            used.insert(cell, amount_of(&resource.name, &resource.total));
        }
    }
    quotas(&queue.spec.resource_groups, &used)
}

fn cohort_table(name: &str, cohorts: &[Arc<Cohort>]) -> BTreeMap<Cell, Quota> {
    let found = cohorts.iter().find(|cohort| cohort.metadata.name.as_deref() == Some(name));
    found.map(|cohort| quotas(&cohort.spec.resource_groups, &BTreeMap::new())).unwrap_or_default()
}

fn quotas(groups: &[ResourceGroup], used: &BTreeMap<Cell, i64>) -> BTreeMap<Cell, Quota> {
    let mut table = BTreeMap::new();
    for flavor in groups.iter().flat_map(|group| &group.flavors) {
        for resource in &flavor.resources {
            let cell = (flavor.name.clone(), resource.name.clone());
            let used = used.get(&cell).copied().unwrap_or_default();
            table.insert(cell, quota(resource, used));
        }
    }
    table
}

/// The labels and taints of the flavor's nodes.
fn shape(cell: &Cell, flavors: &[Arc<ResourceFlavor>]) -> v1::FlavorCapacity {
    let flavor = flavors.iter().find(|flavor| flavor.metadata.name.as_deref() == Some(&cell.0));
    v1::FlavorCapacity {
        flavor: cell.0.clone(),
        resource: cell.1.clone(),
        node_labels: flavor
            .map(|flavor| flavor.spec.node_labels.clone().into_iter().collect())
            .unwrap_or_default(),
        taints: flavor
            .map(|flavor| flavor.spec.node_taints.iter().map(wire_taint).collect())
            .unwrap_or_default(),
        ..v1::FlavorCapacity::default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn queue(name: &str, cohort: Option<&str>, quota: Value, used: &str) -> Arc<ClusterQueue> {
        let mut quota = quota;
        quota["name"] = "cpu".into();
        let mut spec = json!({"resourceGroups": [
            {"coveredResources": ["cpu"], "flavors": [{"name": "default", "resources": [quota]}]},
        ]});
        if let Some(cohort) = cohort {
            spec["cohortName"] = cohort.into();
        }
        let reservation = json!([{"name": "default", "resources": [{"name": "cpu", "total": used, "borrowed": "0"}]}]);
        let status = json!({"flavorsReservation": reservation, "pendingWorkloads": 3});
        let object = json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue",
            "metadata": {"name": name}, "spec": spec, "status": status,
        });
        Arc::new(serde_json::from_value(object).unwrap())
    }

    fn local(cluster_queue: &str) -> Arc<LocalQueue> {
        let object = json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue",
            "metadata": {"name": "q", "namespace": "ns"}, "spec": {"clusterQueue": cluster_queue},
        });
        Arc::new(serde_json::from_value(object).unwrap())
    }

    fn capacity(queues: Vec<Arc<ClusterQueue>>) -> (i64, i64, i64, i64) {
        let flavor = json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": "default"},
            "spec": {"nodeLabels": {"gpu": "a100"}, "nodeTaints": [{"key": "gpu", "effect": "NoSchedule"}]},
        });
        let flavors = vec![Arc::new(serde_json::from_value(flavor).unwrap())];
        let snapshot = Snapshot {
            cluster_queues: queues,
            local_queues: vec![local("a")],
            flavors,
            cohorts: Vec::new(),
        };
        let found = compute(&snapshot).queues.remove(0).flavors.remove(0);
        assert_eq!(found.node_labels.get("gpu").map(String::as_str), Some("a100"));
        assert_eq!(found.taints.len(), 1);
        (found.nominal, found.used, found.available, found.potential)
    }

    #[test]
    fn available_and_potential_follow_borrowing() {
        let cases = [
            (
                "alone: what is not used",
                vec![queue("a", None, json!({"nominalQuota": "4"}), "1500m")],
                (4000, 1500, 2500, 4000),
            ),
            (
                "more used than there is: nothing is free",
                vec![queue("a", None, json!({"nominalQuota": "1"}), "3")],
                (1000, 3000, 0, 1000),
            ),
            (
                "in a cohort: what the other does not use can be borrowed",
                vec![
                    queue("a", Some("c"), json!({"nominalQuota": "4"}), "1"),
                    queue("b", Some("c"), json!({"nominalQuota": "6"}), "2"),
                ],
                (4000, 1000, 7000, 10000),
            ),
            (
                "within the borrowing limit",
                vec![
                    queue("a", Some("c"), json!({"nominalQuota": "4", "borrowingLimit": "1"}), "1"),
                    queue("b", Some("c"), json!({"nominalQuota": "6"}), "2"),
                ],
                (4000, 1000, 4000, 5000),
            ),
            (
                "and within the other's lending limit",
                vec![
                    queue("a", Some("c"), json!({"nominalQuota": "4"}), "1"),
                    queue("b", Some("c"), json!({"nominalQuota": "6", "lendingLimit": "2"}), "2"),
                ],
                (4000, 1000, 5000, 6000),
            ),
            (
                "what it has borrowed is not there any more",
                vec![
                    queue("a", Some("c"), json!({"nominalQuota": "4"}), "9"),
                    queue("b", Some("c"), json!({"nominalQuota": "6"}), "0"),
                ],
                (4000, 9000, 1000, 10000),
            ),
            (
                "a queue of another cohort lends nothing",
                vec![
                    queue("a", Some("c"), json!({"nominalQuota": "4"}), "0"),
                    queue("b", Some("d"), json!({"nominalQuota": "6"}), "0"),
                ],
                (4000, 0, 4000, 4000),
            ),
        ];
        for (name, queues, expected) in cases {
            assert_eq!(capacity(queues), expected, "{name}");
        }
    }

    #[test]
    fn local_queue_without_cluster_queue_is_inactive() {
        let snapshot = Snapshot { local_queues: vec![local("gone")], ..Snapshot::default() };
        let found = compute(&snapshot).queues.remove(0);
        assert_eq!(
            (found.active, found.inactive_reason.as_str()),
            (false, "ClusterQueue gone not found")
        );
    }
}
