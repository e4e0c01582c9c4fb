//! What would be without those who were told to go in this cycle.

use std::collections::BTreeMap;

use crate::flavor_resource::Fr;
use crate::tree::{NodeId, Tree};

/// Usage of ClusterQueues.
pub(super) type Usage = BTreeMap<(NodeId, Fr), i128>;

/// The trees that somebody of was told to go, by root. What would be without them is looked at in a copy, made once in
/// a cycle: so an entry's look costs no more the more of them there are.
#[derive(Default)]
pub(super) struct Going {
    trees: BTreeMap<NodeId, Without>,
}

#[derive(Default)]
struct Without {
    /// What is to be taken out of the copy.
    usage: Usage,
    /// The copy, once somebody asked for it. From then on it follows what is charged to the tree.
    copy: Option<Tree>,
}

impl Going {
    /// Who uses this in the tree of `root` was told to go.
    pub(super) fn add(&mut self, root: NodeId, usage: &Usage) {
        let without = self.trees.entry(root).or_default();
        if let Some(copy) = &mut without.copy {
            shift_all(copy, usage, -1);
            return;
        }
        for (place, amount) in usage {
            *without.usage.entry(*place).or_default() += amount;
        }
    }

    /// The tree of `root` without those who were told to go; `None` if nobody of it was.
    pub(super) fn without(&mut self, live: &Tree, root: NodeId) -> Option<&mut Tree> {
        let without = self.trees.get_mut(&root)?;
        let usage = &without.usage;
        Some(without.copy.get_or_insert_with(|| {
            let mut copy = live.part(root);
            shift_all(&mut copy, usage, -1);
            copy
        }))
    }

    /// The tree of `root` was charged.
    pub(super) fn shift(&mut self, root: NodeId, cq: NodeId, fr: Fr, change: i128) {
        if let Some(copy) = self.trees.get_mut(&root).and_then(|without| without.copy.as_mut()) {
            copy.shift(cq, fr, change);
        }
    }
}

/// Takes usage out of a tree (-1) or puts it back (1).
pub(super) fn shift_all(tree: &mut Tree, usage: &Usage, sign: i128) {
    for ((cq, fr), amount) in usage {
        tree.shift(*cq, *fr, *amount * sign);
    }
}
