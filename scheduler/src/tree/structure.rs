//! The shape of the quota tree, and what follows from it: sums over subtrees, heights, cycles.

use std::collections::{BTreeMap, BTreeSet};

use super::node::{Kind, Node, NodeId};
use crate::flavor_resource::Fr;
use crate::{Name, Quota};

/// All ClusterQueues and Cohorts.
///
/// Every change of shape or quota brings the sums of the trees it touches up to date at once.
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct Tree {
    nodes: Vec<Option<Node>>,
    free: Vec<NodeId>,
    cohorts: BTreeMap<Name, NodeId>,
}

impl Tree {
    /// The node of `id`. Every id that the tree gave out and that was not removed has one.
    pub(super) fn node(&self, id: NodeId) -> Option<&Node> {
        self.nodes.get(id.0 as usize)?.as_ref()
    }

    pub(super) fn node_mut(&mut self, id: NodeId) -> Option<&mut Node> {
        self.nodes.get_mut(id.0 as usize)?.as_mut()
    }

    /// A new ClusterQueue without a cohort and without quota.
    pub(crate) fn add_queue(&mut self, name: Name) -> NodeId {
        self.insert(Node::new(name, Kind::Queue { active: false }))
    }

    /// Moves a ClusterQueue below `cohort` and gives it these quotas. Its usage goes with it.
    pub(crate) fn place_queue(
        &mut self,
        id: NodeId,
        cohort: Option<&Name>,
        quotas: &[(Fr, Quota)],
    ) {
        if let Some(node) = self.node_mut(id) {
            node.set_quotas(quotas);
        }
        self.attach(id, cohort);
    }

    /// Sets a node's weight in fair sharing.
    pub(crate) fn set_weight(&mut self, id: NodeId, milli: i64) {
        if let Some(node) = self.node_mut(id) {
            // Weights are small: thousandths of a float are exact enough, as Kueue's are floats too.
            #[expect(clippy::cast_precision_loss, reason = "see above")]
            let weight = milli.max(0) as f64 / 1000.0;
            node.weight = weight;
        }
    }

    /// Whether a ClusterQueue counts for the height of its Cohorts. Answers whether that is news.
    pub(crate) fn set_active(&mut self, id: NodeId, active: bool) -> bool {
        let kind = Kind::Queue { active };
        let Some(node) = self.node_mut(id).filter(|node| node.kind != kind) else { return false };
        node.kind = kind;
        self.refresh(id);
        true
    }

    /// Takes a ClusterQueue out, with its usage.
    pub(crate) fn remove_queue(&mut self, id: NodeId) {
        self.attach(id, None);
        self.remove(id);
    }

    /// A Cohort object: places it below its parent and gives it quotas.
    pub(crate) fn put_cohort(
        &mut self,
        name: &Name,
        parent: Option<&Name>,
        quotas: &[(Fr, Quota)],
    ) {
        let id = self.cohort_or_new(name);
        if let Some(node) = self.node_mut(id) {
            node.kind = Kind::Cohort { explicit: true };
            node.set_quotas(quotas);
        }
        self.attach(id, parent);
    }

    /// The Cohort object is gone. While something names it, the node stays as a root without quota.
    pub(crate) fn delete_cohort(&mut self, name: &str) {
        let Some(id) = self.cohort(name) else { return };
        if let Some(node) = self.node_mut(id) {
            node.kind = Kind::Cohort { explicit: false };
            node.weight = 1.0;
            node.set_quotas(&[]);
        }
        self.attach(id, None);
        self.drop_if_unused(id);
    }

    /// The node of a Cohort, with or without an object.
    pub(crate) fn cohort(&self, name: &str) -> Option<NodeId> {
        self.cohorts.get(name).copied()
    }

    /// The node of a Cohort that has an object.
    pub(crate) fn cohort_object(&self, name: &str) -> Option<NodeId> {
        let explicit = |id: &NodeId| {
            self.node(*id).is_some_and(|node| node.kind == Kind::Cohort { explicit: true })
        };
        self.cohort(name).filter(explicit)
    }

    pub(crate) fn name(&self, id: NodeId) -> Option<&Name> {
        self.node(id).map(|node| &node.name)
    }

