//! Amounts by flavor and resource.

use std::collections::BTreeMap;

use switchyard_api::quantity::format_shortest;

/// A flavor and a resource. The flavor is empty in sums over all flavors.
pub(crate) type Pair = (String, String);

/// In the units of quota: thousandths for cpu, whole units for all other resources.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Amounts(BTreeMap<Pair, i64>);

impl Amounts {
    pub(crate) fn add(&mut self, flavor: &str, resource: &str, amount: i64) {
        let sum = self.0.entry((flavor.to_owned(), resource.to_owned())).or_default();
        *sum = sum.saturating_add(amount);
    }

    pub(crate) fn add_all(&mut self, other: &Self) {
        for ((flavor, resource), amount) in &other.0 {
            self.add(flavor, resource, *amount);
        }
    }

    /// Zero for a missing pair.
    pub(crate) fn get(&self, pair: &Pair) -> i64 {
        self.0.get(pair).copied().unwrap_or(0)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Pair, i64)> {
        self.0.iter().map(|(pair, amount)| (pair, *amount))
    }

    /// The sum of each resource over all flavors.
    pub(crate) fn over_flavors(&self) -> Self {
        let mut sums = Self::default();
        for ((_, resource), amount) in &self.0 {
            sums.add("", resource, *amount);
        }
        sums
    }
}

/// An amount for a message, such as `8100m cpu of flavor default`.
pub(crate) fn text((flavor, resource): &Pair, amount: i64) -> String {
    let amount = format_shortest(resource, amount);
    if flavor.is_empty() {
        format!("{amount} {resource}")
    } else {
        format!("{amount} {resource} of flavor {flavor}")
    }
}
