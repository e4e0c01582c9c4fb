//! By which uid clusters know a workload: its own, or that of the one whose copy it has adopted.

use std::collections::{BTreeMap, BTreeSet};

use super::machine::Dispatcher;
use super::{Action, Facts, Uid};

/// Workloads that clusters know by another uid. There is one for each copy that was ever adopted and whose Workload was seen
/// in this term.
#[derive(Debug, Default)]
pub(super) struct Identities {
    by_theirs: BTreeMap<Uid, Uid>,
    by_ours: BTreeMap<Uid, Uid>,
    /// Workloads whose copy another one has taken over, of those of this term.
    succeeded: BTreeSet<Uid>,
}

impl Identities {
    /// Whether clusters know the workload of this uid by another: what still goes by this one was made before that.
    pub(super) fn is_superseded(&self, ours: &Uid) -> bool {
        self.by_ours.contains_key(ours)
    }

    /// Whether another has taken over the copy of the workload of this uid.
    pub(super) fn is_succeeded(&self, ours: &Uid) -> bool {
        self.succeeded.contains(ours)
    }

    /// Ours, of the uid that a cluster uses.
    pub(super) fn ours(&self, theirs: &Uid) -> Uid {
        self.by_theirs.get(theirs).unwrap_or(theirs).clone()
    }

    /// The uid that clusters use.
    pub(super) fn theirs(&self, ours: &Uid) -> Uid {
        self.by_ours.get(ours).unwrap_or(ours).clone()
    }

    /// What is said to clusters is said of the workload as they know it.
    pub(super) fn translate(&self, actions: &mut [Action]) {
        if self.by_ours.is_empty() {
            return;
        }
        for action in actions {
            if let Action::Desire { uid, .. } | Action::Forget { uid, .. } | Action::Ack { uid, .. } = action {
                *uid = self.theirs(uid);
            }
        }
    }
}

impl Dispatcher {
    /// Takes note by which uid clusters know a workload, and whose copy that was. `replaces`: as in [`Facts`].
    pub fn introduce(&mut self, uid: &Uid, known_as: Option<&Uid>, replaces: Option<&Uid>) {
        let Some(theirs) = known_as.filter(|theirs| *theirs != uid) else { return };
        self.identities.by_ours.insert(uid.clone(), theirs.clone());
        if self.identities.is_succeeded(uid) {
            return;
        }
        self.identities.by_theirs.insert(theirs.clone(), uid.clone());
        if let Some(before) = replaces.filter(|before| self.identities.theirs(before) == *theirs) {
            self.identities.succeeded.insert(before.clone());
            self.hand_over(before);
        }
    }

    pub(super) fn introduce_facts(&mut self, facts: &Facts) {
        self.introduce(&facts.uid, facts.known_as.as_ref(), facts.replaces.as_ref());
        self.newcomers.insert(facts.uid.clone());
    }

    /// Whether clusters know the workload of this uid by another: what goes by this one is none of its job.
    pub fn is_superseded(&self, uid: &Uid) -> bool {
        self.identities.is_superseded(uid)
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
