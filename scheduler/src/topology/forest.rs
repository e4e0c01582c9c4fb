//! The trees of all flavors with a topology, kept up to date change by change.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::resources::{Amounts, Demand, Resources, bounded};
use super::tree::{Tree, joined};
use crate::{Amount, CapacityLeaf, Name, OutsidePod, ResourceFlavor, Topology, TopologyAssignment};

/// What the pods of one pod set use at one place.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct PlaceUse {
    pub(crate) flavor: Name,
    /// The leaf's id in the flavor's tree.
    pub(crate) leaf: Name,
    pub(crate) amounts: Amounts,
}

/// Capacity, what uses it, and the trees made of both.
#[derive(Debug, Default)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct Forest {
    pub(crate) resources: Resources,
    topologies: BTreeMap<Name, Topology>,
    flavors: BTreeMap<Name, ResourceFlavor>,
    /// Whether one of them has a topology.
    #[cfg_attr(feature = "record", serde(skip))]
    is_used: bool,
    leaves: BTreeMap<Name, Arc<CapacityLeaf>>,
    outside: BTreeMap<Name, OutsidePod>,
    /// What pods outside use, by the name of the [`CapacityLeaf`].
    #[cfg_attr(feature = "record", serde(skip))]
    outside_use: BTreeMap<Name, Amounts>,
    /// What workloads use, by flavor and leaf id. Also of leaves that are not there.
    #[cfg_attr(feature = "record", serde(skip))]
    used: BTreeMap<Name, BTreeMap<Name, Amounts>>,
    #[cfg_attr(feature = "record", serde(skip))]
    trees: BTreeMap<Name, Tree>,
    /// Flavors of the same hosts see each other's use (Kueue's `TASHandleOverlappingFlavors`).
    shares_hosts: bool,
    /// In a cycle: what flavors of the same hosts see only after it, as in Kueue.
    #[cfg_attr(feature = "record", serde(skip))]
    late: Option<Vec<(PlaceUse, i128)>>,
}

impl Forest {
    pub(crate) fn new(shares_hosts: bool) -> Self {
        Self { shares_hosts, ..Self::default() }
    }

    pub(crate) fn tree(&self, flavor: &str) -> Option<&Tree> {
        self.trees.get(flavor)
    }

    /// Whether a flavor has a topology, known or not.
    pub(crate) fn is_used(&self) -> bool {
        self.is_used
    }

    pub(crate) fn tolerations(&self, flavor: &str) -> &[crate::Toleration] {
        self.flavors.get(flavor).map_or(&[], |flavor| &flavor.tolerations)
    }

