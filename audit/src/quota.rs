//! ClusterQueues and Cohorts that charge more than they may use.
//!
//! The arithmetic is Kueue's (`pkg/cache/scheduler/resource_node.go`, KEP-79), by flavor and
//! resource. A node has its nominal quota plus the quota that its children lend. With a lending
//! limit it withholds the rest from its parent. Its usage above the withheld quota counts as usage
//! of the parent. A node may use its quota plus its borrowing limit; without a parent, its quota
//! alone.

use std::collections::{BTreeMap, BTreeSet};

use switchyard_api::quantity::try_amount_of;
use switchyard_api::v1beta2::ResourceGroup;

use crate::amounts::{Amounts, Pair, text};
use crate::charge::Charges;
use crate::cluster::{Cluster, name};
use crate::finding::{Finding, FindingKind, Object, Quantities, quantity};
use crate::workload::{is_counted, reservation};

/// Kinds share names, so the id contains the kind.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Id<'a> {
    ClusterQueue(&'a str),
    Cohort(&'a str),
}

#[derive(Default)]
struct Node<'a> {
    parent: Option<&'a str>,
    groups: &'a [ResourceGroup],
    /// The charges of a ClusterQueue's Workloads; `None` if one is unreadable.
    charged: Option<Amounts>,
}

/// Amounts of a node for one pair. Sums may exceed 64 bits.
#[derive(Clone, Copy, Default)]
struct NodeAmounts {
    /// Its own quota plus the quota that its children lend.
    quota: i128,
    /// The part of the quota that it does not lend.
    withheld: i128,
    used: i128,
    borrowing_limit: Option<i128>,
}

impl NodeAmounts {
    /// The most that it may use; `None` if only its ancestors limit it.
    fn allowed(&self, has_parent: bool) -> Option<i128> {
        if has_parent {
            self.borrowing_limit.map(|limit| self.quota + limit)
        } else {
            Some(self.quota)
        }
    }
}

pub(crate) fn findings(cluster: &Cluster, charges: &Charges) -> Vec<Finding> {
    let nodes = nodes(cluster, charges);
    let order = bottom_up(&nodes);
    let charged = nodes.values().flat_map(|node| &node.charged).flat_map(Amounts::iter);
    let pairs: BTreeSet<Pair> = charged.map(|(pair, _)| pair.clone()).collect();
    let mut found = Vec::new();
    for pair in pairs {
        let levels = levels(&nodes, &order, &pair);
        for id in &order {
            let (Some(node), Some(Some(level))) = (nodes.get(id), levels.get(id)) else { continue };
            let allowed =
                level.allowed(node.parent.is_some()).filter(|allowed| level.used > *allowed);
            found
                .extend(allowed.map(|allowed| finding(cluster, *id, &pair, (level.used, allowed))));
        }
    }
    found
}

fn nodes<'a>(cluster: &'a Cluster, charges: &Charges) -> BTreeMap<Id<'a>, Node<'a>> {
    let mut nodes = BTreeMap::new();
    let named = |name: &'a Option<String>| name.as_deref().filter(|name| !name.is_empty());
    for queue in &cluster.cluster_queues {
        let (parent, groups) =
            (named(&queue.spec.cohort_name), queue.spec.resource_groups.as_slice());
        let node = Node { parent, groups, charged: Some(Amounts::default()) };
        nodes.insert(Id::ClusterQueue(name(&queue.metadata)), node);
    }
    for cohort in &cluster.cohorts {
        let (parent, groups) =
            (named(&cohort.spec.parent_name), cohort.spec.resource_groups.as_slice());
        nodes.insert(
            Id::Cohort(name(&cohort.metadata)),
            Node { parent, groups, charged: Some(Amounts::default()) },
        );
    }
    // A Cohort needs no object.
    let parents: Vec<&str> = nodes.values().filter_map(|node| node.parent).collect();
    for parent in parents {
        let node = || Node { charged: Some(Amounts::default()), ..Node::default() };
        nodes.entry(Id::Cohort(parent)).or_insert_with(node);
    }
    for (index, workload) in
        cluster.workloads.iter().enumerate().filter(|(_, workload)| is_counted(workload))
    {
        let queue =
            reservation(workload).map(|admission| Id::ClusterQueue(&admission.cluster_queue));
        if let Some(node) = queue.and_then(|queue| nodes.get_mut(&queue)) {
            node.charged = node.charged.take().zip(charges.get(index)).map(|(mut sum, charge)| {
                sum.add_all(charge);
                sum
            });
        }
    }
    nodes
}

