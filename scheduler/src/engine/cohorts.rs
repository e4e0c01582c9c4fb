//! Cohorts as they are shown, and which of them look different.

use std::collections::BTreeSet;

use super::Engine;
use crate::tree::NodeId;
use crate::{Amount, CohortView, Name, SubtreeQuota};

impl Engine {
    /// A Cohort as it is now, with or without an object; `None` if nothing names it.
    pub fn cohort(&self, name: &str) -> Option<CohortView> {
        let id = self.tree.cohort(name)?;
        let name_of = |id: NodeId| self.tree.name(id).cloned();
        let mut subtree = Vec::new();
        let queues: Vec<_> =
            self.tree.subtree(id).into_iter().filter_map(|id| self.cqs.get(&id)).collect();
        let sums = !self.tree.is_cyclic(id);
        for (flavor, resource, fr) in self.pairs.all().filter(|_| sums) {
            let quota = self.tree.subtree_quota(id, fr);
            // Not what the Cohort carries of it, which leaves out what its children keep to themselves.
            let reserved =
                queues.iter().fold(Amount::ZERO, |sum, cq| sum + self.tree.usage(cq.node, fr));
            if quota > Amount::ZERO || reserved > Amount::ZERO {
                subtree.push(SubtreeQuota {
                    flavor: flavor.clone(),
                    resource: resource.clone(),
                    quota,
                    reserved,
                });
            }
        }
        let share = self.tree.share(id);
        Some(CohortView {
            name: name_of(id)?,
            parent: self.tree.parent(id).and_then(name_of),
            root: self.tree.root(id).and_then(name_of),
            weighted_share: share.rounded(),
            precise_share: share.precise(),
            subtree,
            admitted: queues.iter().map(|cq| cq.admitted).sum(),
        })
    }

    /// Where a ClusterQueue stands: the Cohort above it and the one at the top. `None` without a cohort, or on a cycle.
    pub fn cohorts_above(&self, cluster_queue: &str) -> Option<(Name, Name)> {
        let id = *self.cq_ids.get(cluster_queue)?;
        let (parent, root) = (self.tree.parent(id)?, self.tree.root(id)?);
        Some((self.tree.name(parent)?.clone(), self.tree.name(root)?.clone()))
    }

    /// The Cohorts above the ClusterQueues that changed changed with them.
    pub(super) fn changed_cohorts(&self, cluster_queues: &BTreeSet<Name>) -> BTreeSet<Name> {
        let ids = cluster_queues.iter().filter_map(|name| self.cq_ids.get(name));
        let above = ids.flat_map(|id| self.tree.path(*id).into_iter().skip(1));
        above.filter_map(|id| self.tree.name(id).cloned()).collect()
    }

    /// Everything around `id` may look different: quota moved.
    pub(super) fn mark_tree(&mut self, id: NodeId) {
        let top = self.tree.root(id).unwrap_or(id);
        for id in self.tree.subtree(top) {
            let Some(name) = self.tree.name(id).cloned() else { continue };
            if self.cqs.contains_key(&id) {
                self.changed.cluster_queues.insert(name);
            } else {
                self.changed.cohorts.insert(name);
            }
        }
    }
}
