//! The topology trees of all flavors, updated event by event. Kueue:
//! `pkg/cache/scheduler/tas_cache.go`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::resources::{Amounts, Demand, Resources, bounded};
use super::tree::{TopologyTree, joined};
use crate::{Amount, CapacityLeaf, Name, NonTasPod, ResourceFlavor, Topology, TopologyAssignment};

/// Usage of the pods of one pod set in one domain.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct DomainUsage {
    pub(crate) flavor: Name,
    /// The leaf's id in the flavor's tree.
    pub(crate) leaf: Name,
    pub(crate) amounts: Amounts,
}

impl DomainUsage {
    /// Whether it is usage of the same domain, of at least the other's amounts.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        (&self.flavor, &self.leaf) == (&other.flavor, &other.leaf)
            && self.amounts.covers(&other.amounts)
    }
}

/// Capacity, usage and the trees that combine them.
#[derive(Debug, Default)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct Forest {
    pub(crate) resources: Resources,
    topologies: BTreeMap<Name, Topology>,
    flavors: BTreeMap<Name, ResourceFlavor>,
    /// Whether a flavor has a topology.
    #[cfg_attr(feature = "record", serde(skip))]
    is_used: bool,
    leaves: BTreeMap<Name, Arc<CapacityLeaf>>,
    outside: BTreeMap<Name, NonTasPod>,
    /// By the name of the [`CapacityLeaf`].
    #[cfg_attr(feature = "record", serde(skip))]
    non_tas_usage: BTreeMap<Name, Amounts>,
    /// Usage of workloads by flavor and leaf id. Includes leaves that do not exist.
    #[cfg_attr(feature = "record", serde(skip))]
    used: BTreeMap<Name, BTreeMap<Name, Amounts>>,
    #[cfg_attr(feature = "record", serde(skip))]
    trees: BTreeMap<Name, TopologyTree>,
    /// Kueue's gate `TASHandleOverlappingFlavors`: flavors of the same hosts see each other's
    /// usage.
    shares_hosts: bool,
    /// Set during a cycle: changes that other flavors of the same hosts see only after the cycle,
    /// as in Kueue.
    #[cfg_attr(feature = "record", serde(skip))]
    late: Option<Vec<(DomainUsage, i128)>>,
}

impl Forest {
    pub(crate) fn new(shares_hosts: bool) -> Self {
        Self { shares_hosts, ..Self::default() }
    }

    pub(crate) fn tree(&self, flavor: &str) -> Option<&TopologyTree> {
        self.trees.get(flavor)
    }

    /// Whether a flavor has a topology, even an unknown one.
    pub(crate) fn is_used(&self) -> bool {
        self.is_used
    }

    pub(crate) fn tolerations(&self, flavor: &str) -> &[crate::Toleration] {
        self.flavors.get(flavor).map_or(&[], |flavor| &flavor.tolerations)
    }

    /// Returns true on a change.
    pub(crate) fn put_topology(&mut self, topology: Topology) -> bool {
        if self.topologies.get(&topology.name) == Some(&topology) {
            return false;
        }
        let name = topology.name.clone();
        self.topologies.insert(name.clone(), topology);
        self.rebuild_all(&name);
        true
    }

    pub(crate) fn delete_topology(&mut self, name: &Name) {
        if self.topologies.remove(name).is_some() {
            self.rebuild_all(name);
        }
    }

    pub(crate) fn put_flavor(&mut self, flavor: &ResourceFlavor) {
        let known = self.flavors.insert(flavor.name.clone(), flavor.clone());
        self.update_is_used();
        let shape =
            |flavor: &ResourceFlavor| (flavor.topology_name.clone(), flavor.node_labels.clone());
        if known.as_ref().map(shape) != Some(shape(flavor)) {
            self.rebuild(&flavor.name);
        }
    }

    pub(crate) fn delete_flavor(&mut self, name: &Name) {
        if self.flavors.remove(name).is_some() {
            self.update_is_used();
            self.rebuild(name);
        }
    }

