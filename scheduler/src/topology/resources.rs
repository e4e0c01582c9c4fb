//! Dense amounts by resource. A resource is a small integer, the same in all trees.

use std::collections::BTreeMap;

use crate::{Amount, Name};

/// Placement counts this resource for each pod besides its requests.
const PODS: &str = "pods";

/// Resources are never removed, because a fleet names few.
#[derive(Debug, Default)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct Resources {
    numbers: BTreeMap<Name, usize>,
}

impl Resources {
    pub(super) fn intern(&mut self, name: &Name) -> usize {
        let next = self.numbers.len();
        *self.numbers.entry(name.clone()).or_insert(next)
    }

    pub(super) fn number(&self, name: &str) -> Option<usize> {
        self.numbers.get(name).copied()
    }
}

/// The requests of one pod. Sorted by name: of equally scarce resources, the first one is reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Demand(Vec<ResourceDemand>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct ResourceDemand {
    name: Name,
    /// `None` if no leaf ever had this resource.
    number: Option<usize>,
    amount: i64,
}

impl Demand {
    /// With one of resource `pods`.
    pub(crate) fn of_pod(requests: &BTreeMap<Name, Amount>, resources: &Resources) -> Self {
        let mut requests = requests.clone();
        let pods = requests.entry(PODS.into()).or_default();
        *pods = *pods + Amount::new(1);
        Self::of(&requests, resources)
    }

    /// Negative requests count as zero.
    pub(crate) fn of(requests: &BTreeMap<Name, Amount>, resources: &Resources) -> Self {
        let parts = requests.iter().map(|(name, amount)| ResourceDemand {
            name: name.clone(),
            number: resources.number(name),
            amount: amount.get().max(0),
        });
        Self(parts.collect())
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &Name> {
        self.0.iter().map(|part| &part.name)
    }

    pub(super) fn name(&self, position: usize) -> Option<&Name> {
        self.0.get(position).map(|part| &part.name)
    }

    /// How many such pods fit into the free amounts, and the position of the limiting resource.
    pub(super) fn count_in(&self, free: impl Fn(usize) -> i64) -> (i32, Option<usize>) {
        let mut least = (i32::MAX, None);
        for (position, part) in self.0.iter().enumerate() {
            let free = part.number.map_or(0, &free);
            let count = match part.amount {
                _ if free < 0 => 0,
                0 => i32::MAX,
                amount => i32::try_from(free / amount).unwrap_or(i32::MAX),
            };
            if least.1.is_none() || count < least.0 {
                least = (count, Some(position));
            }
        }
        least
    }

    fn amount(&self, number: usize) -> i64 {
        self.0.iter().filter(|part| part.number == Some(number)).map(|part| part.amount).sum()
    }

    /// The free amounts after one such pod.
    pub(super) fn taken_from<'a>(
        &'a self,
        free: impl Fn(usize) -> i64 + 'a,
    ) -> impl Fn(usize) -> i64 + 'a {
        move |number| free(number).saturating_sub(self.amount(number))
    }
}

/// Amounts by resource. Exact, so that removing an added amount leaves no trace.
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct Amounts(Vec<i128>);

impl Amounts {
    pub(crate) fn get(&self, number: usize) -> i128 {
        self.0.get(number).copied().unwrap_or(0)
    }

    pub(super) fn covers(&self, other: &Self) -> bool {
        other.0.iter().enumerate().all(|(number, amount)| self.get(number) >= *amount)
    }

    pub(super) fn add(&mut self, number: usize, amount: i128) {
        if number >= self.0.len() {
            self.0.resize(number + 1, 0);
        }
        if let Some(sum) = self.0.get_mut(number) {
            *sum += amount;
        }
    }

    /// Adds an amount `times` over.
    pub(crate) fn add_all(&mut self, other: &Self, times: i128) {
        for (number, amount) in other.0.iter().enumerate() {
            if *amount != 0 {
                self.add(number, amount * times);
            }
        }
    }

    /// Adds the requests of one pod `times` over. Skips resources that no tree has.
    pub(super) fn add_demand(&mut self, demand: &Demand, times: i32) {
        for part in &demand.0 {
            if let Some(number) = part.number {
                self.add(number, i128::from(part.amount) * i128::from(times));
            }
        }
    }

    pub(super) fn is_zero(&self) -> bool {
        self.0.iter().all(|amount| *amount == 0)
    }

    pub(super) fn of(amounts: &BTreeMap<Name, Amount>, resources: &mut Resources) -> Self {
        let mut sums = Self::default();
        for (name, amount) in amounts {
            sums.add(resources.intern(name), i128::from(amount.get()));
        }
        sums
    }
}

impl PartialEq for Amounts {
    fn eq(&self, other: &Self) -> bool {
        let length = self.0.len().max(other.0.len());
        (0..length).all(|number| self.get(number) == other.get(number))
    }
}

/// Clamps to the range in which pods are counted.
pub(super) fn bounded(exact: i128) -> i64 {
    i64::try_from(exact).unwrap_or(if exact < 0 { i64::MIN } else { i64::MAX })
}
