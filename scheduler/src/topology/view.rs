//! Free and used capacity of a flavor's domains, for users and metrics. Computed on demand.

use std::collections::{BTreeMap, BTreeSet};

use super::resources::{Amounts, Resources};
use super::tree::{DomainId, Leaf, TopologyTree};
use crate::{Amount, Name};

/// The domains of one flavor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopologyView {
    pub topology: Name,
    /// Label keys, highest level first.
    pub levels: Vec<Name>,
    /// Each domain before its children; siblings by label value.
    pub domains: Vec<DomainView>,
}

/// A domain with its capacity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DomainView {
    /// Index of the level.
    pub level: usize,
    /// Label values, highest level first.
    pub values: Vec<Name>,
    /// By resource. Resources that the domain lacks are missing.
    pub amounts: BTreeMap<Name, DomainAmounts>,
}

/// Amounts of one resource in one domain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DomainAmounts {
    /// Allocatable amount of its leaves.
    pub allocatable: Amount,
    /// Used by pods outside topology-aware scheduling.
    pub others: Amount,
    /// Used by workloads.
    pub workloads: Amount,
    /// Free on its leaves. An overcommitted leaf counts as full.
    pub free: Amount,
}

/// The free amount of one resource in the domain of one level that has the most of it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LargestFreeDomain {
    pub flavor: Name,
    /// Label key.
    pub level: Name,
    pub resource: Name,
    pub free: Amount,
    /// Free in all domains of the level.
    pub total: Amount,
}

/// Exact sums of [`DomainAmounts`].
#[derive(Clone, Copy, Default)]
struct Sums {
    allocatable: i128,
    capacity: i128,
    used: i128,
    free: i128,
}

impl Sums {
    fn of(leaf: &Leaf, allocatable: &Amounts, number: usize) -> Self {
        Self {
            allocatable: allocatable.get(number),
            capacity: leaf.capacity.get(number),
            used: leaf.used.get(number),
            free: unused(leaf, number),
        }
    }

    fn add(&mut self, other: Self) {
        self.allocatable += other.allocatable;
        self.capacity += other.capacity;
        self.used += other.used;
        self.free += other.free;
    }

    fn amounts(self) -> DomainAmounts {
        let amount = Amount::clamped;
        DomainAmounts {
            allocatable: amount(self.allocatable),
            others: amount(self.allocatable - self.capacity),
            workloads: amount(self.used),
            free: amount(self.free),
        }
    }
}

impl TopologyTree {
    /// All domains with their amounts of these resources.
    pub(crate) fn view(&self, wanted: &BTreeSet<Name>, resources: &Resources) -> TopologyView {
        let numbers: Vec<(&Name, usize)> =
            wanted.iter().filter_map(|name| Some((name, resources.number(name)?))).collect();
        let mut domains = Vec::new();
        for root in self.at_level(0) {
            self.view_below(root, &numbers, resources, &mut domains);
        }
        TopologyView { topology: self.topology.clone(), levels: self.levels.clone(), domains }
    }

    fn view_below(
        &self,
        id: DomainId,
        numbers: &[(&Name, usize)],
        resources: &Resources,
        domains: &mut Vec<DomainView>,
    ) -> Vec<Sums> {
        let mut sums = vec![Sums::default(); numbers.len()];
        let Some(domain) = self.domain(id) else { return sums };
        let at = domains.len();
        let values = domain.path.to_vec();
        domains.push(DomainView { level: domain.level, values, amounts: BTreeMap::new() });
        if let Some(leaf) = domain.leaf.as_deref() {
            let allocatable = allocatable(leaf, resources);
            for (sum, (_, number)) in sums.iter_mut().zip(numbers) {
                sum.add(Sums::of(leaf, &allocatable, *number));
            }
        }
        for child in &domain.children {
            let below = self.view_below(*child, numbers, resources, domains);
            sums.iter_mut().zip(below).for_each(|(sum, below)| sum.add(below));
        }
        if let Some(domain) = domains.get_mut(at) {
            let known = numbers.iter().zip(&sums).filter(|(_, sum)| sum.allocatable != 0);
            domain.amounts =
                known.map(|((name, _), sum)| ((*name).clone(), sum.amounts())).collect();
        }
        sums
    }

    /// The free amounts of these resources in the domain of each level that has the most.
    pub(crate) fn largest_free(
        &self,
        flavor: &Name,
        wanted: &BTreeSet<Name>,
        resources: &Resources,
    ) -> Vec<LargestFreeDomain> {
        let mut all = Vec::new();
        for resource in wanted {
            let Some(number) = resources.number(resource) else { continue };
            let mut free = vec![0_i128; self.size()];
            for (id, leaf) in self.leaves() {
                let of_leaf = unused(leaf, number);
                let mut at = Some(id);
                while let Some((id, domain)) = at.and_then(|id| Some((id, self.domain(id)?))) {
                    if let Some(sum) = free.get_mut(id.index()) {
                        *sum += of_leaf;
                    }
                    at = domain.parent;
                }
            }
            for (level, key) in self.levels.iter().enumerate() {
                let of_level = || {
                    let ids = self.at_level(level);
                    ids.map(|id| free.get(id.index()).copied().unwrap_or_default())
                };
                all.push(LargestFreeDomain {
                    flavor: flavor.clone(),
                    level: key.clone(),
                    resource: resource.clone(),
                    free: Amount::clamped(of_level().max().unwrap_or_default()),
                    total: Amount::clamped(of_level().sum()),
                });
            }
        }
        all
    }
}

/// The free amount of a leaf. An overcommitted leaf has none.
fn unused(leaf: &Leaf, number: usize) -> i128 {
    i128::from(leaf.free(number, false).max(0))
}

/// The amounts of a leaf's sources, without any usage.
pub(super) fn allocatable(leaf: &Leaf, resources: &Resources) -> Amounts {
    let mut sums = Amounts::default();
    for (name, amount) in leaf.sources.values().flat_map(|source| &source.capacity) {
        if let Some(number) = resources.number(name) {
            sums.add(number, i128::from(amount.get()));
        }
    }
    sums
}
