//! Index of workloads by cluster, so that a cluster's reports cost nothing for other workloads.
//!
//! Reconciling a workload indexes it. A workload that changed since is dirty, and the dispatcher
//! reconciles it before the next event.

use std::collections::{BTreeMap, BTreeSet};

use super::Dispatcher;
use super::tracked_workload::{Remote, TrackedWorkload};
use crate::{Name, Uid, take_from};

/// The workloads that each cluster has or shall have.
#[derive(Debug, Default)]
pub(crate) struct ClusterIndex {
    by_cluster: BTreeMap<Name, BTreeSet<Uid>>,
}

impl ClusterIndex {
    pub(super) fn list(&mut self, entry: &mut TrackedWorkload) {
        if entry.clusters().eq(entry.indexed_on.iter()) {
            return;
        }
        self.unlist(entry);
        entry.indexed_on = entry.clusters().cloned().collect();
        for cluster in &entry.indexed_on {
            self.by_cluster.entry(cluster.clone()).or_default().insert(entry.facts.uid.clone());
        }
    }

    pub(super) fn unlist(&mut self, entry: &mut TrackedWorkload) {
        for cluster in std::mem::take(&mut entry.indexed_on) {
            take_from(&mut self.by_cluster, &cluster, &entry.facts.uid);
        }
    }

    fn on(&self, cluster: &Name) -> Option<&BTreeSet<Uid>> {
        self.by_cluster.get(cluster)
    }

    pub(super) fn count(&self, cluster: &Name) -> usize {
        self.on(cluster).map_or(0, BTreeSet::len)
    }
}

impl TrackedWorkload {
    /// The clusters that have or shall have it, each once.
    fn clusters(&self) -> impl Iterator<Item = &Name> {
        let committed =
            self.facts.state.cluster.iter().filter(|cluster| !self.remotes.contains_key(*cluster));
        self.remotes.keys().chain(committed)
    }

    fn concerns(&self, cluster: &Name) -> bool {
        self.remotes.contains_key(cluster) || self.facts.state.cluster.as_ref() == Some(cluster)
    }
}

impl Dispatcher {
    /// The workloads that a cluster has or shall have.
    fn workloads_on(&self, cluster: &Name) -> Vec<Uid> {
        let changed = self
            .dirty
            .iter()
            .filter(|uid| self.entries.get(*uid).is_some_and(|it| it.concerns(cluster)));
        let listed = self.index.on(cluster).into_iter().flatten();
        listed.filter(|uid| !self.dirty.contains(*uid)).chain(changed).cloned().collect()
    }

    /// Marks the workloads that a cluster has or shall have.
    pub(super) fn mark_on(&mut self, cluster: &Name) {
        let workloads = self.workloads_on(cluster);
        self.dirty.extend(workloads);
    }

    /// Changes the state of each copy on a cluster.
    pub(super) fn change_on(&mut self, cluster: &Name, change: impl Fn(&mut Remote)) {
        for uid in self.workloads_on(cluster) {
            let entry = self.entries.get_mut(&uid);
            if let Some(remote) = entry.and_then(|entry| entry.remotes.get_mut(cluster)) {
                change(remote);
            }
        }
    }

    /// Whether checking the index after each event is cheap.
    #[cfg(test)]
    pub(crate) fn knows_few(&self) -> bool {
        self.entries.len() < 100
    }

    /// Panics unless the index agrees with a scan of all workloads.
    #[cfg(test)]
    pub(crate) fn check_index(&self) {
        let mut found: BTreeMap<Name, BTreeSet<Uid>> = BTreeMap::new();
        for (uid, entry) in self.entries.iter().filter(|(uid, _)| !self.dirty.contains(*uid)) {
            for cluster in entry.clusters() {
                found.entry(cluster.clone()).or_default().insert(uid.clone());
            }
        }
        let mut listed = self.index.by_cluster.clone();
        for uids in listed.values_mut() {
            uids.retain(|uid| !self.dirty.contains(uid));
        }
        listed.retain(|_, uids| !uids.is_empty());
        assert_eq!(listed, found);
    }
}