    /// The Cohort above.
    pub(crate) fn parent(&self, id: NodeId) -> Option<NodeId> {
        self.node(id)?.parent
    }

    pub(crate) fn is_queue(&self, id: NodeId) -> bool {
        self.node(id).is_some_and(Node::is_queue)
    }

    /// Whether nothing but this node keeps the Cohort above it: no object, and no other child.
    pub(crate) fn is_alone(&self, id: NodeId) -> bool {
        let parent = self.parent(id).and_then(|parent| self.node(parent));
        parent.is_some_and(|node| {
            node.kind == Kind::Cohort { explicit: false } && node.children.len() == 1
        })
    }

    /// What is directly below.
    pub(crate) fn children(&self, id: NodeId) -> &[NodeId] {
        self.node(id).map_or(&[], |node| &node.children)
    }

    /// The node itself and those above, up to the root. Just itself on or below a cycle.
    pub(crate) fn path(&self, id: NodeId) -> Vec<NodeId> {
        let lone = self.is_cyclic(id);
        std::iter::successors(Some(id), |at| if lone { None } else { self.parent(*at) }).collect()
    }

    /// Whether the way up from here never ends.
    pub(crate) fn is_cyclic(&self, id: NodeId) -> bool {
        self.node(id).is_some_and(|node| node.cyclic)
    }

    /// The node at the top, if the way up ends.
    pub(crate) fn root(&self, id: NodeId) -> Option<NodeId> {
        let mut at = id;
        for _ in 0..=self.nodes.len() {
            match self.node(at)?.parent {
                Some(parent) => at = parent,
                None => return Some(at),
            }
        }
        None
    }

    /// All ClusterQueues that share a tree with `id`, itself included, in the order of the walk.
    pub(crate) fn queues_of_tree(&self, id: NodeId) -> Vec<NodeId> {
        let Some(root) = self.root(id) else { return vec![id] };
        let mut queues = self.subtree(root);
        queues.retain(|id| self.node(*id).is_some_and(Node::is_queue));
        queues
    }

    /// `top` and everything below, parents before children. Ends on cycles too.
    pub(crate) fn subtree(&self, top: NodeId) -> Vec<NodeId> {
        // Below a root there is no cycle: every node has one parent.
        let may_cycle = self.parent(top).is_some();
        let mut seen = BTreeSet::from([top]);
        let mut order = vec![top];
        let mut next = 0;
        while let Some(id) = order.get(next).copied() {
            next += 1;
            let Some(node) = self.node(id) else { continue };
            order.extend(node.children.iter().filter(|child| !may_cycle || seen.insert(**child)));
        }
        order
    }

    /// A copy of what is at and below `top`, for usage to be changed in.
    pub(crate) fn part(&self, top: NodeId) -> Self {
        let mut nodes = vec![None; self.nodes.len()];
        for id in self.subtree(top) {
            if let Some(place) = nodes.get_mut(id.0 as usize) {
                *place = self.node(id).cloned();
            }
        }
        Self { nodes, free: Vec::new(), cohorts: BTreeMap::new() }
    }

    /// Sets the parent and refreshes the tree that was left and the one that was joined.
    fn attach(&mut self, id: NodeId, parent: Option<&Name>) {
        let old = self.parent(id);
        let new = parent.map(|name| self.cohort_or_new(name));
        if old != new {
            if let Some(old) = old {
                self.unlink(old, id);
            }
            if let Some(new) = new {
                self.link(new, id);
            }
            if let Some(node) = self.node_mut(id) {
                node.parent = new;
            }
            if let Some(old) = old
                && !self.drop_if_unused(old)
            {
                self.refresh(old);
            }
        }
        self.refresh(id);
    }

    fn link(&mut self, parent: NodeId, child: NodeId) {
        let key = |id: NodeId| self.node(id).map(|node| (node.is_queue(), node.name.clone()));
        let Some(node) = self.node(parent) else { return };
        let at = node.children.partition_point(|other| key(*other) < key(child));
        if let Some(node) = self.node_mut(parent) {
            node.children.insert(at, child);
        }
    }

