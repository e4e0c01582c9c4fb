//! Which of its clusters a workload may be offered to, and in which order those that can take it are asked. The rules are of the
//! job and its ClusterQueue ([`switchyard_syntax::affinity`]), labels and cost of the MultiKueueCluster.
//!
//! Rules count for offers. What runs stays where it is, whatever becomes of its rules or of its cluster's labels.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::entry::Entry;
use super::machine::Dispatcher;
use super::{Action, Facts, Name, Reason, Time};

/// How much a workload likes a cluster besides the room there: the smallest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank {
    /// Rules that prefer it.
    preferred: Reverse<usize>,
    cost: i32,
}

impl Dispatcher {
    /// The rule that keeps a workload from a cluster, if one does.
    pub(super) fn ruled_out(&self, facts: &Facts, cluster: &Name) -> Option<Reason> {
        let affinity = facts.affinity.as_ref()?;
        let none = BTreeMap::new();
        let labels = self.clusters.get(cluster).map_or(&none, |known| &known.rules.labels);
        affinity.refusal(cluster, labels).map(|why| Reason::new("NotAllowed", why))
    }

    pub(super) fn rank(&self, facts: &Facts, cluster: &Name) -> Rank {
        let Some(known) = self.clusters.get(cluster) else {
            return Rank { preferred: Reverse(0), cost: 0 };
        };
        let preferred =
            facts.affinity.as_ref().map_or(0, |it| it.preference(cluster, &known.rules.labels));
        Rank { preferred: Reverse(preferred), cost: known.rules.cost }
    }

    /// The clusters of the workload's check that its rules allow, in the order of the configuration.
    pub(super) fn allowed(&self, entry: &Entry) -> Vec<Name> {
        let mut clusters = self.configured(entry);
        clusters.retain(|name| self.ruled_out(&entry.facts, name).is_none());
        clusters
    }

    /// Gives quota back where no cluster is allowed: none will come by waiting. Whether that is so.
    pub(super) fn has_nowhere_to_go(
        &mut self,
        entry: &mut Entry,
        now: Time,
        out: &mut Vec<Action>,
    ) -> bool {
        if self.configured(entry).is_empty() || !self.allowed(entry).is_empty() {
            return false;
        }
        let message = self.none_allowed(entry, now);
        self.give_back(entry, message, now, out);
        true
    }
}