    fn update_is_used(&mut self) {
        self.is_used = self.flavors.values().any(|flavor| flavor.topology_name.is_some());
    }

    /// Returns true if the leaf changed and belongs to a flavor, before or after the change.
    pub(crate) fn put_leaf(&mut self, leaf: CapacityLeaf) -> bool {
        let leaf = Arc::new(leaf);
        let known = self.leaves.get(&leaf.name).cloned();
        if known.as_ref() == Some(&leaf) {
            return false;
        }
        let mut belongs = known.is_some_and(|known| self.set_leaf(&known, false));
        self.leaves.insert(leaf.name.clone(), leaf.clone());
        belongs |= self.set_leaf(&leaf, true);
        belongs
    }

    /// Returns true if the leaf belonged to a flavor.
    pub(crate) fn delete_leaf(&mut self, name: &Name) -> bool {
        let Some(leaf) = self.leaves.get(name).cloned() else { return false };
        let belonged = self.set_leaf(&leaf, false);
        self.leaves.remove(name);
        belonged
    }

    /// Returns the flavors that may have more free capacity now.
    pub(crate) fn put_non_tas_pod(&mut self, pod: &NonTasPod) -> BTreeSet<Name> {
        let known = self.outside.insert(pod.key.clone(), pod.clone());
        self.shift_non_tas_usage(pod, 1);
        let Some(known) = known else { return BTreeSet::new() };
        self.shift_non_tas_usage(&known, -1);
        let less = |(name, amount): (&Name, &Amount)| {
            pod.requests.get(name).copied().unwrap_or_default() < *amount
        };
        let freed = known.leaf != pod.leaf || known.requests.iter().any(less);
        if freed { self.flavors_of(&known.leaf) } else { BTreeSet::new() }
    }

    /// Returns the flavors that have more free capacity now.
    pub(crate) fn delete_non_tas_pod(&mut self, key: &Name) -> BTreeSet<Name> {
        let Some(known) = self.outside.remove(key) else { return BTreeSet::new() };
        self.shift_non_tas_usage(&known, -1);
        self.flavors_of(&known.leaf)
    }

    fn flavors_of(&self, leaf: &Name) -> BTreeSet<Name> {
        let Some(leaf) = self.leaves.get(leaf) else { return BTreeSet::new() };
        self.flavors
            .values()
            .filter(|flavor| self.has(flavor, leaf))
            .map(|flavor| flavor.name.clone())
            .collect()
    }

    fn has(&self, flavor: &ResourceFlavor, leaf: &CapacityLeaf) -> bool {
        self.trees.get(&flavor.name).is_some_and(|tree| tree.place_of(&leaf.labels).is_some())
            && flavor.node_labels.iter().all(|(key, value)| leaf.labels.get(key) == Some(value))
    }

    /// Adds a leaf to the trees of its flavors, or removes it. Returns true if it has a tree.
    fn set_leaf(&mut self, leaf: &Arc<CapacityLeaf>, add: bool) -> bool {
        let flavors = self.flavors_of(&leaf.name);
        let capacity = self.capacity(leaf);
        for flavor in &flavors {
            self.set_leaf_in(flavor, leaf, &capacity, add);
        }
        !flavors.is_empty()
    }

    fn set_leaf_in(
        &mut self,
        flavor: &Name,
        leaf: &Arc<CapacityLeaf>,
        capacity: &Amounts,
        add: bool,
    ) {
        let Some(mut tree) = self.trees.remove(flavor) else { return };
        if add {
            let by_host = tree.is_by_host();
            tree.add_source(leaf, capacity, |id| self.used_of(flavor, by_host, id));
        } else {
            tree.remove_source(leaf, capacity);
        }
        self.trees.insert(flavor.clone(), tree);
    }

