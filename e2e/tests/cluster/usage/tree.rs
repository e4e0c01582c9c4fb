//! The limits of a quota tree, computed without the engine's own arithmetic.

use std::collections::BTreeMap;

/// A ClusterQueue (its name begins with `q`) or a Cohort. Quota in CPUs.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) parent: Option<String>,
    pub(crate) nominal: i64,
    pub(crate) borrowing: Option<i64>,
    pub(crate) lending: Option<i64>,
}

impl Node {
    pub(crate) fn is_queue(&self) -> bool {
        self.name.starts_with('q')
    }
}

/// All nodes, parents before children.
#[derive(Clone, Debug)]
pub(crate) struct Tree(pub(crate) Vec<Node>);

impl Tree {
    pub(crate) fn queues(&self) -> impl Iterator<Item = &Node> {
        self.0.iter().filter(|node| node.is_queue())
    }

    fn children<'a>(&'a self, node: &'a Node) -> impl Iterator<Item = &'a Node> {
        self.0.iter().filter(|child| child.parent.as_ref() == Some(&node.name))
    }

    /// Its own and what its children lend, in thousandths.
    fn quota(&self, node: &Node) -> i64 {
        node.nominal * 1000
            + self.children(node).map(|child| self.quota(child) - self.kept(child)).sum::<i64>()
    }

    /// The amount that it does not lend.
    fn kept(&self, node: &Node) -> i64 {
        node.lending.map_or(0, |lending| (self.quota(node) - lending * 1000).max(0))
    }

    fn used(&self, node: &Node, queues: &BTreeMap<String, i64>) -> i64 {
        let own = queues.get(&node.name).copied().unwrap_or(0);
        own + self
            .children(node)
            .map(|child| (self.used(child, queues) - self.kept(child)).max(0))
            .sum::<i64>()
    }

    /// The violations of ClusterQueues with this usage (by short name, in thousandths of a CPU).
    pub(crate) fn violations(&self, queues: &BTreeMap<String, i64>) -> Vec<String> {
        let limit = |node: &Node| match (&node.parent, node.borrowing) {
            (None, _) => Some(self.quota(node)),
            (Some(_), Some(borrowing)) => Some(self.quota(node) + borrowing * 1000),
            (Some(_), None) => None,
        };
        let over = |node: &Node| {
            let (used, limit) = (self.used(node, queues), limit(node)?);
            (used > limit).then(|| format!("{} uses {used} of at most {limit}", node.name))
        };
        self.0.iter().filter_map(over).collect()
    }
}
