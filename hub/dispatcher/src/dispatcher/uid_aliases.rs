//! Uid aliases: the uid that clusters use for a workload, which is another one's after an adoption.
//!
//! Several workloads may have had one copy, one after the other, and the API may show them in any
//! order. The copy belongs to the workload that no other replaces. The result does not depend on
//! the order in which they are registered.

use std::collections::{BTreeMap, BTreeSet};

use super::Dispatcher;
use crate::{DispatchAction, RequestedAssignment, Uid, WorkloadFacts};

/// Aliases of all workloads that adopted a copy and are in the API.
#[derive(Debug, Default)]
pub(crate) struct UidAliases {
    /// Hub's uid to the clusters' uid.
    cluster_uids: BTreeMap<Uid, Uid>,
    /// Clusters' uid to the workloads that have had the copy.
    chains: BTreeMap<Uid, Chain>,
}

/// The workloads that have had one copy. The first one is included if its successor names it.
#[derive(Debug)]
struct Chain {
    links: BTreeMap<Uid, Link>,
    /// The workload that has the copy now.
    owner: Uid,
}

#[derive(Debug, Default)]
struct Link {
    /// The workload that had the copy before.
    replaces: Option<Uid>,
    finished: bool,
    /// The workload is deleted, and nothing is left to do for it.
    gone: bool,
}

impl Chain {
    fn link(&mut self, uid: &Uid, cluster_uid: &Uid, replaces: Option<&Uid>, finished: bool) {
        let link = self.links.entry(uid.clone()).or_default();
        link.replaces = link.replaces.take().or(replaces.filter(|before| *before != uid).cloned());
        link.finished |= finished;
        if link.replaces.as_ref() == Some(cluster_uid) {
            self.links.entry(cluster_uid.clone()).or_default();
        }
        self.choose();
    }

    /// Its successor takes the place after its predecessor.
    fn unlink(&mut self, uid: &Uid) {
        let Some(removed) = self.links.remove(uid) else { return };
        for link in self.links.values_mut().filter(|link| link.replaces.as_ref() == Some(uid)) {
            link.replaces.clone_from(&removed.replaces);
        }
        self.choose();
    }

    /// The owner is the workload that no other replaces. If links are missing, unfinished
    /// workloads come first.
    fn choose(&mut self) {
        let replaced: BTreeSet<&Uid> =
            self.links.values().filter_map(|link| link.replaces.as_ref()).collect();
        let rank = |(uid, link): &(&Uid, &Link)| {
            (!replaced.contains(uid), !link.finished, **uid == self.owner, (*uid).clone())
        };
        if let Some(owner) = self.links.iter().max_by_key(rank).map(|(uid, _)| uid.clone()) {
            self.owner = owner;
        }
    }
}

impl UidAliases {
    /// Whether clusters know this workload by another uid.
    pub(super) fn is_aliased(&self, hub_uid: &Uid) -> bool {
        self.cluster_uids.contains_key(hub_uid)
    }

    /// Whether another workload took over its copy.
    pub(super) fn has_successor(&self, hub_uid: &Uid) -> bool {
        self.chains
            .get(self.cluster_uids.get(hub_uid).unwrap_or(hub_uid))
            .is_some_and(|chain| chain.owner != *hub_uid)
    }

    /// Hub's uid of a clusters' uid.
    pub(super) fn hub_uid(&self, cluster_uid: &Uid) -> Uid {
        self.chains.get(cluster_uid).map_or(cluster_uid, |chain| &chain.owner).clone()
    }

    /// Clusters' uid of a hub's uid.
    pub(super) fn cluster_uid(&self, hub_uid: &Uid) -> Uid {
        self.cluster_uids.get(hub_uid).unwrap_or(hub_uid).clone()
    }

    /// Replaces the hub's uids in assignments, acknowledgements and tombstones.
    pub(super) fn translate(&self, actions: &mut [DispatchAction]) {
        if self.cluster_uids.is_empty() {
            return;
        }
        for action in actions {
            if let DispatchAction::Assign(RequestedAssignment { uid, .. })
            | DispatchAction::ForgetTombstone { uid, .. }
            | DispatchAction::AcknowledgeEnd { uid, .. } = action
            {
                *uid = self.cluster_uid(uid);
            }
        }
    }

    /// Registers an alias. Returns whether it is new.
    fn link(
        &mut self,
        uid: &Uid,
        cluster_uid: &Uid,
        replaces: Option<&Uid>,
        finished: bool,
    ) -> bool {
        let before = self.cluster_uids.insert(uid.clone(), cluster_uid.clone());
        if let Some(before) = before.as_ref().filter(|before| *before != cluster_uid) {
            self.unlink(uid, before);
        }
        let none = || Chain { links: BTreeMap::new(), owner: uid.clone() };
        self.chains.entry(cluster_uid.clone()).or_insert_with(none).link(
            uid,
            cluster_uid,
            replaces,
            finished,
        );
        before.as_ref() != Some(cluster_uid)
    }

