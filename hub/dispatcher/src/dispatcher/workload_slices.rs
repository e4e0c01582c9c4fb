//! Workload slices: an elastic job that changed its size gets a new Workload, which takes over the
//! copy.
//!
//! One write gives the new slice the cluster, attempt and clusters' uid of the one that it
//! replaces. The cluster gets the job's new size and makes room by itself. The job runs on and has
//! one copy. Kueue: KEP-77, `ElasticJobsViaWorkloadSlices`.
//!
//! # Guarantees
//! - A slice is not offered while the one that it replaces holds quota, and not sent anywhere while
//!   that one may run.
//! - A slice whose copy was taken over sends nothing to clusters any more.
//! - A slice is not offered while one that replaces it may run under its own uid.

use std::collections::{BTreeMap, BTreeSet};

use super::Dispatcher;
use super::tracked_workload::TrackedWorkload;
use crate::{DispatchAction, Name, Uid, UnixMillis, WorkloadFacts};

/// Which tracked slices replace which, by uid.
#[derive(Debug, Default)]
pub(crate) struct Replacements {
    newer: BTreeMap<Uid, BTreeSet<Uid>>,
    /// The slice that a slice replaces.
    replaced: BTreeMap<Uid, Uid>,
}

impl Replacements {
    pub(super) fn add(&mut self, newer: &WorkloadFacts) {
        let Some(replaced) = newer.replaces.clone() else { return };
        // After `remove` the link may lead to an earlier slice.
        if !self.replaced.contains_key(&newer.uid) {
            self.link(newer.uid.clone(), replaced);
        }
    }

    fn link(&mut self, newer: Uid, replaced: Uid) {
        self.newer.entry(replaced.clone()).or_default().insert(newer.clone());
        self.replaced.insert(newer, replaced);
    }

    /// Forgets a slice that is no longer tracked. Its successors then replace its predecessor.
    pub(super) fn remove(&mut self, uid: &Uid) {
        let before = self.replaced.remove(uid);
        if let Some(before) = &before
            && let Some(newer) = self.newer.get_mut(before)
        {
            newer.remove(uid);
            if newer.is_empty() {
                self.newer.remove(before);
            }
        }
        for newer in self.newer.remove(uid).into_iter().flatten() {
            match &before {
                Some(before) => self.link(newer, before.clone()),
                None => drop(self.replaced.remove(&newer)),
            }
        }
    }

    /// Number of links.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.replaced.len()
    }

    /// All slices after this one.
    fn after(&self, uid: &Uid) -> BTreeSet<Uid> {
        let (mut found, mut open) = (BTreeSet::new(), vec![uid.clone()]);
        while let Some(uid) = open.pop() {
            let newer = self.newer.get(&uid).into_iter().flatten().cloned();
            open.extend(newer.filter(|uid| found.insert(uid.clone())));
        }
        found
    }

    /// All slices before this one.
    fn before(&self, uid: &Uid) -> BTreeSet<Uid> {
        let mut found = BTreeSet::new();
        let mut next = self.replaced.get(uid);
        while let Some(before) = next.filter(|before| found.insert((*before).clone())) {
            next = self.replaced.get(before);
        }
        found
    }
}

impl TrackedWorkload {
    /// The cluster whose copy another slice may take over now.
    fn handover_cluster(&self) -> Option<Name> {
        let stays = !self.is_deleted && !self.facts.state.finished && !self.facts.is_leaving();
        // The uid by which the cluster knows the copy would be dropped, too.
        let stays = stays && !self.has_dropped_attempt();
        let settled = self.pending_write.is_none() && self.unsaved_end.is_none();
        self.facts.state.cluster.clone().filter(|_| stays && settled)
    }

    /// Whether something of the slice may run, or is about to.
    fn has_started(&self) -> bool {
        let is_over = self.is_deleted || self.facts.state.finished;
        let is_committed = !is_over && self.facts.state.cluster.is_some();
        // Its quota is released after its copies are gone.
        let is_being_cleared = self.facts.state.reserved && self.facts.is_leaving();
        is_committed || is_being_cleared || self.is_committing() || self.may_run()
    }

    /// Whether the slice holds no quota and nothing of it may run.
    fn is_over(&self) -> bool {
        let holds = self.facts.state.reserved
            || self.facts.state.cluster.is_some()
            || self.reservation.is_some();
        (self.is_deleted || self.facts.state.finished || !holds)
            && self.pending_write.is_none()
            && !self.may_run()
    }
}