/// Children before parents. Without nodes on or below a cycle of Cohorts, where Kueue admits
/// nothing.
fn bottom_up<'a>(nodes: &BTreeMap<Id<'a>, Node<'a>>) -> Vec<Id<'a>> {
    let parent = |id: &Id<'a>| nodes.get(id).and_then(|node| node.parent).map(Id::Cohort);
    // No path is longer than the number of nodes.
    let depth =
        |id: &Id<'a>| std::iter::successors(Some(*id), parent).take(nodes.len() + 1).count();
    let mut order: Vec<(usize, Id<'a>)> = nodes.keys().map(|id| (depth(id), *id)).collect();
    order.retain(|(depth, _)| *depth <= nodes.len());
    order.sort_by_key(|(depth, _)| std::cmp::Reverse(*depth));
    order.into_iter().map(|(_, id)| id).collect()
}

/// The amounts of all nodes for one pair; `None` if an amount of the node or below is unreadable.
fn levels<'a>(
    nodes: &BTreeMap<Id<'a>, Node<'a>>,
    order: &[Id<'a>],
    pair: &Pair,
) -> BTreeMap<Id<'a>, Option<NodeAmounts>> {
    // By parent: the lent quota and the usage of its children.
    let mut brought = BTreeMap::<Id<'a>, Option<(i128, i128)>>::new();
    let mut levels = BTreeMap::new();
    for id in order {
        let Some(node) = nodes.get(id) else { continue };
        let level = brought.remove(id).unwrap_or(Some((0, 0))).zip(own(node, pair)).map(
            |((lent, used), own)| {
                let quota = own.level.quota + lent;
                let withheld = own.lending_limit.map_or(0, |limit| (quota - limit).max(0));
                NodeAmounts { quota, withheld, used: own.level.used + used, ..own.level }
            },
        );
        if let Some(parent) = node.parent {
            let sum = brought.entry(Id::Cohort(parent)).or_insert(Some((0, 0)));
            *sum = sum.zip(level).map(|((lent, used), it)| {
                (lent + it.quota - it.withheld, used + (it.used - it.withheld).max(0))
            });
        }
        levels.insert(*id, level);
    }
    levels
}

/// A node without its children.
struct OwnQuota {
    level: NodeAmounts,
    lending_limit: Option<i128>,
}

fn own(node: &Node<'_>, pair: &Pair) -> Option<OwnQuota> {
    let used = i128::from(node.charged.as_ref()?.get(pair));
    let (flavor, resource) = pair;
    let amount = |quantity| try_amount_of(resource, quantity).ok().map(i128::from);
    let flavors =
        node.groups.iter().flat_map(|group| &group.flavors).filter(|it| it.name == *flavor);
    let Some(quota) = flavors.flat_map(|it| &it.resources).find(|it| it.name == *resource) else {
        return Some(OwnQuota {
            level: NodeAmounts { used, ..NodeAmounts::default() },
            lending_limit: None,
        });
    };
    let borrowing_limit = quota.borrowing_limit.as_ref().map(amount);
    let lending_limit = quota.lending_limit.as_ref().map(amount);
    if borrowing_limit == Some(None) || lending_limit == Some(None) {
        return None;
    }
    let level = NodeAmounts {
        quota: amount(&quota.nominal_quota)?,
        used,
        borrowing_limit: borrowing_limit.flatten(),
        withheld: 0,
    };
    Some(OwnQuota { level, lending_limit: lending_limit.flatten() })
}

fn finding(cluster: &Cluster, id: Id<'_>, pair: &Pair, (used, allowed): (i128, i128)) -> Finding {
    let (kind, name) = match id {
        Id::ClusterQueue(name) => ("ClusterQueue", name),
        Id::Cohort(name) => ("Cohort", name),
    };
    let object = Object { kind: kind.to_owned(), namespace: String::new(), name: name.to_owned() };
    let clamped = |amount: i128| i64::try_from(amount).unwrap_or(i64::MAX);
    let (used, allowed) = (clamped(used), quantity(pair, clamped(allowed)));
    let whose = if kind == "Cohort" { "The queues of Cohort " } else { "ClusterQueue " };
    let are = if kind == "Cohort" { "are" } else { "is" };
    let most = allowed.clone().unwrap_or_default();
    let message = format!("{whose}{name} {are} charged {}, but may have {most}", text(pair, used));
    let amounts = Quantities { charged: quantity(pair, used), allowed, ..Quantities::default() };
    let identity = object.to_string();
    Finding::new(FindingKind::ChargedAboveQuota, &cluster.name, vec![object], identity, message)
        .about(pair, amounts)
}