    fn unlink(&mut self, parent: NodeId, child: NodeId) {
        if let Some(node) = self.node_mut(parent) {
            node.children.retain(|other| *other != child);
        }
    }

    fn cohort_or_new(&mut self, name: &Name) -> NodeId {
        if let Some(id) = self.cohort(name) {
            return id;
        }
        let id = self.insert(Node::new(name.clone(), Kind::Cohort { explicit: false }));
        self.cohorts.insert(name.clone(), id);
        id
    }

    /// Removes a Cohort that neither an object nor a child holds. It has no parent, as only an object gives one.
    fn drop_if_unused(&mut self, id: NodeId) -> bool {
        let Some(node) = self.node(id) else { return true };
        if node.kind != (Kind::Cohort { explicit: false }) || !node.children.is_empty() {
            return false;
        }
        let name = node.name.clone();
        self.cohorts.remove(&name);
        self.remove(id);
        true
    }

    fn insert(&mut self, node: Node) -> NodeId {
        if let Some(id) = self.free.pop()
            && let Some(place) = self.nodes.get_mut(id.0 as usize)
        {
            *place = Some(node);
            return id;
        }
        self.nodes.push(Some(node));
        NodeId(u32::try_from(self.nodes.len() - 1).unwrap_or(u32::MAX))
    }

    fn remove(&mut self, id: NodeId) {
        if let Some(place) = self.nodes.get_mut(id.0 as usize)
            && place.take().is_some()
        {
            self.free.push(id);
        }
    }

    /// Brings the whole tree around `id` up to date: sums, usage of Cohorts, heights, or that it is a cycle.
    fn refresh(&mut self, id: NodeId) {
        let root = self.root(id);
        let order = match root {
            Some(root) => self.subtree(root),
            None => self.subtree(self.on_cycle(id)),
        };
        for id in &order {
            let Some(node) = self.node_mut(*id) else { continue };
            node.cyclic = root.is_none();
            node.height = 0;
            node.reset_subtree();
            if !node.is_queue() {
                node.reset_usage();
            }
        }
        if root.is_some() {
            // Children before parents.
            for id in order.iter().rev() {
                self.add_to_parent(*id);
            }
        }
        for id in order {
            self.settle(id);
        }
    }

    /// Works out what follows from the quotas of a tree whose sums are up to date.
    fn settle(&mut self, id: NodeId) {
        let Some(node) = self.node(id) else { return };
        let lendable = if node.is_queue() || node.cyclic { Vec::new() } else { self.lendable(id) };
        let potentials: Vec<_> =
            node.slots().iter().map(|slot| self.sum_potential(id, slot.fr)).collect();
        if let Some(node) = self.node_mut(id) {
            node.settle(lendable, &potentials);
        }
    }

    /// Completes what was read from a recording: what follows from the rest is not in it.
    #[cfg(feature = "record")]
    pub(crate) fn complete(&mut self) {
        for number in 0..self.nodes.len() {
            self.settle(NodeId(u32::try_from(number).unwrap_or(u32::MAX)));
        }
    }

    /// A node of the cycle that the way up from `id` runs into, so that the walk down finds all below it.
    fn on_cycle(&self, id: NodeId) -> NodeId {
        let mut at = id;
        for _ in 0..=self.nodes.len() {
            at = self.parent(at).unwrap_or(at);
        }
        at
    }

    fn add_to_parent(&mut self, id: NodeId) {
        let Some(node) = self.node(id) else { return };
        let Some(parent) = node.parent else { return };
        let level = match node.kind {
            Kind::Queue { active } => usize::from(active),
            Kind::Cohort { .. } => node.height + 1,
        };
        let sums: Vec<_> = node
            .slots()
            .iter()
            .map(|slot| {
                (slot.fr, slot.subtree - slot.local_quota(), slot.used_in_parent(), slot.declared)
            })
            .collect();
        let Some(parent) = self.node_mut(parent) else { return };
        parent.height = parent.height.max(level);
        for (fr, lent, used, declared) in sums {
            let slot = parent.slot_mut(fr);
            slot.declared |= declared;
            slot.subtree = slot.subtree + lent;
            slot.usage += used;
        }
    }
}
