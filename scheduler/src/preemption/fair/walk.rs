//! From which queue the next victim comes: down from the root to the child with the highest share.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::Shares;
use crate::cluster_queue::Cq;
use crate::preemption::candidates::{Candidate, Preemptor};
use crate::tree::{NodeId, Share, Tree};

/// A walk over the queues that have candidates. Between two calls of [`Walk::next`] a candidate must be popped or a
/// queue dropped, so that it ends.
pub(super) struct Walk<'a> {
    cqs: &'a BTreeMap<NodeId, Cq>,
    own: NodeId,
    /// The preemptor's queue and the Cohorts above it.
    path: Vec<NodeId>,
    candidates: BTreeMap<NodeId, VecDeque<Candidate>>,
    /// Nodes from which no more candidates will come.
    pruned: BTreeSet<NodeId>,
}

impl<'a> Walk<'a> {
    /// A walk over candidates in their order.
    pub(super) fn new(tree: &Tree, preemptor: &Preemptor<'a>, candidates: Vec<Candidate>) -> Self {
        let own = preemptor.cq.node;
        let mut by_queue: BTreeMap<NodeId, VecDeque<Candidate>> = BTreeMap::new();
        for candidate in candidates {
            by_queue.entry(candidate.cq).or_default().push_back(candidate);
        }
        Self { cqs: preemptor.cqs, own, path: tree.path(own), candidates: by_queue, pruned: BTreeSet::new() }
    }

    /// The next candidate of a queue.
    pub(super) fn pop(&mut self, queue: NodeId) -> Option<Candidate> {
        self.candidates.get_mut(&queue)?.pop_front()
    }

    /// Leaves the rest of a queue's candidates alone.
    pub(super) fn drop_queue(&mut self, queue: NodeId) {
        self.pruned.insert(queue);
    }

    /// The queue that the next victim comes from.
    pub(super) fn next(&mut self, tree: &Tree) -> Option<NodeId> {
        let root = *self.path.last()?;
        if root == self.own {
            return self.first(root).map(|_| root).filter(|root| !self.pruned.contains(root));
        }
        while !self.pruned.contains(&root) {
            if let Some(queue) = self.descend(tree, root) {
                return Some(queue);
            }
        }
        None
    }

    /// The shares that are compared for a victim of `queue`.
    pub(super) fn shares(&self, tree: &Tree, queue: NodeId) -> Shares {
        let path = tree.path(queue);
        // Both paths end at the root, so they meet.
        let meeting = path.iter().find(|node| self.path.contains(node));
        let below = |path: &[NodeId]| path.iter().take_while(|node| Some(*node) != meeting).last().copied();
        Shares::of(tree, below(&self.path).unwrap_or(self.own), below(&path).unwrap_or(queue))
    }

    fn first(&self, queue: NodeId) -> Option<&Candidate> {
        self.candidates.get(&queue)?.front()
    }

    /// One walk down. `None` if it only found out that some node has nothing more to give.
    fn descend(&mut self, tree: &Tree, root: NodeId) -> Option<NodeId> {
        let mut at = root;
        loop {
            let queue = self.highest_queue(tree, at);
            let cohort = self.highest_cohort(tree, at);
            match (queue, cohort) {
                (None, None) => {
                    self.pruned.insert(at);
                    return None;
                }
                (Some((queue, _)), None) => return Some(queue),
                (None, Some((cohort, _))) => at = cohort,
                // On a tie the Cohort, in which the worst can be chosen.
                (Some((queue, queues)), Some((cohort, cohorts))) => {
                    if cohorts.compare(&queues).is_lt() {
                        return Some(queue);
                    }
                    at = cohort;
                }
            }
        }
    }

    fn highest_queue(&mut self, tree: &Tree, cohort: NodeId) -> Option<(NodeId, Share)> {
        let mut highest: Option<(NodeId, Share)> = None;
        for id in tree.children(cohort) {
            if self.pruned.contains(id) || !self.cqs.get(id).is_some_and(Cq::is_active) {
                continue;
            }
            let share = tree.share(*id);
            let Some(first) = self.first(*id).filter(|_| share.is_borrowing() || *id == self.own) else {
                self.pruned.insert(*id);
                continue;
            };
            let better = highest.as_ref().is_none_or(|(other, most)| match share.compare(most) {
                Ordering::Greater => true,
                Ordering::Less => false,
                Ordering::Equal => self.first(*other).is_none_or(|other| first.order(self.own) < other.order(self.own)),
            });
            if better {
                highest = Some((*id, share));
            }
        }
        highest
    }

    fn highest_cohort(&mut self, tree: &Tree, cohort: NodeId) -> Option<(NodeId, Share)> {
        let mut highest: Option<(NodeId, Share)> = None;
        for id in tree.children(cohort) {
            if self.pruned.contains(id) || self.cqs.contains_key(id) {
                continue;
            }
            let share = tree.share(*id);
            // Within a Cohort of the preemptor's, others may borrow from each other although it does not borrow.
            if !share.is_borrowing() && !self.path.contains(id) {
                self.pruned.insert(*id);
                continue;
            }
            if highest.as_ref().is_none_or(|(_, most)| share.compare(most).is_ge()) {
                highest = Some((*id, share));
            }
        }
        highest
    }
}
