//! The shape of the quota tree, and derived values: subtree sums, heights, cycles.

use std::collections::{BTreeMap, BTreeSet};

use super::node::{Node, NodeKind};
use crate::flavor_resource::FlavorResource;
use crate::ids::NodeId;
use crate::{Name, Quota};

/// All ClusterQueues and Cohorts.
///
/// Each change of shape or quota updates the sums of the affected trees at once.
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct QuotaTree {
    nodes: Vec<Option<Node>>,
    free: Vec<NodeId>,
    cohorts: BTreeMap<Name, NodeId>,
}

impl QuotaTree {
    pub(super) fn node(&self, id: NodeId) -> Option<&Node> {
        self.nodes.get(id.0 as usize)?.as_ref()
    }

    pub(super) fn node_mut(&mut self, id: NodeId) -> Option<&mut Node> {
        self.nodes.get_mut(id.0 as usize)?.as_mut()
    }

    /// A ClusterQueue without cohort and quota.
    pub(crate) fn add_queue(&mut self, name: Name) -> NodeId {
        self.insert(Node::new(name, NodeKind::Queue { active: false }))
    }

    /// Moves a ClusterQueue below `cohort` and sets its quotas. Its usage moves with it.
    pub(crate) fn place_queue(
        &mut self,
        id: NodeId,
        cohort: Option<&Name>,
        quotas: &[(FlavorResource, Quota)],
    ) {
        if let Some(node) = self.node_mut(id) {
            node.set_quotas(quotas);
        }
        self.attach(id, cohort);
    }

    pub(crate) fn set_weight(&mut self, id: NodeId, milli: i64) {
        if let Some(node) = self.node_mut(id) {
            // Weights are small and Kueue's are floats too, so the precision suffices.
            #[expect(clippy::cast_precision_loss, reason = "see above")]
            let weight = milli.max(0) as f64 / 1000.0;
            node.weight = weight;
        }
    }

    /// Whether a ClusterQueue counts for the height of its Cohorts. Returns true on a change.
    pub(crate) fn set_active(&mut self, id: NodeId, active: bool) -> bool {
        let kind = NodeKind::Queue { active };
        let Some(node) = self.node_mut(id).filter(|node| node.kind != kind) else { return false };
        node.kind = kind;
        self.refresh(id);
        true
    }

    /// Removes a ClusterQueue and its usage.
    pub(crate) fn remove_queue(&mut self, id: NodeId) {
        self.attach(id, None);
        self.remove(id);
    }

    /// Applies a Cohort object.
    pub(crate) fn put_cohort(
        &mut self,
        name: &Name,
        parent: Option<&Name>,
        quotas: &[(FlavorResource, Quota)],
    ) {
        let id = self.cohort_or_new(name);
        if let Some(node) = self.node_mut(id) {
            node.kind = NodeKind::Cohort { explicit: true };
            node.set_quotas(quotas);
        }
        self.attach(id, parent);
    }

    /// Removes a Cohort object. While other objects name the Cohort, its node stays as a root
    /// without quota.
    pub(crate) fn delete_cohort(&mut self, name: &str) {
        let Some(id) = self.cohort(name) else { return };
        if let Some(node) = self.node_mut(id) {
            node.kind = NodeKind::Cohort { explicit: false };
            node.weight = 1.0;
            node.set_quotas(&[]);
        }
        self.attach(id, None);
        self.drop_if_unused(id);
    }

    /// With or without an object.
    pub(crate) fn cohort(&self, name: &str) -> Option<NodeId> {
        self.cohorts.get(name).copied()
    }

    /// Only of a Cohort with an object.
    pub(crate) fn cohort_object(&self, name: &str) -> Option<NodeId> {
        let explicit = |id: &NodeId| {
            self.node(*id).is_some_and(|node| node.kind == NodeKind::Cohort { explicit: true })
        };
        self.cohort(name).filter(explicit)
    }

    pub(crate) fn name(&self, id: NodeId) -> Option<&Name> {
        self.node(id).map(|node| &node.name)
    }

