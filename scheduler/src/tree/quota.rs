//! The arithmetic of borrowing and lending. Kueue: `pkg/cache/scheduler/resource_node.go`.

use super::node::{Node, Slot};
use super::structure::QuotaTree;
use crate::flavor_resource::FlavorResource;
use crate::ids::NodeId;
use crate::{Amount, Quota};

/// Exact until an unlimited part is added.
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

impl QuotaTree {
    fn slot(&self, id: NodeId, fr: FlavorResource) -> &Slot {
        self.node(id).map_or(Slot::none(), |node| node.slot(fr))
    }

    /// The node and its ancestors. A node on or below a cycle stands alone.
    fn ancestors(&self, id: NodeId) -> impl Iterator<Item = &Node> {
        let isolated = self.is_cyclic(id);
        std::iter::successors(self.node(id), move |node| {
            if isolated { None } else { node.parent.and_then(|parent| self.node(parent)) }
        })
    }

    pub(crate) fn quota(&self, id: NodeId, fr: FlavorResource) -> Quota {
        self.slot(id, fr).quota
    }

    /// The node's quota plus the quota that nodes below lend to it.
    pub(crate) fn subtree_quota(&self, id: NodeId, fr: FlavorResource) -> Amount {
        self.slot(id, fr).subtree
    }

    /// The usage that counts against the node's own quota.
    pub(crate) fn usage(&self, id: NodeId, fr: FlavorResource) -> Amount {
        Amount::clamped(self.slot(id, fr).usage)
    }

    /// The free quota of the node that it does not lend.
    pub(crate) fn local_available(&self, id: NodeId, fr: FlavorResource) -> Amount {
        self.slot(id, fr).local_available()
    }

    /// Free quota, borrowed quota included, within all limits on the path. Negative after a quota
    /// cut.
    pub(crate) fn available(&self, id: NodeId, fr: FlavorResource) -> Amount {
        let mut sum = Sum::ZERO;
        let mut least = Amount::UNLIMITED;
        let isolated = self.is_cyclic(id);
        for node in self.ancestors(id) {
            let slot = node.slot(fr);
            if isolated || node.parent.is_none() {
                return least.min(sum.plus(slot.subtree.minus(slot.usage)).amount());
            }
            sum = sum.plus(slot.local_available());
            if let Some(limit) = slot.quota.borrowing_limit {
                let lent = slot.subtree - slot.local_quota();
                least = least.min(sum.plus(lent.minus(slot.used_in_parent()) + limit).amount());
            }
        }
        least
    }

    /// Free quota if no workload used any.
    pub(crate) fn potential(&self, id: NodeId, fr: FlavorResource) -> Amount {
        self.slot(id, fr).potential.unwrap_or_else(|| self.sum_potential(id, fr))
    }

    /// [`QuotaTree::potential`] without its cache.
    pub(super) fn sum_potential(&self, id: NodeId, fr: FlavorResource) -> Amount {
        let mut sum = Sum::ZERO;
        let mut least = Amount::UNLIMITED;
        let isolated = self.is_cyclic(id);
        for node in self.ancestors(id) {
            let slot = node.slot(fr);
            if isolated || node.parent.is_none() {
                return least.min(sum.plus(slot.subtree).amount());
            }
            if let Some(limit) = slot.quota.borrowing_limit {
                least = least.min(sum.plus(slot.subtree + limit).amount());
            }
            sum = sum.plus(slot.local_quota());
        }
        least
    }

    /// Changes the usage of a ClusterQueue. Each Cohort above carries the part that exceeds the
    /// local quota below.
    pub(crate) fn shift(&mut self, id: NodeId, fr: FlavorResource, change: i128) {
        let isolated = self.is_cyclic(id);
        let (mut at, mut change) = (Some(id), change);
        while let Some(node) = at.and_then(|id| self.node_mut(id))
            && change != 0
        {
            change = node.shift(fr, change);
            at = if isolated { None } else { node.parent };
        }
    }

    /// The height of the smallest subtree whose quota covers `amount` more (0: the queue itself),
    /// and whether a node above remains to reclaim from. Kueue: `FindHeightOfLowestSubtreeThatFits`
    /// in `preemption/classical/hierarchical_preemption.go`.
    pub(crate) fn borrow_height(
        &self,
        id: NodeId,
        fr: FlavorResource,
        amount: Amount,
    ) -> (usize, bool) {
        let mut rest = amount;
        let mut height = 0;
        let isolated = self.is_cyclic(id);
        for node in self.ancestors(id) {
            let slot = node.slot(fr);
            height = node.height;
            let has_parent = !isolated && node.parent.is_some();
            if !exceeds(slot, rest) || (node.is_queue() && !has_parent) {
                return (height, has_parent);
            }
            rest = rest - slot.local_available();
        }
        (height, false)
    }

    /// Whether `amount` more would exceed the quota of the node's subtree.
    pub(crate) fn exceeds(&self, id: NodeId, fr: FlavorResource, amount: Amount) -> bool {
        exceeds(self.slot(id, fr), amount)
    }
}

fn exceeds(slot: &Slot, amount: Amount) -> bool {
    slot.subtree.minus(slot.usage) < amount
}