impl Dispatcher {
    /// Handles a slice that another one replaces. The other one may have started while this one had
    /// no quota. Returns whether nothing else is to be decided: the job's reconciler will finish it.
    pub(super) fn wait_for_replacement(
        &mut self,
        entry: &mut TrackedWorkload,
        now: UnixMillis,
        out: &mut Vec<DispatchAction>,
    ) -> bool {
        let may_run = |uid: &Uid| self.entries.get(uid).is_some_and(TrackedWorkload::has_started);
        if !self.replacements.after(&entry.facts.uid).iter().any(may_run) {
            return false;
        }
        entry.request_absence(None, now, out);
        self.record_when_late(entry, now, out, |_, _| {
            "Waiting for the end of the workload that replaces it".to_owned()
        });
        true
    }

    /// The slices before this one that look for a cluster.
    pub(super) fn waiting_predecessors(&self, uid: &Uid) -> Vec<Uid> {
        let waits = |uid: &Uid| self.entries.get(uid).is_some_and(|it| it.nomination.is_some());
        self.replacements.before(uid).into_iter().filter(waits).collect()
    }

    /// Handles a slice that replaces another. Returns whether nothing else is to be decided.
    pub(super) fn take_over_copy(
        &mut self,
        entry: &mut TrackedWorkload,
        now: UnixMillis,
        out: &mut Vec<DispatchAction>,
    ) -> bool {
        let replaced = entry.facts.replaces.clone().filter(|_| entry.facts.state.cluster.is_none());
        let Some(before) = replaced.and_then(|uid| self.entries.get(&uid)) else { return false };
        if before.is_over() {
            return false;
        }
        let cluster_uid = self.uid_aliases.cluster_uid(&before.facts.uid);
        let is_free = !self.uid_aliases.has_successor(&before.facts.uid)
            && before
                .copy_goes_to
                .as_ref()
                .is_none_or(|to| *to == entry.facts.uid || !self.is_committing(to));
        let attempt = before.facts.state.attempt;
        let (before, cluster) =
            (before.facts.uid.clone(), before.handover_cluster().filter(|_| is_free));
        // The slice may have been offered under its own uid while the other one had no cluster.
        let is_nowhere = self.is_cleared(entry, now, out);
        let Some(cluster) = cluster.filter(|_| is_nowhere) else {
            self.record_when_late(entry, now, out, |_, _| {
                "Waiting for the workload that it replaces".to_owned()
            });
            return true;
        };
        self.commit_existing(entry, cluster, attempt, cluster_uid, now, out);
        if let Some(before) =
            self.entries.get_mut(&before).filter(|_| entry.pending_write.is_some())
        {
            before.copy_goes_to = Some(entry.facts.uid.clone());
        }
        true
    }

    /// Whether a write gives its copy to another slice. Until it ends, nothing is decided.
    pub(super) fn is_handing_over(&self, entry: &mut TrackedWorkload) -> bool {
        entry.copy_goes_to.take_if(|to| !self.is_committing(to));
        entry.copy_goes_to.is_some()
    }

    fn is_committing(&self, uid: &Uid) -> bool {
        self.entries.get(uid).is_some_and(TrackedWorkload::is_committing)
    }

    /// Another slice has its copy and decides for both.
    pub(super) fn reconcile_succeeded(
        &mut self,
        entry: &mut TrackedWorkload,
        now: UnixMillis,
        out: &mut Vec<DispatchAction>,
    ) {
        entry.nomination = None;
        self.withdraw_reservation(entry, now, out);
        self.move_copy_state(entry);
    }

    /// Moves the state of a copy to the slice that took it over, once that slice is known.
    fn move_copy_state(&mut self, before: &mut TrackedWorkload) {
        let to = self.uid_aliases.hub_uid(&self.uid_aliases.cluster_uid(&before.facts.uid));
        let Some(entry) = self.entries.get_mut(&to).filter(|_| to != before.facts.uid) else {
            return;
        };
        // The new slice restores the end when its commit is answered.
        before.unsaved_end = None;
        for (cluster, remote) in std::mem::take(&mut before.remotes) {
            entry.remotes.entry(cluster).or_insert(remote);
            self.dirty.insert(to.clone());
        }
    }

    /// [`Self::move_copy_state`] of a workload that is not being reconciled.
    pub(super) fn move_copy_state_from(&mut self, from: &Uid) {
        self.dirty.insert(from.clone());
        if let Some(mut before) = self.entries.remove(from) {
            self.move_copy_state(&mut before);
            self.entries.insert(from.clone(), before);
        }
    }
}
