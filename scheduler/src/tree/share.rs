//! Dominant resource share: how much more than its own a node uses, of what could be lent to it, by its weight.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use super::node::NodeId;
use super::structure::Tree;
use crate::Amount;
use crate::intern::{Fr, ResourceId};

/// A node's share of what its parent could lend.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Share {
    weight: f64,
    /// The largest ratio of borrowed to lendable over the resources, in thousandths.
    ratio: f64,
    borrowed: Vec<Fr>,
}

impl Share {
    /// Whether the node uses more than it has of anything.
    pub(crate) fn is_borrowing(&self) -> bool {
        !self.borrowed.is_empty()
    }

    /// Whether the node uses more than it has of anything that is asked for.
    pub(crate) fn is_borrowing_of(&self, asked: &BTreeMap<Fr, Amount>) -> bool {
        self.borrowed.iter().any(|fr| asked.get(fr).is_some_and(|amount| *amount > Amount::ZERO))
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
        let mut share = Share { weight: 1.0, ratio: 0.0, borrowed: Vec::new() };
        let Some(node) = self.node(id) else { return share };
        share.weight = node.weight;
        let Some(parent) = node.parent.filter(|_| !node.cyclic) else { return share };
        let mut borrowed: BTreeMap<ResourceId, Amount> = BTreeMap::new();
        for slot in node.slots().iter().filter(|slot| slot.declared) {
            let excess = Amount::clamped(slot.usage) - slot.subtree;
            if excess > Amount::ZERO {
                let sum = borrowed.entry(slot.fr.resource()).or_default();
                *sum = *sum + excess;
                share.borrowed.push(slot.fr);
            }
        }
        for (resource, amount) in borrowed {
            let lendable = self.lendable(parent, resource);
            if lendable > Amount::ZERO {
                share.ratio = share.ratio.max(float(amount) * 1000.0 / float(lendable));
            }
        }
        share
    }

    /// What could be lent of a resource at a node if nobody used anything, over all flavors of the tree.
    fn lendable(&self, id: NodeId, resource: ResourceId) -> Amount {
        let root = self.root(id).and_then(|root| self.node(root));
        let slots = root.into_iter().flat_map(|root| root.slots());
        let of_resource = slots.filter(|slot| slot.declared && slot.fr.resource() == resource);
        of_resource.fold(Amount::ZERO, |sum, slot| sum + self.potential(id, slot.fr))
    }
}

#[expect(clippy::cast_precision_loss, reason = "shares are ratios; Kueue computes them so")]
fn float(amount: Amount) -> f64 {
    amount.get() as f64
}
