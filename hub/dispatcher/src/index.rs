//! Which workloads concern a cluster: what it says costs a look at those, and at no others.
//!
//! An entry is listed whenever it has been settled. One that has changed since is dirty, and settled before the next event.

use std::collections::{BTreeMap, BTreeSet};

use super::entry::{Entry, Remote};
use super::machine::Dispatcher;
use super::{Name, Uid, take_from};

/// Workloads by the clusters that have them, or have to have them.
#[derive(Debug, Default)]
pub(super) struct Index {
    by_cluster: BTreeMap<Name, BTreeSet<Uid>>,
}

impl Index {
    /// Lists an entry where it is now.
    pub(super) fn list(&mut self, entry: &mut Entry) {
        if entry.clusters().eq(entry.listed.iter()) {
            return;
        }
        self.unlist(entry);
        entry.listed = entry.clusters().cloned().collect();
        for cluster in &entry.listed {
            self.by_cluster.entry(cluster.clone()).or_default().insert(entry.facts.uid.clone());
        }
    }

    /// Lists it nowhere.
    pub(super) fn unlist(&mut self, entry: &mut Entry) {
        for cluster in std::mem::take(&mut entry.listed) {
            take_from(&mut self.by_cluster, &cluster, &entry.facts.uid);
        }
    }

    fn on(&self, cluster: &Name) -> Option<&BTreeSet<Uid>> {
        self.by_cluster.get(cluster)
    }

    /// How many concern a cluster.
    pub(super) fn count(&self, cluster: &Name) -> usize {
        self.on(cluster).map_or(0, BTreeSet::len)
    }
}

impl Entry {
    /// The clusters that have it, or have to have it, each once.
    fn clusters(&self) -> impl Iterator<Item = &Name> {
        let committed =
            self.facts.cluster.iter().filter(|cluster| !self.remotes.contains_key(*cluster));
        self.remotes.keys().chain(committed)
    }

    fn concerns(&self, cluster: &Name) -> bool {
        self.remotes.contains_key(cluster) || self.facts.cluster.as_ref() == Some(cluster)
    }
}

impl Dispatcher {
    /// Those that a cluster has, or has to have.
    fn there(&self, cluster: &Name) -> Vec<Uid> {
        let changed = self
            .dirty
            .iter()
            .filter(|uid| self.entries.get(*uid).is_some_and(|it| it.concerns(cluster)));
        let listed = self.index.on(cluster).into_iter().flatten();
        listed.filter(|uid| !self.dirty.contains(*uid)).chain(changed).cloned().collect()
    }

    /// Has those settled that a cluster has, or has to have.
    pub(super) fn touch_there(&mut self, cluster: &Name) {
        let there = self.there(cluster);
        self.dirty.extend(there);
    }

    /// Changes what is known of each workload on a cluster.
    pub(super) fn change_there(&mut self, cluster: &Name, change: impl Fn(&mut Remote)) {
        for uid in self.there(cluster) {
            let entry = self.entries.get_mut(&uid);
            if let Some(remote) = entry.and_then(|entry| entry.remotes.get_mut(cluster)) {
                change(remote);
            }
        }
    }

    /// Whether a look at all of them after each event costs a test little.
    #[cfg(test)]
    pub(super) fn knows_few(&self) -> bool {
        self.entries.len() < 100
    }

    /// Panics unless each cluster's list is what a look at all workloads finds.
    #[cfg(test)]
    pub(super) fn check_index(&self) {
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
