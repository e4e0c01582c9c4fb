//! The workloads with quota of one ClusterQueue, in preemption order. Kueue:
//! `pkg/scheduler/preemption/common/ordering.go`.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, btree_map, btree_set};

use crate::ids::WorkloadId;
use crate::workloads::WorkloadEntry;
use crate::{Name, Time};

/// Among workloads of one priority, the newest is preempted first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RankedWorkload {
    since: Reverse<Time>,
    uid: Name,
    pub(crate) id: WorkloadId,
}

/// The workloads of one ClusterQueue. The order survives from one victim search to the next, so
/// that a search reads only the victims that it takes.
#[derive(Clone, Debug, Default)]
pub(crate) struct PreemptionOrder {
    /// By state (`false`: being evicted, `true`: running) and priority.
    ranked: BTreeMap<(bool, i32), BTreeSet<RankedWorkload>>,
}

impl PreemptionOrder {
    /// The caller must remove the workload before a change of its priority, reservation or eviction
    /// state.
    pub(crate) fn insert(&mut self, id: WorkloadId, wl: &WorkloadEntry) {
        if let Some((rank, holder)) = ranked_entry(id, wl) {
            self.ranked.entry(rank).or_default().insert(holder);
        }
    }

    pub(crate) fn remove(&mut self, id: WorkloadId, wl: &WorkloadEntry) {
        let Some((rank, holder)) = ranked_entry(id, wl) else { return };
        let Some(alike) = self.ranked.get_mut(&rank) else { return };
        alike.remove(&holder);
        if alike.is_empty() {
            self.ranked.remove(&rank);
        }
    }

    pub(crate) fn has_evicting(&self) -> bool {
        self.ranked.first_key_value().is_some_and(|((running, _), _)| !running)
    }

    /// Running workloads, or those being evicted, up to priority `most`, in preemption order.
    pub(crate) fn up_to(&self, most: i32, running: bool) -> UpTo<'_> {
        let groups = self.ranked.range((running, i32::MIN)..=(running, most));
        UpTo { groups, priority: most, alike: btree_set::Iter::default() }
    }
}

/// Workloads with their priorities. Made by [`PreemptionOrder::up_to`].
pub(crate) struct UpTo<'a> {
    groups: btree_map::Range<'a, (bool, i32), BTreeSet<RankedWorkload>>,
    /// The priority of those in `alike`.
    priority: i32,
    alike: btree_set::Iter<'a, RankedWorkload>,
}

impl<'a> Iterator for UpTo<'a> {
    type Item = (i32, &'a RankedWorkload);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(workload) = self.alike.next() {
                return Some((self.priority, workload));
            }
            let ((_, priority), alike) = self.groups.next()?;
            (self.priority, self.alike) = (*priority, alike.iter());
        }
    }
}

fn ranked_entry(id: WorkloadId, wl: &WorkloadEntry) -> Option<((bool, i32), RankedWorkload)> {
    let since = Reverse(wl.reservation.as_ref()?.since);
    Some((
        (!wl.is_being_evicted(), wl.class.priority),
        RankedWorkload { since, uid: wl.uid.clone(), id },
    ))
}
