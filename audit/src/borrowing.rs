//! What ClusterQueues and Cohorts are charged, beside what they may have: nominal quota, limits of borrowing and lending, and the
//! quota of the cohorts above. Source: Kueue's `pkg/cache/scheduler/resource_node.go` and KEP-79.

use std::collections::{BTreeMap, BTreeSet};

use switchyard_api::quantity::{amount_of, format_shortest};
use switchyard_api::v1beta2::ResourceGroup;
use switchyard_api::variants;

use crate::amounts::{Amounts, add_all, charge};
use crate::cluster::{Cluster, name, reservation};
use crate::finding::{Finding, Kind, Object};

/// A ClusterQueue or a Cohort.
#[derive(Default)]
struct Node<'a> {
    parent: Option<&'a str>,
    groups: &'a [ResourceGroup],
    children: Vec<Key<'a>>,
    /// What its own Workloads are charged; nothing of a Cohort.
    charged: Amounts,
}

/// Whether it is a ClusterQueue, and its name: the two kinds may share names.
type Key<'a> = (bool, &'a str);

/// Amounts of one flavor and resource.
#[derive(Clone, Copy, Default)]
struct Sums {
    /// What it may use of its own and of what its children lend.
    quota: i64,
    /// What is used below it of that.
    used: i64,
    /// What of its quota is for itself alone.
    kept: i64,
    borrowing_limit: Option<i64>,
}

/// Deeper trees only come from cohorts that are above each other.
const MAX_DEPTH: usize = 64;

pub(crate) fn findings(cluster: &Cluster) -> Vec<Finding> {
    let nodes = nodes(cluster);
    let mut found = Vec::new();
    let mut pairs = BTreeSet::new();
    for node in nodes.values() {
        pairs.extend(node.charged.keys().cloned());
    }
    for (flavor, resource) in pairs {
        for (key, node) in &nodes {
            let Some(sums) = sums(&nodes, *key, (&flavor, &resource), MAX_DEPTH) else { continue };
            let limit = match (node.parent, sums.borrowing_limit) {
                (None, _) => sums.quota,
                (Some(_), Some(limit)) => sums.quota.saturating_add(limit),
                (Some(_), None) => continue,
            };
            if sums.used > limit {
                found.push(exceeds(cluster, *key, (&flavor, &resource), (sums.used, limit)));
            }
        }
    }
    found
}

fn nodes(cluster: &Cluster) -> BTreeMap<Key<'_>, Node<'_>> {
    let mut nodes = BTreeMap::<Key<'_>, Node<'_>>::new();
    for queue in &cluster.cluster_queues {
        let node = nodes.entry((true, name(&queue.metadata))).or_default();
        node.parent = queue.spec.cohort_name.as_deref().filter(|cohort| !cohort.is_empty());
        node.groups = &queue.spec.resource_groups;
    }
    for cohort in &cluster.cohorts {
        let node = nodes.entry((false, name(&cohort.metadata))).or_default();
        node.parent = cohort.spec.parent_name.as_deref().filter(|parent| !parent.is_empty());
        node.groups = &cohort.spec.resource_groups;
    }
    let parents: Vec<(Key<'_>, &str)> = nodes.iter().filter_map(|(key, node)| Some((*key, node.parent?))).collect();
    for (key, parent) in parents {
        // A cohort need not be an object.
        nodes.entry((false, parent)).or_default().children.push(key);
    }
    for workload in cluster.workloads.iter().filter(|workload| !variants::is_parent(workload)) {
        let queue =
            reservation(workload).and_then(|admission| nodes.get_mut(&(true, admission.cluster_queue.as_str())));
        if let Some(node) = queue {
            add_all(&mut node.charged, &charge(workload));
        }
    }
    nodes
}

/// The sums of a node; none where the tree has no end.
fn sums(nodes: &BTreeMap<Key<'_>, Node<'_>>, key: Key<'_>, pair: (&str, &str), depth: usize) -> Option<Sums> {
    let node = nodes.get(&key)?;
    let (flavor, resource) = pair;
    let mut sums = Sums {
        used: node.charged.get(&(flavor.to_owned(), resource.to_owned())).copied().unwrap_or(0),
        ..Sums::default()
    };
    let mut lending_limit = None;
    let quotas = node.groups.iter().flat_map(|group| &group.flavors).filter(|quotas| quotas.name == flavor);
    for quota in quotas.flat_map(|quotas| &quotas.resources).filter(|quota| quota.name == resource) {
        sums.quota = amount_of(resource, &quota.nominal_quota);
        sums.borrowing_limit = quota.borrowing_limit.as_ref().map(|limit| amount_of(resource, limit));
        lending_limit = quota.lending_limit.as_ref().map(|limit| amount_of(resource, limit));
    }
    for child in &node.children {
        let child = self::sums(nodes, *child, pair, depth.checked_sub(1)?)?;
        sums.quota = sums.quota.saturating_add(child.quota.saturating_sub(child.kept));
        sums.used = sums.used.saturating_add(child.used.saturating_sub(child.kept).max(0));
    }
    sums.kept = lending_limit.map_or(0, |limit| sums.quota.saturating_sub(limit).max(0));
    Some(sums)
}

fn exceeds(cluster: &Cluster, key: Key<'_>, (flavor, resource): (&str, &str), (used, limit): (i64, i64)) -> Finding {
    let object = Object::new(if key.0 { "ClusterQueue" } else { "Cohort" }, "", key.1);
    let message = format!(
        "{object} is charged {} {resource} of flavor {flavor}, and may have {}",
        format_shortest(resource, used),
        format_shortest(resource, limit),
    );
    let finding = Finding::new(Kind::ChargedAboveQuota, &cluster.name, vec![object], message);
    finding.of_amounts(flavor, resource, used, limit)
}
