//! The free quota of a queue, computed from the objects alone, without the engine's arithmetic.

use std::collections::BTreeMap;

use switchyard_scheduler::{Amount, ClusterQueue, Cohort, Name, Quota, ResourceGroup};

use crate::world::Pair;

/// Larger amounts stand for "unlimited", which this arithmetic does not cover.
const BOUNDED: i64 = 1 << 40;

/// The quota tree of one pair of flavor and resource.
pub(crate) struct QuotaOracle<'a> {
    pub(crate) queues: &'a BTreeMap<Name, ClusterQueue>,
    pub(crate) cohorts: &'a BTreeMap<Name, Cohort>,
    pub(crate) pair: &'a Pair,
    /// Usage by queue.
    pub(crate) used: BTreeMap<Name, i128>,
}

#[derive(Clone, Copy)]
enum Node<'a> {
    Queue(&'a Name),
    Cohort(&'a Name),
}

/// The sums of one node.
struct Sums {
    /// The quota of the node and the nodes below.
    has: i128,
    /// The part that the parent may lend to others.
    lends: i128,
    /// The part of the usage that the parent carries.
    carried: i128,
    /// The free part of the quota that the node does not lend.
    spare: i128,
    used: i128,
}

impl<'a> QuotaOracle<'a> {
    /// The free quota of a queue; `None` with unlimited amounts or cycles.
    pub(crate) fn left(&self, queue: &'a Name) -> Option<i128> {
        self.left_at(Node::Queue(queue), 0)
    }

    fn left_at(&self, node: Node<'a>, depth: usize) -> Option<i128> {
        if depth > self.cohorts.len() + 2 {
            return None;
        }
        let sums = self.sums(node, 0)?;
        let Some(parent) = self.parent(node) else { return Some(sums.has - sums.used) };
        let mut from_parent = self.left_at(Node::Cohort(parent), depth + 1)?;
        if let Some(limit) = self.quota(node).borrowing_limit {
            from_parent = from_parent.min(sums.lends - sums.carried + bounded(limit)?);
        }
        Some(sums.spare + from_parent)
    }

    fn sums(&self, node: Node<'a>, depth: usize) -> Option<Sums> {
        if depth > self.cohorts.len() + 2 {
            return None;
        }
        let quota = self.quota(node);
        let (mut has, mut used) = (bounded(quota.nominal)?, 0);
        match node {
            Node::Queue(name) => used = self.used.get(name).copied().unwrap_or(0),
            Node::Cohort(name) => {
                for child in self.children(name) {
                    let below = self.sums(child, depth + 1)?;
                    has += below.lends;
                    used += below.carried;
                }
            }
        }
        let lends = match quota.lending_limit {
            Some(limit) => has.min(bounded(limit)?),
            None => has,
        };
        // A negative rest is not withheld.
        let kept = (has - lends).max(0);
        let lends = has - kept;
        (used < i128::from(BOUNDED)).then_some(Sums {
            has,
            lends,
            carried: (used - kept).max(0),
            spare: (kept - used).max(0),
            used,
        })
    }

    fn parent(&self, node: Node<'a>) -> Option<&'a Name> {
        let parent = match node {
            Node::Queue(name) => self.queues.get(name)?.cohort.as_ref(),
            Node::Cohort(name) => self.cohorts.get(name)?.parent.as_ref(),
        };
        parent.filter(|name| !name.is_empty())
    }

    fn children(&self, cohort: &Name) -> Vec<Node<'a>> {
        let queues = self.queues.values().filter(|queue| queue.cohort.as_ref() == Some(cohort));
        let cohorts = self.cohorts.values().filter(|child| child.parent.as_ref() == Some(cohort));
        queues
            .map(|queue| Node::Queue(&queue.name))
            .chain(cohorts.map(|child| Node::Cohort(&child.name)))
            .collect()
    }

    /// The last of duplicate quotas counts.
    fn quota(&self, node: Node<'a>) -> Quota {
        let groups: &[ResourceGroup] = match node {
            Node::Queue(name) => self.queues.get(name).map_or(&[], |queue| &queue.resource_groups),
            Node::Cohort(name) => {
                self.cohorts.get(name).map_or(&[], |cohort| &cohort.resource_groups)
            }
        };
        let flavors = groups
            .iter()
            .flat_map(|group| &group.flavors)
            .filter(|flavor| flavor.name == self.pair.0);
        let quotas = flavors
            .flat_map(|flavor| &flavor.resources)
            .filter(|(resource, _)| *resource == self.pair.1);
        quotas.fold(Quota::default(), |_, (_, quota)| *quota)
    }
}

fn bounded(amount: Amount) -> Option<i128> {
    (amount.get().abs() < BOUNDED).then(|| i128::from(amount.get()))
}