    /// Whether the workload is registered for this copy.
    fn links(&self, uid: &Uid, cluster_uid: &Uid) -> bool {
        self.chains.get(cluster_uid).is_some_and(|chain| chain.links.contains_key(uid))
    }

    fn unlink(&mut self, uid: &Uid, cluster_uid: &Uid) {
        let Some(chain) = self.chains.get_mut(cluster_uid) else { return };
        chain.unlink(uid);
        if chain.links.is_empty() {
            self.chains.remove(cluster_uid);
        }
    }

    /// Forgets a deleted workload. The last owner is remembered while an earlier one exists, which
    /// must not get the copy back.
    pub(super) fn forget(&mut self, uid: &Uid) {
        let cluster_uid = self.cluster_uid(uid);
        let Some(chain) = self.chains.get_mut(&cluster_uid) else { return };
        if let Some(link) = chain.links.get_mut(uid) {
            link.gone = true;
        }
        let lives = chain.links.values().any(|link| !link.gone);
        let is_useless =
            |(uid, link): &(&Uid, &Link)| link.gone && !(lives && **uid == chain.owner);
        let useless: Vec<Uid> =
            chain.links.iter().filter(is_useless).map(|(uid, _)| uid.clone()).collect();
        for uid in useless {
            self.cluster_uids.remove(&uid);
            self.unlink(&uid, &cluster_uid);
        }
    }

    /// The earlier owners of the copy that this workload has.
    fn before(&self, uid: &Uid) -> Vec<Uid> {
        let Some(cluster_uid) = self.cluster_uids.get(uid).filter(|_| !self.has_successor(uid))
        else {
            return Vec::new();
        };
        let links = self.chains.get(cluster_uid).into_iter().flat_map(|chain| chain.links.keys());
        links.filter(|it| *it != uid).chain([cluster_uid]).cloned().collect()
    }

    /// Number of entries.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.cluster_uids.len().max(self.chains.len())
    }
}

impl Dispatcher {
    /// Registers the uid that clusters use for a workload, in any order. `replaces`: as in
    /// [`WorkloadFacts`].
    pub fn register_uid_alias(
        &mut self,
        uid: &Uid,
        cluster_uid: Option<&Uid>,
        replaces: Option<&Uid>,
        finished: bool,
    ) {
        let Some(cluster_uid) = cluster_uid.filter(|cluster_uid| *cluster_uid != uid) else {
            return;
        };
        // A known predecessor wins over the given one. A forgotten one does not come back.
        let remembered = |before: &&Uid| {
            self.entries.contains_key(*before) || self.uid_aliases.links(before, cluster_uid)
        };
        let known = self
            .entries
            .get(uid)
            .and_then(|entry| entry.facts.replaces.as_ref())
            .filter(remembered);
        let owner = self.uid_aliases.hub_uid(cluster_uid);
        let is_news = self.uid_aliases.link(uid, cluster_uid, known.or(replaces), finished);
        if self.uid_aliases.hub_uid(cluster_uid) != owner {
            self.move_copy_state_from(&owner);
        }
        if is_news && self.uid_aliases.has_successor(uid) {
            self.move_copy_state_from(uid);
        }
    }

    pub(super) fn register_facts(&mut self, facts: &WorkloadFacts) {
        self.register_uid_alias(
            &facts.uid,
            facts.state.cluster_uid.as_ref(),
            facts.replaces.as_ref(),
            facts.state.finished,
        );
        self.new_workloads.insert(facts.uid.clone());
        // Their state of the copy moves to this workload.
        self.dirty.extend(self.uid_aliases.before(&facts.uid));
    }

    /// Whether clusters know this workload by another uid. Reports under its own uid do not concern
    /// its job.
    pub fn is_aliased(&self, uid: &Uid) -> bool {
        self.uid_aliases.is_aliased(uid)
    }

    /// Whether another workload took over its copy.
    pub fn has_successor(&self, uid: &Uid) -> bool {
        self.uid_aliases.has_successor(uid)
    }

    /// Hub's uid of a clusters' uid.
    pub fn hub_uid(&self, cluster_uid: &Uid) -> Uid {
        self.uid_aliases.hub_uid(cluster_uid)
    }

    /// Clusters' uid of a hub's uid.
    pub fn cluster_uid(&self, hub_uid: &Uid) -> Uid {
        self.uid_aliases.cluster_uid(hub_uid)
    }
}
