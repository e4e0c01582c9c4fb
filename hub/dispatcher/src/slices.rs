//! Elastic jobs that change their size on the cluster that has them: what a job has grown to is a workload of its own, which
//! takes over the copy of the one that it replaces as it stands, with its cluster, its attempt, and the uid by which clusters
//! know it. Its cluster is told the job's new size and makes room for that by itself; so the job runs on, and has one copy.
//!
//! # Guarantees
//! - A workload that replaces another is not sent anywhere while that one may run, and is not offered to clusters while that one
//!   holds quota.
//! - One whose copy was taken over says nothing to clusters any more, however it ends.

use super::entry::{Entry, Writing};
use super::machine::Dispatcher;
use super::{Action, Name, Time, Uid};

impl Entry {
    /// Whether another may take over its copy: it is on a cluster, and is to stay there.
    fn may_pass_on(&self) -> Option<Name> {
        let stays = !self.gone && !self.facts.finished && !self.facts.leaving();
        let settled = self.writing.is_none() && self.ended.is_none();
        self.facts.cluster.clone().filter(|_| stays && settled)
    }

    /// Whether nothing of it may run, and it holds no quota.
    fn is_over(&self) -> bool {
        let holds = self.facts.reserved || self.facts.cluster.is_some() || self.memory.is_some();
        (self.gone || self.facts.finished || !holds) && self.writing.is_none() && !self.may_run()
    }
}

impl Dispatcher {
    /// What becomes of a workload that has quota and replaces another. Whether there is nothing else to decide.
    pub(super) fn take_over(
        &mut self,
        entry: &mut Entry,
        now: Time,
        out: &mut Vec<Action>,
    ) -> bool {
        let replaced = entry.facts.replaces.clone().filter(|_| entry.facts.cluster.is_none());
        let Some(before) = replaced.and_then(|uid| self.entries.get(&uid)) else { return false };
        if before.is_over() {
            return false;
        }
        let theirs = self.identities.theirs(&before.facts.uid);
        let is_free = !self.identities.is_succeeded(&before.facts.uid)
            && before
                .passes_to
                .as_ref()
                .is_none_or(|to| *to == entry.facts.uid || !self.commits(to));
        let attempt = before.facts.attempt;
        let (before, cluster) =
            (before.facts.uid.clone(), before.may_pass_on().filter(|_| is_free));
        // It may have been offered under its own name, while the other was nowhere.
        let is_nowhere = self.is_nowhere(entry, now, out);
        let Some(cluster) = cluster.filter(|_| is_nowhere) else {
            self.record_late(entry, now, out, |_, _| {
                "Waiting for the workload that it replaces".to_owned()
            });
            return true;
        };
        self.commit_seen(entry, cluster, attempt, theirs, now, out);
        if let Some(before) = self.entries.get_mut(&before).filter(|_| entry.writing.is_some()) {
            before.passes_to = Some(entry.facts.uid.clone());
        }
        true
    }

    /// Whether it is being written that another has its copy. Until that is answered, nothing is decided for it.
    pub(super) fn passes_on(&self, entry: &mut Entry) -> bool {
        entry.passes_to.take_if(|to| !self.commits(to));
        entry.passes_to.is_some()
    }

    fn commits(&self, uid: &Uid) -> bool {
        self.entries
            .get(uid)
            .is_some_and(|entry| matches!(entry.writing, Some(Writing::Commit { .. })))
    }

    /// Another workload has its copy, and decides for both.
    pub(super) fn succeeded(&mut self, entry: &mut Entry, now: Time, out: &mut Vec<Action>) {
        entry.nomination = None;
        self.withdraw(entry, now, out);
        self.pass_on(entry);
    }

    /// Hands what is known of a copy to the workload that has taken it over, once that is known.
    fn pass_on(&mut self, before: &mut Entry) {
        let to = self.identities.ours(&self.identities.theirs(&before.facts.uid));
        let Some(entry) = self.entries.get_mut(&to).filter(|_| to != before.facts.uid) else {
            return;
        };
        // That the job has ended is seen again once the commit is answered.
        before.ended = None;
        for (cluster, remote) in std::mem::take(&mut before.remotes) {
            entry.remotes.entry(cluster).or_insert(remote);
            self.dirty.insert(to.clone());
        }
    }

    /// [`Self::pass_on`], of a workload that is not being looked at.
    pub(super) fn hand_over(&mut self, from: &Uid) {
        self.dirty.insert(from.clone());
        if let Some(mut before) = self.entries.remove(from) {
            self.pass_on(&mut before);
            self.entries.insert(from.clone(), before);
        }
    }
}
