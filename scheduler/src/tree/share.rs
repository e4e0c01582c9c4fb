//! Dominant resource share: borrowed quota relative to lendable quota, divided by weight. Kueue
//! KEP-1714, `pkg/cache/scheduler/fair_sharing.go`.

use std::cmp::Ordering;

use super::node::{Node, Slot};
use super::structure::QuotaTree;
use crate::Amount;
use crate::flavor_resource::{FlavorResource, ResourceId};
use crate::ids::NodeId;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Share {
    weight: f64,
    /// The largest ratio of borrowed to lendable amount over all resources, in thousandths.
    ratio: f64,
    borrows: bool,
}

impl Share {
    /// Whether the node borrows any resource.
    pub(crate) fn is_borrowing(&self) -> bool {
        self.borrows
    }

    /// Borrows with weight 0: greater than every finite share.
    pub(crate) fn is_infinite(&self) -> bool {
        self.weight == 0.0 && self.ratio != 0.0
    }

    fn weighted(&self) -> f64 {
        if self.ratio == 0.0 { 0.0 } else { self.ratio / self.weight }
    }

    /// As in status: rounded up, `i64::MAX` if infinite.
    pub(crate) fn rounded(&self) -> i64 {
        // Casts of large floats saturate.
        #[expect(clippy::cast_possible_truncation, reason = "saturates as described")]
        if self.is_infinite() { i64::MAX } else { self.weighted().ceil() as i64 }
    }

    /// As in metrics; infinite if the share is.
    pub(crate) fn precise(&self) -> f64 {
        if self.is_infinite() { f64::INFINITY } else { self.weighted() }
    }

    /// A lower share is admitted first; a higher one is preempted first.
    pub(crate) fn compare(&self, other: &Self) -> Ordering {
        match (self.is_infinite(), other.is_infinite()) {
            (true, true) => self.ratio.total_cmp(&other.ratio),
            (true, false) => Ordering::Greater,
            (false, true) => Ordering::Less,
            (false, false) => self.weighted().total_cmp(&other.weighted()),
        }
    }
}

impl QuotaTree {
    /// The share of a node at its present usage. Zero without a parent.
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
            // Each resource once, over all its flavors.
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

    /// Whether a node borrows any resource.
    pub(crate) fn borrows(&self, id: NodeId) -> bool {
        self.node(id).is_some_and(|node| node.exceeded > 0 && self.lender(node).is_some())
    }

    /// Whether a node borrows a requested resource.
    pub(crate) fn borrows_of(&self, id: NodeId, asked: &[(FlavorResource, Amount)]) -> bool {
        let node = self.node(id).filter(|_| self.borrows(id));
        let asked = asked.iter().filter(|(_, amount)| *amount > Amount::ZERO);
        node.is_some_and(|node| asked.into_iter().any(|(fr, _)| node.slot(*fr).excess().is_some()))
    }

    /// The Cohort from which the node borrows.
    fn lender(&self, node: &Node) -> Option<&Node> {
        self.node(node.parent.filter(|_| !node.cyclic)?)
    }

    /// The amount that a node could lend without any usage, by resource over all flavors of the
    /// tree.
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
