//! Groups workloads and pods of one job into chains. An elastic job may have several workloads.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use kube::Resource;
use parking_lot::Mutex;
use switchyard_api::v1beta2::Workload;

use switchyard_platform::store::{Change, Key, Store};

/// Workloads and pods by chain; empty chains are removed.
#[derive(Default)]
pub(crate) struct Chains(Mutex<BTreeMap<Key, Members>>);

#[derive(Default)]
struct Members {
    workloads: BTreeSet<Key>,
    pods: BTreeSet<Key>,
}

impl Chains {
    pub(crate) fn all(&self) -> Vec<Key> {
        self.0.lock().keys().cloned().collect()
    }

    /// The workloads and pods of a chain that the stores have.
    pub(crate) fn members<P: Resource + 'static>(
        &self,
        chain: &Key,
        workloads: &Store<Workload>,
        pods: &Store<P>,
    ) -> (Vec<Arc<Workload>>, Vec<Arc<P>>) {
        let chains = self.0.lock();
        let Some(members) = chains.get(chain) else { return (Vec::new(), Vec::new()) };
        (
            members.workloads.iter().filter_map(|key| workloads.by_key(key)).collect(),
            members.pods.iter().filter_map(|key| pods.by_key(key)).collect(),
        )
    }

    /// Applies a workload's change and returns the chains affected.
    pub(crate) fn apply_workload(
        &self,
        change: &Change<Workload>,
        chain: impl Fn(&Workload) -> Option<Key>,
    ) -> BTreeSet<Key> {
        self.apply(change, chain, |members| &mut members.workloads)
    }

    /// Applies a pod's change and returns the chains affected.
    pub(crate) fn apply_pod<P>(
        &self,
        change: &Change<P>,
        chain: impl Fn(&P) -> Option<Key>,
    ) -> BTreeSet<Key> {
        self.apply(change, chain, |members| &mut members.pods)
    }

    fn apply<K>(
        &self,
        change: &Change<K>,
        chain: impl Fn(&K) -> Option<Key>,
        of: impl Fn(&mut Members) -> &mut BTreeSet<Key>,
    ) -> BTreeSet<Key> {
        let before = change.old.as_deref().and_then(&chain);
        let after = change.new.as_deref().and_then(&chain);
        if before.is_none() && after.is_none() {
            // The usual case: most workloads are in no chain.
            return BTreeSet::new();
        }
        let mut chains = self.0.lock();
        if let Some(before) = before.as_ref().filter(|before| after.as_ref() != Some(before))
            && let Some(members) = chains.get_mut(before)
        {
            of(members).remove(&change.key);
            if members.workloads.is_empty() && members.pods.is_empty() {
                chains.remove(before);
            }
        }
        if let Some(after) = &after {
            of(chains.entry(after.clone()).or_default()).insert(change.key.clone());
        }
        before.into_iter().chain(after).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures;

    #[test]
    fn chain_is_kept_while_it_has_members() {
        let chains = Chains::default();
        let workload = Arc::new(fixtures::workload("a"));
        let counts = |old: Option<&Arc<Workload>>, new: Option<&Arc<Workload>>| {
            let change = Change { key: Key::new("ns", "a"), old: old.cloned(), new: new.cloned() };
            let changed = chains.apply_pod(&change, |_| Some(Key::new("ns", "first")));
            (changed.len(), chains.all().len())
        };
        assert_eq!(counts(None, Some(&workload)), (1, 1));
        assert_eq!(counts(Some(&workload), Some(&workload)), (1, 1));
        assert_eq!(counts(Some(&workload), None), (1, 0));
        let change =
            Change { key: Key::new("ns", "c"), old: Some(workload.clone()), new: Some(workload) };
        assert!(chains.apply_workload(&change, |_| None).is_empty(), "of no chain");
    }
}