    /// The capacity of a leaf without the usage of pods outside topology-aware scheduling.
    fn capacity(&mut self, leaf: &CapacityLeaf) -> Amounts {
        let mut capacity = Amounts::of(&leaf.capacity, &mut self.resources);
        if let Some(outside) = self.non_tas_usage.get(&leaf.name) {
            capacity.add_all(outside, -1);
        }
        capacity
    }

    fn used_of(&self, flavor: &Name, by_host: bool, id: &str) -> Amounts {
        let of = |flavor: &Name| self.used.get(flavor).and_then(|leaves| leaves.get(id));
        let mut sum = of(flavor).cloned().unwrap_or_default();
        if by_host && self.shares_hosts {
            let others =
                self.trees.iter().filter(|(name, tree)| *name != flavor && tree.is_by_host());
            for amounts in others.filter_map(|(name, _)| of(name)) {
                sum.add_all(amounts, 1);
            }
        }
        sum
    }

    fn shift_non_tas_usage(&mut self, pod: &NonTasPod, times: i128) {
        let mut amounts = Amounts::of(&pod.requests, &mut self.resources);
        amounts.add(self.resources.intern(&"pods".into()), 1);
        let sum = self.non_tas_usage.entry(pod.leaf.clone()).or_default();
        sum.add_all(&amounts, times);
        if sum.is_zero() {
            self.non_tas_usage.remove(&pod.leaf);
        }
        let Some(leaf) = self.leaves.get(&pod.leaf) else { return };
        for flavor in self.flavors_of(&pod.leaf) {
            if let Some(tree) = self.trees.get_mut(&flavor)
                && let Some((id, _)) = tree.place_of(&leaf.labels)
            {
                tree.shift_non_tas_usage(&id, &amounts, times);
            }
        }
    }

    fn rebuild_all(&mut self, topology: &Name) {
        let all =
            self.flavors.values().filter(|flavor| flavor.topology_name.as_ref() == Some(topology));
        let names: Vec<_> = all.map(|flavor| flavor.name.clone()).collect();
        for name in names {
            self.rebuild(&name);
        }
    }

    /// Rebuilds the tree of a flavor. Other flavors of the same hosts start or stop seeing its
    /// usage.
    fn rebuild(&mut self, flavor: &Name) {
        let was_by_host = self.trees.remove(flavor).is_some_and(|tree| tree.is_by_host());
        let topology = self
            .flavors
            .get(flavor)
            .and_then(|flavor| self.topologies.get(flavor.topology_name.as_ref()?));
        let tree = topology
            .map(|topology| TopologyTree::new(topology.name.clone(), topology.levels.clone()));
        let is_by_host = tree.as_ref().is_some_and(TopologyTree::is_by_host);
        if self.shares_hosts && was_by_host != is_by_host {
            let sign = if is_by_host { 1 } else { -1 };
            let used = self.used.get(flavor).into_iter().flatten();
            for (leaf, amounts) in used {
                for tree in self.trees.values_mut().filter(|tree| tree.is_by_host()) {
                    tree.shift_used(leaf, amounts, sign);
                }
            }
        }
        let Some(tree) = tree else { return };
        self.trees.insert(flavor.clone(), tree);
        let leaves: Vec<_> = self.leaves.values().cloned().collect();
        for leaf in leaves {
            if self.flavors.get(flavor).is_some_and(|flavor| self.has(flavor, &leaf)) {
                let capacity = self.capacity(&leaf);
                self.set_leaf_in(flavor, &leaf, &capacity, true);
            }
        }
    }

    /// The usage of pods in these domains, for each flavor.
    pub(crate) fn uses(
        &mut self,
        flavors: &BTreeSet<&Name>,
        assignment: &TopologyAssignment,
        requests: &BTreeMap<Name, Amount>,
    ) -> Vec<DomainUsage> {
        for name in requests.keys() {
            self.resources.intern(name);
        }
        self.resources.intern(&"pods".into());
        let demand = Demand::of_pod(requests, &self.resources);
        let at = |domain: &crate::AssignedDomain| {
            let mut amounts = Amounts::default();
            amounts.add_demand(&demand, domain.count.max(0));
            (joined(&domain.values), amounts)
        };
        let places: Vec<_> = assignment.domains.iter().map(at).collect();
        let of_flavor = |flavor: &Name| {
            let flavor = flavor.clone();
            let uses = places.iter().cloned();
            uses.map(move |(leaf, amounts)| DomainUsage { flavor: flavor.clone(), leaf, amounts })
                .collect::<Vec<_>>()
        };
        flavors.iter().flat_map(|flavor| of_flavor(flavor)).collect()
    }

