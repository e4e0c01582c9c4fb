//! Simulated usage without this cycle's preemption victims.

use std::collections::BTreeMap;

use crate::flavor_resource::FlavorResource;
use crate::ids::NodeId;
use crate::tree::QuotaTree;

pub(super) type ChargedUsage = BTreeMap<(NodeId, FlavorResource), i128>;

/// One copy of the quota tree per tree with victims, made at most once in a cycle. So the cost of a
/// lookup does not grow with the number of victims.
#[derive(Default)]
pub(super) struct SimulatedRemovals {
    trees: BTreeMap<NodeId, TreeCopy>,
}

#[derive(Default)]
struct TreeCopy {
    /// Removed from the copy when it is made.
    usage: ChargedUsage,
    /// Made on first use. From then on it follows the charges of the live tree.
    copy: Option<QuotaTree>,
}

impl SimulatedRemovals {
    /// Adds the usage of victims in the tree of `root`.
    pub(super) fn add(&mut self, root: NodeId, usage: &ChargedUsage) {
        let without_victims = self.trees.entry(root).or_default();
        if let Some(copy) = &mut without_victims.copy {
            shift_all(copy, usage, -1);
            return;
        }
        for (place, amount) in usage {
            *without_victims.usage.entry(*place).or_default() += amount;
        }
    }

    /// The tree of `root` without victims; `None` if it has no victims.
    pub(super) fn without_victims(
        &mut self,
        live: &QuotaTree,
        root: NodeId,
    ) -> Option<&mut QuotaTree> {
        let without_victims = self.trees.get_mut(&root)?;
        let usage = &without_victims.usage;
        Some(without_victims.copy.get_or_insert_with(|| {
            let mut copy = live.copy_subtree(root);
            shift_all(&mut copy, usage, -1);
            copy
        }))
    }

    /// Applies a charge of the live tree to the copy.
    pub(super) fn shift(&mut self, root: NodeId, cq: NodeId, fr: FlavorResource, change: i128) {
        if let Some(copy) =
            self.trees.get_mut(&root).and_then(|without_victims| without_victims.copy.as_mut())
        {
            copy.shift(cq, fr, change);
        }
    }
}

/// Adds usage to a tree (1) or removes it (-1).
pub(super) fn shift_all(tree: &mut QuotaTree, usage: &ChargedUsage, sign: i128) {
    for ((cq, fr), amount) in usage {
        tree.shift(*cq, *fr, *amount * sign);
    }
}
