//! From which queue the next victim comes: down from the root to the child with the highest share.

use std::cmp::Ordering;
use std::collections::{BTreeMap, VecDeque};

use super::Shares;
use crate::cluster_queue::Cq;
use crate::preemption::candidates::{Candidate, Preemptor};
use crate::tree::{NodeId, Share, Tree};

/// A walk over the queues that have candidates. Between two calls of [`Walk::next`] a candidate must be popped or a
/// queue dropped, so that it ends; and when a candidate is taken out of the tree, [`Walk::changed`] must be called.
pub(super) struct Walk<'a> {
    cqs: &'a BTreeMap<NodeId, Cq>,
    own: NodeId,
    /// The preemptor's queue and the Cohorts above it.
    path: Vec<NodeId>,
    candidates: BTreeMap<NodeId, VecDeque<Candidate<'a>>>,
    /// By Cohort that was looked at: the children from which candidates may come.
    open: BTreeMap<NodeId, Vec<Child>>,
    /// No more candidates will come.
    over: bool,
}

/// A child of a Cohort.
struct Child {
    id: NodeId,
    is_queue: bool,
    /// As it is now, if it was asked for since it changed.
    share: Option<Share>,
}

impl Child {
    fn share(&mut self, tree: &Tree) -> &Share {
        self.share.get_or_insert_with(|| tree.share(self.id))
    }
}

impl<'a> Walk<'a> {
    /// A walk over candidates in their order.
    pub(super) fn new(tree: &Tree, preemptor: &Preemptor<'a>, candidates: Vec<Candidate<'a>>) -> Self {
        let own = preemptor.cq.node;
        let mut by_queue: BTreeMap<NodeId, VecDeque<Candidate<'a>>> = BTreeMap::new();
        for candidate in candidates {
            by_queue.entry(candidate.cq).or_default().push_back(candidate);
        }
        let (cqs, path) = (preemptor.cqs, tree.path(own));
        Self { cqs, own, path, candidates: by_queue, open: BTreeMap::new(), over: false }
    }

    /// The next candidate of a queue.
    pub(super) fn pop(&mut self, queue: NodeId) -> Option<Candidate<'a>> {
        self.candidates.get_mut(&queue)?.pop_front()
    }

    /// Leaves the rest of a queue's candidates alone.
    pub(super) fn drop_queue(&mut self, queue: NodeId) {
        self.over |= self.path.last() == Some(&queue);
        for children in self.open.values_mut() {
            children.retain(|child| child.id != queue);
        }
    }

    /// Usage of a queue changed: so did the shares on its way up.
    pub(super) fn changed(&mut self, tree: &Tree, queue: NodeId) {
        for node in tree.path(queue) {
            let siblings = tree.parent(node).and_then(|parent| self.open.get_mut(&parent));
            for child in siblings.into_iter().flatten().filter(|child| child.id == node) {
                child.share = None;
            }
        }
    }

    /// The queue that the next victim comes from.
    pub(super) fn next(&mut self, tree: &Tree) -> Option<NodeId> {
        let root = *self.path.last()?;
        if root == self.own {
            return self.first(root).map(|_| root).filter(|_| !self.over);
        }
        while !self.over {
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

    fn first(&self, queue: NodeId) -> Option<&Candidate<'a>> {
        self.candidates.get(&queue)?.front()
    }

    /// One walk down. `None` if it only found out that some node has nothing more to give.
    fn descend(&mut self, tree: &Tree, root: NodeId) -> Option<NodeId> {
        let mut at = root;
        loop {
            let mut children = self.open.remove(&at).unwrap_or_else(|| self.children(tree, at));
            let queue = self.highest_queue(tree, &mut children);
            let cohort = self.highest_cohort(tree, &mut children);
            let next = match (queue, cohort) {
                (None, None) => None,
                (Some((queue, _)), None) => Some((queue, true)),
                (None, Some((cohort, _))) => Some((cohort, false)),
                // On a tie the Cohort, in which the worst can be chosen.
                (Some((queue, queues)), Some((_, cohorts))) if cohorts.compare(&queues).is_lt() => Some((queue, true)),
                (Some(_), Some((cohort, _))) => Some((cohort, false)),
            };
            self.open.insert(at, children);
            match next {
                Some((queue, true)) => return Some(queue),
                Some((cohort, false)) => at = cohort,
                None => {
                    self.drop_queue(at);
                    return None;
                }
            }
        }
    }

    /// The active queues and the Cohorts below a Cohort.
    fn children(&self, tree: &Tree, cohort: NodeId) -> Vec<Child> {
        let child = |id: &NodeId| {
            let queue = self.cqs.get(id);
            queue.is_none_or(Cq::is_active).then_some(Child { id: *id, is_queue: queue.is_some(), share: None })
        };
        tree.children(cohort).iter().filter_map(child).collect()
    }

    /// The queue with the highest share. Those that have nothing to give are not looked at again.
    fn highest_queue(&self, tree: &Tree, children: &mut Vec<Child>) -> Option<(NodeId, Share)> {
        let mut highest: Option<(NodeId, Share)> = None;
        children.retain_mut(|child| {
            if !child.is_queue {
                return true;
            }
            let id = child.id;
            let share = child.share(tree);
            let Some(first) = self.first(id).filter(|_| share.is_borrowing() || id == self.own) else { return false };
            let better = highest.as_ref().is_none_or(|(other, most)| match share.compare(most) {
                Ordering::Greater => true,
                Ordering::Less => false,
                Ordering::Equal => self.first(*other).is_none_or(|other| first.order(self.own) < other.order(self.own)),
            });
            if better {
                highest = Some((id, share.clone()));
            }
            true
        });
        highest
    }

    fn highest_cohort(&self, tree: &Tree, children: &mut Vec<Child>) -> Option<(NodeId, Share)> {
        let mut highest: Option<(NodeId, Share)> = None;
        children.retain_mut(|child| {
            if child.is_queue {
                return true;
            }
            let id = child.id;
            let share = child.share(tree);
            // Within a Cohort of the preemptor's, others may borrow from each other although it does not borrow.
            if !share.is_borrowing() && !self.path.contains(&id) {
                return false;
            }
            if highest.as_ref().is_none_or(|(_, most)| share.compare(most).is_ge()) {
                highest = Some((id, share.clone()));
            }
            true
        });
        highest
    }
}
