//! Why no more is free at a node: which limit or which Cohort says so, and what others keep back.

use super::node::NodeId;
use super::structure::Tree;
use crate::flavor_resource::Fr;
use crate::{Amount, Bound, Kept};

impl Tree {
    /// What keeps [`Tree::available`] from being more.
    pub(crate) fn bound(&self, id: NodeId, fr: Fr) -> Bound {
        let path = self.path(id);
        let available = self.available(id, fr);
        let mut local = Amount::ZERO;
        for at in &path {
            let Some(node) = self.node(*at) else { break };
            let slot = node.slot(fr);
            local = local + slot.local_available();
            if let Some(limit) = slot.quota.borrowing_limit.filter(|_| self.parent(*at).is_some()) {
                let lent = slot.subtree - slot.local_quota();
                if local + lent.less(slot.used_in_parent()) + limit <= available {
                    return Bound::BorrowingLimit { name: node.name.clone(), limit };
                }
            }
        }
        match path.last().filter(|root| **root != id).and_then(|root| self.name(*root)) {
            Some(name) => Bound::Cohort { name: name.clone() },
            None => Bound::NoCohort,
        }
    }

    /// Free quota in the same tree that lending limits keep from `id`, by node in the order of the walk.
    pub(crate) fn kept_from(&self, id: NodeId, fr: Fr) -> Vec<Kept> {
        let own = self.path(id);
        let Some(root) = own.last().copied() else { return Vec::new() };
        let others = self.subtree(root).into_iter().filter(|other| !own.contains(other));
        let kept = others.filter_map(|other| {
            let node = self.node(other)?;
            let slot = node.slot(fr);
            let amount = slot.quota.lending_limit.map_or(Amount::ZERO, |_| slot.local_available());
            (amount > Amount::ZERO).then(|| Kept { name: node.name.clone(), amount })
        });
        kept.collect()
    }
}