    /// Answers whether that is news.
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
        self.note_use();
        let shape =
            |flavor: &ResourceFlavor| (flavor.topology_name.clone(), flavor.node_labels.clone());
        if known.as_ref().map(shape) != Some(shape(flavor)) {
            self.rebuild(&flavor.name);
        }
    }

    pub(crate) fn delete_flavor(&mut self, name: &Name) {
        if self.flavors.remove(name).is_some() {
            self.note_use();
            self.rebuild(name);
        }
    }

    fn note_use(&mut self) {
        self.is_used = self.flavors.values().any(|flavor| flavor.topology_name.is_some());
    }

    /// Answers whether the leaf, as it was or as it is, belongs to some flavor, and changed.
    pub(crate) fn put_leaf(&mut self, leaf: CapacityLeaf) -> bool {
        let leaf = Arc::new(leaf);
        let known = self.leaves.get(&leaf.name).cloned();
        if known.as_ref() == Some(&leaf) {
            return false;
        }
        let mut belongs = known.is_some_and(|known| self.plant(&known, false));
        self.leaves.insert(leaf.name.clone(), leaf.clone());
        belongs |= self.plant(&leaf, true);
        belongs
    }

    /// Answers whether it belonged to some flavor.
    pub(crate) fn delete_leaf(&mut self, name: &Name) -> bool {
        let Some(leaf) = self.leaves.get(name).cloned() else { return false };
        let belonged = self.plant(&leaf, false);
        self.leaves.remove(name);
        belonged
    }

    /// Answers the flavors that may have more room now.
    pub(crate) fn put_outside(&mut self, pod: &OutsidePod) -> BTreeSet<Name> {
        let known = self.outside.insert(pod.key.clone(), pod.clone());
        self.shift_outside(pod, 1);
        let Some(known) = known else { return BTreeSet::new() };
        self.shift_outside(&known, -1);
        let less = |(name, amount): (&Name, &Amount)| {
            pod.requests.get(name).copied().unwrap_or_default() < *amount
        };
        let freed = known.leaf != pod.leaf || known.requests.iter().any(less);
        if freed { self.flavors_of(&known.leaf) } else { BTreeSet::new() }
    }

    /// Answers the flavors that have more room now.
    pub(crate) fn delete_outside(&mut self, key: &Name) -> BTreeSet<Name> {
        let Some(known) = self.outside.remove(key) else { return BTreeSet::new() };
        self.shift_outside(&known, -1);
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

    /// Adds a leaf to the trees that it belongs to, or takes it out. Answers whether there is such a tree.
    fn plant(&mut self, leaf: &Arc<CapacityLeaf>, add: bool) -> bool {
        let flavors = self.flavors_of(&leaf.name);
        let capacity = self.capacity(leaf);
        for flavor in &flavors {
            self.plant_in(flavor, leaf, &capacity, add);
        }
        !flavors.is_empty()
    }

    fn plant_in(&mut self, flavor: &Name, leaf: &Arc<CapacityLeaf>, capacity: &Amounts, add: bool) {
        let Some(mut tree) = self.trees.remove(flavor) else { return };
        if add {
            let by_host = tree.is_by_host();
            tree.add_source(leaf, capacity, |id| self.used_of(flavor, by_host, id));
        } else {
            tree.remove_source(leaf, capacity);
        }
        self.trees.insert(flavor.clone(), tree);
    }

    /// What a leaf has, less what pods outside use of it.
    fn capacity(&mut self, leaf: &CapacityLeaf) -> Amounts {
        let mut capacity = Amounts::of(&leaf.capacity, &mut self.resources);
        if let Some(outside) = self.outside_use.get(&leaf.name) {
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

    fn shift_outside(&mut self, pod: &OutsidePod, times: i128) {
        let mut amounts = Amounts::of(&pod.requests, &mut self.resources);
        amounts.add(self.resources.intern(&"pods".into()), 1);
        let sum = self.outside_use.entry(pod.leaf.clone()).or_default();
        sum.add_all(&amounts, times);
        if sum.is_zero() {
            self.outside_use.remove(&pod.leaf);
        }
        let Some(leaf) = self.leaves.get(&pod.leaf) else { return };
        for flavor in self.flavors_of(&pod.leaf) {
            if let Some(tree) = self.trees.get_mut(&flavor)
                && let Some((id, _)) = tree.place_of(&leaf.labels)
            {
                tree.shift_outside(&id, &amounts, times);
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

    /// Makes the tree of a flavor anew, when what it is made by changed. Others of the same hosts then see its use, or
    /// do not any more.
    fn rebuild(&mut self, flavor: &Name) {
        let was_by_host = self.trees.remove(flavor).is_some_and(|tree| tree.is_by_host());
        let topology = self
            .flavors
            .get(flavor)
            .and_then(|flavor| self.topologies.get(flavor.topology_name.as_ref()?));
        let tree =
            topology.map(|topology| Tree::new(topology.name.clone(), topology.levels.clone()));
        let is_by_host = tree.as_ref().is_some_and(Tree::is_by_host);
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
                self.plant_in(flavor, &leaf, &capacity, true);
            }
        }
    }

    /// What pods at these places use, in each of the flavors.
    pub(crate) fn uses(
        &mut self,
        flavors: &BTreeSet<&Name>,
        assignment: &TopologyAssignment,
        requests: &BTreeMap<Name, Amount>,
    ) -> Vec<PlaceUse> {
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
            uses.map(move |(leaf, amounts)| PlaceUse { flavor: flavor.clone(), leaf, amounts })
                .collect::<Vec<_>>()
        };
        flavors.iter().flat_map(|flavor| of_flavor(flavor)).collect()
    }

    /// What so many pods use at one place.
    pub(crate) fn use_of(
        &self,
        flavor: &Name,
        values: &[Name],
        requests: &BTreeMap<Name, Amount>,
        count: i32,
    ) -> PlaceUse {
        let mut amounts = Amounts::default();
        amounts.add_demand(&Demand::of_pod(requests, &self.resources), count);
        PlaceUse { flavor: flavor.clone(), leaf: joined(values), amounts }
    }

    /// Whether so many pods have room at a place, of which some becomes free.
    pub(crate) fn has_room(
        &self,
        place: &PlaceUse,
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

    /// Counts what a workload uses (1), or does not use any more (-1).
    pub(crate) fn charge(&mut self, place: &PlaceUse, sign: i128) {
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

    /// As [`Forest::charge`], to be taken back. Flavors of the same hosts do not see it, as in Kueue.
    pub(crate) fn simulate(&mut self, place: &PlaceUse, sign: i128) {
        if let Some(tree) = self.trees.get_mut(&place.flavor) {
            tree.shift_used(&place.leaf, &place.amounts, sign);
        }
    }

    fn charge_siblings(&mut self, place: &PlaceUse, sign: i128) {
        if !self.shares_hosts || !self.trees.get(&place.flavor).is_some_and(Tree::is_by_host) {
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

    /// Until [`Forest::end_cycle`], flavors see only what they are charged themselves.
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
    /// Makes what was left out of a recording. What workloads use is charged by the caller after it.
    pub(crate) fn complete(&mut self) {
        self.note_use();
        let pods: Vec<_> = self.outside.values().cloned().collect();
        for pod in pods {
            self.shift_outside(&pod, 1);
        }
        let flavors: Vec<_> = self.flavors.keys().cloned().collect();
        for flavor in flavors {
            self.rebuild(&flavor);
        }
    }
}
