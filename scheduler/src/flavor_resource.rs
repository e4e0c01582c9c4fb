//! Numbers for pairs of flavor and resource, so that quota is looked up without comparing text.

use std::collections::BTreeMap;

use crate::Name;

/// A flavor and a resource.
///
/// Its order is that of first mention, so it must never decide anything: sort by names where order shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct Fr {
    pair: u32,
    resource: ResourceId,
}

/// A resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct ResourceId(u32);

impl Fr {
    /// Not one of any [`Pairs`].
    pub(crate) const NONE: Self = Self { pair: u32::MAX, resource: ResourceId(u32::MAX) };

    /// Its resource, whatever the flavor.
    pub(crate) fn resource(self) -> ResourceId {
        self.resource
    }
}

/// All pairs ever mentioned. Pairs are never forgotten: administrators name few.
#[derive(Debug, Default)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct Pairs {
    count: u32,
    resources: BTreeMap<Name, ResourceId>,
    numbers: BTreeMap<Name, BTreeMap<Name, Fr>>,
}

impl Pairs {
    /// The number of a pair, new if need be.
    pub(crate) fn intern(&mut self, flavor: &Name, resource: &Name) -> Fr {
        if let Some(fr) = self.get(flavor, resource) {
            return fr;
        }
        let next = ResourceId(u32::try_from(self.resources.len()).unwrap_or(u32::MAX));
        let fr = Fr {
            pair: self.count,
            resource: *self.resources.entry(resource.clone()).or_insert(next),
        };
        self.count += 1;
        self.numbers.entry(flavor.clone()).or_default().insert(resource.clone(), fr);
        fr
    }

    /// All resources by name.
    pub(crate) fn resources(&self) -> impl Iterator<Item = (&Name, ResourceId)> {
        self.resources.iter().map(|(name, id)| (name, *id))
    }

    /// All pairs by name.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&Name, &Name, Fr)> {
        self.numbers.iter().flat_map(|(flavor, resources)| {
            resources.iter().map(move |(name, fr)| (flavor, name, *fr))
        })
    }

    /// The number of a pair that was mentioned before.
    pub(crate) fn get(&self, flavor: &str, resource: &str) -> Option<Fr> {
        self.numbers.get(flavor)?.get(resource).copied()
    }
}
