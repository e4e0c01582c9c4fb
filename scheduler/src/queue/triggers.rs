//! Triggers that retry parked workloads. They are collected per cohort tree for a while: under load
//! they come by the thousand, and each would move all parked workloads of the tree. Kueue:
//! `pkg/cache/queue/inadmissible_workloads.go`.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::Time;
use crate::ids::NodeId;

/// The trees with a trigger, and the time when each is due.
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct RequeueTriggers {
    /// By root: a Cohort, or a ClusterQueue without one.
    due: BTreeMap<NodeId, Time>,
}

impl RequeueTriggers {
    /// Later triggers join the first one.
    pub(crate) fn notify(&mut self, root: NodeId, now: Time, window: Duration) {
        self.due.entry(root).or_insert(now.plus(window));
    }

    /// Removes and returns the trees that are due.
    pub(crate) fn take_due(&mut self, now: Time) -> Vec<NodeId> {
        let due: Vec<_> =
            self.due.iter().filter(|(_, at)| **at <= now).map(|(root, _)| *root).collect();
        for root in &due {
            self.due.remove(root);
        }
        due
    }

    pub(crate) fn next(&self) -> Option<Time> {
        self.due.values().min().copied()
    }
}
