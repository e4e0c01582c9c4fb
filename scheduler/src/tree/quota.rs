//! The arithmetic of borrowing and lending. Kueue's `resource_node.go` is the rule.

use super::node::{Node, NodeId, Slot};
use super::structure::Tree;
use crate::flavor_resource::Fr;
use crate::{Amount, Quota};

/// A sum that is exact until one part is unlimited.
#[derive(Clone, Copy)]
struct Sum {
    exact: i128,
    unlimited: bool,
}

impl Sum {
    const ZERO: Self = Self { exact: 0, unlimited: false };

    fn plus(self, amount: Amount) -> Self {
        Self {
            exact: self.exact + i128::from(amount.get()),
            unlimited: self.unlimited || amount.is_unlimited(),
        }
    }

    fn amount(self) -> Amount {
        if self.unlimited { Amount::UNLIMITED } else { Amount::clamped(self.exact) }
    }
}

impl Tree {
    fn slot(&self, id: NodeId, fr: Fr) -> &Slot {
        self.node(id).map_or(Slot::none(), |node| node.slot(fr))
    }

    /// The node itself and those above it. A node on or below a cycle stands alone.
    fn way_up(&self, id: NodeId) -> impl Iterator<Item = &Node> {
        let lone = self.is_cyclic(id);
        std::iter::successors(self.node(id), move |node| {
            if lone { None } else { node.parent.and_then(|parent| self.node(parent)) }
        })
    }

    /// The quota of the node itself.
    pub(crate) fn quota(&self, id: NodeId, fr: Fr) -> Quota {
        self.slot(id, fr).quota
    }

    /// The node's own quota and what those below lend to it.
    pub(crate) fn subtree_quota(&self, id: NodeId, fr: Fr) -> Amount {
        self.slot(id, fr).subtree
    }

    /// What is used at the node, as it counts for its own quota.
    pub(crate) fn usage(&self, id: NodeId, fr: Fr) -> Amount {
        Amount::clamped(self.slot(id, fr).usage)
    }

    /// How much is free of what the parent never sees.
    pub(crate) fn local_available(&self, id: NodeId, fr: Fr) -> Amount {
        self.slot(id, fr).local_available()
    }

    /// What could still be used here: own and borrowed, within every limit on the way up. Negative after a cut.
    pub(crate) fn available(&self, id: NodeId, fr: Fr) -> Amount {
        let mut sum = Sum::ZERO;
        let mut least = Amount::UNLIMITED;
        let lone = self.is_cyclic(id);
        for node in self.way_up(id) {
            let slot = node.slot(fr);
            if lone || node.parent.is_none() {
                return least.min(sum.plus(slot.subtree.less(slot.usage)).amount());
            }
            sum = sum.plus(slot.local_available());
            if let Some(limit) = slot.quota.borrowing_limit {
                let lent = slot.subtree - slot.local_quota();
                least = least.min(sum.plus(lent.less(slot.used_in_parent()) + limit).amount());
            }
        }
        least
    }

    /// What could be used here if nobody used anything.
    pub(crate) fn potential(&self, id: NodeId, fr: Fr) -> Amount {
        self.slot(id, fr).potential.unwrap_or_else(|| self.sum_potential(id, fr))
    }

    /// [`Tree::potential`], worked out from the quotas on the way up.
    pub(super) fn sum_potential(&self, id: NodeId, fr: Fr) -> Amount {
        let mut sum = Sum::ZERO;
        let mut least = Amount::UNLIMITED;
        let lone = self.is_cyclic(id);
        for node in self.way_up(id) {
            let slot = node.slot(fr);
            if lone || node.parent.is_none() {
                return least.min(sum.plus(slot.subtree).amount());
            }
            if let Some(limit) = slot.quota.borrowing_limit {
                least = least.min(sum.plus(slot.subtree + limit).amount());
            }
            sum = sum.plus(slot.local_quota());
        }
        least
    }

    /// Changes the usage of a ClusterQueue, and of the Cohorts above by what it does not keep to itself.
    pub(crate) fn shift(&mut self, id: NodeId, fr: Fr, change: i128) {
        let lone = self.is_cyclic(id);
        let (mut at, mut change) = (Some(id), change);
        while let Some(node) = at.and_then(|id| self.node_mut(id))
            && change != 0
        {
            change = node.shift(fr, change);
            at = if lone { None } else { node.parent };
        }
    }

    /// How far away `amount` more is found: the height of the smallest subtree whose own quota covers it (0: the
    /// queue itself), and whether there is still somebody above to reclaim from.
    pub(crate) fn borrow_height(&self, id: NodeId, fr: Fr, amount: Amount) -> (usize, bool) {
        let mut rest = amount;
        let mut height = 0;
        let lone = self.is_cyclic(id);
        for node in self.way_up(id) {
            let slot = node.slot(fr);
            height = node.height;
            let has_parent = !lone && node.parent.is_some();
            if !exceeds(slot, rest) || (node.is_queue() && !has_parent) {
                return (height, has_parent);
            }
            rest = rest - slot.local_available();
        }
        (height, false)
    }

    /// Whether `amount` more would be above what the node and those below it have.
    pub(crate) fn exceeds(&self, id: NodeId, fr: Fr, amount: Amount) -> bool {
        exceeds(self.slot(id, fr), amount)
    }
}

fn exceeds(slot: &Slot, amount: Amount) -> bool {
    slot.subtree.less(slot.usage) < amount
}
