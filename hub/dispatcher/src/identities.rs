//! By which uid clusters know a workload: its own, or that of the one whose copy it has adopted.
//!
//! Several may have had one copy, one after the other, and the API may show all of them, in any order. It is of the one that
//! none of the others replaces; what is known of it is the same in whatever order they are met.

use std::collections::{BTreeMap, BTreeSet};

use super::machine::Dispatcher;
use super::{Action, Facts, Uid};

/// Workloads that clusters know by another uid. There is one for each copy that was ever adopted and whose Workload is in the
/// API.
#[derive(Debug, Default)]
pub(super) struct Identities {
    /// The uid that clusters use, of each.
    theirs: BTreeMap<Uid, Uid>,
    /// The workloads of each such uid.
    chains: BTreeMap<Uid, Chain>,
}

/// The workloads that have had one copy. The one that it was made for is among them if one of the others says that it was.
#[derive(Debug)]
struct Chain {
    links: BTreeMap<Uid, Link>,
    /// Has it now.
    owner: Uid,
}

#[derive(Debug, Default)]
struct Link {
    /// The one that had it before.
    replaces: Option<Uid>,
    finished: bool,
    /// It is not in the API any more, and nothing of it is left to be done.
    gone: bool,
}

impl Chain {
    fn link(&mut self, uid: &Uid, theirs: &Uid, replaces: Option<&Uid>, finished: bool) {
        let link = self.links.entry(uid.clone()).or_default();
        link.replaces = link.replaces.take().or(replaces.filter(|before| *before != uid).cloned());
        link.finished |= finished;
        if link.replaces.as_ref() == Some(theirs) {
            self.links.entry(theirs.clone()).or_default();
        }
        self.choose();
    }

    /// Whoever replaced it replaces the one before it.
    fn unlink(&mut self, uid: &Uid) {
        let Some(removed) = self.links.remove(uid) else { return };
        for link in self.links.values_mut().filter(|link| link.replaces.as_ref() == Some(uid)) {
            link.replaces.clone_from(&removed.replaces);
        }
        self.choose();
    }

    /// Whose it is: nobody replaces that one. Where there are several, as links between them are gone, those that are finished
    /// have it no more.
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

impl Identities {
    /// Whether clusters know the workload of this uid by another: what still goes by this one was made before that.
    pub(super) fn is_superseded(&self, ours: &Uid) -> bool {
        self.theirs.contains_key(ours)
    }

    /// Whether another has taken over the copy of the workload of this uid.
    pub(super) fn is_succeeded(&self, ours: &Uid) -> bool {
        self.chains
            .get(self.theirs.get(ours).unwrap_or(ours))
            .is_some_and(|chain| chain.owner != *ours)
    }

    /// Ours, of the uid that a cluster uses.
    pub(super) fn ours(&self, theirs: &Uid) -> Uid {
        self.chains.get(theirs).map_or(theirs, |chain| &chain.owner).clone()
    }

    /// The uid that clusters use.
    pub(super) fn theirs(&self, ours: &Uid) -> Uid {
        self.theirs.get(ours).unwrap_or(ours).clone()
    }

    /// What is said to clusters is said of the workload as they know it.
    pub(super) fn translate(&self, actions: &mut [Action]) {
        if self.theirs.is_empty() {
            return;
        }
        for action in actions {
            if let Action::Desire { uid, .. }
            | Action::Forget { uid, .. }
            | Action::Ack { uid, .. } = action
            {
                *uid = self.theirs(uid);
            }
        }
    }

    /// Takes note that clusters know a workload by another uid. Whether that is news.
    fn link(&mut self, uid: &Uid, theirs: &Uid, replaces: Option<&Uid>, finished: bool) -> bool {
        let before = self.theirs.insert(uid.clone(), theirs.clone());
        if let Some(before) = before.as_ref().filter(|before| *before != theirs) {
            self.unlink(uid, before);
        }
        let none = || Chain { links: BTreeMap::new(), owner: uid.clone() };
        self.chains
            .entry(theirs.clone())
            .or_insert_with(none)
            .link(uid, theirs, replaces, finished);
        before.as_ref() != Some(theirs)
    }

