//! Numbers for pairs of flavor and resource, so that quota is looked up without comparing text.

use std::collections::BTreeMap;

use crate::Name;

/// A flavor and a resource.
///
/// Its order is that of first mention, so it must never decide anything: sort by names where order shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Fr(u32);

/// All pairs ever mentioned. Pairs are never forgotten: administrators name few.
#[derive(Debug, Default)]
pub(crate) struct Pairs {
    names: Vec<(Name, Name)>,
    numbers: BTreeMap<Name, BTreeMap<Name, Fr>>,
}

impl Pairs {
    /// The number of a pair, new if need be.
    pub(crate) fn intern(&mut self, flavor: &Name, resource: &Name) -> Fr {
        if let Some(fr) = self.get(flavor, resource) {
            return fr;
        }
        let fr = Fr(u32::try_from(self.names.len()).unwrap_or(u32::MAX));
        self.names.push((flavor.clone(), resource.clone()));
        self.numbers.entry(flavor.clone()).or_default().insert(resource.clone(), fr);
        fr
    }

    /// The number of a pair that was mentioned before.
    pub(crate) fn get(&self, flavor: &str, resource: &str) -> Option<Fr> {
        self.numbers.get(flavor)?.get(resource).copied()
    }
}