    /// The usage of `count` pods in one domain.
    pub(crate) fn use_of(
        &self,
        flavor: &Name,
        values: &[Name],
        requests: &BTreeMap<Name, Amount>,
        count: i32,
    ) -> DomainUsage {
        let mut amounts = Amounts::default();
        amounts.add_demand(&Demand::of_pod(requests, &self.resources), count);
        DomainUsage { flavor: flavor.clone(), leaf: joined(values), amounts }
    }

    /// Whether `count` pods fit in a domain once `freed` is free.
    pub(crate) fn has_capacity(
        &self,
        place: &DomainUsage,
        demand: &Demand,
        count: i32,
        freed: Option<&Amounts>,
    ) -> bool {
        let leaf = self.trees.get(&place.flavor).and_then(|tree| tree.leaf(&place.leaf));
        leaf.is_some_and(|leaf| {
            let free = |number: usize| {
                let freed = freed.map_or(0, |freed| bounded(freed.get(number)));
                leaf.free(number, false).saturating_add(freed)
            };
            demand.count_in(free).0 >= count
        })
    }

    /// Adds the usage of a workload (1) or removes it (-1).
    pub(crate) fn charge(&mut self, place: &DomainUsage, sign: i128) {
        let leaves = self.used.entry(place.flavor.clone()).or_default();
        let sum = leaves.entry(place.leaf.clone()).or_default();
        sum.add_all(&place.amounts, sign);
        if sum.is_zero() {
            leaves.remove(&place.leaf);
        }
        self.simulate(place, sign);
        match &mut self.late {
            Some(late) => late.push((place.clone(), sign)),
            None => self.charge_siblings(place, sign),
        }
    }

    /// As [`Forest::charge`], for simulations. Other flavors of the same hosts do not see it, as in
    /// Kueue.
    pub(crate) fn simulate(&mut self, place: &DomainUsage, sign: i128) {
        if let Some(tree) = self.trees.get_mut(&place.flavor) {
            tree.shift_used(&place.leaf, &place.amounts, sign);
        }
    }

    fn charge_siblings(&mut self, place: &DomainUsage, sign: i128) {
        if !self.shares_hosts
            || !self.trees.get(&place.flavor).is_some_and(TopologyTree::is_by_host)
        {
            return;
        }
        let others = self
            .trees
            .iter_mut()
            .filter(|(name, tree)| **name != place.flavor && tree.is_by_host());
        for (_, tree) in others {
            tree.shift_used(&place.leaf, &place.amounts, sign);
        }
    }

    /// Until [`Forest::end_cycle`], flavors see only their own charges.
    pub(crate) fn begin_cycle(&mut self) {
        self.late.get_or_insert_default();
    }

    pub(crate) fn end_cycle(&mut self) {
        for (place, sign) in self.late.take().unwrap_or_default() {
            self.charge_siblings(&place, sign);
        }
    }
}

#[cfg(feature = "record")]
impl Forest {
    /// Restores derived state that a recording leaves out. The caller charges the usage of
    /// workloads afterwards.
    pub(crate) fn restore_derived_state(&mut self) {
        self.update_is_used();
        let pods: Vec<_> = self.outside.values().cloned().collect();
        for pod in pods {
            self.shift_non_tas_usage(&pod, 1);
        }
        let flavors: Vec<_> = self.flavors.keys().cloned().collect();
        for flavor in flavors {
            self.rebuild(&flavor);
        }
    }
}
