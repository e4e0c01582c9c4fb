//! The limit of a node's free quota, and the free quota that other nodes do not lend.

use super::structure::QuotaTree;
use crate::flavor_resource::FlavorResource;
use crate::ids::NodeId;
use crate::{Amount, QuotaBound, WithheldQuota};

impl QuotaTree {
    /// The limit that determines [`QuotaTree::available`].
    pub(crate) fn bound(&self, id: NodeId, fr: FlavorResource) -> QuotaBound {
        let path = self.path(id);
        let available = self.available(id, fr);
        let mut local = Amount::ZERO;
        for at in &path {
            let Some(node) = self.node(*at) else { break };
            let slot = node.slot(fr);
            local = local + slot.local_available();
            if let Some(limit) = slot.quota.borrowing_limit.filter(|_| self.parent(*at).is_some()) {
                let lent = slot.subtree - slot.local_quota();
                if local + lent.minus(slot.used_in_parent()) + limit <= available {
                    return QuotaBound::BorrowingLimit { name: node.name.clone(), limit };
                }
            }
        }
        match path.last().filter(|root| **root != id).and_then(|root| self.name(*root)) {
            Some(name) => QuotaBound::Cohort { name: name.clone() },
            None => QuotaBound::NoCohort,
        }
    }

    /// Free quota of the same tree that lending limits withhold from `id`, by node in walk order.
    pub(crate) fn withheld_from(&self, id: NodeId, fr: FlavorResource) -> Vec<WithheldQuota> {
        let own = self.path(id);
        let Some(root) = own.last().copied() else { return Vec::new() };
        let others = self.subtree(root).into_iter().filter(|other| !own.contains(other));
        let kept = others.filter_map(|other| {
            let node = self.node(other)?;
            let slot = node.slot(fr);
            let amount = slot.quota.lending_limit.map_or(Amount::ZERO, |_| slot.local_available());
            (amount > Amount::ZERO).then(|| WithheldQuota { name: node.name.clone(), amount })
        });
        kept.collect()
    }
}
