//! What a queue may still use, worked out from the objects alone: nothing of the engine's arithmetic is in here.

use std::collections::BTreeMap;

use switchyard_scheduler::{Amount, ClusterQueue, Cohort, Name, Quota, ResourceGroup};

use crate::world::Pair;

/// Larger amounts stand for "unlimited" somewhere, of which this arithmetic knows nothing.
const BOUNDED: i64 = 1 << 40;

/// The tree for one pair of flavor and resource.
pub(crate) struct Oracle<'a> {
    pub(crate) queues: &'a BTreeMap<Name, ClusterQueue>,
    pub(crate) cohorts: &'a BTreeMap<Name, Cohort>,
    pub(crate) pair: &'a Pair,
    /// What each queue uses.
    pub(crate) used: BTreeMap<Name, i128>,
}

/// A node by kind and name.
#[derive(Clone, Copy)]
enum Node<'a> {
    Queue(&'a Name),
    Cohort(&'a Name),
}

/// What one node adds up to.
struct Sums {
    /// What it and those below have.
    has: i128,
    /// How much of that the parent may give to others.
    lends: i128,
    /// How much of what is used here the parent carries.
    carried: i128,
    /// What is free of what the parent never gives away.
    spare: i128,
    used: i128,
}

impl<'a> Oracle<'a> {
    /// What is left for a queue; `None` where unlimited amounts or cycles are about.
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
        // What is below zero is not kept.
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

    /// Of a pair that is given twice the last counts.
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
