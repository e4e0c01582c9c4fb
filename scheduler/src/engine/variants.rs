//! Variants: workloads that stand for one job and ask for one flavor each. Kueue's `ConcurrentAdmission` is the rule.
//!
//! Each is queued by itself. Of those that are admitted the one whose flavor comes first in the ClusterQueue runs: the others
//! wait, and one on a later flavor is told to go before a better one is given quota, so that a job's quota is not charged
//! twice for a move.

use super::Engine;
use super::cycle::{Postponed, Progress};
use super::nominate::Entry;
use crate::cluster_queue::Cq;
use crate::queue::Requeue;
use crate::queue::equivalence::Class;
use crate::workloads::{Wl, WlId};
use crate::{Decision, Name, Reason};

/// Where the flavor of a variant stands in its ClusterQueue.
fn rank(cq: &Cq, class: &Class) -> Option<usize> {
    let flavor = class.flavors.as_ref()?.first()?;
    cq.groups.first()?.flavors.iter().position(|other| other.name == *flavor)
}

impl Engine {
    /// Remembers (or forgets) that a workload is a variant.
    pub(super) fn note_variant(&mut self, id: WlId, parent: Option<&Name>) {
        if let Some(parent) = parent {
            self.variants.entry(parent.clone()).or_default().insert(id);
        }
    }

    pub(super) fn forget_variant(&mut self, id: WlId, parent: Option<&Name>) {
        let Some(parent) = parent else { return };
        let Some(ids) = self.variants.get_mut(parent) else { return };
        ids.remove(&id);
        if ids.is_empty() {
            self.variants.remove(parent);
        }
    }

    /// An admitted variant of the same workload, on an earlier flavor or on a later one.
    fn admitted_sibling(&self, entry: &Entry, better: bool) -> Option<WlId> {
        if self.variants.is_empty() {
            return None;
        }
        let siblings = self.variants.get(&**self.workloads.get(entry.id)?.parent.as_ref()?)?;
        let cq = self.cqs.get(&entry.cq)?;
        let own = rank(cq, &entry.class)?;
        siblings.iter().copied().filter(|id| *id != entry.id).find(|id| {
            let Some(sibling) = self.workloads.get(*id).filter(|sibling| is_admitted(sibling, cq))
            else {
                return false;
            };
            rank(cq, &sibling.class)
                .is_some_and(|rank| if better { rank < own } else { rank > own })
        })
    }

    /// A variant waits while a better one runs: until that gives its quota back, which tells the queue.
    pub(super) fn yield_to_better_variant(&mut self, entry: &Entry) -> Result<(), Postponed> {
        if self.admitted_sibling(entry, true).is_none() {
            return Ok(());
        }
        // Its other flavors are not its own: there is nothing to go on with.
        self.forget_scan(entry.id);
        Err((Requeue::Generic, Reason::BetterVariant))
    }

    /// Before a variant is given quota, the one that runs on a later flavor has to go, if the move is worth it.
    pub(super) fn migrate(
        &mut self,
        entry: &Entry,
        progress: &mut Progress,
    ) -> Result<(), Postponed> {
        let Some(worse) = self.admitted_sibling(entry, false) else { return Ok(()) };
        self.forget_scan(entry.id);
        if !self.is_worth_migrating(entry) {
            return Err((Requeue::Generic, Reason::NotWorthMigrating));
        }
        self.claim(entry, progress);
        if let Some(wl) = self.workloads.get(worse).filter(|wl| !wl.is_leaving()) {
            let (key, uid) = (wl.key.clone(), wl.uid.clone());
            self.edit(worse, |wl| wl.told_to_go = true);
            progress.decisions.push(Decision::Migrate { key, uid, to_uid: entry.uid.clone() });
            progress.busy = true;
        }
        Err((Requeue::PendingPreemption, Reason::Migrating))
    }

    fn is_worth_migrating(&self, entry: &Entry) -> bool {
        let Some(cq) = self.cqs.get(&entry.cq) else { return false };
        let Some(last) = &cq.object.last_acceptable else { return true };
        let flavors = cq.groups.first().map(|group| group.flavors.as_slice()).unwrap_or_default();
        let last = flavors.iter().position(|flavor| flavor.name == *last);
        last.is_none_or(|last| rank(cq, &entry.class).is_some_and(|own| own <= last))
    }
}

/// Whether it runs, or will once its reservation is written.
fn is_admitted(wl: &Wl, cq: &Cq) -> bool {
    let Some(hold) = wl.hold.as_ref().filter(|hold| hold.charged == Some(cq.node)) else {
        return false;
    };
    wl.flags.admitted || (!hold.confirmed && cq.checks_for(&hold.admission).is_empty())
}
