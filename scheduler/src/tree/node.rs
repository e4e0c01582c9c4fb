use crate::flavor_resource::{FlavorResource, ResourceId};
use crate::ids::NodeId;
use crate::{Amount, Name, Quota};

#[derive(Clone, Debug)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct Node {
    pub(crate) name: Name,
    pub(super) kind: NodeKind,
    pub(super) parent: Option<NodeId>,
    /// Sorted by kind and name, so that walks do not depend on the order of events.
    pub(super) children: Vec<NodeId>,
    /// The path to the root never ends, so this node lends and borrows nothing.
    pub(super) cyclic: bool,
    /// The height above the active queues: 0 for a ClusterQueue, and for a Cohort without active
    /// queues.
    pub(super) height: usize,
    /// In fair sharing.
    pub(super) weight: f64,
    /// Sorted by pair.
    slots: Vec<Slot>,
    /// The pairs with a quota of the node itself, sorted.
    own: Vec<FlavorResource>,
    /// By resource, the amount that a Cohort could lend without any usage. Derived from the
    /// quotas.
    #[cfg_attr(feature = "record", serde(skip))]
    pub(super) lendable: Vec<(ResourceId, Amount)>,
    /// The number of pairs whose usage exceeds the node's quota.
    #[cfg_attr(feature = "record", serde(skip))]
    pub(super) exceeded: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub(super) enum NodeKind {
    /// `explicit` if a Cohort object exists.
    Cohort { explicit: bool },
    /// Inactive queues do not count for heights.
    Queue { active: bool },
}

/// One pair at one node.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub(super) struct Slot {
    pub(super) fr: FlavorResource,
    pub(super) quota: Quota,
    /// The node or a node below has a quota for it, possibly zero.
    pub(super) declared: bool,
    /// The node's quota plus the quota that its children lend.
    pub(super) subtree: Amount,
    /// A ClusterQueue's usage; for a Cohort, the usage of its children above the quota that they do
    /// not lend. Wider than [`Amount`], so that sums are exact.
    pub(super) usage: i128,
    /// Cached [`QuotaTree::potential`]; `None` after a change of quotas.
    #[cfg_attr(feature = "record", serde(skip))]
    pub(super) potential: Option<Amount>,
}

static EMPTY: Slot = Slot::empty(FlavorResource::NONE);

impl Slot {
    const fn empty(fr: FlavorResource) -> Self {
        let quota = Quota { nominal: Amount::ZERO, borrowing_limit: None, lending_limit: None };
        Self { fr, quota, declared: false, subtree: Amount::ZERO, usage: 0, potential: None }
    }

    /// For pairs without quota and usage.
    pub(super) fn none() -> &'static Self {
        &EMPTY
    }

    /// Usage above the node's quota, for declared pairs.
    pub(super) fn excess(&self) -> Option<Amount> {
        let excess = Amount::clamped(self.usage) - self.subtree;
        (self.declared && excess > Amount::ZERO).then_some(excess)
    }

    /// The quota that the lending limit withholds from the parent.
    pub(super) fn local_quota(&self) -> Amount {
        match self.quota.lending_limit {
            Some(limit) => (self.subtree - limit).max(Amount::ZERO),
            None => Amount::ZERO,
        }
    }

    /// The free part of [`Slot::local_quota`].
    pub(super) fn local_available(&self) -> Amount {
        self.local_quota().minus(self.usage).max(Amount::ZERO)
    }

    /// The usage that the parent carries. An unlimited local quota is exhausted at `i64::MAX`; the
    /// parent carries the rest.
    pub(super) fn used_in_parent(&self) -> i128 {
        (self.usage - i128::from(self.local_quota().get())).max(0)
    }
}

impl Node {
    pub(super) fn new(name: Name, kind: NodeKind) -> Self {
        Self {
            name,
            kind,
            parent: None,
            children: Vec::new(),
            cyclic: false,
            height: 0,
            weight: 1.0,
            slots: Vec::new(),
            own: Vec::new(),
            lendable: Vec::new(),
            exceeded: 0,
        }
    }

    pub(super) fn slot(&self, fr: FlavorResource) -> &Slot {
        self.slots
            .binary_search_by_key(&fr, |slot| slot.fr)
            .map_or(Slot::none(), |at| &self.slots[at])
    }

    /// Changes the usage of a pair. Returns the change that the parent carries.
    pub(super) fn shift(&mut self, fr: FlavorResource, change: i128) -> i128 {
        let slot = self.slot_mut(fr);
        let (carried, exceeded) = (slot.used_in_parent(), slot.excess().is_some());
        slot.usage += change;
        let change = slot.used_in_parent() - carried;
        match (exceeded, slot.excess().is_some()) {
            (false, true) => self.exceeded += 1,
            (true, false) => self.exceeded = self.exceeded.saturating_sub(1),
            _ => {}
        }
        change
    }

    /// Stores values derived from the tree's quotas and usage.
    pub(super) fn settle(&mut self, lendable: Vec<(ResourceId, Amount)>, potentials: &[Amount]) {
        self.lendable = lendable;
        self.exceeded = self.slots.iter().filter(|slot| slot.excess().is_some()).count();
        for (slot, potential) in self.slots.iter_mut().zip(potentials) {
            slot.potential = Some(*potential);
        }
    }

    pub(super) fn slot_mut(&mut self, fr: FlavorResource) -> &mut Slot {
        let at = match self.slots.binary_search_by_key(&fr, |slot| slot.fr) {
            Ok(at) => at,
            Err(at) => {
                self.slots.insert(at, Slot::empty(fr));
                at
            }
        };
        &mut self.slots[at]
    }

    pub(super) fn slots(&self) -> &[Slot] {
        &self.slots
    }

    /// Replaces the quotas. Usage stays, even of pairs without quota.
    pub(super) fn set_quotas(&mut self, quotas: &[(FlavorResource, Quota)]) {
        for slot in &mut self.slots {
            slot.quota = Quota::default();
            slot.declared = false;
        }
        for (fr, quota) in quotas {
            let slot = self.slot_mut(*fr);
            slot.quota = *quota;
            slot.declared = true;
        }
        self.slots.retain(|slot| slot.declared || slot.usage != 0);
        self.own = quotas.iter().map(|(fr, _)| *fr).collect();
        self.own.sort_unstable();
        self.reset_subtree();
    }

    /// Restarts the sum over the subtree.
    pub(super) fn reset_subtree(&mut self) {
        for slot in &mut self.slots {
            slot.subtree = slot.quota.nominal;
            slot.potential = None;
            slot.declared = self.own.binary_search(&slot.fr).is_ok();
        }
    }

    /// Drops the usage of the children.
    pub(super) fn reset_usage(&mut self) {
        for slot in &mut self.slots {
            slot.usage = 0;
        }
    }

    /// The amount of a resource that the node could lend without any usage.
    pub(super) fn lendable(&self, resource: ResourceId) -> Amount {
        self.lendable
            .iter()
            .find(|(known, _)| *known == resource)
            .map_or(Amount::ZERO, |(_, amount)| *amount)
    }

    pub(super) fn is_queue(&self) -> bool {
        matches!(self.kind, NodeKind::Queue { .. })
    }
}
