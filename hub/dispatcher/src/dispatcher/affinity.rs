//! Which clusters a workload may be offered to, and which it prefers.
//!
//! The rules come from the job and its ClusterQueue ([`switchyard_syntax::affinity`]); labels and
//! cost come from the MultiKueueCluster. Rules apply to offers only. A running workload stays where
//! it is when a rule or a label changes.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::Dispatcher;
use super::tracked_workload::TrackedWorkload;
use crate::{DispatchAction, Name, Reason, UnixMillis, WorkloadFacts};

/// Preference for a cluster apart from its capacity. The smallest is best.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank {
    /// Zero unless the workload was stuck there; the latest such cluster is highest.
    stuck: usize,
    /// Number of rules that prefer the cluster.
    preferred: Reverse<usize>,
    cost: i32,
}

impl Dispatcher {
    /// The rule that excludes a cluster, if one does.
    pub(super) fn ruled_out(&self, facts: &WorkloadFacts, cluster: &Name) -> Option<Reason> {
        let affinity = facts.affinity.as_ref()?;
        let none = BTreeMap::new();
        let labels = self.clusters.get(cluster).map_or(&none, |known| &known.config.labels);
        affinity.refusal(cluster, labels).map(|why| Reason::new("NotAllowed", why))
    }

    pub(super) fn preference_rank(&self, facts: &WorkloadFacts, cluster: &Name) -> Rank {
        let Some(known) = self.clusters.get(cluster) else {
            return Rank { stuck: 0, preferred: Reverse(0), cost: 0 };
        };
        let preferred =
            facts.affinity.as_ref().map_or(0, |it| it.preference(cluster, &known.config.labels));
        let stuck = facts.stuck_rank(cluster);
        Rank { stuck, preferred: Reverse(preferred), cost: known.config.cost }
    }

    /// The configured clusters that no rule excludes.
    pub(super) fn allowed_clusters(&self, entry: &TrackedWorkload) -> Vec<Name> {
        let mut clusters = self.configured_clusters(entry);
        clusters.retain(|name| self.ruled_out(&entry.facts, name).is_none());
        clusters
    }

    /// Returns the reservation if rules exclude all clusters: waiting would not help.
    pub(super) fn return_if_none_allowed(
        &mut self,
        entry: &mut TrackedWorkload,
        now: UnixMillis,
        out: &mut Vec<DispatchAction>,
    ) -> bool {
        if self.configured_clusters(entry).is_empty() || !self.allowed_clusters(entry).is_empty() {
            return false;
        }
        let message = self.none_allowed(entry, now);
        self.return_reservation(entry, message, now, out);
        true
    }
}
