//! Numbers for (flavor, resource) pairs, so that quota lookups compare no text.

use std::collections::BTreeMap;

use crate::Name;

/// A resource of one flavor. Kueue names the same pair `FlavorResource` (variables: `fr`).
///
/// Values order by first mention. A decision must not depend on that order: sort by
/// names wherever order is visible.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct FlavorResource {
    pair: u32,
    resource: ResourceId,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct ResourceId(u32);

impl FlavorResource {
    /// Belongs to no [`FlavorResources`].
    pub(crate) const NONE: Self = Self { pair: u32::MAX, resource: ResourceId(u32::MAX) };

    pub(crate) fn resource(self) -> ResourceId {
        self.resource
    }
}

/// All pairs that were ever named. Pairs are never removed, because administrators name few.
#[derive(Debug, Default)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct FlavorResources {
    count: u32,
    resources: BTreeMap<Name, ResourceId>,
    numbers: BTreeMap<Name, BTreeMap<Name, FlavorResource>>,
}

impl FlavorResources {
    /// The number of the pair; a new one on first mention.
    pub(crate) fn intern(&mut self, flavor: &Name, resource: &Name) -> FlavorResource {
        if let Some(fr) = self.get(flavor, resource) {
            return fr;
        }
        let next = ResourceId(u32::try_from(self.resources.len()).unwrap_or(u32::MAX));
        let fr = FlavorResource {
            pair: self.count,
            resource: *self.resources.entry(resource.clone()).or_insert(next),
        };
        self.count += 1;
        self.numbers.entry(flavor.clone()).or_default().insert(resource.clone(), fr);
        fr
    }

    /// In order of names.
    pub(crate) fn resources(&self) -> impl Iterator<Item = (&Name, ResourceId)> {
        self.resources.iter().map(|(name, id)| (name, *id))
    }

    /// In order of names.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&Name, &Name, FlavorResource)> {
        self.numbers.iter().flat_map(|(flavor, resources)| {
            resources.iter().map(move |(name, fr)| (flavor, name, *fr))
        })
    }

    /// The number of a pair that was named before.
    pub(crate) fn get(&self, flavor: &str, resource: &str) -> Option<FlavorResource> {
        self.numbers.get(flavor)?.get(resource).copied()
    }
}
