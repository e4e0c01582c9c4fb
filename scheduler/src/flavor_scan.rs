//! How far the search for flavors of a workload came. Kueue keeps the same as `LastAssignment` in
//! `pkg/workload`.

use crate::Name;
use crate::ids::ClassId;

/// The position where a search for flavors ended. Kept across cycles.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct FlavorScan {
    /// By pod set and resource, the last tried flavor if others follow it.
    pub(crate) tried: Vec<(usize, Name, usize)>,
    pub(crate) class: ClassId,
    /// The ClusterQueue's generation at the search.
    pub(crate) generation: u64,
    /// The cycle of the search.
    pub(crate) cycle: u64,
}

impl FlavorScan {
    /// The first flavor of the next search.
    pub(crate) fn next(&self, pod_set: usize, resource: &str) -> usize {
        let tried = self.tried.iter().find(|(at, name, _)| *at == pod_set && &**name == resource);
        tried.map_or(0, |(_, _, last)| last + 1)
    }

    /// True for another class, or if quota changed since. With `preserved`, a change of quota
    /// counts only for searches before the last cycle.
    pub(crate) fn is_outdated(
        &self,
        class: ClassId,
        generation: u64,
        cycle: u64,
        preserved: bool,
    ) -> bool {
        let recent = preserved && cycle.saturating_sub(self.cycle) <= 1;
        self.class != class || (!recent && generation > self.generation)
    }
}