    pub(crate) fn parent(&self, id: NodeId) -> Option<NodeId> {
        self.node(id)?.parent
    }

    pub(crate) fn is_queue(&self, id: NodeId) -> bool {
        self.node(id).is_some_and(Node::is_queue)
    }

    /// Whether only this node keeps its Cohort in the tree: no object and no other child.
    pub(crate) fn is_only_child(&self, id: NodeId) -> bool {
        let parent = self.parent(id).and_then(|parent| self.node(parent));
        parent.is_some_and(|node| {
            node.kind == NodeKind::Cohort { explicit: false } && node.children.len() == 1
        })
    }

    pub(crate) fn children(&self, id: NodeId) -> &[NodeId] {
        self.node(id).map_or(&[], |node| &node.children)
    }

    /// The node and its ancestors up to the root. Only the node itself on or below a cycle.
    pub(crate) fn path(&self, id: NodeId) -> Vec<NodeId> {
        let isolated = self.is_cyclic(id);
        std::iter::successors(Some(id), |at| if isolated { None } else { self.parent(*at) })
            .collect()
    }

    /// Whether the path up from here never ends.
    pub(crate) fn is_cyclic(&self, id: NodeId) -> bool {
        self.node(id).is_some_and(|node| node.cyclic)
    }

    /// `None` on or below a cycle.
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

    /// All ClusterQueues of the tree of `id`, itself included, in walk order.
    pub(crate) fn queues_of_tree(&self, id: NodeId) -> Vec<NodeId> {
        let Some(root) = self.root(id) else { return vec![id] };
        let mut queues = self.subtree(root);
        queues.retain(|id| self.node(*id).is_some_and(Node::is_queue));
        queues
    }

    /// `top` and all nodes below, parents before children. Terminates on cycles too.
    pub(crate) fn subtree(&self, top: NodeId) -> Vec<NodeId> {
        // Below a root there is no cycle, because each node has one parent.
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

    /// A copy of the subtree at `top`, for simulated usage.
    pub(crate) fn copy_subtree(&self, top: NodeId) -> Self {
        let mut nodes = vec![None; self.nodes.len()];
        for id in self.subtree(top) {
            if let Some(place) = nodes.get_mut(id.0 as usize) {
                *place = self.node(id).cloned();
            }
        }
        Self { nodes, free: Vec::new(), cohorts: BTreeMap::new() }
    }

    /// Sets the parent and updates the old and the new tree.
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
        let id = self.insert(Node::new(name.clone(), NodeKind::Cohort { explicit: false }));
        self.cohorts.insert(name.clone(), id);
        id
    }

    /// Removes a Cohort without object and children. It has no parent, because only an object sets
    /// one.
    fn drop_if_unused(&mut self, id: NodeId) -> bool {
        let Some(node) = self.node(id) else { return true };
        if node.kind != (NodeKind::Cohort { explicit: false }) || !node.children.is_empty() {
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

    /// Updates the whole tree around `id`: sums, usage of Cohorts, heights, and whether it is on a
    /// cycle.
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

    /// Updates derived values after the tree's sums.
    fn settle(&mut self, id: NodeId) {
        let Some(node) = self.node(id) else { return };
        let lendable = if node.is_queue() || node.cyclic { Vec::new() } else { self.lendable(id) };
        let potentials: Vec<_> =
            node.slots().iter().map(|slot| self.sum_potential(id, slot.fr)).collect();
        if let Some(node) = self.node_mut(id) {
            node.settle(lendable, &potentials);
        }
    }

    /// Restores derived values that a recording leaves out.
    #[cfg(feature = "record")]
    pub(crate) fn restore_derived_state(&mut self) {
        for number in 0..self.nodes.len() {
            self.settle(NodeId(u32::try_from(number).unwrap_or(u32::MAX)));
        }
    }

    /// A node of the cycle above `id`. A walk down from it reaches all nodes on and below the
    /// cycle.
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
            NodeKind::Queue { active } => usize::from(active),
            NodeKind::Cohort { .. } => node.height + 1,
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