    /// Whether a workload is remembered as one that has had this copy.
    fn links(&self, uid: &Uid, theirs: &Uid) -> bool {
        self.chains.get(theirs).is_some_and(|chain| chain.links.contains_key(uid))
    }

    fn unlink(&mut self, uid: &Uid, theirs: &Uid) {
        let Some(chain) = self.chains.get_mut(theirs) else { return };
        chain.unlink(uid);
        if chain.links.is_empty() {
            self.chains.remove(theirs);
        }
    }

    /// A workload is gone, and nothing of it is left to be done. The one that had the copy last is remembered for as long as
    /// one of those before it is there: it is not theirs again.
    pub(super) fn forget(&mut self, uid: &Uid) {
        let theirs = self.theirs(uid);
        let Some(chain) = self.chains.get_mut(&theirs) else { return };
        if let Some(link) = chain.links.get_mut(uid) {
            link.gone = true;
        }
        let lives = chain.links.values().any(|link| !link.gone);
        let is_useless =
            |(uid, link): &(&Uid, &Link)| link.gone && !(lives && **uid == chain.owner);
        let useless: Vec<Uid> =
            chain.links.iter().filter(is_useless).map(|(uid, _)| uid.clone()).collect();
        for uid in useless {
            self.theirs.remove(&uid);
            self.unlink(&uid, &theirs);
        }
    }

    /// The others that have had the copy of a workload that has it now.
    fn before(&self, uid: &Uid) -> Vec<Uid> {
        let Some(theirs) = self.theirs.get(uid).filter(|_| !self.is_succeeded(uid)) else {
            return Vec::new();
        };
        let links = self.chains.get(theirs).into_iter().flat_map(|chain| chain.links.keys());
        links.filter(|it| *it != uid).chain([theirs]).cloned().collect()
    }

    /// How many are remembered.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.theirs.len().max(self.chains.len())
    }
}

impl Dispatcher {
    /// Takes note by which uid clusters know a workload, and whose copy that was, in whatever order it hears of them.
    /// `replaces`: as in [`Facts`].
    pub fn introduce(
        &mut self,
        uid: &Uid,
        known_as: Option<&Uid>,
        replaces: Option<&Uid>,
        finished: bool,
    ) {
        let Some(theirs) = known_as.filter(|theirs| *theirs != uid) else { return };
        // Where the one before it has left the API by now, it was known before; but what is forgotten does not come back.
        let remembered = |before: &&Uid| {
            self.entries.contains_key(*before) || self.identities.links(before, theirs)
        };
        let known = self
            .entries
            .get(uid)
            .and_then(|entry| entry.facts.replaces.as_ref())
            .filter(remembered);
        let owner = self.identities.ours(theirs);
        let is_news = self.identities.link(uid, theirs, known.or(replaces), finished);
        if self.identities.ours(theirs) != owner {
            self.hand_over(&owner);
        }
        if is_news && self.identities.is_succeeded(uid) {
            self.hand_over(uid);
        }
    }

    pub(super) fn introduce_facts(&mut self, facts: &Facts) {
        self.introduce(
            &facts.uid,
            facts.known_as.as_ref(),
            facts.replaces.as_ref(),
            facts.finished,
        );
        self.newcomers.insert(facts.uid.clone());
        // What they have of the copy is its own once it is known.
        self.dirty.extend(self.identities.before(&facts.uid));
    }

    /// Whether clusters know the workload of this uid by another: what goes by this one is none of its job.
    pub fn is_superseded(&self, uid: &Uid) -> bool {
        self.identities.is_superseded(uid)
    }

    /// Whether another has taken over the copy of the workload of this uid.
    pub fn is_succeeded(&self, uid: &Uid) -> bool {
        self.identities.is_succeeded(uid)
    }

    /// The hub's uid of a workload, by the one that clusters use.
    pub fn our_uid(&self, theirs: &Uid) -> Uid {
        self.identities.ours(theirs)
    }

    /// The uid by which clusters know a workload of the hub.
    pub fn their_uid(&self, ours: &Uid) -> Uid {
        self.identities.theirs(ours)
    }
}
