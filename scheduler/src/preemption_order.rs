//! The workloads that hold a ClusterQueue's quota, in the order in which they would have to give way.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use crate::workloads::{Wl, WlId};
use crate::{Name, Time};

/// A workload among those of its priority: the newest gives way first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Holder {
    since: Reverse<Time>,
    uid: Name,
    pub(crate) id: WlId,
}

/// The holders of one ClusterQueue. Kept in order from one search for victims to the next, so that a search looks at
/// no more of them than it takes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Holders {
    /// Those that are on their way out (`false`) before those that run, then by priority.
    ranked: BTreeMap<(bool, i32), BTreeSet<Holder>>,
}

impl Holders {
    /// Files a workload. It must be taken out before anything changes that orders it.
    pub(crate) fn insert(&mut self, id: WlId, wl: &Wl) {
        if let Some((rank, holder)) = filed(id, wl) {
            self.ranked.entry(rank).or_default().insert(holder);
        }
    }

    /// Takes a workload out.
    pub(crate) fn remove(&mut self, id: WlId, wl: &Wl) {
        let Some((rank, holder)) = filed(id, wl) else { return };
        let Some(alike) = self.ranked.get_mut(&rank) else { return };
        alike.remove(&holder);
        if alike.is_empty() {
            self.ranked.remove(&rank);
        }
    }

    /// Whether any is on its way out.
    pub(crate) fn any_leaving(&self) -> bool {
        self.ranked.first_key_value().is_some_and(|((running, _), _)| !running)
    }

    /// Those that run, or those that are on their way out, with priorities up to `most`, in order: priority and holder.
    pub(crate) fn up_to(&self, most: i32, running: bool) -> impl Iterator<Item = (i32, &Holder)> {
        let groups = self.ranked.range((running, i32::MIN)..=(running, most));
        groups
            .flat_map(|((_, priority), alike)| alike.iter().map(move |holder| (*priority, holder)))
    }
}

fn filed(id: WlId, wl: &Wl) -> Option<((bool, i32), Holder)> {
    let since = Reverse(wl.hold.as_ref()?.since);
    Some(((!wl.is_leaving(), wl.class.priority), Holder { since, uid: wl.uid.clone(), id }))
}
