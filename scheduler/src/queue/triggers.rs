//! When parked workloads are tried again: triggers are gathered for a while per tree of cohorts, because under load
//! they come by the thousand and each would move every parked workload of the tree.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::Time;
use crate::tree::NodeId;

/// The trees with a trigger, and when the first one is due.
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "record", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct Triggers {
    /// By root: a Cohort, or a ClusterQueue without one.
    due: BTreeMap<NodeId, Time>,
}

impl Triggers {
    /// Something changed in the tree of `root`. Later triggers join the first one.
    pub(crate) fn notify(&mut self, root: NodeId, now: Time, window: Duration) {
        self.due.entry(root).or_insert(now.plus(window));
    }

    /// The trees whose time has come, taken out.
    pub(crate) fn take_due(&mut self, now: Time) -> Vec<NodeId> {
        let due: Vec<_> =
            self.due.iter().filter(|(_, at)| **at <= now).map(|(root, _)| *root).collect();
        for root in &due {
            self.due.remove(root);
        }
        due
    }

    /// When the next one is due.
    pub(crate) fn next(&self) -> Option<Time> {
        self.due.values().min().copied()
    }
}
