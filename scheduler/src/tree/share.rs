//! Dominant resource share: how much more than its own a node uses, of what could be lent to it, by its weight.

use std::cmp::Ordering;

use super::node::{Node, NodeId, Slot};
use super::structure::Tree;
use crate::Amount;
use crate::flavor_resource::{Fr, ResourceId};

/// A node's share of what its parent could lend.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Share {
    weight: f64,
    /// The largest ratio of borrowed to lendable over the resources, in thousandths.
    ratio: f64,
    borrows: bool,
}

impl Share {
    /// Whether the node uses more than it has of anything.
    pub(crate) fn is_borrowing(&self) -> bool {
        self.borrows
    }

    /// Beyond every share: it borrows although it weighs nothing.
    pub(crate) fn is_infinite(&self) -> bool {
        self.weight == 0.0 && self.ratio != 0.0
    }

    fn weighted(&self) -> f64 {
        if self.ratio == 0.0 { 0.0 } else { self.ratio / self.weight }
    }

    /// The share as status shows it: rounded up; the largest number if it is infinite.
    pub(crate) fn rounded(&self) -> i64 {
        // A float beyond the range becomes the nearest number in it.
        #[expect(clippy::cast_possible_truncation, reason = "saturates as described")]
        if self.is_infinite() { i64::MAX } else { self.weighted().ceil() as i64 }
    }

    /// The share as metrics show it; infinite if it is.
    pub(crate) fn precise(&self) -> f64 {
        if self.is_infinite() { f64::INFINITY } else { self.weighted() }
    }

    /// A lower share is served first, a higher one gives way first.
    pub(crate) fn compare(&self, other: &Self) -> Ordering {
        match (self.is_infinite(), other.is_infinite()) {
            (true, true) => self.ratio.total_cmp(&other.ratio),
            (true, false) => Ordering::Greater,
            (false, true) => Ordering::Less,
            (false, false) => self.weighted().total_cmp(&other.weighted()),
        }
    }
}

impl Tree {
    /// The share of a node with its usage as it is. A node without a parent has none.
    pub(crate) fn share(&self, id: NodeId) -> Share {
        let mut share = Share { weight: 1.0, ratio: 0.0, borrows: false };
        let Some(node) = self.node(id) else { return share };
        share.weight = node.weight;
        let Some(parent) = self.lender(node).filter(|_| node.exceeded > 0) else { return share };
        let slots = node.slots();
        for (at, slot) in slots.iter().enumerate() {
            let Some(mut borrowed) = slot.excess() else { continue };
            share.borrows = true;
            let resource = slot.fr.resource();
            let alike = |other: &&Slot| other.fr.resource() == resource;
            // Each resource once, over all of its flavors.
            if slots[..at].iter().filter(alike).any(|other| other.excess().is_some()) {
                continue;
            }
            for excess in slots[at + 1..].iter().filter(alike).filter_map(Slot::excess) {
                borrowed = borrowed + excess;
            }
            let lendable = parent.lendable(resource);
            if lendable > Amount::ZERO {
                share.ratio = share.ratio.max(float(borrowed) * 1000.0 / float(lendable));
            }
        }
        share
    }

    /// Whether a node uses more than it has of anything.
    pub(crate) fn borrows(&self, id: NodeId) -> bool {
        self.node(id).is_some_and(|node| node.exceeded > 0 && self.lender(node).is_some())
    }

    /// Whether a node uses more than it has of anything that is asked for.
    pub(crate) fn borrows_of(&self, id: NodeId, asked: &[(Fr, Amount)]) -> bool {
        let node = self.node(id).filter(|_| self.borrows(id));
        let asked = asked.iter().filter(|(_, amount)| *amount > Amount::ZERO);
        node.is_some_and(|node| asked.into_iter().any(|(fr, _)| node.slot(*fr).excess().is_some()))
    }

    /// The Cohort above, which the node may borrow from.
    fn lender(&self, node: &Node) -> Option<&Node> {
        self.node(node.parent.filter(|_| !node.cyclic)?)
    }

    /// What could be lent at a node if nobody used anything, by resource over all flavors of the tree.
    pub(super) fn lendable(&self, id: NodeId) -> Vec<(ResourceId, Amount)> {
        let root = self.root(id).and_then(|root| self.node(root));
        let mut sums: Vec<(ResourceId, Amount)> = Vec::new();
        for slot in root.into_iter().flat_map(Node::slots).filter(|slot| slot.declared) {
            let (resource, amount) = (slot.fr.resource(), self.potential(id, slot.fr));
            match sums.iter_mut().find(|(known, _)| *known == resource) {
                Some((_, sum)) => *sum = *sum + amount,
                None => sums.push((resource, amount)),
            }
        }
        sums
    }
}

#[expect(clippy::cast_precision_loss, reason = "shares are ratios; Kueue computes them so")]
fn float(amount: Amount) -> f64 {
    amount.get() as f64
}
