//! Views of Cohorts.

use std::collections::BTreeSet;

use super::Engine;
use crate::ids::NodeId;
use crate::{Amount, CohortView, Name, SubtreeQuota};

impl Engine {
    /// `None` if nothing names the Cohort.
    pub fn cohort(&self, name: &str) -> Option<CohortView> {
        let id = self.tree.cohort(name)?;
        let name_of = |id: NodeId| self.tree.name(id).cloned();
        let mut subtree = Vec::new();
        let queues: Vec<_> = self
            .tree
            .subtree(id)
            .into_iter()
            .filter_map(|id| self.cluster_queues.get(&id))
            .collect();
        let sums = !self.tree.is_cyclic(id);
        for (flavor, resource, fr) in self.pairs.all().filter(|_| sums) {
            let quota = self.tree.subtree_quota(id, fr);
            // The Cohort's own usage would leave out the quota that its children do not lend.
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

    /// The parent Cohort and the root Cohort of a ClusterQueue. `None` without a cohort, or on a
    /// cycle.
    pub fn cohorts_above(&self, cluster_queue: &str) -> Option<(Name, Name)> {
        let id = *self.cluster_queue_ids.get(cluster_queue)?;
        let (parent, root) = (self.tree.parent(id)?, self.tree.root(id)?);
        Some((self.tree.name(parent)?.clone(), self.tree.name(root)?.clone()))
    }

    /// A Cohort changes with each ClusterQueue below it.
    pub(super) fn changed_cohorts(&self, cluster_queues: &BTreeSet<Name>) -> BTreeSet<Name> {
        let ids = cluster_queues.iter().filter_map(|name| self.cluster_queue_ids.get(name));
        let above = ids.flat_map(|id| self.tree.path(*id).into_iter().skip(1));
        above.filter_map(|id| self.tree.name(id).cloned()).collect()
    }

    /// Marks the whole tree around `id` as changed.
    pub(super) fn mark_tree(&mut self, id: NodeId) {
        let top = self.tree.root(id).unwrap_or(id);
        for id in self.tree.subtree(top) {
            let Some(name) = self.tree.name(id).cloned() else { continue };
            if self.cluster_queues.contains_key(&id) {
                self.changed.cluster_queues.insert(name);
            } else {
                self.changed.cohorts.insert(name);
            }
        }
    }
}
