//! One node of the quota tree.

use crate::flavor_resource::{Fr, ResourceId};
use crate::{Amount, Name, Quota};

/// A node's place in the tree's memory. Reused after the node is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct NodeId(pub(super) u32);

/// A ClusterQueue or a Cohort.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct Node {
    pub(crate) name: Name,
    pub(super) kind: Kind,
    pub(super) parent: Option<NodeId>,
    /// By kind and name, so that walks do not depend on the order of events.
    pub(super) children: Vec<NodeId>,
    /// The walk to the root does not end: this node lends and borrows nothing.
    pub(super) cyclic: bool,
    /// Levels of active queues below: 0 for a ClusterQueue and for a Cohort without any.
    pub(super) height: usize,
    /// In fair sharing.
    pub(super) weight: f64,
    /// In the order of `Fr`.
    slots: Vec<Slot>,
    /// The pairs that the node itself states a quota for, in order.
    own: Vec<Fr>,
    /// Of a Cohort: what it could lend if nobody used anything, by resource. Follows from the quotas.
    #[cfg_attr(feature = "record", serde(skip))]
    pub(super) lendable: Vec<(ResourceId, Amount)>,
    /// Of how many pairs it uses more than it has.
    #[cfg_attr(feature = "record", serde(skip))]
    pub(super) exceeded: usize,
}

/// What a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub(super) enum Kind {
    /// A Cohort; explicit if there is an object of it.
    Cohort { explicit: bool },
    /// A ClusterQueue; inactive ones do not count for heights.
    Queue { active: bool },
}

/// One resource on one flavor at one node.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub(super) struct Slot {
    pub(super) fr: Fr,
    pub(super) quota: Quota,
    /// The node, or one below, states a quota for it, even if of nothing.
    pub(super) declared: bool,
    /// The own quota and what the children lend.
    pub(super) subtree: Amount,
    /// A ClusterQueue's own usage; for a Cohort what its children use beyond what they keep to themselves.
    /// Wider than any amount, so that sums are exact.
    pub(super) usage: i128,
    /// What could be used here if nobody used anything, if it was worked out since quotas changed.
    #[cfg_attr(feature = "record", serde(skip))]
    pub(super) potential: Option<Amount>,
}

static EMPTY: Slot = Slot::empty(Fr::NONE);

impl Slot {
    const fn empty(fr: Fr) -> Self {
        let quota = Quota { nominal: Amount::ZERO, borrowing_limit: None, lending_limit: None };
        Self { fr, quota, declared: false, subtree: Amount::ZERO, usage: 0, potential: None }
    }

    /// What there is of a pair that nothing is known of.
    pub(super) fn none() -> &'static Self {
        &EMPTY
    }

    /// How much more than it has the node uses, of a pair that counts.
    pub(super) fn excess(&self) -> Option<Amount> {
        let excess = Amount::clamped(self.usage) - self.subtree;
        (self.declared && excess > Amount::ZERO).then_some(excess)
    }

    /// What the parent never sees because of the lending limit.
    pub(super) fn local_quota(&self) -> Amount {
        match self.quota.lending_limit {
            Some(limit) => (self.subtree - limit).max(Amount::ZERO),
            None => Amount::ZERO,
        }
    }

    /// How much of [`Slot::local_quota`] is free.
    pub(super) fn local_available(&self) -> Amount {
        self.local_quota().less(self.usage).max(Amount::ZERO)
    }

    /// How much of the usage the parent has to carry: of an unlimited quota what is more than can be counted, as then
    /// nothing of it is left.
    pub(super) fn used_in_parent(&self) -> i128 {
        (self.usage - i128::from(self.local_quota().get())).max(0)
    }
}

impl Node {
    pub(super) fn new(name: Name, kind: Kind) -> Self {
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

    pub(super) fn slot(&self, fr: Fr) -> &Slot {
        self.slots
            .binary_search_by_key(&fr, |slot| slot.fr)
            .map_or(Slot::none(), |at| &self.slots[at])
    }

    /// Changes the usage of a pair. How much of the change the parent has to carry.
    pub(super) fn shift(&mut self, fr: Fr, change: i128) -> i128 {
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

    /// Takes over what follows from the quotas of the tree and the usage.
    pub(super) fn settle(&mut self, lendable: Vec<(ResourceId, Amount)>, potentials: &[Amount]) {
        self.lendable = lendable;
        self.exceeded = self.slots.iter().filter(|slot| slot.excess().is_some()).count();
        for (slot, potential) in self.slots.iter_mut().zip(potentials) {
            slot.potential = Some(*potential);
        }
    }

    pub(super) fn slot_mut(&mut self, fr: Fr) -> &mut Slot {
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

    /// Replaces the quotas. Usage stays, also of pairs that have no quota any more.
    pub(super) fn set_quotas(&mut self, quotas: &[(Fr, Quota)]) {
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

    /// Starts the sum over the subtree anew.
    pub(super) fn reset_subtree(&mut self) {
        for slot in &mut self.slots {
            slot.subtree = slot.quota.nominal;
            slot.potential = None;
            slot.declared = self.own.binary_search(&slot.fr).is_ok();
        }
    }

    /// Forgets the usage that children brought.
    pub(super) fn reset_usage(&mut self) {
        for slot in &mut self.slots {
            slot.usage = 0;
        }
    }

    /// What the node could lend of a resource if nobody used anything.
    pub(super) fn lendable(&self, resource: ResourceId) -> Amount {
        self.lendable
            .iter()
            .find(|(known, _)| *known == resource)
            .map_or(Amount::ZERO, |(_, amount)| *amount)
    }

    pub(super) fn is_queue(&self) -> bool {
        matches!(self.kind, Kind::Queue { .. })
    }
}
